"""A peer on a socket that says and hears what a test wants: the other end of a replica."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Literal

from rmqstore.replication import ReplicatedStore
from rmqstore.replication.protocol.frames import (
    ClassicDataParser,
    Frame,
    MasterFrameParser,
    ReportParser,
    SlaveFrameParser,
    encode,
)
from tests.support.waiting import WAIT_S

Protocol = Literal["autoswitch", "classic"]
HOST = "127.0.0.1"
_CHUNK = 65536


class Peer:
    """One connection, seen from the other side."""

    def __init__(
        self, link: socket.socket, protocol: Protocol, *, hears: Literal["master", "slave"]
    ) -> None:
        self.link = link
        self.heard: list[Frame] = []
        self._parser: ClassicDataParser | MasterFrameParser | ReportParser | SlaveFrameParser
        if hears == "master":
            self._parser = ClassicDataParser() if protocol == "classic" else MasterFrameParser()
        else:
            self._parser = ReportParser() if protocol == "classic" else SlaveFrameParser()
        link.settimeout(WAIT_S)

    def say(self, *what: Frame | bytes) -> None:
        """Send frames or bytes; a connection that was closed meanwhile takes nothing."""
        with contextlib.suppress(ConnectionError):
            self.link.sendall(
                b"".join(each if isinstance(each, bytes) else encode(each) for each in what)
            )

    def say_end(self) -> None:
        """Say that nothing more comes; a connection that was closed meanwhile has no end to say."""
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_WR)

    def hear(self, enough: Callable[[list[Frame]], bool], what: str) -> None:
        """Return once what was heard is *enough*; *what* says it in words."""
        deadline = time.monotonic() + WAIT_S
        while not enough(self.heard):
            assert self._listen(deadline), f"closed before {what}: {self.heard}"

    def has_spoken(self) -> bool:
        """Tell whether a first word comes before the other side closes."""
        deadline = time.monotonic() + WAIT_S
        while not self.heard:
            if not self._listen(deadline):
                return False
        return True

    def hear_end(self) -> None:
        """Return once the other side has closed."""
        deadline = time.monotonic() + WAIT_S
        while self._listen(deadline):
            pass

    def is_open(self, within: float = 0.0) -> bool:
        """Tell whether the other side does not close within so many seconds, taking in what
        comes."""
        deadline = time.monotonic() + within
        while select.select([self.link], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            if not self._listen(time.monotonic() + WAIT_S):
                return False
        return True

    def close(self) -> None:
        self.link.close()

    def _listen(self, deadline: float) -> bool:
        self.link.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = self.link.recv(_CHUNK)
        except ConnectionError:
            return False
        self.heard += self._parser.feed(data)
        return bool(data)


@contextlib.contextmanager
def calling(replica: ReplicatedStore, protocol: Protocol) -> Iterator[Peer]:
    """Connect to a master, as its slave."""
    assert replica.address is not None
    with contextlib.closing(socket.create_connection(replica.address, timeout=WAIT_S)) as link:
        yield Peer(link, protocol, hears="master")


class FalseMaster:
    """Listens for slaves."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._listener = socket.create_server((HOST, 0))
        self._listener.settimeout(WAIT_S)
        self._accepted: list[Peer] = []
        self.address: tuple[str, int] = self._listener.getsockname()

    def accept(self) -> Peer:
        """Return the next connection of a slave."""
        link, _ = self._listener.accept()
        self._accepted.append(Peer(link, self._protocol, hears="slave"))
        return self._accepted[-1]

    def close(self) -> None:
        """Close the port and all its connections."""
        self._listener.close()
        for peer in self._accepted:
            peer.close()


@contextlib.contextmanager
def listening(protocol: Protocol) -> Iterator[FalseMaster]:
    """Listen for slaves at a free port."""
    master = FalseMaster(protocol)
    try:
        yield master
    finally:
        master.close()
