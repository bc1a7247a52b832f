"""Classic HA, both sides: a slave reports its log's end, a master sends the following bytes.

The rules are those of RocketMQ's DefaultHAConnection and DefaultHAClient, with equal bytes on the
wire. The protocol has no epochs, so it cannot find the fork of two logs. A slave whose tail is not
the master's, or that is ahead of the master, halts; RocketMQ's slave reconnects forever or appends
bytes from the middle of a record. A master closes the connection, without a reason, if a slave
requests bytes after the end of the master's log. Then the slave requests earlier offsets, until the
master sends bytes that can be compared.
"""

from __future__ import annotations

from rmqstore.replication.protocol.events import (
    NO_EPOCHS,
    Close,
    Effect,
    HaOptions,
    HaState,
    LogView,
)
from rmqstore.replication.protocol.frames import ClassicData, Frame, Report
from rmqstore.replication.protocol.master import MasterMachine
from rmqstore.replication.protocol.slave import SlaveMachine

__all__ = ["ClassicMaster", "ClassicSlave"]

_FURTHER_BACK = 16
_OVERLAP_BYTES_MAX = 4 * 1024 * 1024 * 1024


class ClassicMaster(MasterMachine):
    """One connection of a classic master.

    Slaves have no name in this protocol; *broker_id* is the caller's for this connection. A slave
    that reports 0 gets the log from its last file on, any other exactly the missing bytes. Any 8
    bytes are a report, so a report that is impossible for this log closes the connection and is
    ignored (H15, #1155, #3015).

    The first report only names the start offset and does not count: the slave has not compared its
    log yet, and after a loss of power the master may have written other bytes at the same offsets.
    Only a report of bytes that were sent on this connection counts.
    """

    _head_bytes = 12

    def __init__(self, log: LogView, *, broker_id: int, options: HaOptions) -> None:
        super().__init__(log, options=options)
        self._broker_id = broker_id

    def _open(self) -> None:
        self.state = HaState.TRANSFER

    def _go_on(self, now_ms: int) -> list[Effect]:
        # Nothing is sent to a slave before its first report.
        if self.next_offset is None and self._restart_at is None:
            self._wrote_ms = now_ms
        return super()._go_on(now_ms)

    def _take(self, frame: Frame, now_ms: int) -> list[Effect]:
        if not isinstance(frame, Report):
            return self._close(f"a {type(frame).__name__} came where only reports may")

        if self.next_offset is None:
            self._proof_offset = frame.offset
            begin = self._begin(frame.offset, first_offset=self._log.last_file_start)
            if isinstance(begin, Close):
                return self._close(begin)
            if begin is None:
                return self._heartbeat(now_ms)
            self.next_offset = begin
        else:
            fault = self._fault_of(frame.offset)
            if fault is not None:
                return self._close(fault)

        is_proven = frame.offset > self._proof_offset
        epoch = NO_EPOCHS if is_proven else self.acked_epoch
        return [self._acked(self._broker_id, frame.offset, epoch)]

    def _count(self, offset: int, epoch: int, caught_up_ms: int | None) -> list[Effect]:
        return [self._acked(self._broker_id, offset, epoch)]

    def _empty_frame(self, offset: int) -> ClassicData:
        return ClassicData(offset)


class ClassicSlave(SlaveMachine):
    """A classic slave.

    The first report goes out at once. There is no confirm offset on this wire.
    """

    def _open(self, now_ms: int) -> list[Effect]:
        return self._follow(now_ms, master_end=0)

    def _take(self, frame: Frame, now_ms: int) -> list[Effect]:
        if not isinstance(frame, ClassicData):
            return self._close(f"a {type(frame).__name__} came where only log data may")
        if frame.body:
            return self._receive(frame.offset, frame.body, now_ms)
        return self._heartbeat(frame.offset, now_ms)

    def _closed(self) -> list[Effect]:
        log, asked = self._log, self._next_offset
        if not self._is_first_frame or self._overlap_bytes == 0 or asked == 0:
            return super()._closed()
        self._overlap_bytes *= _FURTHER_BACK
        if self._overlap_bytes > _OVERLAP_BYTES_MAX or asked <= max(log.start_offset, 1):
            self._overlap_bytes = self._options.overlap_bytes
        return self._close(
            f"the master closed the connection and had sent nothing: it is not master now, or its "
            f"log ends before byte {asked}, which this slave asked for"
        )

    def _stalled(self) -> list[Effect]:
        if not self._has_moved:
            return super()._stalled()
        return self._halt(
            f"this log ends at {self._log.end_offset}, its master's at {self._next_offset}: what "
            "is between is only here. Nothing was touched; if the master has lost it with its "
            "machine or its disk, make this replica the master, else copy what is needed of it and "
            "empty this replica"
        )

    def _report_frame(self, offset: int, *, first: bool) -> Report:
        return Report(offset)

    def _forked(self, offset: int) -> list[Effect]:
        return self._halt(
            f"bytes from {offset} on are not those of the master, and this protocol cannot tell "
            "where the logs parted. Nothing was touched; compare them with rmqstore diff. If the "
            "master has lost messages that are here, make this replica the master, else empty it"
        )

    def _begins_late(self, offset: int) -> bool:
        # It begins with its last file, and this protocol does not name its first one.
        return offset > 0

    def _confirmed(self) -> list[Effect]:
        return []

    def _received_confirm(self, offset: int) -> None:
        pass

    def _may_receive(self) -> bool:
        return True
