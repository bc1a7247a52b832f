"""Every public verb, with right values for its parameters and what else each parameter takes."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rmqstore
import rmqstore.aio
from rmqstore import Durability, Message, Store, TopicConfig
from rmqstore.replication import HaOptions, Lease, Master, Quorum
from tests.store import wrong_values as v
from tests.store.wrong_values import Accepts, optional

FILES = {
    "commit_log_file_size_bytes": 16 << 20,
    "consume_queue_file_size_bytes": 20 * 1024,
    "index_slot_count": 128,
    "index_entry_count": 1024,
}
POSITION = v.whole(0)

# What a parameter accepts, by its name; a verb says so itself where its own differs.
ACCEPTS: Mapping[str, Accepts] = {
    "allow": v.texts,
    "batch_bytes": v.whole(1),
    "batch_rows": v.whole(1),
    "begin_ms": optional(v.whole()),
    "body": v.body,
    "born_timestamp": optional(v.whole(-(2**63) + 1)),
    "boundary": v.boundary,
    "check_crc": v.boolean,
    "columns": v.nothing,
    "config": v.path,
    "copies": optional(v.whole(1, 2**31 - 1)),
    "count": POSITION,
    "durability": optional(v.durability),
    "end_ms": optional(v.whole()),
    "flag": v.whole(-(2**31), 2**31 - 1),
    "full": v.boolean,
    "hour": optional(v.whole(0, 23)),
    "keep_confirm_offset": optional(v.boolean),
    "key": v.text,
    "keys": optional(v.texts),
    "large_binary": v.boolean,
    "level": v.whole(0, 9),
    "log_file_size": optional(v.whole(1)),
    "max_bytes": v.whole(1),
    "max_count": v.whole(1),
    "message_id": v.nothing,
    "now_ms": optional(v.whole(0)),
    "offset": v.whole(),
    "on_corrupt": v.one_of("fail", "skip"),
    "path": v.path,
    "physical_offset": v.whole(),
    "progress": optional(v.callable_),
    "properties": optional(v.mapping_of_texts),
    "queue": v.whole(0, 2**31 - 1),
    "queue_id": optional(v.whole(0, 2**31 - 1)),
    "read_only": v.boolean,
    "rebuild": v.boolean,
    "retention": v.boolean,
    "size_bytes_max": POSITION,
    "start": optional(POSITION),
    "stop": optional(POSITION),
    "sys_flag": v.whole(),
    "tag": v.text,
    "tags": optional(v.texts),
    "timeout": optional(v.seconds),
    "timestamp_ms": v.whole(),
    "topic": v.text,
    "unique_key": optional(v.text),
    "unwrap_batches": v.boolean,
    "zero_copy": v.boolean,
}


@dataclass
class Verb:
    """A verb with right values for all parameters that a wrong one may replace."""

    name: str
    function: Callable[..., Any]
    right: dict[str, Any]
    accepts: dict[str, Accepts] = field(default_factory=dict)
    is_put: bool = False
    names_others: tuple[str, ...] = ()
    """Parameters whose refusal may name another thing: what they are part of."""

    def accepts_of(self, parameter: str) -> Accepts:
        return self.accepts.get(parameter) or ACCEPTS[parameter]


class Bench:
    """A store with a few messages, made again when a call has changed it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.is_awaited = False
        """Whether the store is one that `aio` opens."""
        self.store = self._made()

    def _made(self) -> Store:
        self.count += 1
        store = rmqstore.open(self.folder / f"store-{self.count}", **FILES)
        for number in range(3):
            store.put("t", b"body %d" % number, tags="x", keys=["k"])
        store.create_topic("batches", attributes={"queue.type": "BatchCQ"}, write_queue_count=1)
        store.wait_dispatched()
        return store

    def ready(self) -> Store:
        if self.is_awaited:
            return self.store
        if self.store.closed or self.store.end_offset < 300:
            self.store.close()
            self.store = self._made()
        return self.store

    def fresh_path(self) -> Path:
        self.count += 1
        return self.folder / f"new-{self.count}"


# ---- the verbs


def store_verbs(bench: Bench) -> Iterator[Verb]:
    def of(name: str) -> Callable[..., Any]:
        return lambda *args, **named: getattr(bench.ready(), name)(*args, **named)

    put = {"queue": 0, "tags": "x", "keys": ["k"], "unique_key": "u", "flag": 0}
    waits = {"durability": None, "copies": None, "timeout": None}
    message = Message("t", b"x")
    of_topic = {"topic": lambda value: v.clean_text(value) or v.kind_of(Message)(value)}
    list_of_messages = {
        "messages": lambda value: (
            isinstance(value, list)
            and bool(value)
            and all(isinstance(each, Message) for each in value)
        )
    }
    yield Verb(
        "put",
        of("put"),
        {"topic": "t", "body": b"x", "born_timestamp": 1, **put, "properties": {"a": "b"}, **waits},
        {**of_topic, "queue": v.whole(0, 2**31 - 1)},
        is_put=True,
        names_others=("body",),
    )
    yield Verb("put", of("put"), {"topic": message, **waits}, of_topic, is_put=True)
    yield Verb(
        "put_many",
        of("put_many"),
        {"messages": [message], "topic": None, "queue": 0, **waits},
        {
            "messages": lambda value: (
                not isinstance(value, str | bytes | bytearray)
                and not isinstance(value, dict | v.Pairs)
            ),
            "topic": optional(v.text),
        },
        is_put=True,
    )
    yield Verb(
        "put_many",
        of("put_many"),
        {"messages": [b"x", b"y"], "topic": "t", "queue": 0, **waits},
        {"topic": v.clean_text, "messages": lambda value: isinstance(value, list | tuple)},
        is_put=True,
        names_others=("topic",),
    )
    yield Verb(
        "put_batch",
        of("put_batch"),
        {"messages": [message], **waits},
        list_of_messages,
        is_put=True,
    )
    kept = {"durability": None, "copies": None}
    yield Verb(
        "put_async",
        of("put_async"),
        {"topic": "t", "body": b"x", "born_timestamp": 1, **put, "properties": {"a": "b"}, **kept},
        {**of_topic, "queue": v.whole(0, 2**31 - 1)},
        is_put=True,
        names_others=("body",),
    )
    yield Verb("put_async", of("put_async"), {"topic": message, **kept}, of_topic, is_put=True)
    yield Verb("wait", of("wait"), {"handles": [], "timeout": 1}, {"handles": of_handles})
    yield Verb(
        "append_raw", of("append_raw"), {"physical_offset": 0, "data": b""}, {"data": v.body}
    )
    yield Verb("truncate_to", of("truncate_to"), {"physical_offset": 0})
    yield Verb(
        "read_raw", of("read_raw"), {"physical_offset": 0, "max_bytes": 5}, {"max_bytes": POSITION}
    )
    yield Verb("queue", of("queue"), {"topic": "t", "queue": 0})
    yield Verb("queues", of("queues"), {"topic": None}, {"topic": optional(v.text)})
    yield Verb("get", of("get"), {"topic": "t", "queue": 0, "offset": 1})
    yield Verb(
        "get_many",
        of("get_many"),
        {"topic": "t", "queue": 0, "offset": 0, "max_count": 2, "max_bytes": 99, "tags": None},
    )
    find = {"begin_ms": 0, "end_ms": 2**62, "max_count": 2}
    times = {"begin_ms": v.whole(), "end_ms": v.whole(), "max_count": optional(POSITION)}
    yield Verb("find", of("find"), {"topic": "t", "key": "k", **find}, times)
    yield Verb("find_tag", of("find_tag"), {"topic": "t", "tag": "x", **find}, times)
    yield Verb("get_by_id", of("get_by_id"), {"message_id": "0" * 32})
    yield Verb("record_at", of("record_at"), {"physical_offset": 0})
    scan = {"start": 0, "stop": 9999, "check_crc": True, "zero_copy": False, "on_corrupt": "fail"}
    words = {"on_corrupt": v.one_of("fail", "skip", "stop")}
    yield Verb("scan_log", of("scan_log"), scan, words)
    yield Verb(
        "scan_arrow",
        of("scan_arrow"),
        {**columns(), "topic": "t", "queue_id": 0},
        {"topic": optional(v.text), "columns": optional(v.nothing)},
    )
    positions = {"offset": optional(POSITION)}
    yield Verb("wait_dispatched", of("wait_dispatched"), {"offset": 0, "timeout": 1}, positions)
    yield Verb("wait_flushed", of("wait_flushed"), {"offset": 0, "timeout": 1}, positions)
    topic = {
        "topic": lambda value: v.utf8_text(value) or isinstance(value, TopicConfig),
        "read_queue_count": v.whole(),
        "write_queue_count": v.whole(),
        "perm": v.whole(),
        "filter_type": v.utf8_text,
        "order": v.boolean,
        "attributes": lambda value: isinstance(value, dict | v.Pairs),
        "others": lambda value: isinstance(value, dict | v.Pairs),
        "sys_flag": v.whole(),
    }
    members = {
        "topic": "made",
        "read_queue_count": 1,
        "write_queue_count": 1,
        "perm": 6,
        "filter_type": "SINGLE_TAG",
        "sys_flag": 0,
        "order": False,
        "attributes": {},
        "others": {},
    }
    yield Verb("create_topic", of("create_topic"), members, topic, names_others=("topic",))
    offsets = {"group": "g", "topic": "t", "queue": 0}
    names = {"group": v.utf8_text, "topic": v.utf8_text, "offset": POSITION}
    yield Verb("commit_offset", of("commit_offset"), {**offsets, "offset": 1}, names)
    yield Verb("committed_offset", of("committed_offset"), offsets, {"group": v.text})
    yield Verb("clean", of("clean"), {"hour": 4, "now_ms": 10**12})
    yield Verb("expire_files", of("expire_files"), {"count": 0})
    for name in ("save_offsets", "refresh", "flush", "abandon", "close"):
        yield Verb(name, of(name), {})


def of_handles(value: object) -> bool:
    """Whether it is an iterable without handles of another kind."""
    return isinstance(value, list | tuple | set) and not value


def columns() -> dict[str, Any]:
    return {
        "columns": ["topic", "body"],
        "start": 0,
        "stop": 1,
        "tags": None,
        "begin_ms": None,
        "end_ms": None,
        "batch_rows": 10,
        "batch_bytes": 1000,
        "large_binary": False,
        "unwrap_batches": False,
        "check_crc": False,
        "on_corrupt": "fail",
    }


def queue_verbs(bench: Bench) -> Iterator[Verb]:
    def of(name: str) -> Callable[..., Any]:
        return lambda *args, **named: getattr(bench.ready().queue("t"), name)(*args, **named)

    yield Verb("get", of("get"), {"offset": 1})
    many = {"offset": 0, "max_count": 2, "max_bytes": 99, "tags": None}
    yield Verb("get_many", of("get_many"), many)
    bounds = {"start": 0, "stop": 2, "tags": None, "check_crc": True}
    yield Verb("records", of("records"), bounds)
    yield Verb("scan", of("scan"), bounds)
    # Any other offset may have to be waited for.
    waits = {"offset": lambda value: isinstance(value, int | v.Index) and v.whole()(value)}
    yield Verb("wait", of("wait"), {"offset": 0, "timeout": 0.0}, waits)
    follows = {"start": lambda value: v.one_of("start", "end")(value) or POSITION(value)}
    yield Verb("follow", of("follow"), {"start": 0, "tags": None}, follows)
    yield Verb("offset_at", of("offset_at"), {"timestamp_ms": 0, "boundary": "lower"})
    yield Verb("to_arrow", of("to_arrow"), columns(), {"columns": optional(v.nothing)})


def message_verbs(bench: Bench) -> Iterator[Verb]:
    right = {
        "topic": "t",
        "body": b"x",
        "queue": 0,
        "tags": "x",
        "keys": ["k"],
        "properties": {"a": "b"},
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "born_host": ("127.0.0.1", 1),
        "store_host": ("127.0.0.1", 1),
        "delay_level": 0,
        "transaction": rmqstore.TransactionType.NONE,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "unique_key": "u",
        "wait_store_ok": True,
    }
    accepts = {
        "topic": v.clean_text,
        "keys": v.texts,
        "properties": v.mapping_of_texts,
        "born_host": optional(v.nothing),
        "store_host": optional(v.nothing),
        "delay_level": POSITION,
        "sys_flag": v.whole(-(2**31), 2**31 - 1),
        "transaction": v.nothing,
        "reconsume_times": v.whole(-(2**31), 2**31 - 1),
        "prepared_transaction_offset": v.whole(),
        "wait_store_ok": v.boolean,
    }

    def put(**named: Any) -> object:
        return bench.ready().put(Message(**named))

    def put_batch(**named: Any) -> object:
        return bench.ready().put_batch([Message(**named), Message("t", b"x")])

    def put_inner_batch(**named: Any) -> object:
        return bench.ready().put_batch([Message(**{**named, "topic": "batches"})])

    yield Verb("put(Message)", put, right, accepts, is_put=True)
    yield Verb("put_batch(Message)", put_batch, right, accepts, is_put=True)
    del right["topic"]
    yield Verb("put_batch(Message of batches)", put_inner_batch, right, accepts, is_put=True)


def module_verbs(bench: Bench) -> Iterator[Verb]:
    from rmqstore import check
    from rmqstore.check import repair
    from rmqstore.store import arrow

    path = bench.folder / "verified"
    with rmqstore.open(path, **FILES) as store:
        store.put("t", b"x")
    compression = {"body": b"x", "kind": rmqstore.CompressionType.ZLIB, "level": 5}
    yield Verb("compress", rmqstore.compress, compression, {"kind": v.nothing})
    zipped = rmqstore.compress(b"x", rmqstore.CompressionType.ZLIB)
    sizes = {"body": zipped, "sys_flag": 0x301, "size_bytes_max": 99}
    yield Verb("decompress", rmqstore.decompress, sizes, {"size_bytes_max": v.whole(0, 2**63 - 2)})
    yield Verb("unique_key", rmqstore.unique_key, {"now_ms": 1})

    def open_new(**named: Any) -> object:
        # A path that may be right is one below the test's own folder.
        named["path"] = below(bench, named["path"])
        return rmqstore.open(**named, **FILES)

    opening = {
        "path": ".",
        "config": None,
        "read_only": False,
        "retention": False,
        "keep_confirm_offset": False,
    }
    accepts = {"config": optional(v.path)}
    yield Verb("open", open_new, opening, accepts)
    yield Verb(
        "open_existing",
        lambda **named: rmqstore.open(path, **named),
        {"read_only": True, "retention": False, "keep_confirm_offset": False},
    )
    for name in ("commit_log_file_size_bytes", "flush_disk_type", "commit_log_paths", "unknown"):
        field_of = {"unknown": "unknown"}.get(name, rmqstore.StoreConfig.options().get(name))
        yield Verb(
            f"open({name})",
            lambda *, value, name=name: rmqstore.open(bench.fresh_path(), **{name: value}),
            {"value": 0},
            {"value": v.anything if field_of != "unknown" else v.nothing},
            names_others=("value",),
        )
    config = {"config": lambda value: value is None}
    checks = {"path": path, "config": None, "full": True, "log_file_size": None, "progress": None}
    yield Verb("verify", check.verify, checks, config)
    plans = {
        "path": path,
        "config": None,
        "rebuild": False,
        "log_file_size": None,
        "progress": None,
    }
    yield Verb("repair.plan", repair.plan, plans, config)
    yield Verb(
        "repair.apply",
        repair.apply,
        {"plan": repair.plan(path), "progress": None},
        {"plan": v.nothing},
    )
    yield Verb("repair.exclusive", repair.exclusive, {"path": path})
    yield Verb(
        "arrow.schema",
        arrow.schema,
        {"columns": ["topic"], "large_binary": True},
        {"columns": optional(v.nothing)},
    )

    def scan(**named: Any) -> object:
        return arrow.scan(**{"store": bench.ready(), **named})

    def queue(**named: Any) -> object:
        return arrow.queue(**{"queue": bench.ready().queue("t"), **named})

    yield Verb("arrow.scan", scan, {"store": bench.store}, {"store": v.nothing})
    yield Verb("arrow.queue", queue, {"queue": bench.store.queue("t")}, {"queue": v.nothing})
    queues = lambda *, store, topic, number: rmqstore.Queue(store, topic, number)  # noqa: E731
    yield Verb(
        "Queue",
        queues,
        {"store": bench.store, "topic": "t", "number": 0},
        {"store": v.nothing, "number": v.whole(0, 2**31 - 1)},
        names_others=("number",),
    )


def below(bench: Bench, path: Any) -> Any:
    if isinstance(path, str) and path and path[0] not in "~/" and "\0" not in path:
        return str(bench.fresh_path()) + path.replace("/", "_")
    if isinstance(path, bytes) and path:
        return os.fsencode(bench.fresh_path()) + path
    return path


def aio_verbs(bench: Bench) -> Iterator[Verb]:
    loop = asyncio.new_event_loop()

    def of(name: str, *, of_queue: bool = False) -> Callable[..., Any]:
        async def call(*args: Any, **named: Any) -> object:
            if bench.store.closed:
                await opened.__aenter__()
                bench.store = opened.store
            target: Any = opened.queue("t") if of_queue else opened
            result = getattr(target, name)(*args, **named)
            if not isinstance(result, AsyncIterator):
                return await result if inspect.isawaitable(result) else None
            if name == "records":
                async for _ in result:
                    break
            await result.aclose()  # type: ignore[attr-defined]
            return None

        return lambda *args, **named: loop.run_until_complete(call(*args, **named))

    opened = rmqstore.aio.open(bench.store.path)
    bench.store.close()
    bench.is_awaited = True
    waits = {"durability": Durability.MEMORY, "copies": None, "timeout": 1}
    some = {"queue": 0, "tags": "x", "keys": ["k"], "properties": {}, "unique_key": "u", "flag": 0}
    topic = {"topic": lambda value: v.clean_text(value) or v.kind_of(Message)(value)}
    yield Verb(
        "put",
        of("put"),
        {"topic": "t", "body": b"x", "born_timestamp": 1, **some, **waits},
        topic,
        is_put=True,
        names_others=("body",),
    )
    flushed = {"topic": "t", "body": b"x", "durability": Durability.DISK, "timeout": 9.0}
    yield Verb("put", of("put"), flushed, topic, is_put=True, names_others=("body",))
    many = {"messages": [b"x"], "topic": "t", "queue": 0, **waits}
    yield Verb(
        "put_many",
        of("put_many"),
        many,
        {"topic": v.clean_text, "messages": lambda value: isinstance(value, list | tuple)},
        is_put=True,
        names_others=("topic",),
    )
    yield Verb(
        "put_async",
        of("put_async"),
        {"topic": "t", "body": b"x"},
        topic,
        is_put=True,
        names_others=("body",),
    )
    waited = {"handles": [], "timeout": 1}
    yield Verb("wait", of("wait"), waited, {"handles": of_handles})
    append = functools.partial(
        of("append"), lambda: opened.store.put("t", b"x", durability=Durability.MEMORY)
    )
    yield Verb("append", append, {"durability": Durability.MEMORY}, is_put=True)
    yield Verb("get", of("get"), {"topic": "t", "queue": 0, "offset": 1})
    yield Verb(
        "get_many",
        of("get_many"),
        {"topic": "t", "queue": 0, "offset": 0, "max_count": 2, "max_bytes": 9, "tags": None},
    )
    find = {"topic": "t", "key": "k", "begin_ms": 0, "end_ms": 2**62, "max_count": 2}
    yield Verb(
        "find",
        of("find"),
        find,
        {"begin_ms": v.whole(), "end_ms": v.whole(), "max_count": optional(POSITION)},
    )
    yield Verb(
        "wait_dispatched", of("wait_dispatched"), {"offset": 0}, {"offset": optional(POSITION)}
    )
    yield Verb("queue", of("queue"), {"topic": "t", "queue": 0})
    yield Verb("flush", of("flush"), {})
    yield Verb("Queue.bounds", of("bounds", of_queue=True), {})
    yield Verb("Queue.records", of("records", of_queue=True), {"start": 0, "stop": 2, "tags": None})
    follows = {"start": lambda value: v.one_of("start", "end")(value) or POSITION(value)}
    yield Verb("Queue.follow", of("follow", of_queue=True), {"start": 0, "tags": None}, follows)
    yield Verb("open", rmqstore.aio.open, {"path": "x", "config": None}, {"config": v.anything})
    yield Verb("close", of("close"), {})
    loop.run_until_complete(opened.close())
    loop.close()


def replication_verbs(bench: Bench) -> Iterator[Verb]:
    master = Master(
        bench.store,
        listen="127.0.0.1:0",
        members=(1,),
        epoch=1,
        broker_id=1,
        lease=Lease(60_000),
    )

    ids = {"members": v.anything}
    switches = {"others_asked": v.boolean, "allow_epoch_jump": v.boolean, "begin_anew": v.boolean}
    addresses = {"master": v.nothing}

    yield Verb(
        "become_master",
        master.become_master,
        {"epoch": 1, "members": (1,), "set_epoch": 0, "timeout": 1}
        | {"others_asked": False, "allow_epoch_jump": False},
        {"epoch": optional(v.whole()), "set_epoch": v.whole(), **ids, **switches},
        names_others=("epoch", "members"),
    )
    yield Verb(
        "set_sync_state_set",
        master.set_sync_state_set,
        {"members": (1,), "set_epoch": 1},
        {"set_epoch": v.whole(), **ids},
        names_others=("members",),
    )

    for name in ("refuse_proposal", "lose_proposal"):
        yield Verb(name, getattr(master, name), {"number": 1}, {"number": v.whole()})

    yield Verb("set_alive_replicas", master.set_alive_replicas, {"count": 1}, {"count": v.whole(1)})

    moments = {"asked_ms": lambda value: isinstance(value, int | float)}
    yield Verb("renew_lease", master.renew_lease, {"asked_ms": 1.5}, moments)
    yield Verb(
        "wait_in_sync",
        master.wait_in_sync,
        {"copies": 1, "timeout": 0.01},
        {"copies": v.whole(1)},
    )

    offsets = {"offset": optional(v.whole())}
    brief = {"offset": 0, "timeout": 0.01}
    yield Verb("wait_confirmed", master.wait_confirmed, brief, offsets)
    yield Verb("wait_caught_up", master.wait_caught_up, brief, offsets, names_others=("timeout",))
    yield Verb("status", master.status, {})

    yield Verb(
        "become_slave",
        master.become_slave,
        {"master": "127.0.0.1:1", "epoch": 2, "begin_anew": False, "allow_epoch_jump": False},
        {"epoch": optional(v.whole()), **addresses, **switches},
        names_others=("master",),
    )
    yield Verb("close", master.close, {})

    for kind in (Quorum, HaOptions):
        for name, default in ((each.name, each.default) for each in dataclasses.fields(kind)):
            accepts = v.boolean if isinstance(default, bool) else v.whole()
            if default is None:
                accepts = optional(v.boolean)
            yield Verb(kind.__name__, kind, {name: default}, {name: accepts})
    yield Verb("Lease", Lease, {"duration_ms": 0}, {"duration_ms": v.whole(0, 2**31 - 1)})


GROUPS: Mapping[str, Callable[[Bench], Iterator[Verb]]] = {
    "store": store_verbs,
    "queue": queue_verbs,
    "message": message_verbs,
    "modules": module_verbs,
    "aio": aio_verbs,
    "replication": replication_verbs,
}
