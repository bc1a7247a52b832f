"""Locks of queues and lookups, called without frames: what they grant, find and refuse."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmqstore
from rmqstore.broker.operations.locks import LockOperations
from rmqstore.broker.operations.lookups import KeyQuery, LookupOperations
from rmqstore.errors import ArgumentError, RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.codes import ResponseCode
from tests.support.agreement import FILES
from tests.support.broker_core import Core

LEASE_MS = 60_000
HUGE = 2**63 - 1


def own(*queues: int) -> list[QueueName]:
    return [QueueName("T", "broker-a", each) for each in queues]


# -- locks


def test_queue_is_locked_for_one_client_of_a_group_until_it_ends_the_lock(core: Core) -> None:
    locks = LockOperations(core)
    assert locks.lock("G", "a", own(0, 1)) == own(0, 1)
    assert locks.lock("G", "b", own(1, 2)) == own(2)
    assert locks.lock("g", "b", own(1)) == own(1)
    locks.unlock("G", "b", own(0))
    assert locks.lock("G", "b", own(0)) == []
    locks.unlock("G", "a", own(0))
    assert locks.lock("G", "b", own(0)) == own(0)


def test_lock_ends_with_its_time_unless_it_is_renewed(core: Core) -> None:
    locks = LockOperations(core)
    locks.lock("G", "a", own(0, 1))
    core.time_ms += LEASE_MS
    assert locks.lock("G", "a", own(1)) == own(1)
    core.time_ms += 1
    assert len(locks) == 2
    locks.expire()
    assert len(locks) == 1
    assert locks.lock("G", "b", own(0, 1)) == own(0)


def test_queues_of_other_brokers_are_left_out_and_repeated_queues_count_once(core: Core) -> None:
    locks = LockOperations(core)
    others = [QueueName("T", "broker-b", each) for each in range(20_000)]
    assert locks.lock("G", "a", others) == []
    assert locks.lock("G", "a", [*others, *own(0, 0)]) == own(0)
    locks.unlock("G", "a", [*others, *own(0)])
    assert locks.lock("G", "b", own(0)) == own(0)


@pytest.mark.parametrize("name", ["lock", "unlock"])
def test_too_many_queues_are_refused(core: Core, name: str) -> None:
    locks = LockOperations(core)
    assert locks.lock("G", "a", own(*range(10_000))) == own(*range(10_000))
    with pytest.raises(RequestRefused, match="10001 queues") as caught:
        getattr(locks, name)("G", "a", own(*range(10_001)))
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert locks.lock("G", "b", own(0)) == []


def test_call_without_queues_locks_nothing(core: Core) -> None:
    locks = LockOperations(core)
    assert locks.lock("", "", []) == []
    locks.unlock("", "", [])


# -- messages


def put(core: Core, count: int = 1, **more: Any) -> None:
    store = core.store.store
    for _ in range(count):
        store.put("T", b"x", **more)
    store.wait_dispatched()


def query(word: str, **changes: Any) -> KeyQuery:
    values = {"topic": "T", "messages_max": 10, "begin_ms": 0, "end_ms": HUGE}
    return KeyQuery(word=word, **values | changes)


def found(core: Core, asked: KeyQuery) -> list[int]:
    """Return the queue offsets of the messages that a query finds."""
    result = asyncio.run(LookupOperations(core).query(asked))
    assert result.indexed_offset == core.store.store.dispatched_offset
    return [each.queue_offset for each in result.records]


def test_newest_messages_of_a_key_are_found_oldest_first(core: Core) -> None:
    put(core, 3, keys=["k"])
    put(core, keys=["other"])
    assert found(core, query("k")) == [0, 1, 2]
    assert found(core, query("k", messages_max=2)) == [1, 2]
    for few in (0, -(2**31)):
        assert found(core, query("k", messages_max=few)) == [2]


def test_tags_are_found_where_the_index_has_them(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", compatibility="5.5", **FILES) as store:
        core = Core(store)
        put(core, keys=["eu"])
        put(core, tags="eu")
        assert found(core, query("eu")) == [0]
        assert found(core, query("eu", is_tag=True)) == [1]


def test_limit_of_a_query_is_that_of_the_store_or_that_of_unique_keys(core: Core) -> None:
    put(core, 70, keys=["k"])
    assert len(found(core, query("k", messages_max=2**31 - 1))) == 64
    assert len(found(core, query("k", messages_max=1, is_unique_key=True))) == 32


@pytest.mark.parametrize(
    "nothing",
    [
        query(""),
        query("k" * 100_000),
        query("k", topic=""),
        query("k", topic="U"),
        query("k", begin_ms=HUGE),
        query("k", end_ms=-1),
    ],
)
def test_query_that_fits_no_message_finds_none(core: Core, nothing: KeyQuery) -> None:
    put(core, keys=["k"])
    assert found(core, nothing) == []


def test_query_of_wrong_types_is_an_error_of_its_caller(core: Core) -> None:
    for wrong in (query("k", begin_ms="0"), query("k", topic=5), query(None)):  # type: ignore[arg-type]
        with pytest.raises((ArgumentError, TypeError)):
            found(core, wrong)


def test_broker_whose_index_is_not_read_refuses_queries(core: Core) -> None:
    config = core.store.store.config.replace(index_file_read_enable=False)
    core.store.store = SimpleNamespace(config=config)
    with pytest.raises(RequestRefused, match="indexFileReadEnable") as caught:
        asyncio.run(LookupOperations(core).query(query("k")))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_message_is_found_at_its_physical_offset_alone(core: Core) -> None:
    put(core)
    lookups = LookupOperations(core)
    end = core.store.store.end_offset
    assert lookups.message_at(0).body == b"x"
    for wrong in (1, -1, end, HUGE, -(2**63)):
        with pytest.raises(RequestRefused, match="by the offset") as caught:
            lookups.message_at(wrong)
        assert caught.value.code == ResponseCode.SYSTEM_ERROR


class Unconfirmed:
    """A store whose first message alone is confirmed."""

    def __init__(self, store: rmqstore.Store) -> None:
        self._store = store
        self.confirm_offset = store.record_at(0).size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_message_that_may_still_be_cut_is_not_found(core: Core) -> None:
    put(core, 2)
    second = core.record(1).physical_offset
    core.store.store = Unconfirmed(core.store.store)
    lookups = LookupOperations(core)
    assert lookups.message_at(0).queue_offset == 0
    with pytest.raises(RequestRefused):
        lookups.message_at(second)


# -- queues


def test_bounds_of_a_queue_and_the_offset_of_a_time(core: Core) -> None:
    lookups = LookupOperations(core)
    put(core, queue=1)
    first_ms = core.record(queue=1).store_timestamp
    while time.time_ns() // 1_000_000 <= first_ms:
        time.sleep(0.001)
    put(core, queue=1)
    ends = lookups.start_of("T", 1), lookups.end_of("T", 1), lookups.next_offset_of("T", 1)
    assert ends == (0, 2, 2)
    assert lookups.earliest_ms_of("T", 1) == first_ms

    async def offset_at(time_ms: int, *, is_upper: bool) -> int:
        return await lookups.offset_at("T", 1, time_ms, is_upper=is_upper)

    assert asyncio.run(offset_at(first_ms + 1, is_upper=False)) == 1
    assert asyncio.run(offset_at(first_ms, is_upper=True)) == 0
    assert asyncio.run(offset_at(HUGE, is_upper=False)) == 2
    assert asyncio.run(offset_at(HUGE, is_upper=True)) == 1


@pytest.mark.parametrize(("topic", "queue"), [("T", 0), ("T", 2**31 - 1), ("U", 0), ("", 0)])
def test_unknown_queue_is_an_empty_one(core: Core, topic: str, queue: int) -> None:
    lookups = LookupOperations(core)
    assert lookups.start_of(topic, queue) == 0
    assert lookups.end_of(topic, queue) == 0
    assert lookups.next_offset_of(topic, queue) == 0
    assert lookups.earliest_ms_of(topic, queue) is None
    assert asyncio.run(lookups.offset_at(topic, queue, 0)) == 0


def test_negative_number_of_a_queue_is_refused(core: Core) -> None:
    lookups = LookupOperations(core)
    for look in (
        lookups.start_of,
        lookups.end_of,
        lookups.next_offset_of,
        lookups.earliest_ms_of,
        lambda topic, queue: asyncio.run(lookups.offset_at(topic, queue, 0)),
    ):
        with pytest.raises(RequestRefused, match="numbered from 0") as caught:
            look("T", -1)
        assert caught.value.code == ResponseCode.INVALID_PARAMETER
