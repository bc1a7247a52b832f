"""The service of a slave that copies topics, groups and offsets, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.services.metadata import MetadataCopies
from rmqstore.broker.services.services import Services
from rmqstore.net.addresses import Address, format_address
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from tests.support.role_model import ModelClient
from tests.support.virtual import VirtualProcess

A, B = ("10.0.0.1", 10911), ("10.0.0.3", 10911)
OF_A = Role(name="slave", broker_id=2, epoch=4, master_address=A)
OF_B = Role(name="slave", broker_id=2, epoch=5, master_address=B)
LEADS = Role(name="master", broker_id=2, epoch=6)


class Slave:
    """Broker 2 of a group whose other brokers cannot be reached: it calls them again and again."""

    def __init__(self) -> None:
        self.client = ModelClient({})
        self.process = VirtualProcess(self.client)
        self.client.runtime = self.runtime = self.process.runtime
        self.log = self.runtime.log
        self.metadata: Any = SimpleNamespace(dispatched_offset=lambda: 0)
        self.process.loop.run(self._begin)

    def _begin(self) -> None:
        self.copies = MetadataCopies(self)
        self.services = Services(self, [self.copies], on_begun=lambda: None)
        self.services.start(Role(broker_id=2))

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        return await self.client.call(address, frame, timeout)

    def calls_in(self, role: Role) -> set[str]:
        """Return the addresses that are called in ten seconds of *role*."""
        self.process.loop.run(lambda: self.services.take(role))
        self.process.pass_time(1)
        self.client.sent.clear()
        self.process.pass_time(10)
        assert all(code == RequestCode.GET_ALL_TOPIC_CONFIG for _, code, _ in self.client.sent)
        return {place for place, _, _ in self.client.sent}


def test_the_tables_of_the_present_master_alone_are_copied() -> None:
    slave = Slave()
    assert slave.calls_in(OF_A) == {format_address(A)}
    assert "refused" in slave.copies.trouble
    assert slave.calls_in(OF_B) == {format_address(B)}
    assert slave.calls_in(LEADS) == set()
    assert slave.copies.trouble == ""
    assert slave.calls_in(replace(OF_A, epoch=7)) == {format_address(A)}
    slave.process.run(slave.services.close())
    slave.client.sent.clear()
    slave.process.pass_time(10)
    assert slave.client.sent == []
