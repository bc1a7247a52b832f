"""The part of a broker that operations use."""

from __future__ import annotations

from typing import Protocol

from rmqstore.aio import AsyncStore
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.traffic import Traffic
from rmqstore.config import BrokerConfig
from rmqstore.errors import RequestRefused
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import Runtime
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.broker_view import BrokerView

__all__ = [
    "Core",
    "ViewOf",
    "dispatched",
    "refuse_negative",
    "refuse_other_than_master",
    "refuse_slave",
]

_DISPATCH_S, _DISPATCH_LOOKS = 0.002, 500


class Core(Protocol):
    """Store, tables, role and counts of a broker; everything is used on its event loop."""

    @property
    def config(self) -> BrokerConfig:
        """The settings, with the detected host and name if the file names none."""

    @property
    def log(self) -> IdentityLog:
        """The log of this broker."""

    @property
    def runtime(self) -> Runtime:
        """The world of this broker."""

    @property
    def store(self) -> AsyncStore:
        """The store, open."""

    @property
    def metadata(self) -> Metadata:
        """Topics, groups and offsets."""

    @property
    def traffic(self) -> Traffic:
        """The counts of messages stored and sent."""

    @property
    def role(self) -> Role:
        """The present role."""

    @property
    def is_leading(self) -> bool:
        """Whether this is the master, and no other one can have been elected."""

    @property
    def is_shown_as_master(self) -> bool:
        """Whether routes name this broker as the master, read-only, although it is a slave."""

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""

    async def registered(self) -> None:
        """Return when every nameserver that answers has the present state of this broker."""


class ViewOf:
    """The store of a broker as operations call it, which opens after the operations are made."""

    __slots__ = ("_core", "_view")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view: BrokerView | None = None

    def __call__(self) -> BrokerView:
        if self._view is None:
            self._view = BrokerView(self._core.store.store)
        return self._view


async def dispatched(core: Core) -> None:
    """Return once the messages that were acknowledged are in their queues and the index, or soon
    where that does not happen."""
    store = core.store.store
    end = min(store.end_offset, store.confirm_offset)
    for _ in range(_DISPATCH_LOOKS):
        if store.dispatched_offset >= end:
            return
        await core.runtime.sleep(_DISPATCH_S)


def refuse_negative(queue: int) -> None:
    """Raise RequestRefused (INVALID_PARAMETER) for a negative number of a queue."""
    if queue < 0:
        raise RequestRefused(
            f"queueId[{queue}] is illegal; queues are numbered from 0",
            code=ResponseCode.INVALID_PARAMETER,
        )


def refuse_other_than_master(role: Role) -> None:
    """Raise RequestRefused (SERVICE_NOT_AVAILABLE) in a role that stores no messages."""
    if role.waits_for:
        raise RequestRefused(
            f"this broker takes no messages: {role.waits_for}",
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
        )
    if not role.is_master:
        raise RequestRefused(
            f"this broker is a {role.name}; the master is "
            f"{role.master_address or 'not known here'}: get the route again",
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
        )


def refuse_slave(role: Role, what: str) -> None:
    """Raise RequestRefused (SYSTEM_ERROR) for *what*, which only the master does."""
    if not role.is_master:
        raise RequestRefused(f"Can not {what} in slave broker", code=ResponseCode.SYSTEM_ERROR)
