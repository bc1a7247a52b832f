"""Reading: one message, a pull, a whole queue, and by key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import rmqstore
from benchmarks.workloads import PULL, TOPIC, body_at
from rmqstore import Store


@pytest.fixture
def store(prepared: Path) -> Iterator[Store]:
    with rmqstore.open(prepared, read_only=True) as store:
        yield store


def bench_get(benchmark: BenchmarkFixture, store: Store) -> None:
    record = benchmark(store.get, TOPIC, queue=2, offset=1234)
    assert record.body == body_at(1024, queue=2, offset=1234)


def bench_get_many(benchmark: BenchmarkFixture, store: Store) -> None:
    benchmark.extra_info["messages"] = PULL
    found = benchmark(store.get_many, TOPIC, queue=2, offset=1000, max_count=PULL)
    assert [record.body for record in found.records] == [
        body_at(1024, queue=2, offset=offset) for offset in range(1000, 1000 + PULL)
    ]


def bench_queue_of_bodies(benchmark: BenchmarkFixture, store: Store) -> None:
    queue = store.queue(TOPIC, 3)

    def read() -> int:
        return sum(len(record.body) for record in queue.records())

    benchmark.extra_info["messages"] = len(queue)
    assert benchmark(read) == 1024 * len(queue)


def bench_queue_of_views(benchmark: BenchmarkFixture, store: Store) -> None:
    queue = store.queue(TOPIC, 3)

    def read() -> int:
        with queue.scan() as records:
            return sum(record.body_size for record in records)

    benchmark.extra_info["messages"] = len(queue)
    assert benchmark(read) == 1024 * len(queue)
