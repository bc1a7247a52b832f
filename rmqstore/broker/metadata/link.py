"""The calls of a slave to its master for topics, groups and offsets."""

from __future__ import annotations

from typing import Protocol

from rmqstore.broker.membership.master_places import MasterPlaces
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.errors import RemotingError, RemotingFrameError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import Runtime
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.ha import ExchangeHaInfoHeader

__all__ = ["Host", "MasterCalls"]

_CHECK_S = 3.0


class Host(Protocol):
    """What the link needs of its broker."""

    @property
    def log(self) -> IdentityLog:
        """The log of this broker."""

    @property
    def runtime(self) -> Runtime:
        """The world of this broker."""

    @property
    def metadata(self) -> Metadata:
        """The tables of this broker."""

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        """Return the answer to a request; raises as `RemotingClient.call`."""


class MasterCalls:
    """The master at *address*, or at one of *others* while it does not answer there, as its
    follower calls it."""

    def __init__(self, host: Host, address: Address, others: tuple[Address, ...]) -> None:
        self._host = host
        self._address = address
        self._places = MasterPlaces(address, others)
        self.log = host.log

    async def call(self, frame: Frame, timeout_ms: int) -> Frame:
        """Return the answer of the master; raises RemotingError."""
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
        """Return after a time."""
        await self._host.runtime.sleep(ms / 1000)
