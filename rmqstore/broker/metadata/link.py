"""Runs a follower of the master's tables while the broker is a slave."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rmqstore.broker.metadata.following import Follower
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.roles import Role
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.supervisor import Supervisor
from rmqstore.remoting.frames import Frame

__all__ = ["Host", "MetadataLink"]


class Host(Protocol):
    """What the link needs of its broker."""

    @property
    def log(self) -> IdentityLog:
        """The log of this broker."""

    @property
    def metadata(self) -> Metadata:
        """The tables of this broker."""

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        """Return the answer to a request; raises as `RemotingClient.call`."""


class _Master:
    """The master at *address*, as its follower calls it."""

    def __init__(self, host: Host, address: Address) -> None:
        self._host = host
        self._address = address
        self.log = host.log

    async def call(self, frame: Frame, timeout_ms: int) -> Frame:
        return await self._host.call(self._address, frame, timeout_ms / 1000)

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class MetadataLink:
    """Follows the metadata of the master while the broker is a slave."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks = Supervisor("metadata of the master", log=host.log)
        self._task: asyncio.Task[None] | None = None
        self._follower: Follower | None = None
        self._followed: tuple[Address, int, int] | None = None

    @property
    def rounds(self) -> int:
        """Answers of the present master that were taken."""
        return 0 if self._follower is None else self._follower.rounds

    def take_role(self, role: Role) -> None:
        """Follow the master of *role*, if it names one."""
        wanted = role.followed
        if wanted == self._followed:
            return
        self._followed = wanted
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if wanted is not None:
            address, broker_id, _ = wanted
            name = format_address(address)
            master = _Master(self._host, address)
            self._follower = Follower(master, self._host.metadata, master=name, broker_id=broker_id)
            self._task = self._tasks.start(self._follower.run(), name=f"metadata of {name}")

    async def close(self) -> None:
        """Stop following."""
        self._followed = None
        await self._tasks.close()
