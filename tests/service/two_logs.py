"""Two stores with the same settings: a master's with records of every kind, and a slave's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore import Store
from tests.scenarios.store_logs import next_offsets, open_store, put_all_kinds
from tests.support.agreement import walk_log


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Store]:
    """A store with records over several files."""
    with open_store(tmp_path / "master") as store:
        put_all_kinds(store)
        yield store


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "slave") as store:
        yield store


def check_agreement_of_all_kinds(store: Store) -> int:
    """Every queue goes on where the records of the log say; return how many records there are."""
    store.wait_dispatched()
    queues = {(each.topic, each.number): each.end for each in store.queues() if each.end}
    assert queues == next_offsets(store)
    return len(walk_log(store))
