"""What the masters of both HA protocols share: sending the log to one slave, and its timers.

A machine serves one connection and ends with it. Rules that hold for both:

- A body is within one log file and is at most a batch. Bytes that the connection has not taken yet
  are bounded by a window; a slave that stops reading is closed.
- An offset that the master does not hold is never served and never counted: above the log's end
  the connection closes (H15, #3015); below its start an empty frame names the start of the log,
  where the slave must begin (case 1-1; RocketMQ answers heartbeats forever, #3388).
- Acknowledgements never decrease and never name bytes that were not sent on this connection.

With `HaOptions.streams` the log is sent as a Stream: the machine itself sends only the end of a
label (`_label_end`), and requests a stream once all its bytes have left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from rmqstore.replication.protocol.events import (
    Acked,
    Close,
    Closed,
    Effect,
    Event,
    Failed,
    FrameReceived,
    HaOptions,
    HaState,
    Heartbeat,
    LogView,
    Opened,
    Send,
    SendLog,
    SetUntil,
    Stream,
    Streamed,
    StreamEnded,
    Writable,
)
from rmqstore.replication.protocol.flow import FlowControl
from rmqstore.replication.protocol.frames import ClassicData, Frame, Transfer

__all__ = ["MasterMachine"]


class MasterMachine(ABC):
    """One connection of a master."""

    _head_bytes: int

    def __init__(self, log: LogView, *, options: HaOptions) -> None:
        self._log = log
        self._options = options
        self._flow = FlowControl(bytes_per_second=options.bytes_per_second)
        self._heard_ms = self._wrote_ms = self._blocked_ms = 0
        self._is_blocked = self._is_starved = False

        self._restart_at: int | None = None
        self._sent_end: int | None = None
        """Where the log ended when bytes of it were last sent, at `_sent_ms`."""
        self._sent_ms = 0

        self._streams = options.streams and options.bytes_per_second == 0
        self._proof_offset = 0
        """Who acknowledges more, without naming an epoch, has stored the present label."""
        self._until: int | None = None
        """Where the present stream ends."""

        self.is_streaming = False
        """Whether a Stream was requested and has not ended."""
        self.state = HaState.READY

        self.next_offset: int | None = None
        """The next byte to send; None until the slave has sent its position."""
        self.acked_offset = -1
        """What the slave acknowledged last on this connection."""
        self.acked_epoch = -1
        """The last epoch that it is known to have stored."""

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Return the effects of *event*, in order. See `protocol.events`."""
        if self.state is HaState.SHUTDOWN:
            return []
        effects: list[Effect] = []

        match event:
            case Opened():
                self._heard_ms = self._wrote_ms = now_ms
                self._open()
            case Closed():
                self.state = HaState.SHUTDOWN
                return []
            case Failed(reason):
                return self._close(reason)
            case Writable():
                self._is_blocked = False
            case Streamed():
                effects = self._progress(event)
                if isinstance(event, StreamEnded):
                    self.is_streaming = False
                    if event.has_leftover:
                        return effects
            case FrameReceived(frame):
                # A stream that was requested before all frames were handled is requested again.
                self.is_streaming = False
                self._heard_ms = now_ms
                effects = self._take(frame, now_ms)

        self._note_sent(effects, now_ms)
        more = self._go_on(now_ms)
        self._note_sent(more, now_ms)
        return effects + more

    def next_tick_ms(self) -> int | None:
        """Return the latest time of the next `Tick`, None if none is needed."""
        if self.state in (HaState.READY, HaState.SHUTDOWN):
            return None
        options = self._options
        due_ms = self._heard_ms + options.housekeeping_ms + 1
        if self._is_blocked:
            return min(due_ms, self._blocked_ms + options.housekeeping_ms + 1)
        if self.state is HaState.TRANSFER:
            due_ms = min(due_ms, self._wrote_ms + options.heartbeat_ms + 1)
            if self._is_starved:
                return min(due_ms, self._flow.opens_ms())
        return due_ms

    @abstractmethod
    def _open(self) -> None:
        """Enter the first state of a connection."""

    @abstractmethod
    def _take(self, frame: Frame, now_ms: int) -> list[Effect]:
        """Handle a frame of the slave."""

    @abstractmethod
    def _empty_frame(self, offset: int) -> ClassicData | Transfer:
        """Return a heartbeat that names *offset*."""

    @abstractmethod
    def _count(self, offset: int, epoch: int, caught_up_ms: int | None) -> list[Effect]:
        """Return the effects of an acknowledgement that a stream has validated."""

    def _label_end(self) -> int | None:
        """Return where the label that frames carry ends; None: it has no end."""
        return None

    def _batch(self, offset: int, size: int) -> SendLog | Send | None:
        """Return what is sent from *offset* on when *size* bytes could be, None for nothing."""
        return SendLog(offset, size, self._empty_frame(offset)) if size else None

    def _begin(self, offset: int, *, first_offset: int) -> Close | int | None:
        """Validate the offset that a slave begins with; 0 means *first_offset*.

        Returns the byte to send first, or None when the slave is to begin at `_restart_at`.
        """
        if not 0 <= offset <= self._log.end_offset:
            return Close(
                f"the slave reports that its log ends at {offset}, this one ends at "
                f"{self._log.end_offset}: it is the slave of another log, or ahead"
            )

        if offset == 0:
            return first_offset
        if offset >= self._log.start_offset:
            return offset

        if self._restart_at is not None:
            return Close(
                f"the slave's log ends at {offset}, before {self._log.start_offset} where this one "
                "begins, and it does not begin there: empty the slave"
            )
        self._restart_at = self._log.start_offset
        return None

    def _fault_of(self, offset: int) -> Close | None:
        """Validate an acknowledgement after the first one."""
        assert self.next_offset is not None
        if offset < max(self.acked_offset, 0):
            return Close(f"the slave acknowledged {self.acked_offset} and then {offset}")
        if offset > self.next_offset:
            return Close(
                f"the slave acknowledged {offset}; only bytes up to {self.next_offset} were sent"
            )
        return None

    def _close(self, why: str | Close) -> list[Effect]:
        self.state = HaState.SHUTDOWN
        return [why if isinstance(why, Close) else Close(why)]

    def _go_on(self, now_ms: int) -> list[Effect]:
        if self.state in (HaState.READY, HaState.SHUTDOWN):
            return []

        silence_ms = self._options.housekeeping_ms
        if now_ms - self._heard_ms > silence_ms:
            return self._close(f"the slave sent no whole frame for more than {silence_ms} ms")

        if self._is_blocked:
            if now_ms - self._blocked_ms > silence_ms:
                return self._close(f"the slave has read nothing for more than {silence_ms} ms")
            # A stream may send again before that is reported here.
            return self._bound_stream() if self.is_streaming else []

        if self.is_streaming:
            return self._tend_stream(now_ms)

        effects = self._pump(now_ms)
        if self.is_streaming:
            return effects
        if self.state is HaState.TRANSFER and now_ms - self._wrote_ms > self._options.heartbeat_ms:
            effects += self._heartbeat(now_ms)
        return effects

    def _heartbeat(self, now_ms: int) -> list[Effect]:
        self._wrote_ms = now_ms
        self._flow.spend(self._head_bytes)
        if self.next_offset is not None:
            return [Send(self._empty_frame(self.next_offset))]
        return [Send(self._empty_frame(-1 if self._restart_at is None else self._restart_at))]

    def _pump(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        room = self._options.window_bytes
        self._is_starved = False

        while self.next_offset is not None and room > 0:
            offset = self.next_offset
            start, end = self._log.start_offset, self._log.end_offset
            if not start <= offset <= end:
                return effects + self._close(
                    f"byte {offset} comes next, the log is from {start} to {end}: files were "
                    "deleted before the slave had them"
                )

            size = self._readable(offset, end, now_ms) if offset < end else 0
            if self._streams and not self._ends_label(offset, size):
                # There is nothing to stream from before the first byte.
                is_empty = start == end
                return effects if effects or is_empty else [self._begin_stream(offset)]

            batch = self._batch(offset, size)
            if batch is None:
                break

            self._wrote_ms = now_ms
            self._flow.spend(self._head_bytes)
            effects.append(batch)
            room -= self._head_bytes
            if isinstance(batch, SendLog):
                self._sent_end, self._sent_ms = end, now_ms
                self._flow.spend(batch.size)
                self.next_offset += batch.size
                room -= batch.size

        if effects:
            self._is_blocked, self._blocked_ms = True, now_ms
        return effects

    def _readable(self, offset: int, log_end: int, now_ms: int) -> int:
        end = min(log_end, self._log.file_end(offset))
        size = min(end - offset, self._options.batch_bytes)
        allowed = self._flow.allowed(now_ms)
        if allowed is None:
            return size
        self._is_starved = allowed == 0
        return min(size, allowed)

    # ---- streams

    def _ends_label(self, offset: int, size: int) -> bool:
        end = self._label_end()
        return end is not None and offset + size >= end

    def _begin_stream(self, offset: int) -> Stream:
        self.is_streaming, self._until = True, self._label_end()
        return Stream(
            offset,
            self._empty_frame(offset),
            self._until,
            self.acked_offset,
            self.acked_epoch,
            self._proof_offset,
        )

    def _tend_stream(self, now_ms: int) -> list[Effect]:
        effects = self._bound_stream()
        if now_ms - self._wrote_ms > self._options.heartbeat_ms:
            self._wrote_ms = now_ms
            effects.append(Heartbeat())
        return effects

    def _bound_stream(self) -> list[Effect]:
        """Let the stream end where its label does, before a byte after that is appended."""
        until = self._label_end()
        if until == self._until:
            return []
        self._until = until
        return [SetUntil(until)]

    def _progress(self, event: Streamed) -> list[Effect]:
        acked = (event.acked_offset, event.acked_epoch)
        is_news = event.heard_ms > self._heard_ms or acked > (self.acked_offset, self.acked_epoch)
        self.next_offset = event.next_offset
        self._heard_ms = max(self._heard_ms, event.heard_ms)
        self._wrote_ms = max(self._wrote_ms, event.wrote_ms)
        self._is_blocked = event.blocked_ms is not None
        if event.blocked_ms is not None:
            self._blocked_ms = event.blocked_ms
        if not is_news or event.acked_offset < 0:
            return []
        return self._count(event.acked_offset, event.acked_epoch, event.caught_up_ms)

    def _note_sent(self, effects: list[Effect], now_ms: int) -> None:
        # A stream begins when all that was sent before it has left.
        if self._streams and any(isinstance(effect, Send | SendLog) for effect in effects):
            self._is_blocked, self._blocked_ms = True, now_ms

    def _acked(self, broker_id: int, offset: int, epoch: int) -> Acked:
        self.acked_offset, self.acked_epoch = offset, epoch
        return Acked(broker_id, offset, epoch)
