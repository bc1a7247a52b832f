"""The interface of a broker for its request handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rmqstore.broker.membership.membership import Membership
from rmqstore.broker.operations.core import Core
from rmqstore.net.addresses import Address
from rmqstore.remoting.frames import Frame
from rmqstore.replication.runtime.replica import Replica

__all__ = ["Context"]


class Context(Core, Protocol):
    """The broker that a handler belongs to; everything is used on its event loop."""

    @property
    def replica(self) -> Replica | None:
        """The replica of the store, open; None in controller mode until the id is known."""

    @property
    def address(self) -> Address:
        """Address for clients: the store host of records and message ids."""

    @property
    def ha_address(self) -> Address | None:
        """Address for slaves; None without a replica."""

    @property
    def membership(self) -> Membership:
        """How the broker gets its role."""

    @property
    def in_progress(self) -> Mapping[str, int]:
        """Requests that wait for their results, by each family with a limit."""

    def wall_ms(self) -> int:
        """Return the time of the wall clock."""

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        """Return the answer to a request of this broker; raises as `RemotingClient.call`."""

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings by RocketMQ key, in the file first. Raises ConfigError and DiskError."""

    def registration_due(self) -> None:
        """Register at the nameservers soon: the topics have changed."""
