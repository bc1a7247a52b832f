"""The common part of an operator's requests to a list of servers.

A query goes to the first server that answers, a change to all servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rmqstore.config import parse_properties
from rmqstore.errors import ArgumentError, RemotingError, RemotingFrameError
from rmqstore.net.addresses import Address, format_address, parse_address
from rmqstore.net.tls import TlsClient
from rmqstore.remoting.bodies.epochs import EpochCache
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.typed_calls import typed

__all__ = ["Change", "ServerAdmin"]


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a change at one server."""

    address: str
    error: RemotingError | None = None
    """Why the change failed, None after success."""
    topic_count: int | None = None
    """After a change of permissions, the number of changed topics."""
    remark: str | None = None
    """A remark of the server: not every member of its group has the change yet."""


@typed()
class ServerAdmin:
    """Sends requests to the servers of *addresses*, "host:port" separated by `;`, or one pair.

    *server* is the kind of server for messages, *default_port* the port of an address without a
    port. Each call takes *timeout* seconds at most for each server. *tls* makes connections use
    TLS. Raises ArgumentError for an invalid address.
    """

    def __init__(
        self,
        addresses: str | Address,
        *,
        server: str,
        default_port: int,
        timeout: float,
        tls: TlsClient | None,
    ) -> None:
        if not isinstance(addresses, str):
            addresses = format_address(parse_address(addresses))
        parts = [part.strip() for part in addresses.split(";") if part.strip()]
        if not parts:
            raise ArgumentError(
                f"{addresses!r} contains no address; give {server}s such as 10.0.0.1:{default_port}"
            )
        places = [parse_address(part, default_port=default_port) for part in parts]
        self.addresses = tuple(map(format_address, places))
        self._server = server
        self._timeout = timeout
        self._client = RemotingClient(tls=tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def epoch_cache(self, broker: str) -> EpochCache:
        """Return the epochs of the broker at the address *broker*. Raises RemotingError."""
        answer = await self._call(broker, RequestCode.GET_BROKER_EPOCH_CACHE)
        return EpochCache.decode(answer.raise_for_code().body)

    async def broker_status(self, broker: str) -> Mapping[str, str]:
        """Return the state that the broker at the address *broker* reports, by name.

        Raises RemotingError.
        """
        answer = await self._call(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KvTable.decode(answer.raise_for_code().body).table

    async def _call(
        self, address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        """Return the answer of one server, with any code."""
        return await self._client.call(address, Frame.request(code, fields, body), self._timeout)

    async def _query(self, code: int, fields: Mapping[str, str] | None = None) -> Frame:
        """Return the answer of the first server that answers, with any code."""
        errors = []
        for address in self.addresses:
            try:
                return await self._call(address, code, fields)
            except RemotingError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise RemotingError(f"no {self._server} answered: " + "; ".join(map(str, errors)))

    async def _change(
        self,
        code: int,
        fields: Mapping[str, str] | None,
        body: bytes = b"",
        *,
        topic_count: Callable[[Mapping[str, str]], int] | None = None,
    ) -> Sequence[Change]:
        """Request a change from every server, and return each result."""

        async def change(address: str) -> Change:
            try:
                answer = (await self._call(address, code, fields, body)).raise_for_code()
                return Change(address, topic_count=topic_count and topic_count(answer.ext_fields))
            except RemotingError as error:
                return Change(address, error)

        return await asyncio.gather(*map(change, self.addresses))

    async def _configurations(self, code: int) -> Mapping[str, Mapping[str, str]]:
        """Return the configuration of every server by its address."""
        found = {}
        for address in self.addresses:
            answer = (await self._call(address, code)).raise_for_code()
            try:
                found[address] = parse_properties(answer.body.decode())
            except ValueError as error:
                raise RemotingFrameError(
                    f"the configuration of {address} cannot be read: {error}"
                ) from error
        return found
