"""What a side of replication has around it in virtual time: links, a pump, a log, an owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqstore.errors import StoreError
from rmqstore.net.addresses import Address
from rmqstore.replication.protocol.events import Append, Effect
from rmqstore.replication.protocol.frames import (
    Frame,
    ReportParser,
    encode,
)
from tests.scenarios.ha_model import ModelLog
from tests.support.virtual import VirtualProcess

__all__ = ["ModelConnect", "ModelLink", "ModelOwner", "ModelPump", "SideLog"]

_PUMP = 11


class SideLog(ModelLog):
    """A log that is changed by raising calls, as that of a store; counts its checks."""

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0
        self.damage = ""

    def check(self) -> int | None:
        self.checks += 1
        return self.damaged_at

    def carry_out(self, effect: Effect) -> None:
        failure = super().carry_out(effect)
        if failure is not None:
            raise StoreError(failure)

    def let_appends_fail(self) -> None:
        """Let the disk refuse bytes of a master."""
        self.fails.add(Append)


class ModelPump:
    """A pump that gets no connection: it syncs the log when it is told."""

    def __init__(self, process: VirtualProcess) -> None:
        self._process = process
        self.flushes_to: int | None = None
        self.is_closed = False

    def fileno(self) -> int:
        return _PUMP

    def flush(self, end_offset: int) -> None:
        self.flushes_to = end_offset

    def end_sync(self, log: ModelLog) -> None:
        """End the sync that was asked for."""
        assert self.flushes_to is not None, "a sync was asked for"
        log.flushed_offset = self.flushes_to
        self._process.loop.readable(_PUMP)

    def poll(self) -> list[Any]:
        return []

    def close(self) -> None:
        self.is_closed = True


class ModelLink:
    """A new connection, and then an open one. The peer is the test."""

    def __init__(self, process: VirtualProcess, begun_ms: int) -> None:
        self._process = process
        self._begun_ms = begun_ms
        self._parser = ReportParser()
        self._unread = b""
        self._on_data: Callable[[bytes], None] | None = None
        self._on_drained: Callable[[], None]
        self._on_lost: Callable[[str], None]
        self.pieces: list[tuple[int, bytes]] = []
        """What was sent, with the times."""
        self.closed_ms: int | None = None
        self.is_paused = False
        self.is_blocked = False
        """Whether the peer reads nothing."""
        self.unsent_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether a side reads it."""
        return self._on_data is not None and self.closed_ms is None

    def _passed_ms(self) -> int:
        return self._process.now_ms() - self._begun_ms

    # ---- for the side

    def refusal(self) -> str:
        return ""

    def open(
        self,
        *,
        read_bytes: int,
        on_data: Callable[[bytes], None],
        on_drained: Callable[[], None],
        on_lost: Callable[[str], None],
    ) -> ModelLink:
        self._on_data, self._on_drained, self._on_lost = on_data, on_drained, on_lost
        return self

    def send(self, *pieces: bytes | bytearray | memoryview) -> None:
        data = b"".join(pieces)
        self.pieces.append((self._passed_ms(), data))
        if self.is_blocked:
            self.unsent_bytes += len(data)
        else:
            self._process.loop.call_soon(self._on_drained)

    def hand_over(self) -> int:
        raise AssertionError("the options ask for no streams")

    def take_back(self) -> None:
        raise AssertionError("it was not handed over")

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._process.loop.call_soon(self._read)

    def close(self) -> None:
        if self.closed_ms is None:
            self.closed_ms = self._passed_ms()

    # ---- for the test

    def take_reports(self) -> list[tuple[int, int]]:
        """Return the offsets that a classic slave has reported since the last call, with times."""
        pieces, self.pieces = self.pieces, []
        return [(at, frame.offset) for at, data in pieces for frame in self._parser.feed(data)]

    def arrives(self, *frames: Frame) -> None:
        """Let frames of the peer arrive; they wait while the side does not read."""
        self._unread += b"".join(encode(each) for each in frames)
        self._process.loop.run(self._read)

    def is_lost(self) -> None:
        """Let the peer close the connection."""
        self.close()
        self._process.loop.run(lambda: self._on_lost("the peer closed the connection"))

    def _read(self) -> None:
        if self._unread and not self.is_paused and self.is_open:
            data, self._unread = self._unread, b""
            assert self._on_data is not None, "it is open"
            self._on_data(data)


class ModelConnect:
    """Makes the connections of a slave."""

    def __init__(self, process: VirtualProcess) -> None:
        self._process = process
        self._begun_ms = process.now_ms()
        self.attempts: list[int] = []
        """The times of all attempts."""
        self.links: list[ModelLink] = []
        self.is_refused = False
        self.is_silent = False
        """Whether the master's machine does not answer."""

    async def __call__(self, place: Address, *, limit_s: float) -> ModelLink:
        self.attempts.append(self._process.now_ms() - self._begun_ms)
        if self.is_silent:
            await self._process.runtime.sleep(limit_s)
            raise TimeoutError
        if self.is_refused:
            raise ConnectionRefusedError("refused")
        self.links.append(ModelLink(self._process, self._begun_ms))
        return self.links[-1]


class ModelOwner:
    """Keeps what a side reports."""

    def __init__(self) -> None:
        self.moves = self.changes = 0
        self.failures: list[Exception] = []
        self.to_share: list[Callable[[StoreError | None], None]] = []
        """The calls that wait until it is saved that another replica holds the log."""

    def moved(self) -> None:
        self.moves += 1

    def changed(self) -> None:
        self.changes += 1

    def synced(self, epoch: int) -> None:
        pass

    def proposed(self, proposal: Any) -> None:
        pass

    def failed(self, side: Any, error: Exception) -> None:
        self.failures.append(error)

    def share(self, done: Callable[[StoreError | None], None]) -> None:
        self.to_share.append(done)
