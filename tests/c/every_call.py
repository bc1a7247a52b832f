"""Every public call of the core as an act that one of its inner calls may fail, and what must hold
after it.

An act checks its own answer: a call that returns RMQ_OK has to be right even though something
inside of it failed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.c.more_calls import BATCH_TOPIC, Row, Store, body_of, time_of
from tests.c.store_calls import LOG_FILE_SIZE, Put
from tests.reference import record


@dataclass(slots=True)
class History:
    """What was put into a store, and what may have become of it."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Bodies that must be there, by physical offset."""

    maybe: set[bytes] = field(default_factory=set)
    """Bodies of calls that failed: there whole, or not at all."""

    cut_at: int | None = None
    """A cut was tried here: what lies behind it may be there or not."""

    expired_below: int = 0
    """An expiry was tried up to here."""

    rows: tuple[Row, ...] = ()
    """What the store holds to begin with."""

    raw: bytes = b""
    """What another log holds behind the end of this one."""

    def copy(self) -> History:
        """Return another one that may be written to."""
        return replace(self, acknowledged=dict(self.acknowledged), maybe=set(self.maybe))

    def add(self, puts: list[Put]) -> None:
        self.acknowledged.update((put.physical_offset, put.body) for put in puts)

    def check(self, rows: list[Row]) -> None:
        """Every record of the log is a put one, and no acknowledged one is missing."""
        there = {row.physical_offset: row.body for row in rows}
        for offset, body in there.items():
            assert self.acknowledged.get(offset) == body or body in self.maybe, (offset, body)
        missing = self.acknowledged.keys() - there.keys()
        for offset in missing:
            is_cut = self.cut_at is not None and offset >= self.cut_at
            assert is_cut or offset < self.expired_below, (offset, self.acknowledged[offset])
            # What a cut or an expiry left undone has no holes.
            assert not rows or not rows[0].physical_offset < offset < rows[-1].physical_offset


Run = Callable[[Store, History], None]


@dataclass(frozen=True, slots=True)
class Act:
    """One public call, or few that belong together."""

    name: str
    start: str
    """The state of the folder before: a key of STATES."""

    run: Run
    opens: bool = False
    """Opening is part of the act."""

    before: Run | None = None
    """Done with the open store before calls begin to fail."""

    settings: dict[str, Any] = field(default_factory=dict)


# ---- states to begin with


def _put_base(store: Store) -> list[Put]:
    puts = store.put_many([body_of(number) for number in range(9)])
    puts += store.put_many([body_of(9)], topic=BATCH_TOPIC)
    return puts + store.put_many([body_of(number) for number in range(10, 13)], together=True)


def _make_empty(_core: Any, root: Path) -> History:
    root.mkdir()
    return History()


def _make_closed(core: Any, root: Path) -> History:
    history = History()
    store = Store(core, root)
    history.add(_put_base(store))
    history.rows = tuple(store.check_agreement())
    store.close()
    return history


def _make_crashed(core: Any, root: Path) -> History:
    """A part is named by the checkpoint, more is flushed, and some is only in memory."""
    history = _make_closed(core, root)
    store = Store(core, root)
    history.add(store.put_many([body_of(number) for number in range(40, 46)]))
    store.wait_dispatched(store.end_offset)
    store.flush()
    history.add(store.put_many([body_of(number) for number in range(50, 53)]))
    store.wait_flushed(store.end_offset)
    history.add(store.put_many([body_of(number) for number in range(53, 55)]))
    store.abandon()
    return history


def _make_torn(core: Any, root: Path) -> History:
    """A bad record that was not known to be durable, with whole ones behind it."""
    history = _make_closed(core, root)
    store = Store(core, root)
    puts = store.put_many([body_of(number) for number in range(53, 56)])
    history.add(puts[:1])
    store.abandon()
    bad = puts[1].physical_offset
    assert bad // LOG_FILE_SIZE == puts[2].physical_offset // LOG_FILE_SIZE
    path = root / "commitlog" / f"{bad - bad % LOG_FILE_SIZE:020}"
    data = bytearray(path.read_bytes())
    data[bad % LOG_FILE_SIZE + 100] ^= 0xFF
    path.write_bytes(data)
    return history


def _make_bare(core: Any, root: Path) -> History:
    """A closed store that lost its queues and its index."""
    history = _make_closed(core, root)
    for name in ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index"):
        shutil.rmtree(root / name)
    return history


def _make_copy(core: Any, root: Path) -> History:
    """A store, and the bytes that its master has behind its end."""
    history = _make_closed(core, root)
    master = root.with_name(f"{root.name}-master")
    shutil.copytree(root, master)
    store = Store(core, master)
    begin = store.end_offset
    store.put_many([body_of(number) for number in range(60, 72)])
    end = store.end_offset
    store.close()
    log = b"".join(path.read_bytes() for path in sorted((master / "commitlog").iterdir()))
    history.raw = log[begin:end]
    shutil.rmtree(master)
    return history


def _make_other(core: Any, root: Path) -> History:
    """Nothing, and the whole log of a master."""
    history = _make_copy(core, root)
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    end = history.rows[-1].physical_offset + history.rows[-1].size
    shutil.rmtree(root)
    root.mkdir()
    bodies = set(history.acknowledged.values())
    return History(maybe=bodies, raw=log[:end])


STATES: dict[str, Callable[[Any, Path], History]] = {
    "empty": _make_empty,
    "closed": _make_closed,
    "crashed": _make_crashed,
    "torn": _make_torn,
    "bare": _make_bare,
    "copy": _make_copy,
    "other": _make_other,
}

# ---- acts


def _nothing(_store: Store, _history: History) -> None:
    pass


def _settle(store: Store) -> None:
    store.wait_dispatched(store.end_offset)
    store.wait_flushed(store.end_offset)


def _put(store: Store, history: History) -> None:
    """Into new queues and old ones, over the end of a log file."""
    for number in range(60, 68):
        history.maybe.add(body_of(number))
        history.add([store.put(body_of(number), queue_id=number % 3)])
    _settle(store)


def _many(topic: bytes, numbers: range, *, together: bool = False) -> Run:
    def run(store: Store, history: History) -> None:
        bodies = [body_of(number) for number in numbers]
        history.maybe.update(bodies)
        store.stored = []
        try:
            store.put_many(bodies, topic=topic, together=together)
        finally:
            history.add(store.stored)
        _settle(store)

    return run


def _raw(store: Store, history: History) -> None:
    """In pieces that end inside of records and cross the end of a file."""
    history.maybe.update(body_of(number) for number in range(60, 72))
    begin = store.end_offset
    for at in range(0, len(history.raw), 1500):
        store.append_raw(begin + at, history.raw[at : at + 1500])
    _settle(store)
    assert store.end_offset == begin + len(history.raw)


def _place(store: Store, history: History) -> None:
    """Into new queues and old ones, over the ends of files."""
    host = record.Host(bytes(4), 0)
    bodies = [body_of(number) for number in range(60, 72)]

    records = [
        record.Record(
            version=1,
            body_crc=0,
            flag=0,
            queue_offset=0,
            physical_offset=0,
            sys_flag=0,
            reconsume_times=0,
            prepared_transaction_offset=0,
            queue_id=number % 3,
            born_timestamp=1,
            born_host=host,
            store_timestamp=time_of(body),
            store_host=host,
            body=body,
            topic_bytes=b"orders",
            property_bytes=b"KEYS\x01k" + body[:8] + b"\x02",
        )
        for number, body in enumerate(bodies)
    ]

    history.maybe.update(bodies)
    run = b"".join(record.encode_put(each, property_crc=False) for each in records)
    assert store.place(run) == len(bodies)
    _settle(store)


def _get(store: Store, history: History) -> None:
    for row in history.rows:
        answer = store.read(row.queue_id, row.queue_offset, topic=row.topic)
        assert answer == (row.physical_offset, row.body)


def _get_many(store: Store, history: History) -> None:
    for topic, queue_id in {(row.topic, row.queue_id) for row in history.rows}:
        expected = [row for row in history.rows if (row.topic, row.queue_id) == (topic, queue_id)]
        assert store.walk(topic=topic, queue_id=queue_id) == expected


def _at(store: Store, history: History) -> None:
    for row in history.rows:
        assert row.body in store.at(row.physical_offset)


def _find(store: Store, history: History) -> None:
    for row in history.rows:
        assert store.find(b"k" + row.body[:8], topic=row.topic) == [row.physical_offset]


def _time(store: Store, history: History) -> None:
    for queue_id in (0, 1):
        rows = [row for row in history.rows if (row.topic, row.queue_id) == (b"orders", queue_id)]
        for row in rows:
            for upper in (False, True):
                found = store.offset_by_time(queue_id, time_of(row.body), upper=upper)
                assert found == row.queue_offset


def _scan(store: Store, history: History) -> None:
    assert store.walk() == list(history.rows)


def _arrow(queue_id: int | None) -> Run:
    def run(store: Store, history: History) -> None:
        expected = [
            row.physical_offset
            for row in history.rows
            if queue_id is None or (row.topic, row.queue_id) == (b"orders", queue_id)
        ]
        assert store.arrow(queue_id=queue_id) == expected

    return run


def _put_some(store: Store, history: History) -> None:
    history.add(store.put_many([body_of(number) for number in range(60, 64)]))


def _put_dispatched(store: Store, history: History) -> None:
    """Closing waits long for a dispatcher that finds no room on the disk."""
    _put_some(store, history)
    store.wait_dispatched(store.end_offset)


def _flush(store: Store, _history: History) -> None:
    store.wait_dispatched(store.end_offset)
    store.flush()


def _cut_at(store: Store, history: History, offset: int) -> None:
    history.cut_at = offset
    store.truncate(offset)
    assert store.end_offset == offset
    history.acknowledged = {
        place: body for place, body in history.acknowledged.items() if place < offset
    }
    history.cut_at = None


def _truncate_last(store: Store, history: History) -> None:
    """Inside of the last log file: its rest is zeroed."""
    _cut_at(store, history, history.rows[-1].physical_offset)


def _truncate(store: Store, history: History) -> None:
    """Into the first log file, so that whole files go."""
    _cut_at(store, history, history.rows[5].physical_offset)


def _expire(store: Store, history: History) -> None:
    history.expired_below = LOG_FILE_SIZE
    store.expire(1)
    assert store.start_offset == LOG_FILE_SIZE


def _remove_queues(store: Store, history: History) -> None:
    topic = store.ffi.new("char[]", b"orders")
    end = store.end_offset
    store.check(store.lib.rmq_store_remove_queues(store.store, topic, 6, end, store.error))
    assert store.walk() == list(history.rows)
    # The log has all records: numbers go on after them.
    for queue_id in (0, 1):
        offsets = [
            row.queue_offset
            for row in history.rows
            if (row.topic, row.queue_id) == (b"orders", queue_id)
        ]
        queues = store.ffi.addressof(store.store, "queues")
        queue = store.lib.rmq_queue_table_find(queues, topic, 6, queue_id)
        assert store.lib.rmq_queue_max(queue) == max(offsets) + 1
        assert store.walk(queue_id=queue_id, topic=b"orders") == []


def _refresh(store: Store, history: History) -> None:
    writer = Store((store.ffi, store.lib), Path(os.fsdecode(store.ffi.string(store.root))))
    history.add(writer.put_many([body_of(number) for number in range(60, 72)]))
    writer.wait_dispatched(writer.end_offset)
    writer.close()


def _see_more(store: Store, history: History) -> None:
    store.refresh()
    there = {row.physical_offset: row.body for row in store.walk()}
    assert there == history.acknowledged


def _close(store: Store, _history: History) -> None:
    store.close()


READ_ONLY = {"read_only": True}
ACTS = (
    Act("open a new store", "empty", _nothing, opens=True),
    Act("open a closed store", "closed", _nothing, opens=True),
    Act("open a crashed store", "crashed", _nothing, opens=True),
    Act("open a torn store", "torn", _nothing, opens=True),
    Act("open without queues", "bare", _nothing, opens=True),
    Act("open read-only", "closed", _scan, opens=True, settings=READ_ONLY),
    Act("open a crashed store read-only", "crashed", _nothing, opens=True, settings=READ_ONLY),
    Act("put into a new store", "empty", _put),
    Act("put", "closed", _put),
    Act("put many", "closed", _many(b"orders", range(60, 72))),
    Act("put together", "closed", _many(b"orders", range(60, 64), together=True)),
    Act("put an inner batch", "closed", _many(BATCH_TOPIC, range(60, 62))),
    Act("place records", "closed", _place),
    Act("append raw", "copy", _raw),
    Act("append raw to an empty log", "other", _raw),
    Act("get", "closed", _get),
    Act("get many", "closed", _get_many),
    Act("get by offset", "closed", _at),
    Act("get read-only", "closed", _get, settings=READ_ONLY),
    Act("find", "closed", _find),
    Act("find read-only", "closed", _find, settings=READ_ONLY),
    Act("find by time", "closed", _time),
    Act("scan", "closed", _scan),
    Act("arrow of the log", "closed", _arrow(None)),
    Act("arrow of a queue", "closed", _arrow(1)),
    Act("flush", "closed", _flush, before=_put_some),
    Act("truncate", "closed", _truncate),
    Act("truncate inside of the last file", "closed", _truncate_last),
    Act("truncate what was just put", "closed", _truncate_last, before=_put_some),
    Act("expire", "closed", _expire),
    Act("remove queues", "closed", _remove_queues),
    Act("refresh", "closed", _see_more, before=_refresh, settings=READ_ONLY),
    Act("close", "closed", _close, before=_put_dispatched),
)
