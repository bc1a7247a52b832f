"""The sockets of a replica: the port that slaves connect to, and connections of either side.

This module, and no other of this folder, knows the event loop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from rmqstore.net import descriptors
from rmqstore.net.addresses import Address
from rmqstore.net.sockets import Connection, Listener, listen_on, make_socket
from rmqstore.replication.protocol.frames import Body

__all__ = ["Connect", "Link", "NewConnection", "NewLink", "Port", "connect"]

_Resolved = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


class Link(Protocol):
    """A connection that is read; see `rmqstore.net.sockets.Connection`."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket has not taken yet."""

    def send(self, *pieces: Body) -> None:
        """Send bytes after those sent earlier."""

    def hand_over(self) -> int:
        """Return the descriptor for another reader and writer, until `take_back`."""

    def take_back(self) -> None:
        """Continue where the other reader and writer stopped."""

    def pause(self) -> None:
        """Stop reading until `resume`."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Close the connection immediately. A second call does nothing."""


class NewLink(Protocol):
    """A connection that is not read yet."""

    def refusal(self) -> str:
        """Return why this process has no descriptor for an accepted connection, "" if it has."""

    def open(
        self,
        *,
        read_bytes: int,
        on_data: Callable[[bytes], None],
        on_drained: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> Link:
        """Read the connection from here on."""

    def close(self) -> None:
        """Close the connection without reading it."""


class Connect(Protocol):
    """Makes a connection to a master."""

    async def __call__(self, place: Address, *, limit_s: float) -> NewLink:
        """Return the connection. Raises OSError, and its subclass TimeoutError after *limit_s*."""


class NewConnection:
    """A `NewLink` over a connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def refusal(self) -> str:
        return descriptors.refusal(self._socket.fileno(), is_client=False)

    def open(
        self,
        *,
        read_bytes: int,
        on_data: Callable[[bytes], None],
        on_drained: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> Connection:
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(
            asyncio.get_running_loop(),
            self._socket,
            read_bytes=read_bytes,
            on_data=on_data,
            on_drained=on_drained,
            on_lost=on_lost,
        )

    def close(self) -> None:
        self._socket.close()


async def connect(place: Address, *, limit_s: float) -> NewConnection:
    """See `Connect`."""
    async with asyncio.timeout(limit_s):
        family, kind, number, _, address = (await _resolve(place))[0]
        sock = make_socket(partial(socket.socket, family, kind, number))
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
    return NewConnection(sock)


async def _resolve(place: Address) -> Sequence[_Resolved]:
    host, port = place
    with suppress(socket.gaierror):
        # A number needs no resolver, and no thread to wait for one.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class Port:
    """The port at *place*, which is bound on any thread. Raises ArgumentError where it cannot be
    had."""

    def __init__(self, place: Address) -> None:
        self._socket = listen_on(place)
        self._listener: Listener | None = None

    @property
    def address(self) -> Address:
        """Where the port is, with the number that was found for 0."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def accept(
        self, take: Callable[[NewLink, Address], None], *, warn: Callable[[str], None]
    ) -> None:
        """Call *take* with each connection and its peer, and *warn* with the reason when none can
        be accepted for a while; all on the running loop."""
        self._listener = Listener(
            asyncio.get_running_loop(),
            self._socket,
            lambda sock, peer: take(NewConnection(sock), peer),
            warn=warn,
        )

    def close(self) -> None:
        """Stop accepting connections."""
        if self._listener is None:
            self._socket.close()
        else:
            self._listener.close()
