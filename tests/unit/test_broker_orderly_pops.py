"""Notices of queues that orderly consumers may pop again, in virtual time. RocketMQ's cases are in
`ConsumerOrderInfoManagerLockFreeNotifyTest`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rmqstore.broker.metadata.changes import ChangeLog
from rmqstore.broker.metadata.shared_orders import SharedOrders
from rmqstore.broker.metadata.shared_table import Versions
from rmqstore.broker.operations.pop_orders import OrderlyPops
from rmqstore.remoting.bodies.receipts import PoppedQueue, ReceiptHandle
from rmqstore.topic_names import RetryKind
from tests.support.virtual import VirtualProcess

QUEUE = ("T", "g", 0)


class Orders:
    """The orders of a broker whose offsets nobody else moves."""

    def __init__(self) -> None:
        self.process = VirtualProcess()
        self.runtime = self.process.runtime
        self.committed = 0
        self.metadata = SimpleNamespace(offsets=self)
        self.states = SharedOrders(lambda topic, group: 1)
        self.states.attach(ChangeLog(frozenset()), Versions(self.runtime.wall_ms))
        self.freed: list[int] = []
        """When notices were given."""
        core: Any = self
        self.orders = OrderlyPops(core, self.states, on_free=self._free)

    def _free(self, topic: str, group: str, queue: int) -> None:
        assert (topic, group, queue) == QUEUE
        self.freed.append(self.runtime.now_ms())

    def query(self, topic: str, group: str, queue: int) -> int:
        return self.committed

    def commit(self, topic: str, group: str, queue: int, offset: int) -> None:
        self.committed = offset

    def pop(self, *offsets: int, invisible_ms: int = 3000) -> ReceiptHandle:
        """Pop messages; return a handle of the pop."""
        popped_ms = self.runtime.wall_ms()
        queue = PoppedQueue("T", 0, offsets[0], offsets)
        times = {"popped_ms": popped_ms, "invisible_ms": invisible_ms}
        self.process.loop.run(
            lambda: self.orders.popped("g", queue, attempt_id=None, **times)  # type: ignore[arg-type]
        )
        return ReceiptHandle(
            start_offset=offsets[0],
            pop_time_ms=popped_ms,
            invisible_ms=invisible_ms,
            revive_queue=999,
            kind=RetryKind.NONE,
            broker_name="broker-a",
            queue=0,
        )

    def ack(self, handle: ReceiptHandle, offset: int) -> None:
        self.process.loop.run(lambda: self.orders.acknowledge(*QUEUE, offset, handle))

    def change(self, handle: ReceiptHandle, offset: int, ms: int) -> None:
        self.process.loop.run(lambda: self.orders.change_time(*QUEUE, offset, handle, ms=ms))

    def freed_after(self, seconds: float) -> list[int]:
        """Return when notices came in the next time, in ms from its begin."""
        began_ms = self.runtime.now_ms()
        self.freed.clear()
        self.process.pass_time(seconds)
        return [each - began_ms for each in self.freed]


def test_queue_is_free_when_the_time_of_its_messages_is_over() -> None:
    orders = Orders()
    orders.pop(0, 1)
    assert orders.freed_after(10) == [3000]


def test_queue_is_free_when_its_messages_are_acknowledged() -> None:
    orders = Orders()
    handle = orders.pop(0, 1)
    orders.ack(handle, 0)
    assert orders.freed_after(1) == []
    orders.ack(handle, 1)
    assert orders.freed_after(10) == [0]
    assert orders.committed == 2


def test_changed_time_counts() -> None:
    orders = Orders()
    handle = orders.pop(0)
    orders.change(handle, 0, 500)
    assert orders.freed_after(1) == [500]
    handle = orders.pop(0)
    orders.change(handle, 0, 9000)
    assert orders.freed_after(10) == [9000]


def test_queue_whose_messages_have_different_times_is_free_after_the_last() -> None:
    orders = Orders()
    handle = orders.pop(0, 1)
    orders.change(handle, 1, 8000)
    assert orders.freed_after(10) == [8000]


def test_next_pop_replaces_the_notice() -> None:
    orders = Orders()
    orders.pop(0)
    orders.process.pass_time(2)
    orders.pop(0)
    assert orders.freed_after(10) == [3000]


def test_notices_end_with_the_role_and_go_on_with_the_next_one() -> None:
    orders = Orders()
    orders.pop(0)
    orders.process.loop.run(orders.orders.stop)
    assert orders.freed_after(10) == []
    orders.process.loop.run(orders.orders.start)
    assert orders.freed_after(1) == [0]
