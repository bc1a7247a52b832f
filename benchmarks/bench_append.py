"""Putting: one message, many, and one that is on the disk on return."""

from __future__ import annotations

import pytest

from benchmarks.conftest import Measure
from benchmarks.workloads import TAG, TOPIC, bodies
from rmqstore import Durability, Message, Store

BATCH = 100
TOGETHER = 32
SIZES = pytest.mark.parametrize("size", [100, 1024, 4096])


@SIZES
def bench_put(bounded: Measure, empty: Store, size: int) -> None:
    body = bodies(size)[0]
    bounded(empty.put, TOPIC, body, queue=1, tags=TAG, rounds=50, iterations=1000)
    assert empty.get(TOPIC, queue=1, offset=0).body == body


@SIZES
def bench_put_many(bounded: Measure, empty: Store, size: int) -> None:
    batch = list(bodies(size)[:BATCH])
    bounded(empty.put_many, batch, topic=TOPIC, queue=1, rounds=50, iterations=10)
    assert empty.get(TOPIC, queue=1, offset=BATCH - 1).body == batch[-1]


def bench_put_message_object(bounded: Measure, empty: Store) -> None:
    message = Message(TOPIC, bodies(1024)[0], queue=1, tags=TAG, keys=("key",))
    bounded(empty.put, message, rounds=50, iterations=1000)
    assert empty.get(TOPIC, queue=1, offset=0).keys == ["key"]


def bench_put_durable_with_handles(bounded: Measure, empty: Store) -> None:
    body = bodies(1024)[0]

    def put_and_wait() -> None:
        empty.wait(
            [
                empty.put_async(TOPIC, body, queue=1, tags=TAG, durability=Durability.DISK)
                for _ in range(TOGETHER)
            ]
        )

    bounded(put_and_wait, rounds=500)
    assert empty.flushed_offset == empty.end_offset


def bench_put_durable(bounded: Measure, empty: Store) -> None:
    body = bodies(1024)[0]
    durable = Durability.DISK
    bounded(empty.put, TOPIC, body, queue=1, tags=TAG, durability=durable, rounds=500)
    assert empty.flushed_offset == empty.end_offset
