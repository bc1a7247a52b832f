"""Sockets of replication: one connection on an event loop, addresses, and the loop's thread.

A link knows bytes, not frames. What it keeps unsent is bounded by whoever sends: a machine hands
out a window and then waits until the socket took all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

from rmqstore import arguments, forks
from rmqstore._native.core import AckBoard, HaPump, LogWatch
from rmqstore.errors import ArgumentError, ArgumentTypeError, StoreClosedError
from rmqstore.replication.frames import Body
from rmqstore.store import Store

if TYPE_CHECKING:
    import logging

__all__ = [
    "Address",
    "Allowed",
    "Link",
    "Listener",
    "LoopThread",
    "Seldom",
    "ip_of",
    "listen_on",
    "log",
    "make_pump",
    "make_socket",
    "make_watch",
    "now_ms",
    "parse_address",
    "told",
]

Address = tuple[str, int]
T = TypeVar("T")

_PIECES_MAX = 256
_BACKLOG = 64
_ACCEPTS_MAX = 16
_ACCEPT_PAUSE_S = 1.0
_ALIVE_S = 1.0


def log() -> logging.Logger:
    """Return the logger of replication."""
    import logging

    return logging.getLogger("rmqstore.replication")


def now_ms() -> int:
    """Return a clock that never goes back, the one of all timers and leases of replication."""
    return time.monotonic_ns() // 1_000_000


class Seldom:
    """Writes a few warnings a second, however often it is asked to."""

    def __init__(self, *, per_second: int = 5) -> None:
        self._per_second = per_second
        self._second = -1
        self._count = 0

    def warning(self, text: str, *values: object) -> None:
        """Write a warning, unless there were too many."""
        second = now_ms() // 1000
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        if self._count <= self._per_second:
            log().warning(text, *values)


# ---- addresses


def parse_address(place: str | Address, *, low_port: int = 1) -> Address:
    """Return host and port of *place*, "host:port", "[v6]:port" or a pair of them.

    Raises ArgumentError without a host: to which network a port is open is said, never assumed.
    """
    if isinstance(place, str):
        host, _, digits = place.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        port = int(digits) if digits.isascii() and digits.isdecimal() else -1
    else:
        host, port = _pair_of(place)
    if not host or host == "*" or not low_port <= port <= 65535:
        raise ArgumentError(
            f"{arguments.shown(place)} is no address: give host and port as in 127.0.0.1:10912, "
            f"the port from {low_port} to 65535; 0.0.0.0 for every interface"
        )
    return host, port


def _pair_of(place: object) -> Address:
    if isinstance(place, tuple | list) and len(place) == 2:
        host, port = place
        if isinstance(host, str) and isinstance(port, int) and not isinstance(port, bool):
            return host, port
    raise ArgumentTypeError(
        f"{arguments.shown(place)} is no address: give host and port as in 127.0.0.1:10912"
    )


def told(address: Address) -> str:
    """Return *address* as text that `parse_address` reads."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def make_socket(maker: Callable[[], socket.socket]) -> socket.socket:
    """Return the socket that *maker* makes, which a forked child will not keep: ports and
    connections are its parent's."""
    return forks.make(maker, socket.socket.close)


def make_pump(store: Store, board: AckBoard | None = None) -> HaPump:
    """Return a pump of *store*, which a forked child will not keep."""
    return forks.make(
        lambda: HaPump(store, board),
        HaPump._disown,
        before=HaPump._before_fork,
        in_parent=HaPump._go_on,
    )


def make_watch(store: Store) -> LogWatch:
    """Return a watch of the log of *store*, which a forked child will not keep."""
    return forks.make(lambda: LogWatch(store), LogWatch._disown)


def listen_on(place: Address) -> socket.socket:
    """Return a socket that listens at *place*, non-blocking. Raises ArgumentError with the reason
    where that cannot be."""
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
        raise ArgumentError(f"cannot listen at {host}:{port}: {error}; give another") from error
    return listener


class Allowed:
    """The networks that connections are taken from; all without any."""

    def __init__(self, networks: Iterable[str]) -> None:
        try:
            self._networks = [ipaddress.ip_network(each) for each in networks]
        except ValueError as error:
            raise ArgumentError(f"allow: {error}; give networks as in 10.0.0.0/8") from error

    def takes(self, host: str) -> bool:
        """Whether a connection from *host*, a number, is taken."""
        if not self._networks:
            return True
        address = ip_of(host)
        return any(address in network for network in self._networks)

    def __str__(self) -> str:
        return ", ".join(map(str, self._networks)) or "all networks"


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return *host*, a number, with a v4 address in v6 clothes as what it is."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


# ---- a connection


class Link:
    """A connected, non-blocking socket on *loop*; all calls come from the loop's thread.

    *on_data* gets at most *read_bytes* at a time. *on_drained* comes, never from within `send`,
    each time the socket has taken all that was sent; *on_lost* once when the peer is gone. After
    `close` nothing comes any more.
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
        self.is_open = True
        self.unsent_bytes = 0
        """Bytes that the socket has not taken yet."""
        loop.add_reader(sock, self._read)

    def send(self, *pieces: Body) -> None:
        """Send bytes behind those sent before. They must not change until the socket took them."""
        if not self.is_open:
            return
        for piece in pieces:
            if len(piece):
                self._out.append(piece)
                self.unsent_bytes += len(piece)
        if not self._is_writing:
            self._write()

    def hand_over(self) -> int:
        """Return the socket's descriptor for another reader and writer, until `take_back`; all that
        was sent has left."""
        assert not self._out, "what was sent would come behind what the other one sends"
        self._loop.remove_reader(self._socket)
        return self._socket.fileno()

    def take_back(self) -> None:
        """Go on where the other reader and writer stopped."""
        if self.is_open:
            self._loop.add_reader(self._socket, self._read)

    def close(self) -> None:
        """Close the connection, at once. Twice is harmless."""
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
                # Whoever sends is in the middle of its work.
                self._loop.call_soon(self._lose, f"writing failed: {error}")
                self._out.clear()
                break
            self._drop(taken)
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)
        if not self._is_telling:
            self._is_telling = True
            self._loop.call_soon(self._tell)

    def _drop(self, size: int) -> None:
        self.unsent_bytes -= size
        while size:
            first = self._out.popleft()
            if size < len(first):
                self._out.appendleft(memoryview(first)[size:])
                return
            size -= len(first)

    def _tell(self) -> None:
        self._is_telling = False
        if self.is_open and not self._out:
            self._on_drained()

    def _lose(self, reason: str) -> None:
        if self.is_open:
            self.close()
            self._on_lost(reason)


class Listener:
    """A listening socket on *loop*: every connection goes, with its peer, to *take*."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        take: Callable[[socket.socket, Address], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._take = take
        self._is_open = True
        loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Take no more connections."""
        self._is_open = False
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        peers: list[Address] = []

        def accept() -> socket.socket:
            sock, peer = self._socket.accept()
            peers.append(peer[:2])
            return sock

        for _ in range(_ACCEPTS_MAX):
            try:
                sock = make_socket(accept)
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                # No descriptors left, say. The connection that waits would call again at once.
                log().warning("accepting connections: %s", error)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_ACCEPT_PAUSE_S, self._go_on)
                return
            self._take(sock, peers.pop())

    def _go_on(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._socket, self._accept)


# ---- the thread


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that a forked child can let go of."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        super().__init__(selector)
        self._kept = selector

    def close_in_child(self) -> None:
        """Close the descriptors of the loop, which never runs in a child."""
        # Not close(): that would take sockets out of the selector, which is the parent's too.
        self._kept.close()
        for name in ("_ssock", "_csock"):
            sock: socket.socket | None = getattr(self, name, None)
            if sock is not None:
                sock.close()


def _make_loop() -> _Loop:
    selector = selectors.DefaultSelector()
    try:
        return _Loop(selector)
    except BaseException:
        selector.close()
        raise


class LoopThread:
    """A daemon thread that runs an event loop."""

    def __init__(self, name: str) -> None:
        self.loop = forks.make(_make_loop, _Loop.close_in_child)
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.loop.close()
            raise

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def call(self, work: Callable[[], T]) -> T:
        """Return what *work* returns on the loop's thread, or raise what it raises."""
        if self.is_current:
            return work()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._hand_over(run)
        while wait([future], _ALIVE_S).not_done:
            if not (self._thread.is_alive() or future.done()):
                raise StoreClosedError("replication of the store was closed")
        return future.result()

    def stop(self) -> None:
        """End the thread. Not from the thread itself. Twice is harmless."""
        with contextlib.suppress(StoreClosedError):
            self._hand_over(self.loop.stop)
        if self._process_id == os.getpid():
            self._thread.join()

    def _hand_over(self, work: Callable[[], None]) -> None:
        if self._process_id != os.getpid():
            raise StoreClosedError("replication was begun before a fork; begin it in this process")
        try:
            self.loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise StoreClosedError("replication of the store was closed") from None

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
