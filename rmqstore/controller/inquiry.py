"""The query whether a broker serves as the master of its group."""

from __future__ import annotations

from rmqstore.errors import RemotingError
from rmqstore.net.tls import TlsClient
from rmqstore.remoting.bodies.epochs import EpochCache
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame

__all__ = ["serves_as_master"]

_TIMEOUT_S = 2.0
_MASTER_ID = 0


async def serves_as_master(address: str, group: str, *, tls: TlsClient | None = None) -> bool:
    """Return whether a Java broker at *address* answers as the master of *group*.

    A master names 0 in this answer in place of its id, a slave its id, and a broker that was just
    started -1 or the id of its file. Another broker may have taken the address over.
    """
    # An open connection may be one that the broker no longer serves.
    async with RemotingClient(tls=tls) as client:
        try:
            request = Frame.request(RequestCode.GET_BROKER_EPOCH_CACHE)
            answer = await client.call(address, request, timeout=_TIMEOUT_S)
            found = EpochCache.decode(answer.raise_for_code().body)
        except RemotingError:
            return False
    return found.broker_id == _MASTER_ID and found.broker_name == group
