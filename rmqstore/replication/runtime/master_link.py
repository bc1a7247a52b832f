"""A slave's connection to its master, read by the loop or by the pump.

Once the log is known to be the master's, the pump owns the connection: it appends, checks and
acknowledges until it meets another frame, and hands the connection back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from rmqstore._native.core import PumpReport
from rmqstore.errors import ArgumentError, StoreError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.runtime import Runtime, Timer
from rmqstore.replication.group.node import HaProtocol
from rmqstore.replication.protocol.events import (
    Closed,
    Damaged,
    Event,
    Failed,
    FrameReceived,
    LogGrew,
    Receive,
    Received,
    ReceiveEnded,
)
from rmqstore.replication.protocol.frames import (
    ClassicData,
    ClassicDataParser,
    Frame,
    FrameError,
    HandshakeReply,
    MasterFrameParser,
    Transfer,
    encode,
)
from rmqstore.replication.runtime.connections import Link, NewLink
from rmqstore.replication.runtime.event_queue import EventQueue
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.replication.runtime.logger import log
from rmqstore.store.replica_view import ReplicaView

__all__ = ["MasterLink", "checked"]

_READ_BYTES = 256 * 1024
_UNSENT_BYTES_MAX = 64 * 1024


def checked(log_of_store: StoreLog) -> LogGrew | Damaged:
    """Check the bytes that were appended last, and return the event of what is found."""
    damaged_at = log_of_store.check()
    return LogGrew() if damaged_at is None else Damaged(damaged_at, str(log_of_store.damage))


class MasterLink:
    """The connection to the master at *master*, one after another, and the pump of the side.

    The events of the connection, and of the pump, are added to *events*. *on_drained* is called
    when all sent bytes have left.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: ReplicaView,
        log_of_store: StoreLog,
        events: EventQueue,
        *,
        master: Address,
        protocol: HaProtocol,
        on_drained: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._log = log_of_store
        self._events = events
        self._master = master
        self._is_classic = protocol == "classic"
        self._on_drained = on_drained
        self._link: Link | None = None
        self._parser: ClassicDataParser | MasterFrameParser = MasterFrameParser()
        self._pump = store.make_pump()
        self._reader: Timer | None = None
        self._pumped: int | None = None
        """The pump's link while the connection is its."""
        self.awaited: Receive | None = None
        """The last request to receive."""
        self.is_flushing = False
        """The machine waits for the disk; the pump reports the end of a sync."""
        self.master_end = -1
        """The end of the master's log, as far as the master has shown; -1 at first."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    @property
    def is_pumped(self) -> bool:
        """Whether the pump has the connection."""
        return self._pumped is not None

    # ---- the connection

    def open(self, link: NewLink) -> None:
        """Take a new connection."""
        self._parser = ClassicDataParser() if self._is_classic else MasterFrameParser()
        self._link = link.open(
            read_bytes=_READ_BYTES,
            on_data=lambda data: self._events.add(partial(self._received, data)),
            on_drained=self._on_drained,
            on_lost=self._lost,
        )
        if not self._events.is_listening:
            self._link.pause()
        log().info("connected to master %s", format_address(self._master))

    def listen(self, is_listening: bool) -> None:
        """Read from connection and pump, or stop reading."""
        if is_listening and self._reader is None:
            self._reader = self._runtime.when_readable(self._pump, self._pump_ready)
        elif not is_listening and self._reader is not None:
            self._reader.cancel()
            self._reader = None
        if self._link is not None and is_listening:
            self._link.resume()
        elif self._link is not None:
            self._link.pause()

    def send(self, frame: Frame) -> None:
        """Send *frame*, if there is a connection. Raises StoreError where the master reads none."""
        if self._link is None:
            return
        self._link.send(encode(frame))
        if self._link.unsent_bytes > _UNSENT_BYTES_MAX:
            raise StoreError("the master reads no acknowledgements")

    def drop(self) -> None:
        """Close the connection, if there is one."""
        self.awaited = None
        self.is_flushing = False
        if self._pumped is not None:
            pumped, self._pumped = self._pumped, None
            with suppress(StoreError):
                self._note(self._pump.stop(pumped))
        if self._link is not None:
            self._link.close()
            self._link = None

    def close_pump(self) -> None:
        """End the pump; may wait for its thread."""
        self._pump.close()

    def _lost(self, reason: str) -> None:
        log().info("connection to %s lost: %s", format_address(self._master), reason)
        self._link = None
        self._events.add(lambda: [Closed()])

    def _received(self, data: bytes) -> list[Event]:
        if self._link is None:
            return []
        failure: list[Event] = []
        try:
            frames: list[Frame] = [*self._parser.feed(data)]
        except FrameError as error:
            frames = [*error.frames]
            failure.append(Failed(str(error)))
        for frame in frames:
            self._note_end(frame)
        return [*(FrameReceived(frame) for frame in frames), *failure]

    def _note_end(self, frame: Frame) -> None:
        match frame:
            case HandshakeReply(end_offset=end):
                self.master_end = end
            case ClassicData(offset, body) | Transfer(offset=offset, body=body):
                self.master_end = max(self.master_end, offset + len(body))

    # ---- the pump

    def begin_receive(self) -> None:
        """Hand the connection over if that was requested and all sent bytes have left. Raises
        StoreError."""
        if self._link is None or self._link.unsent_bytes or self.awaited is None:
            return
        receive, self.awaited = self.awaited, None
        label = {}
        if receive.epoch is not None:
            label = {"epoch": receive.epoch.epoch, "epoch_start": receive.epoch.start_offset}
        self._pumped = self._pump.receive(
            self._link.hand_over(),
            kind="classic" if self._is_classic else "transfer",
            next_offset=receive.offset,
            acked_offset=receive.acked_offset,
            acked_epoch=receive.acked_epoch,
            is_checked=receive.is_checked,
            border=self._log.whole_end,
            ack_flushed=receive.ack_flushed,
            leftover=self._parser.release(),
            **label,
        )

    def heartbeat(self) -> None:
        """Let the pump send a heartbeat, if it has the connection."""
        if self._pumped is not None:
            with suppress(ArgumentError):
                self._pump.heartbeat(self._pumped)

    def flush(self) -> None:
        """Start a flush of the log. This thread does not wait for it, because it serves
        `status`."""
        end = self._log.end_offset
        self._pump.flush(end)
        self.is_flushing = self._log.flushed_offset < end

    def progress(self) -> list[Event]:
        """Return the events of a pumped connection that come before all others."""
        if self._pumped is None:
            return []
        try:
            report = self._pump.progress(self._pumped)
        except ArgumentError:
            # It has just ended; that event is next.
            return []
        self._note(report)
        return [_received(report)]

    def _pump_ready(self) -> None:
        for report in self._pump.poll():
            self._events.add(partial(self._reported, report))
        if self.is_flushing:
            self.is_flushing = False
            # A connection that is the pump's waits for the disk by itself.
            self._events.add(lambda: [checked(self._log)] if self._pumped is None else [])

    def _reported(self, report: PumpReport) -> list[Event]:
        if report.link != self._pumped:
            return []
        self._note(report)
        return [_received(report)] if report.reason == "acked" else self._take_back(report)

    def _take_back(self, report: PumpReport) -> list[Event]:
        """Go on with the connection that the pump has handed back."""
        assert self._link is not None, "the pump holds the connection that is open"
        self._pumped = None
        self._link.take_back()
        self._link.send(report.unsent)
        match report.reason:
            case "closed":
                self.drop()
                return [Closed()]
            case "error":
                return [Failed(report.detail)]
            case "damaged":
                return [_received(report, ReceiveEnded), Damaged(report.offset, report.detail)]
        if report.leftover:
            self._events.add_first(partial(self._received, report.leftover))
        return [_received(report, ReceiveEnded, has_leftover=bool(report.leftover))]

    def _note(self, report: PumpReport) -> None:
        self.master_end = max(self.master_end, report.next_offset)
        # If the store refuses to record this, records are checked again.
        with suppress(StoreError):
            self._log.checked(report.border)


def _received(report: PumpReport, kind: type[Received] = Received, **more: bool) -> Received:
    return kind(
        next_offset=report.next_offset,
        acked_offset=report.acked_offset,
        acked_epoch=report.acked_epoch,
        heard_ms=report.heard_ms,
        wrote_ms=report.wrote_ms,
        confirm_offset=report.confirm_offset,
        **more,
    )
