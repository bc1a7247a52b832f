"""Sockets on an event loop: one connection, and a listener that accepts them.

A connection transports bytes and does not know frames. The sender bounds its unsent bytes: it sends
a window, then waits until the socket has taken the whole window.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Callable

from rmqstore import forks
from rmqstore.errors import ArgumentError
from rmqstore.net.addresses import Address

__all__ = ["Connection", "Listener", "listen_on", "make_socket"]

Body = bytes | bytearray | memoryview

_PIECES_MAX = 256
_BACKLOG = 64
_ACCEPTS_MAX = 16
_ACCEPT_PAUSE_S = 1.0


def make_socket(maker: Callable[[], socket.socket]) -> socket.socket:
    """Return the socket that *maker* makes. A forked child closes it, because ports and connections
    belong to the parent."""
    return forks.make(maker, socket.socket.close)


def listen_on(place: Address) -> socket.socket:
    """Return a non-blocking socket that listens at *place*. Raises ArgumentError with the reason
    where listening fails."""
    host, port = place
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, number, _, address = found[0]
        listener = make_socket(lambda: socket.socket(family, kind, number))
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise ArgumentError(
            f"cannot listen at {host}:{port}: {error}; give another address"
        ) from error
    return listener


class Connection:
    """A connected, non-blocking socket on *loop*; all calls come from the loop's thread.

    *on_data* gets at most *read_bytes* at a time. *on_drained* is called each time the socket has
    taken all sent bytes, never from within `send`. *on_lost* is called once, when the peer is gone.
    After `close` there are no further calls.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        read_bytes: int,
        on_data: Callable[[bytes], None],
        on_drained: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._read_bytes = read_bytes
        self._on_data = on_data
        self._on_drained = on_drained
        self._on_lost = on_lost
        self._out: deque[Body] = deque()
        self._is_writing = False
        self._is_telling = False
        self._is_paused = self._is_handed_over = False
        self.is_open = True
        self.unsent_bytes = 0
        """Bytes that the socket has not taken yet."""
        loop.add_reader(sock, self._read)

    def send(self, *pieces: Body) -> None:
        """Send bytes after those sent earlier. They must not change until the socket took them."""
        if not self.is_open:
            return
        for piece in pieces:
            if len(piece):
                self._out.append(piece)
                self.unsent_bytes += len(piece)
        if not self._is_writing:
            self._write()

    def hand_over(self) -> int:
        """Return the socket's descriptor for another reader and writer, until `take_back`. All sent
        bytes must have left."""
        assert not self._out, "unsent bytes would follow the bytes of the other writer"
        self._is_handed_over = True
        self._follow()
        return self._socket.fileno()

    def take_back(self) -> None:
        """Continue where the other reader and writer stopped."""
        self._is_handed_over = False
        self._follow()

    def pause(self) -> None:
        """Stop reading until `resume`; the peer's bytes wait in the socket."""
        self._is_paused = True
        self._follow()

    def resume(self) -> None:
        """Read again, unless the socket is handed over."""
        self._is_paused = False
        self._follow()

    def _follow(self) -> None:
        if not self.is_open:
            return
        if self._is_paused or self._is_handed_over:
            self._loop.remove_reader(self._socket)
        else:
            self._loop.add_reader(self._socket, self._read)

    def close(self) -> None:
        """Close the connection immediately. A second call does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._out.clear()
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(f"reading failed: {error}")
            return
        if data:
            self._on_data(data)
        else:
            self._lose("the peer closed the connection")

    def _write(self) -> None:
        while self._out:
            try:
                taken = self._socket.sendmsg(itertools.islice(self._out, _PIECES_MAX))
            except (BlockingIOError, InterruptedError):
                if not self._is_writing:
                    self._is_writing = True
                    self._loop.add_writer(self._socket, self._write)
                return
            except OSError as error:
                # Called within `send`, whose caller must return first.
                self._loop.call_soon(self._lose, f"writing failed: {error}")
                self._out.clear()
                break
            self._drop(taken)
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)
        if not self._is_telling:
            self._is_telling = True
            self._loop.call_soon(self._notify)

    def _drop(self, size: int) -> None:
        self.unsent_bytes -= size
        while size:
            first = self._out.popleft()
            if size < len(first):
                self._out.appendleft(memoryview(first)[size:])
                return
            size -= len(first)

    def _notify(self) -> None:
        self._is_telling = False
        if self.is_open and not self._out:
            self._on_drained()

    def _lose(self, reason: str) -> None:
        if self.is_open:
            self.close()
            self._on_lost(reason)


class Listener:
    """A listening socket on *loop*: *take* is called with every connection and its peer.

    *warn* is called with the reason when connections cannot be accepted for a while.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        take: Callable[[socket.socket, Address], None],
        *,
        warn: Callable[[str], None],
    ) -> None:
        self._warn = warn
        self._loop = loop
        self._socket = sock
        self._take = take
        self._is_open = True
        loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Stop accepting connections."""
        self._is_open = False
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        peers: list[Address] = []

        def accept() -> socket.socket:
            sock, peer = self._socket.accept()
            # A socket for both versions shows addresses of version 4 as those of version 6.
            peers.append((peer[0].removeprefix("::ffff:"), peer[1]))
            return sock

        for _ in range(_ACCEPTS_MAX):
            try:
                sock = make_socket(accept)
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                # For example, no descriptors are left. The waiting connection would cause a busy
                # loop.
                self._warn(f"accepting connections: {error}")
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_ACCEPT_PAUSE_S, self._go_on)
                return
            self._take(sock, peers.pop())

    def _go_on(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._socket, self._accept)
