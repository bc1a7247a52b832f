"""A master's connection to one slave, read by the loop or by the pump.

While no decision is needed, the pump owns the connection: it sends the log and receives
acknowledgements, until it meets another frame and hands the connection back.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from rmqstore._native.core import Pump, PumpReport
from rmqstore.errors import ArgumentError
from rmqstore.net.addresses import Address
from rmqstore.replication.group.node import HaProtocol
from rmqstore.replication.protocol.events import (
    Effect,
    HaState,
    Stream,
    Streamed,
)
from rmqstore.replication.protocol.frames import (
    Body,
    Frame,
    FrameError,
    ReportParser,
    SlaveFrameParser,
    Transfer,
)
from rmqstore.replication.runtime.connections import Link

__all__ = ["SlaveLink", "streamed"]


class SlaveLink:
    """The connection over *link* to the slave at *peer*; *pump* is the pump of the side."""

    def __init__(self, link: Link, peer: Address, pump: Pump, *, protocol: HaProtocol) -> None:
        self._link = link
        self._pump = pump
        self._parser: ReportParser | SlaveFrameParser = (
            ReportParser() if protocol == "classic" else SlaveFrameParser()
        )
        self._held: list[Effect] | None = None
        self.peer = peer
        self.state = HaState.READY
        self.pumped: int | None = None
        """The pump's link while the connection is its."""
        self.awaited: Stream | None = None
        """What begins once all that was sent has left."""

    @property
    def has_unsent(self) -> bool:
        """Whether the socket has not taken all that was sent."""
        return self._link.unsent_bytes > 0

    def parse(self, data: bytes) -> tuple[list[Frame], FrameError | None]:
        """Return the frames that *data* completes, and the fault behind them."""
        frames: list[Frame] = []
        try:
            frames += self._parser.feed(data)
        except FrameError as error:
            return [*frames, *error.frames], error
        return frames, None

    def send(self, *pieces: Body) -> None:
        """Send bytes."""
        self._link.send(*pieces)

    def pause(self) -> None:
        """Stop reading."""
        self._link.pause()

    def close(self) -> None:
        """Close the connection immediately; the pump does not have it."""
        self._link.close()

    # ---- effects that are held back

    @property
    def is_held(self) -> bool:
        """Whether effects are held back."""
        return self._held is not None

    def hold_back(self) -> None:
        """Read nothing, and hold effects back, until `released`."""
        self._held = []
        self._link.pause()

    def add_held(self, effect: Effect) -> None:
        """Hold *effect* back."""
        assert self._held is not None, "effects are held back"
        if isinstance(effect, Stream):
            # The last one names the offset to stream from.
            self._held = [each for each in self._held if not isinstance(each, Stream)]
        self._held.append(effect)

    def released(self) -> list[Effect]:
        """Read again, and return the effects that were held back."""
        assert self._held is not None, "effects are held back"
        held, self._held = self._held, None
        self._link.resume()
        return held

    # ---- the pump

    def stream(self, stream: Stream, *, slot: int, batch_bytes: int) -> int:
        """Hand the connection over to the pump, which acknowledges on *slot*; return its link."""
        header = stream.header
        label = {}
        if isinstance(header, Transfer):
            label = {
                "epoch": header.epoch,
                "epoch_start": header.epoch_start,
                "said_confirm": header.confirm_offset,
            }
        self.pumped = self._pump.stream(
            self._link.hand_over(),
            kind="transfer" if isinstance(header, Transfer) else "classic",
            slot=slot,
            next_offset=stream.offset,
            acked_offset=stream.acked_offset,
            acked_epoch=stream.acked_epoch,
            proof_offset=stream.proof_offset,
            is_checked=isinstance(header, Transfer) and header.is_checked,
            until=stream.until,
            batch_bytes=batch_bytes,
            leftover=self._parser.release(),
            **label,
        )
        return self.pumped

    def stop_stream(self) -> None:
        """End the stream, if the pump has the connection."""
        if self.pumped is not None:
            with suppress(ArgumentError):
                self._pump.stop(self.pumped)
            self.pumped = None

    def take_back(self, report: PumpReport) -> None:
        """Go on where the pump, which has handed the connection back, stopped."""
        self.pumped = None
        self._link.take_back()
        self._link.send(report.unsent)

    def set_until(self, until: int | None) -> None:
        """Let the stream end before the byte at *until*."""
        if self.awaited is not None:
            self.awaited = replace(self.awaited, until=until)
        elif self.pumped is not None:
            # The report of a link that has just ended is next.
            with suppress(ArgumentError):
                self._pump.set_until(self.pumped, until)

    def heartbeat(self) -> None:
        """Let the pump send a heartbeat, if it has the connection."""
        if self.pumped is not None:
            with suppress(ArgumentError):
                self._pump.heartbeat(self.pumped)


def streamed(report: PumpReport, kind: type[Streamed] = Streamed, **more: bool) -> Streamed:
    """Return the event of what a pumped connection has come to."""
    return kind(
        next_offset=report.next_offset,
        acked_offset=report.acked_offset,
        acked_epoch=report.acked_epoch,
        heard_ms=report.heard_ms,
        wrote_ms=report.wrote_ms,
        blocked_ms=report.blocked_ms,
        caught_up_ms=report.caught_up_ms,
        **more,
    )
