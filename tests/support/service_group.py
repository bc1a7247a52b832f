"""Replicated stores over real sockets, all closed with the test, and what is held of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.replication import HaOptions, Master, Quorum, ReplicatedStore, Slave
from tests.support.agreement import FILES
from tests.support.relay import Relay

HERE = "127.0.0.1:0"
QUICK = HaOptions(heartbeat_ms=200, reconnect_ms=20)
TWO = Quorum(in_sync=2, timeout_ms=20_000)


class Group:
    """Stores and their replication, all closed at the end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = ExitStack()

    def store(self, name: str) -> rmqstore.Store:
        return self._stack.enter_context(rmqstore.open(self._root / name, **FILES))

    def master(self, name: str = "a", **options: Any) -> Master:
        options = {"listen": HERE, "broker_id": 1, "options": QUICK, **options}
        return self._stack.enter_context(Master(self.store(name), **options))

    def slave(self, master: ReplicatedStore | Relay, name: str = "b", **options: Any) -> Slave:
        assert master.address is not None
        options = {"master": master.address, "broker_id": 2, "options": QUICK, **options}
        return self._stack.enter_context(Slave(self.store(name), **options))

    def plain(self, name: str, broker_id: int | None, **options: Any) -> ReplicatedStore:
        options = {"listen": HERE, "broker_id": broker_id, "options": QUICK, **options}
        return self._stack.enter_context(ReplicatedStore(self.store(name), **options))

    def again(self, replica: ReplicatedStore, **options: Any) -> ReplicatedStore:
        """End the replication of a store and return another one, without a role."""
        replica.close()
        options = {"listen": HERE, "options": QUICK, **options}
        made = ReplicatedStore(replica.store, broker_id=replica.broker_id, **options)
        return self._stack.enter_context(made)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.close()


def put(replica: ReplicatedStore, *bodies: bytes, copies: int | None = None) -> None:
    for body in bodies:
        replica.store.put(rmqstore.Message("orders", body), copies=copies)


def bodies(replica: ReplicatedStore) -> list[bytes]:
    replica.store.wait_dispatched()
    return [each.body for each in replica.store.queue("orders").records()]


def log_bytes(replica: ReplicatedStore) -> bytes:
    store = replica.store
    start = max(store.start_offset, 0)
    return b"".join(
        store.read_raw(at, min(4096, store.end_offset - at))
        for at in range(start, store.end_offset, 4096)
    )


def assert_equal(one: ReplicatedStore, other: ReplicatedStore) -> None:
    assert (one.end_offset, one.epochs) == (other.end_offset, other.epochs)
    assert log_bytes(one) == log_bytes(other)


def follow(slave: ReplicatedStore, master: ReplicatedStore, epoch: int | None = None) -> None:
    assert master.address is not None
    slave.become_slave(master.address, epoch)
    slave.wait_caught_up(master.end_offset, timeout=20)
