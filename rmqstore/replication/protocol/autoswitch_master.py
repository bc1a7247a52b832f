"""The master of auto-switch HA: handshake, transfer under epochs, acknowledgements.

Rules: those of RocketMQ's AutoSwitchHAConnection. The wire is the same, but for checks between two
replicas of this library: towards others it is RocketMQ's byte for byte. What differs:

- Acknowledgements before the handshake, above the log's end or above what was sent close the
  connection and count for nothing (H15, H25).
- The first acknowledgement only says where to begin: it may name a point that the slave's epochs
  and not its bytes have reached (H2). An empty frame at that offset goes out at once. RocketMQ's
  slave closes when its log does not end there, so the next acknowledgement is a true one. The frame
  also announces the first epoch, which upstream slaves otherwise miss.
- A slave has caught up when it acknowledges what there is, never because nothing can be sent (H3).
- The epoch list is read again for every batch, so an epoch that begins while slaves are connected
  reaches them (H22, #9689).
- What a slave holds counts for the present epoch once it has stored that (`rmqstore.replication.
  group`). A slave with checks names the epoch. RocketMQ's stores a label before the bytes of its
  frame, so bytes acknowledged of a frame prove its label. To have something to prove it by, the
  frame that reaches the end of an epoch carries the next label, also where it ends exactly there
  (RocketMQ then sends the label in an empty frame, which nothing answers). And a slave that is back
  and begins where an epoch does is sent the epoch before it first: RocketMQ's takes a label for
  known that is the last one it heard, though it cut its list when it connected again.
- Epochs that wrote nothing are not announced: RocketMQ's slave would refuse the one behind (H1).
"""

from __future__ import annotations

from bisect import bisect_right

from rmqstore.epochs import EpochEntry, epoch_at
from rmqstore.replication.protocol.events import (
    CaughtUp,
    Close,
    Effect,
    HaOptions,
    HaState,
    Joined,
    LogView,
    Send,
    SendLog,
)
from rmqstore.replication.protocol.frames import (
    Ack,
    Frame,
    Handshake,
    HandshakeReply,
    Transfer,
    handshake_crc,
)
from rmqstore.replication.protocol.master import MasterMachine

__all__ = ["AutoSwitchMaster"]


class AutoSwitchMaster(MasterMachine):
    """One connection of an auto-switch master whose own id is *broker_id*.

    *heard* has the ids of the slaves that were connected before; this one is added to it.
    """

    _head_bytes = 36

    def __init__(
        self, log: LogView, *, broker_id: int, options: HaOptions, heard: set[int] | None = None
    ) -> None:
        super().__init__(log, options=options)
        self._broker_id = broker_id
        self._heard = set() if heard is None else heard
        self._is_back = False
        self._epoch = EpochEntry(-1, 0)
        self._waits_for_log = self._is_checked = False
        self.slave: Handshake | None = None
        """What the slave said of itself; None before it did."""

    def _open(self) -> None:
        self.state = HaState.HANDSHAKE

    def _take(self, frame: Frame, now_ms: int) -> list[Effect]:
        match frame:
            case Handshake():
                return self._shake_hands(frame, now_ms)
            case Ack(offset) if self.slave is None:
                return self._close(f"acknowledgement of {offset} before any handshake")
            case Ack(epoch=epoch) if (epoch is not None) is not self._is_checked:
                return self._close("an acknowledgement in which checks are missing, or too many")
            case Ack(offset) if self.state is HaState.HANDSHAKE or self.next_offset is None:
                return self._start(offset, now_ms)
            case Ack(offset, epoch):
                return self._acknowledge(offset, epoch, now_ms)
        return self._close(f"a {type(frame).__name__} came where only a slave's frames may")

    def _shake_hands(self, frame: Handshake, now_ms: int) -> list[Effect]:
        if self.slave is not None:
            # RocketMQ's slave repeats itself when the answer is late, and closes on a second one.
            if frame == self.slave and self.state is HaState.HANDSHAKE:
                return []
            return self._close("a second handshake on one connection")

        if frame.broker_id < 0 or frame.broker_id == self._broker_id:
            return self._close(
                f"the slave calls itself broker {frame.broker_id}, this master is broker "
                f"{self._broker_id}"
            )

        self.slave = frame
        self._is_back = frame.broker_id in self._heard
        self._heard.add(frame.broker_id)
        self._is_checked = frame.offers_checks and self._options.checks
        self._wrote_ms = now_ms

        epochs = tuple(self._log.epochs)
        reply = HandshakeReply(
            end_offset=self._log.end_offset,
            epoch=epochs[-1].epoch if epochs else -1,
            entries=epochs,
            handshake_crc=handshake_crc(frame) if self._is_checked else None,
        )
        return [Joined(frame.broker_id, frame.is_learner, self._is_checked), Send(reply)]

    def _start(self, offset: int, now_ms: int) -> list[Effect]:
        assert self.slave is not None
        log = self._log
        if self._waits_for_log and offset == 0 == log.end_offset:
            return []

        from_last_file = self.slave.sync_from_last_file
        begin = self._begin(
            offset, first_offset=log.last_file_start if from_last_file else log.start_offset
        )
        if isinstance(begin, Close):
            return self._close(begin)

        self._waits_for_log = log.end_offset == 0
        self.state = HaState.TRANSFER

        first = log.start_offset if begin is None else begin
        epoch = epoch_at(log.epochs, first)
        if epoch is None:
            return self._close(
                f"no epoch holds byte {begin}; this log's epoch list lacks its beginning"
            )

        if self._is_back and begin == offset == epoch.start_offset > 0:
            epoch = epoch_at(log.epochs, begin - 1) or epoch
        self._epoch = epoch
        # A slave that holds bytes of an epoch has stored it.
        self._proof_offset = first - 1 if first > epoch.start_offset else first

        if begin is not None and not self._waits_for_log:
            self.next_offset = begin

        # Of an empty log a slave holds all there is, and nothing more would come of it.
        holds_all = [self._acked(self.slave.broker_id, 0, -1)] if self._waits_for_log else []
        return super()._heartbeat(now_ms) + holds_all

    def _go_on(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._waits_for_log and self._log.end_offset > 0 and self.state is HaState.TRANSFER:
            self._waits_for_log = False
            effects = self._start(0, now_ms)
            self._note_sent(effects, now_ms)
        return effects + super()._go_on(now_ms)

    def _acknowledge(self, offset: int, epoch: int | None, now_ms: int) -> list[Effect]:
        assert self.slave is not None

        fault = self._fault_of(offset)
        if fault is not None:
            return self._close(fault)

        if epoch is None:
            is_proven = offset > self._proof_offset
            epoch = max(self.acked_epoch, self._epoch.epoch if is_proven else -1)
        elif not self.acked_epoch <= epoch <= self._log.epochs[-1].epoch:
            return self._close(
                f"the slave has stored epoch {epoch}, after {self.acked_epoch}; this master is of "
                f"epoch {self._log.epochs[-1].epoch}"
            )

        effects: list[Effect] = [self._acked(self.slave.broker_id, offset, epoch)]
        if self.slave.is_learner:
            return effects
        if offset == self._log.end_offset:
            effects.append(CaughtUp(self.slave.broker_id, now_ms))
        elif self._sent_end is not None and offset >= self._sent_end:
            effects.append(CaughtUp(self.slave.broker_id, self._sent_ms))
        return effects

    def _count(self, offset: int, epoch: int, caught_up_ms: int | None) -> list[Effect]:
        assert self.slave is not None
        effects: list[Effect] = [self._acked(self.slave.broker_id, offset, epoch)]
        if not self.slave.is_learner and caught_up_ms is not None:
            effects.append(CaughtUp(self.slave.broker_id, caught_up_ms))
        return effects

    def _label_end(self) -> int | None:
        epochs = self._log.epochs
        if not epochs or epochs[-1].epoch <= self._epoch.epoch:
            return None
        later = bisect_right(epochs, self._epoch.epoch, key=_epoch_of)
        return epochs[later].start_offset

    def _batch(self, offset: int, size: int) -> SendLog | Send | None:
        # A frame that reaches the end of its epoch is cut there and carries the label of the next
        # epoch; at the very end it is empty.
        end = self._label_end()
        if end is None or not self._ends_label(offset, size):
            return super()._batch(offset, size)
        # The last of several epochs that begin there, all but it without bytes.
        label = epoch_at(self._log.epochs, end)
        assert label is not None, "an epoch begins there"
        self._epoch, self._proof_offset = label, offset
        if offset >= end:
            return Send(self._empty_frame(offset))
        return super()._batch(offset, end - offset)

    def _empty_frame(self, offset: int) -> Transfer:
        return Transfer(
            offset=offset,
            epoch=self._epoch.epoch,
            epoch_start=self._epoch.start_offset,
            confirm_offset=self._log.confirm_offset,
            is_checked=self._is_checked,
        )


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch
