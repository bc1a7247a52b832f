"""Notices of a controller in virtual time: repeated for the living, the newest one alone."""

from __future__ import annotations

from typing import Any

from rmqstore.controller.group import BrokerRecord, Group
from rmqstore.controller.notices import Notices
from rmqstore.errors import RemotingConnectError
from rmqstore.remoting.frames import Frame
from tests.support.virtual import VirtualProcess


class Brokers:
    """Reachable or not; they keep when, and of which epoch, notices were sent to them."""

    def __init__(self) -> None:
        self.unreachable: set[str] = set()
        self.sent: dict[str, list[tuple[int, str]]] = {}
        self.process = VirtualProcess(self)
        self.tasks = self.process.runtime.tasks("notices")
        self.notices = Notices(self.tasks, self.process.runtime)
        self.begin_ms = self.process.now_ms()

    async def send_one_way(self, address: str, request: Frame, timeout: float) -> None:
        when_ms = self.process.now_ms() - self.begin_ms
        self.sent.setdefault(address, []).append((when_ms, request.ext_fields["masterEpoch"]))
        await self.process.runtime.sleep(0.01)
        if address in self.unreachable:
            raise RemotingConnectError(f"{address} is not reached")

    def notify(self, epoch: int, **options: Any) -> None:
        brokers = {each: BrokerRecord(f"b{each}", "") for each in (1, 2, 3)}
        group = Group("c", "g", brokers=brokers, master_id=2, master_epoch=epoch)
        self.process.loop.run(lambda: self.notices.master_changed(group, [2, 3], **options))


def test_a_notice_is_repeated_until_it_is_sent_and_delays_no_other() -> None:
    brokers = Brokers()
    brokers.unreachable = {"b3"}
    brokers.notify(7)
    brokers.process.pass_time(0.5)
    assert brokers.sent == {"b2": [(0, "7")], "b3": [(0, "7"), (210, "7")]}
    brokers.unreachable.clear()
    brokers.process.pass_time(20.0)
    assert brokers.sent["b3"] == [(0, "7"), (210, "7"), (1220, "7")]
    assert not brokers.tasks.tasks


def test_an_unreachable_broker_is_given_up() -> None:
    brokers = Brokers()
    brokers.unreachable = {"b3"}
    brokers.notify(7)
    brokers.process.pass_time(60.0)
    assert [when for when, _ in brokers.sent["b3"]] == [0, 210, 1220, 4230]
    assert not brokers.tasks.tasks


def test_a_later_notice_takes_the_place_of_the_one_that_waits() -> None:
    brokers = Brokers()
    brokers.unreachable = {"b3"}
    brokers.notify(7)
    brokers.process.pass_time(0.1)
    brokers.notify(8)
    brokers.unreachable.clear()
    brokers.process.pass_time(20.0)
    assert brokers.sent["b3"] == [(0, "7"), (210, "8")]


def test_a_notice_that_came_while_another_was_sent_is_sent_after_it() -> None:
    brokers = Brokers()
    brokers.notify(7)
    brokers.process.pass_time(0.005)
    brokers.notify(8)
    brokers.process.pass_time(20.0)
    assert [epoch for _, epoch in brokers.sent["b2"]] == ["7", "8"]


def test_a_silent_former_master_gets_one_attempt() -> None:
    brokers = Brokers()
    brokers.unreachable = {"b1"}
    brokers.notify(7, silent=1)
    brokers.process.pass_time(60.0)
    assert brokers.sent["b1"] == [(0, "7")]
