"""Many queues: the dispatcher's time for each new one, and a store that holds 200,000 of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from benchmarks.conftest import Measure
from benchmarks.workloads import bodies
from rmqstore import Store

QUEUES_PER_TOPIC = 8
MANY = [10_000, 200_000]
"""More than a process has mappings, the latter."""


def _fill(store: Store, first: int, count: int) -> None:
    body = bodies(100)[0]
    for number in range(first, first + count):
        topic, queue = divmod(number, QUEUES_PER_TOPIC)
        store.put(f"topic{topic}", body, queue=queue)
    store.wait_dispatched(timeout=600)


def bench_new_queues(bounded: Measure, empty: Store) -> None:
    """A hundred queues that did not exist, with one message each, until they can be read."""
    made = 0

    def make() -> None:
        nonlocal made
        _fill(empty, made, 100)
        made += 100

    bounded(make, rounds=20)
    topic, queue = divmod(made - 1, QUEUES_PER_TOPIC)
    assert empty.queue(f"topic{topic}", queue).end == 1


@pytest.mark.parametrize("count", MANY)
def bench_fill_many_queues(bounded: Measure, tmp_path: Path, count: int) -> None:
    """A store with a message in each of *count* queues, until all can be read."""
    with rmqstore.open(tmp_path / "store") as store:
        bounded(_fill, store, 0, count, rounds=1)
        assert len(store.queues()) == count


@pytest.mark.parametrize("count", MANY)
def bench_open_many_queues(bounded: Measure, tmp_path: Path, count: int) -> None:
    with rmqstore.open(tmp_path / "store") as store:
        _fill(store, 0, count)
    opened: list[Store] = []

    def close() -> None:
        while opened:
            opened.pop().close()

    bounded(lambda: opened.append(rmqstore.open(tmp_path / "store")), setup=close, rounds=5)
    [store] = opened
    body = bodies(100)[0]
    for number in range(0, count, count // 1000):
        topic, queue = divmod(number, QUEUES_PER_TOPIC)
        assert store.get(f"topic{topic}", queue=queue, offset=0).body == body
        assert store.put(f"topic{topic}", body, queue=queue).queue_offset == 1
    close()
