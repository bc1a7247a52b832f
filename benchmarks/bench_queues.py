"""Many queues: the dispatcher's time for each new one, and a store that holds ten thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from benchmarks.conftest import Measure
from benchmarks.workloads import bodies
from rmqstore import Store

QUEUES_PER_TOPIC = 8


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


@pytest.mark.parametrize("count", [10_000])
def bench_open_many_queues(bounded: Measure, tmp_path: Path, count: int) -> None:
    with rmqstore.open(tmp_path / "store") as store:
        _fill(store, 0, count)
    opened: list[Store] = []

    def close() -> None:
        while opened:
            opened.pop().close()

    bounded(lambda: opened.append(rmqstore.open(tmp_path / "store")), setup=close, rounds=5)
    topic, queue = divmod(count - 1, QUEUES_PER_TOPIC)
    assert opened[0].get(f"topic{topic}", queue=queue, offset=0).body == bodies(100)[0]
    close()
