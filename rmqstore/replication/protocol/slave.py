"""The common part of the slaves of both HA protocols: copying the log, and timers.

A machine serves all connections to one master. Rules for both protocols:

- A slave acknowledges only complete records that its log holds (H2, H7), after they were appended
  (H16) and checked (H23), with `ack_flushed` after they are on the disk (H17). The first frame,
  which names the start offset, is sent immediately, not after a heartbeat interval.
- A slave requests the last bytes of its own log again and compares them. Forked logs hold different
  messages at equal offsets after the fork, so the tail shows a fork, independent of epochs. Two
  mismatches at one offset are a fork, one may be a transmission error (H23). This finds forks that
  no epoch shows: RocketMQ's refused epochs (H1), the lists of 5.5.0 that keep epochs beyond a cut,
  a log without a list (H6), a diverged classic slave.
- A master that has later bytes and does not send the requested ones does not hold the bytes in
  between (case 1-1, H3, #3388). Then the slave requests offset 0, which means "from your first
  byte". Bytes that it holds already are compared, not stored.
- If the master's first byte is after the end of a log with data, the slave abandons this log only
  with permission (`may_begin_anew`) and after the master has sent log data of that offset. Without
  the permission it halts. A wrong address, a foreign program or a flipped bit also name such an
  offset.

With `HaOptions.streams` a slave whose whole log is known to be the master's requests a Receive, and
handles the frames that the Receive hands back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rmqstore.epochs import EpochEntry, EpochList
from rmqstore.replication.protocol.events import (
    Append,
    Close,
    Closed,
    Damaged,
    Effect,
    Event,
    Failed,
    FlushLog,
    FrameReceived,
    Halt,
    HaOptions,
    HaState,
    Heartbeat,
    LogGrew,
    LogView,
    Opened,
    Ordered,
    PromiseConfirm,
    Receive,
    Received,
    ReceiveEnded,
    Restart,
    SaveEpochs,
    SaveEpochState,
    Send,
    SetConfirm,
    TruncateTo,
)
from rmqstore.replication.protocol.flow import PAUSE_MS_MAX
from rmqstore.replication.protocol.frames import Ack, Body, Frame, Report

__all__ = ["SlaveMachine"]


_BEFORE_RECEIVING = Send | SetConfirm | PromiseConfirm | SaveEpochs | SaveEpochState
"""Effects after which nothing is left to decide."""


class SlaveMachine(ABC):
    """One slave of one master."""

    def __init__(self, log: LogView, *, options: HaOptions, may_begin_anew: bool = False) -> None:
        self._log = log
        self._options = options

        self.may_begin_anew = may_begin_anew
        """Whether this log may be given up for a master whose first byte is after its end."""
        self.ordered_epoch = -1
        """The epoch that the order to follow this master named, -1 without one."""

        self._opened_ms = self._heard_ms = self._wrote_ms = self._moved_ms = 0
        # Whether the next frame of log data is the first on this connection.
        self._is_first_frame = self._has_moved = False
        # Bytes of its own tail that this slave requests again.
        self._overlap_bytes = options.overlap_bytes
        self._asks_from_start = False

        # Where the master's bytes differed last, and what it had there.
        self._mismatch: tuple[int, int] | None = None
        self._damaged_at: int | None = None
        # Where the master's log seemed to begin, after the end of this one.
        self._beginning: int | None = None
        # Whether this slave has requested the master's log from `_beginning` on.
        self._awaits_beginning = False

        self._next_offset = 0
        """The byte that the master sends next."""
        self._same_until = 0
        """Up to here this log is the master's, as far as this connection has shown."""
        self._master_end = 0
        """The master must hold bytes up to here."""

        self._is_checked = False
        """Whether frames of this connection carry checks."""

        self.state = HaState.READY
        self.is_receiving = False
        """Whether a Receive was requested and has not ended."""
        self.reported_offset = -1
        """What was acknowledged last on this connection."""
        self.reported_epoch = -1
        """The epoch that was named with it."""

    @property
    def is_verified(self) -> bool:
        """Whether all of this log is known to be the master's."""
        return self._same_until >= self._log.end_offset

    @property
    def shared_end(self) -> int:
        """Up to here this log is the master's, as far as the last connection has shown."""
        return min(self._same_until, self._log.end_offset)

    @property
    def synced_epoch(self) -> int:
        """The epoch of the master if this replica has acknowledged its log up to the end that the
        master had when the connection began; -1 otherwise, and in the classic protocol."""
        is_synced = min(self.reported_offset, self._same_until) >= self._master_end
        is_synced = is_synced and self.state is HaState.TRANSFER
        return self._stored_epoch(self.reported_offset) if is_synced else -1

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Return the effects of *event*, in order. See `protocol.events`."""
        if self.state in (HaState.SUSPEND, HaState.SHUTDOWN):
            return []

        if isinstance(event, Opened):
            self._opened_ms = self._heard_ms = self._wrote_ms = self._moved_ms = now_ms
            self._is_first_frame, self._has_moved = True, False
            self._awaits_beginning = False
            self.reported_offset = self.reported_epoch = -1
            self._is_checked = self.is_receiving = False
            return self._hand_over(self._open(now_ms))

        if self.state is HaState.READY:
            return []
        if isinstance(event, Received):
            return self._received(event, now_ms)

        if isinstance(event, FrameReceived):
            # A Receive that was requested before all frames were handled is requested again.
            self.is_receiving = False
        if self.is_receiving and isinstance(event, LogGrew):
            return []

        return self._hand_over(self._on(event, now_ms))

    def _on(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case Closed():
                return self._closed()
            case Failed(reason):
                return self._close(reason)
            case Damaged(offset, what):
                return self._damaged(offset, what)
            case FrameReceived(frame):
                self._heard_ms = now_ms
                is_transfer = self.state is HaState.TRANSFER
                effects = self._take(frame, now_ms)
                self._is_first_frame = self._is_first_frame and not is_transfer
                return effects
            case LogGrew():
                return self._log_grew(now_ms)
            case Ordered(epoch):
                return self._ordered(epoch)
        return self._tick(now_ms)

    def next_tick_ms(self) -> int | None:
        """Return the latest time of the next `Tick`, None if none is needed."""
        if self.state is HaState.HANDSHAKE:
            return self._opened_ms + self._options.handshake_ms + 1
        if self.state is not HaState.TRANSFER:
            return None
        return 1 + min(
            self._heard_ms + self._options.housekeeping_ms,
            self._wrote_ms + self._options.heartbeat_ms,
        )

    @abstractmethod
    def _open(self, now_ms: int) -> list[Effect]:
        """Begin a connection."""

    @abstractmethod
    def _take(self, frame: Frame, now_ms: int) -> list[Effect]:
        """Handle a frame of the master."""

    @abstractmethod
    def _report_frame(self, offset: int, *, first: bool) -> Report | Ack:
        """Return the frame that reports the end of this log; the first one only requests a
        start."""

    def _stored_epoch(self, offset: int) -> int:
        """Return the epoch of the bytes before *offset* by the saved list; -1 without a list."""
        return -1

    @abstractmethod
    def _forked(self, offset: int) -> list[Effect]:
        """Handle that this log's byte at *offset* is not the master's."""

    @abstractmethod
    def _begins_late(self, offset: int) -> bool:
        """Return whether the master, asked for its first bytes, sends those from *offset* on and
        holds, or may hold, earlier ones."""

    @abstractmethod
    def _confirmed(self) -> list[Effect]:
        """Return what follows from the master's word about the confirm offset."""

    def _promised(self) -> list[Effect]:
        """Return what follows from whether the master's confirm offset is a promise."""
        return []

    @abstractmethod
    def _received_confirm(self, offset: int) -> None:
        """Take the greatest confirm offset that a Receive got."""

    @abstractmethod
    def _may_receive(self) -> bool:
        """Return whether bytes that come next belong where the log's epoch list lays them."""

    def _ordered(self, epoch: int) -> list[Effect]:
        """Handle an order to follow the master in *epoch*."""
        return []

    def _label(self) -> EpochEntry | None:
        """Return the label of frames that a Receive may take; None: they have none."""
        return None

    def _log_grew(self, now_ms: int) -> list[Effect]:
        return self._confirmed() + self._report(now_ms)

    # ---- receiving without decisions

    def _hand_over(self, effects: list[Effect]) -> list[Effect]:
        """Ask for a Receive behind *effects* when nothing is left to decide."""
        log = self._log
        if (
            self._options.streams
            and not self._options.ack_parts
            and not self.is_receiving
            and self.state is HaState.TRANSFER
            and self.reported_offset >= 0
            and log.start_offset < log.end_offset == self._next_offset
            and self.is_verified
            and all(isinstance(each, _BEFORE_RECEIVING) for each in effects)
            and self._may_receive()
        ):
            self.is_receiving = True
            receive = Receive(
                log.end_offset,
                self.reported_offset,
                self.reported_epoch,
                self._label(),
                bool(self._options.ack_flushed),
                self._is_checked,
            )
            return [*effects, receive]
        return effects

    def _received(self, event: Received, now_ms: int) -> list[Effect]:
        has_moved = event.next_offset > self._next_offset
        has_heard = event.heard_ms > self._heard_ms

        self._next_offset = self._same_until = event.next_offset
        self.reported_offset, self.reported_epoch = event.acked_offset, event.acked_epoch
        self._heard_ms = max(self._heard_ms, event.heard_ms)
        self._wrote_ms = max(self._wrote_ms, event.wrote_ms)
        self._received_confirm(event.confirm_offset)

        if has_moved:
            self._has_moved, self._moved_ms = True, event.heard_ms
        if event.heard_ms >= 0:
            self._is_first_frame = False

        if isinstance(event, ReceiveEnded):
            self.is_receiving = False
            # Bytes that arrived together with the frame that ended it are not acknowledged yet.
            return self._promised() + self._report(now_ms)

        if has_heard and not has_moved and self._is_stalled(now_ms):
            return self._stalled()
        if has_heard and not has_moved and self._holds_part(now_ms):
            return self._compare_part()
        return self._promised()

    # ---- beginning

    def _follow(self, now_ms: int, *, master_end: int) -> list[Effect]:
        """Report the start offset to the master."""
        log = self._log
        self.state = HaState.TRANSFER
        if self._asks_from_start or log.end_offset == 0:
            self._same_until = self._next_offset = 0
        else:
            self._same_until = self._next_offset = self._overlap_start()
        # A master must hold the requested bytes, which this log holds.
        asks_again = self._next_offset < log.end_offset
        self._master_end = max(master_end, log.end_offset if asks_again else 0)
        self._moved_ms = now_ms
        return self._report(now_ms, first=True)

    def _overlap_start(self) -> int:
        log, overlap = self._log, self._overlap_bytes
        if overlap == 0 or log.start_offset == log.end_offset:
            return log.end_offset
        # A blank is the same in any log, so the overlap holds a message. Offset 0 would mean "from
        # your first byte".
        first = min(log.end_offset - overlap, log.last_record_start)
        return min(max(first, log.start_offset, 1), log.end_offset)

    # ---- what the master sends

    def _receive(self, offset: int, body: Body, now_ms: int) -> list[Effect]:
        """Handle the bytes of a frame: compare those that are held, append the others."""
        log = self._log

        if self._shows_beginning(offset, has_body=True):
            return self._begin_anew(offset, body, now_ms)
        if not self._continues(offset) or not 0 <= offset <= log.end_offset:
            return self._gap(offset)

        skipped = min(max(log.start_offset - offset, 0), len(body))
        held = min(log.end_offset - offset, len(body))
        if held > skipped:
            ours = log.read(offset + skipped, held - skipped)
            if ours != body[skipped:held]:
                pairs = zip(ours, body[skipped:held], strict=True)
                same = next(at for at, (our, their) in enumerate(pairs) if our != their)
                return self._differs(offset + skipped + same, body[skipped + same])

        self._next_offset = offset + len(body)
        self._same_until = max(self._same_until, self._next_offset)
        self._has_moved, self._moved_ms = True, now_ms
        if self.is_verified:
            self._mismatch = None
            self._asks_from_start = False
            self._overlap_bytes = self._options.overlap_bytes

        if held < len(body):
            return [Append(offset + held, body[held:] if held else body)]
        return self._report(now_ms)

    def _heartbeat(self, offset: int, now_ms: int) -> list[Effect]:
        """Handle an empty frame."""
        if self._shows_beginning(offset, has_body=False):
            return self._begin_anew(offset, b"", now_ms)
        if self._is_first_frame and 0 < self._next_offset < offset <= self._log.end_offset:
            return self._compare_from(offset, now_ms)
        if offset != -1 and not self._continues(offset):
            return self._gap(offset)
        if self._is_stalled(now_ms):
            return self._stalled()
        return self._compare_part() if self._holds_part(now_ms) else []

    def _holds_part(self, now_ms: int) -> bool:
        """Return whether this log ends with a part of a record to which nothing more comes."""
        return (
            self._log.whole_end < self._log.end_offset == self._next_offset
            and now_ms - self._moved_ms > 2 * self._options.heartbeat_ms
        )

    def _compare_part(self) -> list[Effect]:
        # A master's log ends with a whole record: this one's size may be damaged.
        return self._close(
            f"from {self._log.whole_end} on there is a part of a record, and the master sends no "
            "more of it; comparing again",
            retry_after_ms=0,
        )

    def _compare_from(self, offset: int, now_ms: int) -> list[Effect]:
        """Begin at the master's first byte, which is after the requested one and
        inside this log: there is nothing before it to compare with."""
        self._next_offset = self._same_until = offset
        self._moved_ms = now_ms
        self.reported_offset = -1
        return self._report(now_ms, first=True)

    def _continues(self, offset: int) -> bool:
        return self._next_offset in (0, offset)

    def _gap(self, offset: int) -> list[Effect]:
        return self._close(
            f"the master sent byte {offset} where {self._next_offset} was to come; "
            f"this log ends at {self._log.end_offset}"
        )

    def _shows_beginning(self, offset: int, *, has_body: bool) -> bool:
        """Return whether a frame shows that the master's log begins after the end of this one.

        A master that is asked for a byte never answers with a later one, except to report its first
        byte: in an empty frame before all others.
        """
        if offset <= self._log.end_offset:
            return False
        if self._awaits_beginning:
            return has_body and offset == self._beginning
        if self._log.end_offset == 0:
            return has_body and self._next_offset == 0
        return self._is_first_frame and (self._asks_from_start or not has_body)

    def _gives_up(self, *, has_body: bool) -> bool:
        """Return whether this log is given up for the beginning that a frame shows."""
        log = self._log
        return log.start_offset == log.end_offset or (has_body and self.may_begin_anew)

    def _begin_anew(self, offset: int, body: Body, now_ms: int) -> list[Effect]:
        """Handle a frame that shows the master's first byte, which is after this log's end."""
        log = self._log
        if log.start_offset < log.end_offset and not self.may_begin_anew:
            return self._refuse_beginning(offset)

        # The byte that an empty frame named is the master's first one.
        is_partial = bool(body) and not self._awaits_beginning and self._begins_late(offset)

        self._moved_ms = now_ms
        if not self._gives_up(has_body=bool(body)):
            self._beginning, self._awaits_beginning = offset, True
            self._next_offset = offset
            return [self._send_report(offset, now_ms)]

        self._asks_from_start = self._awaits_beginning = False
        self._beginning = self._mismatch = None
        self._has_moved = True
        self._next_offset = self._same_until = offset + len(body)

        effects: list[Effect] = []
        if log.confirm_offset > offset:
            effects.append(SetConfirm(offset))
        begun = log.epoch_state.begin_log(offset, is_partial=is_partial)
        if begun != log.epoch_state:
            effects.insert(0, SaveEpochState(begun))
        effects.append(Restart(offset))
        return [*effects, Append(offset, body)] if body else effects

    def _refuse_beginning(self, offset: int) -> list[Effect]:
        # The first time may be a transmission error, or a master that was too busy to send.
        is_again, self._beginning = offset == self._beginning, offset
        end = self._log.end_offset
        if not is_again:
            self._asks_from_start = False
            return self._close(
                f"the master's log seems to begin at {offset}, after {end} where this log ends; "
                "asking again",
                retry_after_ms=0,
            )
        return self._halt(
            f"this log ends at {end}, its master's begins at {offset}: the master has deleted what "
            "comes next, or is not the master of this log. Nothing was touched; if the address is "
            "right, permit this replica to begin anew (begin_anew=True, --begin-anew), or empty it"
        )

    def _is_stalled(self, now_ms: int) -> bool:
        """Return, at a heartbeat, whether the master withholds bytes that it must have.

        A master without an allowance (`flow`) sends heartbeats and no bytes for a while.
        """
        limit_ms = max(2 * self._options.heartbeat_ms, 2 * PAUSE_MS_MAX)
        return self._next_offset < self._master_end and now_ms - self._moved_ms > limit_ms

    def _stalled(self) -> list[Effect]:
        if self._has_moved or self._asks_from_start:
            self._asks_from_start = False
            return self._close(
                f"the master holds bytes up to {self._master_end} and sends none from "
                f"{self._next_offset} on"
            )
        self._asks_from_start = True
        return self._close(
            f"the master does not hold byte {self._next_offset}; asking from its first byte",
            retry_after_ms=0,
        )

    def _differs(self, offset: int, theirs: int) -> list[Effect]:
        self._same_until = offset
        # The wire may damage one comparison after another, but hardly to the same byte.
        before, self._mismatch = self._mismatch, (offset, theirs)
        if before != self._mismatch:
            return self._close(
                f"bytes from {offset} on are not those of the master; comparing again",
                retry_after_ms=0 if before is None else None,
            )
        self._mismatch = None
        if offset >= self._log.whole_end:
            # Part of a record, which a damaged size may have made of a whole one: no fork.
            return self._damaged(self._log.whole_end, "a part of a record that is not the master's")
        return self._forked(offset)

    def _damaged(self, offset: int, what: str) -> list[Effect]:
        log = self._log
        if not log.start_offset <= offset < log.end_offset:
            return self._close(f"damage at {offset}, the log ends at {log.end_offset}")
        # Once may be the wire; at the same place again it is the master's own log, or its files are
        # of another size.
        is_again, self._damaged_at = offset == self._damaged_at, offset
        reason = f"damaged bytes from {offset} on: {what}"
        close = self._close(reason, None if is_again else 0)
        return [*self._cut(offset), *close]

    def _cut(self, offset: int) -> list[Effect]:
        """Return the cut at *offset*. The log goes before the list: a list cut first would lay
        the bytes that a crash leaves to an older epoch."""
        effects: list[Effect] = []
        if self._log.confirm_offset > offset:
            effects.append(SetConfirm(offset))
        effects.append(TruncateTo(offset))
        return effects + self._save(EpochList(tuple(self._log.epochs)).truncate_to(offset))

    def _save(self, epochs: EpochList) -> list[Effect]:
        if epochs.entries == tuple(self._log.epochs):
            return []
        return [SaveEpochs(epochs.entries)]

    # ---- what the slave sends

    def _report(self, now_ms: int, *, first: bool = False) -> list[Effect]:
        if self.state is not HaState.TRANSFER:
            return []

        # The first word says where to begin. After that the beginning of a record is not held yet:
        # its size may be what the wire damaged, and more bytes would show it to be none (H23).
        first = first or self.reported_offset < 0
        parts = first or self._options.ack_parts
        held = self._log.end_offset if parts else self._log.whole_end
        offset = min(held, self._same_until)

        effects: list[Effect] = []
        # Read once: a sync may move it at any moment, and cover a part of a record.
        flushed = self._log.flushed_offset
        if self._options.ack_flushed and flushed < offset:
            effects.append(FlushLog())
            offset = flushed
            if first:
                # Where to begin waits for the disk, too.
                return effects

        if offset > self.reported_offset or first:
            effects.append(self._send_report(offset, now_ms, first=first))
        elif offset == self.reported_offset:
            effects += self._name_epoch(self._log.epochs, now_ms)
        return effects

    def _name_epoch(self, saved: Sequence[EpochEntry], now_ms: int) -> list[Effect]:
        """Return the frames that report to the master that the epoch list is *saved*."""
        return []

    def _send_report(self, offset: int, now_ms: int, *, first: bool = False) -> Send:
        self.reported_offset = offset
        self._wrote_ms = now_ms
        return Send(self._report_frame(offset, first=first))

    def _tick(self, now_ms: int) -> list[Effect]:
        options = self._options
        if self.state is HaState.HANDSHAKE:
            if now_ms - self._opened_ms > options.handshake_ms:
                return self._close("the master did not answer the handshake")
            return []
        if now_ms - self._heard_ms > options.housekeeping_ms:
            return self._close(
                f"the master sent no whole frame for more than {options.housekeeping_ms} ms"
            )
        if now_ms - self._wrote_ms > options.heartbeat_ms and self.reported_offset >= 0:
            if self.is_receiving:
                self._wrote_ms = now_ms
                return [Heartbeat()]
            return [self._send_report(self.reported_offset, now_ms)]
        return []

    # ---- ends

    def _closed(self) -> list[Effect]:
        return self._close("the master closed the connection")

    def _close(self, reason: str, retry_after_ms: int | None = None) -> list[Effect]:
        self.state, self.is_receiving = HaState.READY, False
        if retry_after_ms is None:
            retry_after_ms = self._options.reconnect_ms
        return [Close(reason, retry_after_ms)]

    def _halt(self, reason: str) -> list[Effect]:
        self.state, self.is_receiving = HaState.SUSPEND, False
        return [Halt(reason)]
