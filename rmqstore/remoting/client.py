"""A client of the remoting protocol on asyncio.

    async with RemotingClient() as client:
        request = Frame.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await client.call("10.0.0.1:9876", request, timeout=3.0)

Each address has one connection, which is opened when a call needs it and opened again after a loss.
Many calls may wait on one connection; answers arrive in any order and are matched by their opaque.
A request is sent once: when the connection ends, the call raises, and the caller decides on a
retry.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from rmqstore import arguments
from rmqstore.errors import RemotingClosedError, RemotingConnectError, RemotingError
from rmqstore.exports import renamed_parameter
from rmqstore.net.addresses import Address, format_address, ip_of, parse_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.seldom import Seldom
from rmqstore.net.sockets import make_socket
from rmqstore.net.supervisor import Supervisor
from rmqstore.net.tls import TlsClient
from rmqstore.remoting.connection import (
    ConnectionLimits,
    Handler,
    MemoryBudget,
    RemotingConnection,
)
from rmqstore.remoting.frames import Frame, name_of_request

__all__ = ["RemotingClient"]

_log = IdentityLog("rmqstore.remoting")


class RemotingClient:
    """Sends requests to any number of servers, all on the loop that it is used on.

    *handlers* answer the requests that servers send, as those of a RemotingServer do.
    *connections_max* connections may be open at once; above the limit, the least recently used
    connection without calls is closed.
    """

    @renamed_parameter("connect_timeout_s", "connect_timeout")
    def __init__(
        self,
        handlers: Mapping[int, Handler] = MappingProxyType({}),
        *,
        tls: TlsClient | None = None,
        limits: ConnectionLimits | None = None,
        connections_max: int = 1024,
        connect_timeout: float = 3.0,
        held_bytes_max: int = 256 * 1024 * 1024,
    ) -> None:
        arguments.mapping("handlers", handlers, "a dict of handlers by request code")
        for name, value, kind in (("tls", tls, TlsClient), ("limits", limits, ConnectionLimits)):
            if value is not None:
                arguments.instance(name, value, kind)
        connections_max = arguments.integer("connections_max", connections_max, low=1)
        held_bytes_max = arguments.integer("held_bytes_max", held_bytes_max, low=1)
        connect_timeout = arguments.seconds("connect_timeout", connect_timeout)
        self._handlers = handlers
        self._tls = None if tls is None else tls.context()
        self._limits = limits or ConnectionLimits()
        self._connections_max = connections_max
        self._connect_timeout = connect_timeout
        self._budget = MemoryBudget(held_bytes_max)
        self._notices = Seldom(_log)
        self._openings = Supervisor("remoting client", log=_log)
        self._requests = Supervisor("remoting client", log=_log)
        self._opening: dict[Address, asyncio.Task[RemotingConnection | RemotingError]] = {}
        self._connections: dict[Address, RemotingConnection] = {}
        """Open connections by address, the least recently used first."""
        self._alive: dict[RemotingConnection, None] = {}
        """Open connections, and connections that are still closing, in the order of their
        opening."""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connections(self) -> tuple[RemotingConnection, ...]:
        """The open connections."""
        return tuple(self._connections.values())

    async def call(self, address: str | Address, request: Frame, timeout: float = 3.0) -> Frame:
        """Return the answer of the server at *address* to *request*, with any code;
        `Frame.raise_for_code` raises for codes that are not accepted.

        Raises RemotingConnectError where the request was not sent, RemotingClosedError and
        RemotingTimeout where the server may have carried the request out. *timeout* is in seconds
        and includes the time to connect.
        """
        timeout = _checked(request, timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await self._connected(address, request, timeout)
        return await connection.call(request, timeout=max(0.0, deadline - loop.time()))

    async def send_one_way(
        self, address: str | Address, request: Frame, timeout: float = 3.0
    ) -> None:
        """Send *request*, which is not answered; return when the socket may take it. Raises as
        `call` does."""
        timeout = _checked(request, timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await self._connected(address, request, timeout)
        await connection.send_one_way(request, timeout=max(0.0, deadline - loop.time()))

    def connection_to(self, address: str | Address) -> RemotingConnection | None:
        """Return the open connection to *address*, None without one."""
        return self._connections.get(parse_address(address))

    def disconnect(self, address: str | Address) -> None:
        """Close the connection to *address*, if there is one; the next call opens another."""
        connection = self._connections.pop(parse_address(address), None)
        if connection is not None:
            connection.close("closed by this side")

    async def close(self) -> None:
        """Close every connection. Calls that wait raise RemotingClosedError."""
        self._is_closed = True
        await self._openings.close()
        for connection in tuple(self._alive):
            connection.close("the client closes")
        while self._alive:
            await next(iter(self._alive)).wait_closed()
        await self._requests.close()

    async def _connected(
        self, address: str | Address, request: Frame, timeout: float
    ) -> RemotingConnection:
        place = parse_address(address)
        if self._is_closed:
            raise RemotingClosedError(
                f"the client is closed; request {name_of_request(request.code)} was not sent"
            )
        connection = self._connections.pop(place, None)
        if connection is not None and connection.is_open:
            self._connections[place] = connection  # Now the most recently used.
            return connection

        opening = self._opening.get(place)
        if opening is None:
            opening = self._openings.start(
                self._open(place), name=f"opening of {format_address(place)}"
            )
            self._opening[place] = opening
            opening.add_done_callback(lambda _: self._opening.pop(place, None))
        try:
            async with asyncio.timeout(timeout):
                # Other calls may wait for the same connection.
                found = await asyncio.shield(opening)
        except TimeoutError:
            raise RemotingConnectError(
                f"no connection to {format_address(place)} within {timeout:.3g} s; "
                f"request {name_of_request(request.code)} was not sent"
            ) from None
        except asyncio.CancelledError:
            if self._is_closed and opening.cancelled():
                raise RemotingClosedError("the client was closed while it connected") from None
            raise
        if isinstance(found, RemotingError):
            raise found
        return found

    async def _open(self, place: Address) -> RemotingConnection | RemotingError:
        """Return a connection to *place*, or the reason why there is no connection."""
        if not self._make_room():
            return RemotingConnectError(
                f"{len(self._connections)} connections wait for answers, the limit is "
                f"{self._connections_max}; raise connections_max"
            )
        connection = RemotingConnection(
            place,
            self._handlers,
            limits=self._limits,
            budget=self._budget,
            start_task=lambda work, name: self._requests.start(work, name=name),
            on_lost=self._remove,
            notices=self._notices,
        )
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._connect(place, connection)
        except OSError as error:
            why = f"{error}" or f"no answer within {self._connect_timeout} s"
            return RemotingConnectError(
                f"cannot connect to {format_address(place)}: {why}; "
                "check the address and that the server runs"
            )
        if connection.is_open:
            self._connections[place] = connection
        if not connection.is_lost:
            self._alive[connection] = None
        return connection

    def _make_room(self) -> bool:
        if len(self._connections) + len(self._opening) <= self._connections_max:
            return True
        for place, connection in self._connections.items():
            if not connection.calls_waiting:
                del self._connections[place]
                connection.close("closed to make room for another connection")
                return True
        return False

    async def _connect(self, place: Address, connection: RemotingConnection) -> None:
        host, port = place
        loop = asyncio.get_running_loop()
        try:
            family = socket.AF_INET6 if ip_of(host).version == 6 else socket.AF_INET
            ends: list[Any] = [(family, (host, port))]
        except ValueError:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            ends = [(each[0], each[4]) for each in found]

        failure: OSError | None = None
        for family, end in ends:
            sock = make_socket(functools.partial(socket.socket, family, socket.SOCK_STREAM))
            try:
                sock.setblocking(False)
                await loop.sock_connect(sock, end)
            except OSError as error:
                sock.close()
                failure = error
                continue
            except BaseException:
                sock.close()
                raise
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=self._tls,
                server_hostname=host if self._tls else None,
            )
            return
        assert failure is not None
        raise failure

    def _remove(self, connection: RemotingConnection) -> None:
        self._alive.pop(connection, None)
        if self._connections.get(connection.peer) is connection:
            del self._connections[connection.peer]


def _checked(request: object, timeout: object) -> float:
    """Returns the timeout of a call in seconds; refuses wrong arguments."""
    arguments.instance("request", request, Frame)
    return arguments.seconds("timeout", timeout)
