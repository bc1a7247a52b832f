"""Peers and waits shared by the random schedules of both sides of a pumped connection."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rmqstore.replication.protocol.events import (
    HaOptions,
)
from tests.service.ha_driver import Driver
from tests.service.pumps import PATIENCE_MS

ACTIONS_MAX = 10
BATCH = 1000
OPTIONS = HaOptions(
    batch_bytes=BATCH, overlap_bytes=0, heartbeat_ms=2**30, housekeeping_ms=2**30, reconnect_ms=0
)
KINDS = ("classic", "switch", "checked")
SIZES = (5, 60, 300, 900, 2500, 7000)


def settle(
    is_settled: Callable[[], bool], drivers: list[Driver], what: Callable[[], object]
) -> None:
    """Run the drivers until the condition holds."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        for each in drivers:
            each.work()
        if is_settled():
            return
        assert time.monotonic() < deadline, what()
        pumps = [each.pump for each in drivers if each.pump is not None and each.over is None]
        select.select(pumps, [], [], 0.0002)


def end_of(driver: Driver) -> str | None:
    """Return why the connection ended, without byte counts, which differ between the two ways."""
    return None if driver.over is None else re.sub(r", byte \d+", "", driver.over)


def connect(stack: ExitStack, buffer_bytes: int) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        stack.callback(each.close)
        each.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    return ours, theirs


class Peer:
    """The other end of one way's connection."""

    def __init__(self, driver: Driver, sock: socket.socket, parser: Any) -> None:
        self.driver, self.sock = driver, sock
        self.parser = parser
        self.unsent = b""

    def send(self, data: bytes) -> None:
        self.unsent += data
        self.flush()

    def flush(self) -> None:
        try:
            while self.unsent and self.sock.fileno() >= 0:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # the other side has closed
            self.unsent = b""

    def frames(self, size: int = 1 << 20) -> list[Any]:
        """Return the frames that the next *size* bytes make whole."""
        found: list[Any] = []
        while size > 0:
            try:
                data = self.sock.recv(min(size, 1 << 16))
            except (BlockingIOError, ConnectionError):
                break
            if not data:
                break
            size -= len(data)
            found += self.parser.feed(data)
        return found


# ---- masters
