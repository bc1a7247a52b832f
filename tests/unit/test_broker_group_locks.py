"""Locks of queues at a majority of a group (lockInStrictMode), in virtual time.

RocketMQ's cases for one broker, `RebalanceLockManagerTest`, are in
`tests/store/test_broker_locks_and_lookups.py` and `tests/unit/test_queue_lock.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqstore.broker.operations.group_locks import GroupLocks
from rmqstore.broker.operations.locks import LockOperations
from rmqstore.config import BrokerConfig
from rmqstore.errors import RemotingConnectError, RemotingTimeout
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.replication.group.queue_lock import Grant
from tests.support.virtual import VirtualProcess

LEASE_S = 60
BOTH = [QueueName("T", "broker-a", 0), QueueName("T", "broker-a", 1)]
ONE = BOTH[:1]


class Calls:
    """The calls of one broker of a group to the others."""

    def __init__(self, brokers: Sequence[Broker], caller: Broker) -> None:
        self._brokers = brokers
        self._caller = caller
        self._runtime = caller.runtime

    def others(self) -> Mapping[int, str]:
        numbers = (each.number for each in self._brokers if each is not self._caller)
        return {number: str(number) for number in numbers}

    @property
    def known(self) -> int:
        return 1

    async def _reach(self, address: str) -> Broker:
        broker = self._brokers[int(address)]
        if not broker.is_alive:
            raise RemotingConnectError(f"{address}: refused")
        await self._runtime.sleep(broker.delay_s)
        if broker.delay_s >= 1:
            raise RemotingTimeout(f"{address}: no answer")
        return broker

    async def lock(
        self, address: str, group: str, client_id: str, queues: Sequence[QueueName]
    ) -> list[tuple[QueueName, Grant]]:
        granted = (await self._reach(address)).own.grants(group, client_id, queues)
        if self._brokers[int(address)].numbers_grants:
            return granted
        return [(name, Grant(grant.queue, 0, is_fresh=False)) for name, grant in granted]

    async def unlock(
        self, address: str, group: str, client_id: str, queues: Sequence[QueueName]
    ) -> None:
        (await self._reach(address)).own.unlock(group, client_id, queues)

    async def release(
        self, address: str, group: str, grants: Sequence[tuple[QueueName, int]]
    ) -> None:
        names, numbers = zip(*grants, strict=True)
        (await self._reach(address)).own.release(group, names, numbers)


class Broker:
    """One of three brokers."""

    def __init__(self, process: VirtualProcess, brokers: Sequence[Broker], number: int) -> None:
        self.number = number
        self.is_alive = self.numbers_grants = True
        self.delay_s = 0.01
        """From a call of another broker to its answer."""
        self.config = BrokerConfig(name="broker-a", strict_locks=True, total_replicas=3)
        self.runtime = process.runtime
        self.log = self.runtime.log
        self._process = process
        self._calls = Calls(brokers, self)
        self.start()

    def start(self) -> None:
        """Begin without locks."""
        core: Any = self
        self.own = LockOperations(core)
        self._locks = GroupLocks(core, self.own, self._calls)

    def now_ms(self) -> int:
        return self.runtime.now_ms()

    def lock(self, client_id: str, queues: Sequence[QueueName] = ONE) -> list[int]:
        """Return the numbers of the queues that a client gets here."""
        found = self._process.run(self._locks.lock("G", client_id, queues))
        self._process.pass_time(0.1)
        return [each.queue_id for each in found]

    def unlock(self, client_id: str) -> None:
        self._process.run(self._locks.unlock("G", client_id, BOTH))


def group() -> tuple[VirtualProcess, list[Broker]]:
    """Return three brokers that were started one lease ago."""
    process, brokers = VirtualProcess(), list[Broker]()
    for number in range(3):
        brokers.append(Broker(process, brokers, number))
    process.pass_time(LEASE_S)
    return process, brokers


def test_queue_is_locked_for_one_client_whichever_broker_it_asks() -> None:
    _, (first, second, third) = group()
    assert first.lock("x", BOTH) == [0, 1]
    assert second.lock("y", BOTH) == third.lock("y", BOTH) == []
    assert third.lock("x") == [0]
    first.unlock("x")
    assert second.lock("y") == [0]


def test_lock_outlives_the_broker_that_granted_it() -> None:
    _, (first, second, third) = group()
    first.lock("x")
    first.is_alive = False
    assert second.lock("y") == []
    assert third.lock("x") == [0]


def test_minority_locks_nothing_and_keeps_no_grant() -> None:
    _, (first, second, third) = group()
    second.is_alive = third.is_alive = False
    assert first.lock("x") == []
    assert len(first.own) == 0
    second.is_alive = True
    assert first.lock("y") == [0]


def test_grants_of_a_minority_are_given_back() -> None:
    _, (first, second, third) = group()
    # The client x has the other two, and the first broker has no word of it.
    for each in (second, third):
        each.own.lock("G", "x", ONE)
    assert first.lock("y", BOTH) == [1]
    assert [len(each.own) for each in (first, second, third)] == [1, 2, 2]
    assert first.lock("x") == [0]


def test_grant_of_a_member_that_does_not_number_it_ends_with_its_lease() -> None:
    process, (first, second, third) = group()
    third.own.lock("G", "x", ONE)
    first.is_alive = False
    second.numbers_grants = False
    assert third.lock("x") == [0]
    process.pass_time(LEASE_S + 1)
    assert third.lock("y") == [0]


def test_silent_member_delays_nothing_that_the_others_decide() -> None:
    _, (first, second, third) = group()
    third.delay_s = 5
    began_ms = first.now_ms()
    assert first.lock("x") == [0]
    assert first.now_ms() - began_ms < 300
    second.is_alive = False
    assert second.lock("z") == []


def test_answer_that_comes_too_late_is_given_back() -> None:
    process, (first, second, third) = group()
    second.is_alive, third.delay_s = False, 0.8
    began_ms = first.now_ms()
    assert first.lock("x") == []
    assert first.now_ms() - began_ms < 1000, "a client waits no longer"
    process.pass_time(3)
    assert [len(each.own) for each in (first, third)] == [0, 0]


def test_failed_renewal_leaves_the_lock_to_its_client() -> None:
    _, (first, second, third) = group()
    third.is_alive = False
    assert first.lock("x") == [0]
    second.is_alive = False
    assert first.lock("x") == []
    third.is_alive = True
    assert third.lock("y") == []


def test_started_broker_grants_nothing_for_the_time_of_a_lock() -> None:
    process, (first, second, third) = group()
    first.lock("x")
    third.is_alive = False
    first.start()
    assert first.lock("y") == second.lock("y") == []
    assert second.lock("x") == []
    process.pass_time(LEASE_S + 1)
    assert second.lock("y") == [0]
