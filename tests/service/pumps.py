"""Stores with a log of small files, sockets between them, and waiting that is bounded."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore._native.core import Pump, PumpReport
from rmqstore.replication.protocol.frames import ClassicData, Transfer, encode

FILE_SIZE = 16384
PATIENCE_MS = 20_000
"""Longer than any load makes a healthy run take."""
EPOCH = {"epoch": 3, "epoch_start": 0}
SIZES = (10, 700, 5000, 9000, 3000, 20, 14000, 1, 8000)
"""Bodies of a log over several files."""


def readable(what: Any) -> None:
    """Wait until there is something to read."""
    poller = select.poll()
    poller.register(what, select.POLLIN)
    assert poller.poll(PATIENCE_MS), "nothing came"


class Bench:
    """Everything that one test opens; all of it goes with the test."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root = root
        self.stack = stack
        self.stores = 0

    def store(self, *sizes: int, **settings: Any) -> rmqstore.Store:
        """Open a new store with a message for each size of a body."""
        self.stores += 1
        path = self.root / f"store{self.stores}"
        store = rmqstore.open(path, commit_log_file_size_bytes=FILE_SIZE, **settings)
        self.stack.callback(store.close)
        for number, size in enumerate(sizes):
            store.put("orders", b"%d" % (number % 10) * size)
        return store

    def pump(self, store: rmqstore.Store, board: Any = None) -> Pump:
        return self.stack.enter_context(Pump(store, board))

    def sockets(self, *, buffer_bytes: int | None = None) -> tuple[socket.socket, socket.socket]:
        """Return the pump's socket and the peer's; the latter waits for what it reads."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            self.stack.callback(each.close)
            if buffer_bytes is not None:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        ours.setblocking(False)
        theirs.settimeout(PATIENCE_MS / 1000)
        return ours, theirs


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


def log_bytes(store: rmqstore.Store) -> bytes:
    data = b"".join(Path(path).read_bytes() for path, _, _ in store._files())
    return data[: store.end_offset - max(store.start_offset, 0)]


def frames_of(
    store: rmqstore.Store,
    *,
    start: int = 0,
    end: int | None = None,
    batch_bytes: int = 32768,
    kind: str = "transfer",
    confirm_offset: int | None = None,
    epoch: int = 3,
    epoch_start: int = 0,
) -> bytes:
    """Return what a master must send of its log."""
    data, end = log_bytes(store), store.end_offset if end is None else end
    confirm = store.end_offset if confirm_offset is None else confirm_offset
    out = b""
    while start < end:
        size = min(batch_bytes, end - start, FILE_SIZE - start % FILE_SIZE)
        body = data[start : start + size]
        if kind == "classic":
            out += encode(ClassicData(start, body))
        else:
            out += encode(Transfer(start, epoch, epoch_start, confirm, body))
        start += size
    return out


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        assert more, "the connection was closed"
        data += more
    return data


def is_silent(peer: socket.socket) -> bool:
    """Tell whether nothing is there to be read at this moment."""
    poller = select.poll()
    poller.register(peer, select.POLLIN)
    return not poller.poll(0)


def report(pump: Pump, reason: str) -> PumpReport:
    """Return the next report with that reason; "acked" ones before it are passed over."""
    for _ in range(1000):
        for each in pump.poll():
            if each.reason == reason:
                return each
            assert each.reason == "acked", each
        readable(pump)
    raise AssertionError(f"no report {reason!r}")


def until(pump: Pump, link: int, is_there: Callable[[PumpReport], bool]) -> PumpReport:
    """Return the progress of *link* once it is so; reports wake up in between."""
    poller = select.poll()
    poller.register(pump, select.POLLIN)
    for _ in range(PATIENCE_MS):
        now = pump.progress(link)
        if is_there(now):
            return now
        poller.poll(1)
        assert all(each.reason == "acked" for each in pump.poll())
    raise AssertionError(f"still {now}")
