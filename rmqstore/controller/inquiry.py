"""The query whether a broker serves as the master of its group."""

from __future__ import annotations

import enum
from collections.abc import Callable

from rmqstore.errors import RemotingError, RemotingTimeout
from rmqstore.remoting.bodies.epochs import EpochCache
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame

__all__ = ["Standing", "standing_of"]

_TIMEOUT_S = 2.0
_MASTER_ID = 0


class Standing(enum.Enum):
    """What a query found at the address of a master."""

    SERVES = enum.auto()
    SILENT = enum.auto()
    """No answer in time: the process may be stopped, or out of reach, and continue as master."""
    GONE = enum.auto()
    """No process, or one that is not the master."""


async def standing_of(
    address: str, group: str, client_of: Callable[[], RemotingClient]
) -> Standing:
    """Query the Java broker at *address*, the master of *group*, through a client of its own.

    A master names 0 in this answer in place of its id, a slave its id, and a broker that was just
    started -1 or the id of its file. Another broker may have taken the address over.
    """
    # An open connection may be one that the broker no longer serves.
    async with client_of() as client:
        try:
            request = Frame.request(RequestCode.GET_BROKER_EPOCH_CACHE)
            answer = await client.call(address, request, timeout=_TIMEOUT_S)
            found = EpochCache.decode(answer.raise_for_code().body)
        except RemotingTimeout:
            return Standing.SILENT
        except RemotingError:
            return Standing.GONE
    is_master = found.broker_id == _MASTER_ID and found.broker_name == group
    return Standing.SERVES if is_master else Standing.GONE
