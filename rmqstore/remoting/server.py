"""A server of the remoting protocol on asyncio.

    async def route(connection: RemotingConnection, request: Frame) -> Frame:
        header = GetRouteInfoRequestHeader.from_fields(request.ext_fields)
        return request.respond(ResponseCode.SUCCESS, body=fastjson.dumps(...))

    handlers = {RequestCode.GET_ROUTEINFO_BY_TOPIC: route}
    async with RemotingServer("0.0.0.0:9876", handlers) as server:
        ...

The first byte of a connection shows what follows: a HAProxy preface, TLS, or a frame.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

from rmqstore import arguments
from rmqstore.errors import ArgumentError, RemotingFrameError
from rmqstore.exports import renamed_parameter
from rmqstore.net import descriptors
from rmqstore.net.addresses import Address, format_address, parse_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.seldom import Seldom
from rmqstore.net.sockets import Listener, listen_on
from rmqstore.net.supervisor import Supervisor, TaskFailure
from rmqstore.net.tls import TlsMode, TlsServer
from rmqstore.remoting.connection import (
    ConnectionLimits,
    Handler,
    MemoryBudget,
    RemotingConnection,
)
from rmqstore.remoting.preface import begins_preface, missing_bytes, source_of

__all__ = ["FAST_PORT_DISTANCE", "ConnectionMaker", "RemotingServer", "ServerStatus"]

FAST_PORT_DISTANCE = 2
"""Distance of the fast port below the main port, as Java clients expect it."""

_TLS_HANDSHAKE = 0x16
"""The first byte of a TLS connection; no frame begins with it."""
_OPENING_TIMEOUT_S = 10.0
_PORT_TRIES = 50

_log = IdentityLog("rmqstore.remoting")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The present state of a server."""

    connections: int
    refused_connections: int
    """Connections closed on acceptance, because too many connections or files were open."""
    requests_in_progress: int
    held_bytes: int
    task_failures: tuple[TaskFailure, ...]
    """The last tasks that failed, without handlers that raised."""


class ConnectionMaker(Protocol):
    """Makes the connection of an accepted socket of *peer*."""

    def __call__(
        self, peer: Address, *, number: int, source: Address | None = None
    ) -> RemotingConnection:
        """Return a connection with the server's handlers and limits. *number* grows in the order of
        acceptance; *source* is the client that a proxy named."""


class RemotingServer:
    """Listens at *listen*, "host:port" or a pair, and answers by *handlers*.

    A handler gets the connection and the request. It returns the answer, or None. RequestRefused is
    answered with its own code; any other exception is logged and answered with SYSTEM_ERROR.
    Requests without a handler are answered with REQUEST_CODE_NOT_SUPPORTED.

    With *fast_handlers* the server also listens two ports below, only for these handlers. Port 0
    lets the system choose. Entering the context raises ArgumentError if the server cannot listen.
    """

    @renamed_parameter("close_timeout_s", "close_timeout")
    def __init__(
        self,
        listen: str | Address,
        handlers: Mapping[int, Handler],
        *,
        fast_handlers: Mapping[int, Handler] | None = None,
        tls: TlsServer | None = None,
        limits: ConnectionLimits | None = None,
        connections_max: int = 20_000,
        held_bytes_max: int = 256 * 1024 * 1024,
        close_timeout: float = 3.0,
    ) -> None:
        """*connections_max* connections may be open at once, fewer where the process would have too
        few descriptors left for files; together they hold *held_bytes_max* bytes of frames.
        Requests in progress at closing get *close_timeout* seconds."""
        arguments.mapping("handlers", handlers, "a dict of handlers by request code")
        for name, value, kind in (
            ("fast_handlers", fast_handlers, Mapping),
            ("tls", tls, TlsServer),
            ("limits", limits, ConnectionLimits),
        ):
            if value is not None:
                arguments.instance(name, value, kind)
        connections_max = arguments.integer("connections_max", connections_max, low=1)
        held_bytes_max = arguments.integer("held_bytes_max", held_bytes_max, low=1)
        close_timeout = arguments.seconds("close_timeout", close_timeout)
        self._listen = parse_address(listen, low_port=0)
        if fast_handlers is not None and 0 < self._listen[1] <= FAST_PORT_DISTANCE:
            raise ArgumentError(
                f"port {self._listen[1]} has no fast port {FAST_PORT_DISTANCE} below it; "
                f"give a port above {FAST_PORT_DISTANCE}"
            )
        self._handlers = handlers
        self._fast_handlers = fast_handlers
        self._mode = TlsMode.DISABLED if tls is None else tls.mode
        self._context = tls.context() if tls and tls.mode is not TlsMode.DISABLED else None
        self._limits = limits or ConnectionLimits()
        self._connections_max = connections_max
        self._budget = MemoryBudget(held_bytes_max)
        self._close_timeout = close_timeout
        self._openings = Supervisor("remoting server", log=_log)
        self._requests = Supervisor("remoting server", log=_log)
        self._sockets: list[socket.socket] = []
        """Sockets that are bound but do not accept yet."""
        self._listeners: list[Listener] = []
        self._addresses: list[Address] = []
        self._is_started = False
        self._refused = 0
        self._notices = Seldom(_log)
        self._numbers = itertools.count(1)
        self._connections: dict[RemotingConnection, None] = {}
        """In the order of acceptance."""

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> Address:
        """Host and port at which the server listens."""
        return self._addresses[0]

    @property
    def fast_address(self) -> Address | None:
        """Host and port of the fast port, None without one."""
        return self._addresses[1] if len(self._addresses) > 1 else None

    @property
    def connections(self) -> tuple[RemotingConnection, ...]:
        """The open connections."""
        return tuple(self._connections)

    def status(self) -> ServerStatus:
        """Return the present counts."""
        return ServerStatus(
            connections=len(self._connections),
            refused_connections=self._refused,
            requests_in_progress=sum(each.requests_in_progress for each in self._connections),
            held_bytes=self._budget.used_bytes,
            task_failures=(*self._openings.failures, *self._requests.failures),
        )

    def bind(self) -> None:
        """Bind the address before `start`; clients that connect wait until then. Raises
        ArgumentError where the address cannot be used."""
        if self._addresses:
            raise ArgumentError("the server is bound already; bind it once")
        self._addresses = self._bind(self._listen, has_fast_port=self._fast_handlers is not None)

    def start(self) -> None:
        """Listen, on the running loop. Raises ArgumentError where the address cannot be used."""
        if self._is_started:
            raise ArgumentError("the server runs already; start it once")
        if not self._addresses:
            self.bind()
        self._is_started = True
        both = (self._handlers, self._fast_handlers)
        self._accept(
            [partial(self._new_connection, handlers=each) for each in both if each is not None]
        )

    async def close(self) -> None:
        """Stop listening, give requests in progress time to finish, then close all connections."""
        self._stop_listening()
        await self._openings.close()
        for connection in self._connections:
            connection.refuse_requests()

        loop = asyncio.get_running_loop()
        end = loop.time() + self._close_timeout
        while loop.time() < end and any(each.requests_in_progress for each in self._connections):
            await asyncio.sleep(0.005)

        for connection in tuple(self._connections):
            connection.close("the server closes")
        while self._connections:
            await next(iter(self._connections)).wait_closed()
        await self._requests.close()

    def _bind(self, place: Address, *, has_fast_port: bool) -> list[Address]:
        """Bind *place* and, with *has_fast_port*, the fast port; return the bound addresses."""
        self._sockets = _bound(place, has_fast_port=has_fast_port)
        return [sock.getsockname()[:2] for sock in self._sockets]

    def _accept(self, makers: Sequence[ConnectionMaker]) -> None:
        """Accept connections at the bound addresses, each with its maker."""
        loop = asyncio.get_running_loop()
        for sock, make in zip(self._sockets, makers, strict=True):
            take = self._taker(make)
            self._listeners.append(Listener(loop, sock, take, warn=self._notices.warning))
        self._sockets.clear()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        while self._sockets:
            self._sockets.pop().close()

    def _taker(self, make: ConnectionMaker) -> Callable[[socket.socket, Address], None]:
        def take(sock: socket.socket, peer: Address) -> None:
            reason = self._refusal(sock)
            if reason:
                sock.close()
                self._refused += 1
                self._notices.warning("%s: connection refused: %s", format_address(peer), reason)
                return
            work = self._open(sock, peer, make, number=next(self._numbers))
            self._openings.start(work, name=f"opening of {format_address(peer)}")

        return take

    def _refusal(self, sock: socket.socket) -> str:
        """Returns why an accepted connection must be closed; "" where it may stay."""
        if len(self._connections) + len(self._openings.tasks) >= self._connections_max:
            return f"{self._connections_max} connections are open, which is the limit"
        return descriptors.refusal(sock.fileno())

    async def _open(
        self, sock: socket.socket, peer: Address, make: ConnectionMaker, *, number: int
    ) -> None:
        """Detect the peer's protocol and give its socket to a connection."""
        try:
            context, source = await self._first_bytes(sock)
        except ConnectionError as error:
            # Many checks of health do nothing but connect.
            _log.debug("%s: not opened: %s", format_address(peer), error)
            sock.close()
            return
        except (OSError, RemotingFrameError) as error:
            self._notices.info("%s: not opened: %s", format_address(peer), error or "too slow")
            sock.close()
            return
        except BaseException:
            sock.close()
            raise

        connection = make(peer, source=source, number=number)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=context,
                ssl_handshake_timeout=_OPENING_TIMEOUT_S if context else None,
            )
        except OSError as error:
            self._remove(connection)
            self._notices.info("%s: TLS handshake failed: %s", format_address(peer), error)
        except BaseException:
            self._remove(connection)
            raise

    def _new_connection(
        self,
        peer: Address,
        *,
        handlers: Mapping[int, Handler],
        number: int,
        source: Address | None = None,
    ) -> RemotingConnection:
        connection = RemotingConnection(
            peer,
            handlers,
            limits=self._limits,
            budget=self._budget,
            start_task=self._start_task,
            on_lost=self._remove,
            proxied_peer=source,
            number=number,
            notices=self._notices,
        )
        self._connections[connection] = None
        return connection

    def _remove(self, connection: RemotingConnection) -> None:
        self._connections.pop(connection, None)

    async def _first_bytes(
        self, sock: socket.socket
    ) -> tuple[ssl.SSLContext | None, Address | None]:
        """Return the TLS context, None without TLS, and the client that a proxy named."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(self._limits.idle_timeout_s):
            first = await _peek(sock)
        source = None
        if begins_preface(first):
            async with asyncio.timeout(_OPENING_TIMEOUT_S):
                source = await _read_preface(sock)
                first = await _peek(sock)

        is_tls = first == _TLS_HANDSHAKE
        if is_tls and self._context is None:
            raise RemotingFrameError("the peer uses TLS, which is disabled here")
        if not is_tls and self._mode is TlsMode.ENFORCING:
            raise RemotingFrameError("the peer does not use TLS, which is enforced here")
        return (self._context if is_tls else None), source

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[Any]:
        return self._requests.start(work, name=name)


def _bound(place: Address, *, has_fast_port: bool) -> list[socket.socket]:
    """Return the bound socket and, with *has_fast_port*, that of the fast port."""
    host, port = place
    if not has_fast_port:
        return [listen_on(place)]
    for _ in range(_PORT_TRIES):
        main = listen_on(place)
        try:
            fast = listen_on((host, main.getsockname()[1] - FAST_PORT_DISTANCE))
        except ArgumentError:
            main.close()
            if port:
                raise
        else:
            return [main, fast]
    raise ArgumentError(
        f"no two free ports {FAST_PORT_DISTANCE} apart at {host} in {_PORT_TRIES} tries; "
        "name a port"
    )


async def _peek(sock: socket.socket) -> int:
    """Return the first byte that *sock* received, without removing it."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            readable = loop.create_future()
            loop.add_reader(sock, _set, readable)
            try:
                await readable
            finally:
                loop.remove_reader(sock)
        else:
            if not data:
                raise ConnectionAbortedError("the peer closed the connection before the first byte")
            return data[0]


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _read_preface(sock: socket.socket) -> Address | None:
    held = b""
    while missing := missing_bytes(held):
        data = await asyncio.get_running_loop().sock_recv(sock, missing)
        if not data:
            raise RemotingFrameError("the peer closed the connection in its preface")
        held += data
    return source_of(held)
