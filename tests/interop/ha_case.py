"""What the tests with live Java replicas share: small stores, numbered messages, comparing logs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import rmqstore
from rmqstore import Message
from rmqstore.replication import HaOptions, ReplicatedStore
from tests.golden.rewriting import config_of
from tests.support.java_replica import HOST, WAIT_S, Replica, State
from tests.support.log_files import log_bytes

Protocol = Literal["autoswitch", "classic"]
ROLE_PREFIX = {"autoswitch": "autoswitch", "classic": "default"}

TOPIC = "HaTopic"
QUEUES = 2
FILE_SIZE = 16384
LISTEN = (HOST, 0)
SETTINGS = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
QUICK = HaOptions(heartbeat_ms=100, reconnect_ms=100)
IN_PIECES = HaOptions(heartbeat_ms=100, reconnect_ms=100, batch_bytes=700)
"""Frames that cut every message of the tests' size across two or three of them."""
MESSAGE_BYTES = 300


def open_store(root: Path, **settings: Any) -> rmqstore.Store:
    """Open a store with files as small as those of the Java replicas."""
    return rmqstore.open(root, config_of(SETTINGS, root, compatibility="auto"), **settings)


def message(number: int, *, size: int = MESSAGE_BYTES) -> Message:
    """Return the message of that number."""
    body = f"ours {number} ".encode().ljust(size, b".")
    return Message(TOPIC, body, queue=number % QUEUES, tags="T", keys=[f"ours-{number}"])


def put(store: rmqstore.Store, numbers: Iterable[int], *, copies: int | None = None) -> int:
    """Put messages, each on *copies* replicas where that is given, and return the log's end."""
    for number in numbers:
        receipt = store.put(message(number), copies=copies)
        assert copies is None or receipt.copies >= copies
    return store.end_offset


def epochs_of(replica: ReplicatedStore) -> list[list[int]]:
    """Return the epoch list as a Java replica tells its own."""
    return [[each.epoch, each.start_offset] for each in replica.epochs]


def has_all(end: int) -> Callable[[State], bool]:
    """Return what tells that a Java replica holds the log, and lets consumers see it, to *end*."""
    return lambda state: (
        state["maxOffset"] == end and state["confirmOffset"] >= end and state["dispatchBehind"] <= 0
    )


def assert_same(java: Replica, store: rmqstore.Store, *, was_killed: bool = False) -> None:
    """Hold log and queues of a Java replica against those of *store*, once both have all.

    One that *was_killed* under load is held to its log: 5.5.0's recovery then leaves out units of
    its queues at times, and says so ("logic queue order maybe wrong").
    """
    end = store.end_offset
    java.wait_state(has_all(end), f"all of the log up to {end}")

    start = max(java.state["minOffset"], store.start_offset)
    assert start < end
    ours = hashlib.sha256(log_bytes(Path(store.path), start, end)).hexdigest()
    assert java.ask(f"hash {start} {end}")["sha256"] == ours

    # Dispatching waits for the confirm offset.
    assert store._wait_progress(end - 1, int(WAIT_S * 1000))
    assert store.confirm_offset in (-1, end)
    assert_queues_follow(store)

    # A Java master whose first file is gone corrects its queues later, by the clock.
    if was_killed or (java.state["role"] != "SLAVE" and java.state["minOffset"] > 0):
        return

    for answer in java.ask("queues")["queues"]:
        queue = store.queue(TOPIC, answer["queue"])
        assert queue.end == answer["max"], (answer, queue.start, queue.end)
        assert answer["readable"] == answer["max"] - answer["min"], answer
        if java.state["minOffset"] == store.start_offset:
            assert queue.start == answer["min"]


def assert_queues_follow(store: rmqstore.Store) -> None:
    """Hold the queues of a store against its log."""
    offsets: dict[int, list[int]] = {}
    for record in store.scan_log():
        offsets.setdefault(record.queue, []).append(record.queue_offset)
    assert {each.number for each in store.queues(TOPIC)} == offsets.keys()
    for number, expected in offsets.items():
        found = [each.queue_offset for each in store.queue(TOPIC, number).records()]
        assert found == expected
        assert found == list(range(found[0], found[0] + len(found)))


def chunks(java: Replica, *, count: int, size: int = MESSAGE_BYTES, each: int = 5) -> int:
    """Let a Java master put *count* messages, all acknowledged, and return its log's end."""
    end = -1
    for _ in range(0, count, each):
        answer = java.ask(f"put {each} {size}")
        assert answer["statuses"] == {"PUT_OK": each}, java.state
        end = answer["maxOffset"]
    return end
