"""Stores as the two ends of replication: one that takes messages of every kind, one that takes its
bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rmqstore
from rmqstore import Message, Store, TopicConfig, TransactionType
from rmqstore.epochs import EpochEntry
from rmqstore.replication.protocol.events import Append, SetConfirm
from rmqstore.replication.runtime.log import StoreLog
from tests.support.agreement import FILES, has_queue_offset, walk_log

FILE_SIZE = int(FILES["commit_log_file_size_bytes"])
SETTINGS: dict[str, Any] = {
    **FILES,
    "enable_multi_dispatch": True,
    "auto_message_version_on_topic_length": True,
}
LONG_TOPIC = "t" * 200
"""Records of a topic this long are of version 2."""
BATCHES = "batches"
LIGHT = "%LMQ%light"


def open_store(path: Path, **settings: Any) -> Store:
    store = rmqstore.open(path, **{**SETTINGS, **settings})
    if BATCHES not in store.topics.topics:
        store.create_topic(TopicConfig(BATCHES, attributes={"queue.type": "BatchCQ"}))
    return store


def put_all_kinds(store: Store, count: int = 40, *, size: int = 900) -> None:
    """Put *count* times: a simple message, one of version 2, three as an inner batch, one that goes
    to a light queue, too, and a prepared one."""
    for number in range(count):
        body = b"%06d" % number + bytes((number % 251,)) * (size + number)
        store.put(Message("orders", body, queue=number % 3, keys=(f"k{number}",)))
        store.put(Message(LONG_TOPIC, body, tags="A"))
        store.put_batch([Message(BATCHES, b"%d" % each) for each in range(3)])
        store.put(Message("orders", body, properties={"INNER_MULTI_DISPATCH": LIGHT}))
        store.put(Message("orders", body, transaction=TransactionType.PREPARED))


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*pair) for pair in pairs)


def feed(log: StoreLog, master: Store, *, until: int | None = None, piece: int = 7001) -> None:
    """Append the bytes of *master* that *log* lacks, below *until*, in pieces; check each."""
    until = master.end_offset if until is None else until
    while (at := log.end_offset) < until:
        size = min(piece, until - at)
        log.carry_out(Append(at, master._log_bytes(at, size)))
        assert log.check() is None, log.damage


def confirm_all(log: StoreLog) -> None:
    log.carry_out(SetConfirm(log.end_offset))


def next_offsets(store: Store) -> dict[tuple[str, int], int]:
    """Return the queue offset that each queue goes on at, as the records of the log tell."""
    found: dict[tuple[str, int], int] = {}
    for record in walk_log(store):
        if not has_queue_offset(record):
            continue
        count = int(record.properties.get("INNER_NUM", "1"))
        found[record.topic, record.queue] = record.queue_offset + count
        light = record.properties.get("INNER_MULTI_DISPATCH")
        if light is not None:
            found[light, 0] = int(record.properties["INNER_MULTI_QUEUE_OFFSET"]) + 1
    return found
