"""Runs a follower of the master's tables while the broker is a slave."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rmqstore.broker.master_places import MasterPlaces
from rmqstore.broker.metadata.following import Follower
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.roles import Role
from rmqstore.errors import RemotingError, RemotingFrameError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.supervisor import Supervisor
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.ha import ExchangeHaInfoHeader

__all__ = ["Host", "MetadataLink"]

_CHECK_S = 3.0


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
    """The master at *address*, or at one of *others* while it does not answer there, as its
    follower calls it."""

    def __init__(self, host: Host, address: Address, others: tuple[Address, ...]) -> None:
        self._host = host
        self._address = address
        self._places = MasterPlaces(address, others)
        self.log = host.log

    async def call(self, frame: Frame, timeout_ms: int) -> Frame:
        try:
            if self._places.is_doubtful:
                await self._check(self._places.present)
            return await self._host.call(self._places.present, frame, timeout_ms / 1000)
        except RemotingError:
            self._places.failed()
            raise

    async def _check(self, place: Address) -> None:
        """Check that the broker at *place* is the master: its tables replace those of this one."""
        request = Frame.request(RequestCode.EXCHANGE_BROKER_HA_INFO)
        answer = (await self._host.call(place, request, _CHECK_S)).raise_for_code()
        named = ExchangeHaInfoHeader.from_fields(answer.ext_fields).master_address
        announced = format_address(self._address)
        if not self._places.is_master(named):
            raise RemotingFrameError(
                f"the broker at {format_address(place)} is not the master {announced}; it names "
                f"{named or 'none'}"
            )
        self.log.info("metadata of %s is requested at %s", announced, format_address(place))

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


class MetadataLink:
    """Follows the metadata of the master while the broker is a slave."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks = Supervisor("metadata of the master", log=host.log)
        self._task: asyncio.Task[None] | None = None
        self._follower: Follower | None = None
        self._followed: tuple[object, object] | None = None

    @property
    def rounds(self) -> int:
        """Answers of the present master that were taken."""
        return 0 if self._follower is None else self._follower.rounds

    @property
    def trouble(self) -> str:
        """Why the present master gives no metadata; empty where it does."""
        failure = "" if self._follower is None else self._follower.failure
        return failure and f"no metadata from the master: {failure}"

    def take_role(self, role: Role) -> None:
        """Follow the master of *role*, if it names one."""
        wanted = role.followed
        if (wanted, role.other_places) == self._followed:
            return
        self._followed = wanted, role.other_places
        if self._task is not None:
            self._task.cancel()
            self._task = self._follower = None
        if wanted is not None:
            address, broker_id, _ = wanted
            name = format_address(address)
            master = _Master(self._host, address, role.other_places)
            self._follower = Follower(master, self._host.metadata, master=name, broker_id=broker_id)
            self._task = self._tasks.start(self._follower.run(), name=f"metadata of {name}")

    async def close(self) -> None:
        """Stop following."""
        self._followed = None
        await self._tasks.close()
