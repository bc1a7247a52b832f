"""What an acknowledgement of a replica means: its memory, or its disk with SYNC_FLUSH."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import rmqstore
from rmqstore.config import FlushDiskType
from rmqstore.replication import HaOptions, Master, ReplicatedStore, Slave
from tests.service.replicas_on_loop import of
from tests.support.agreement import FILES
from tests.support.service_group import HERE, QUICK, TWO

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH

Open = Callable[..., rmqstore.Store]


@pytest.fixture
def opened(tmp_path: Any) -> Any:
    """Yield a function that opens a store by name, which flushes only when it is asked to."""
    stores = []

    def open_(name: str, flush: FlushDiskType) -> rmqstore.Store:
        store = rmqstore.open(
            tmp_path / name,
            **FILES,
            flush_disk_type=flush,
            flush_commit_log_interval_ms=600_000,
            flush_commit_log_thorough_interval_ms=600_000,
        )
        stores.append(store)
        return store

    yield open_
    for store in reversed(stores):
        store.close()


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_with_sync_flush_copies_are_on_both_disks(opened: Open, protocol: Any) -> None:
    common: dict[str, Any] = {"protocol": protocol, "options": QUICK}
    with Master(opened("a", SYNC), listen=HERE, broker_id=1, quorum=TWO, **common) as master:
        assert master.address is not None
        with Slave(opened("b", SYNC), master=master.address, broker_id=2, **common) as slave:
            assert master.acknowledges_flushed
            assert slave.acknowledges_flushed
            for body in (b"1", b"2", b"3"):
                receipt = master.store.put(rmqstore.Message("orders", body), copies=2)
                assert master.store.flushed_offset >= receipt.end_offset
                assert slave.store.flushed_offset >= receipt.end_offset
            assert slave.end_offset == master.end_offset


def test_with_async_flush_a_copy_is_in_memory(opened: Open) -> None:
    common: dict[str, Any] = {"options": QUICK}
    with Master(opened("a", ASYNC), listen=HERE, broker_id=1, quorum=TWO, **common) as master:
        assert master.address is not None
        with Slave(opened("b", ASYNC), master=master.address, broker_id=2, **common) as slave:
            assert not master.acknowledges_flushed
            assert not slave.acknowledges_flushed
            # It comes although nothing is synced within ten minutes.
            assert master.store.put("orders", b"1", copies=2).copies == 2


@pytest.mark.parametrize("flush", [SYNC, ASYNC])
@pytest.mark.parametrize("word", [None, True, False])
def test_the_word_of_the_caller_comes_before_the_configuration(
    opened: Open, flush: FlushDiskType, *, word: bool | None
) -> None:
    options = HaOptions(ack_flushed=word)
    with ReplicatedStore(opened("a", flush), broker_id=1, options=options) as replica:
        assert replica.acknowledges_flushed is (flush is SYNC if word is None else word)


def test_a_replica_tells_it_before_it_is_open(opened: Open) -> None:
    assert of(opened("a", SYNC), 1, options=None).acknowledges_flushed

    async def main() -> None:
        async with of(opened("b", ASYNC), 1) as replica:
            assert not replica.acknowledges_flushed

    asyncio.run(main())
