"""A machine at work on a store and a socket, alone or, with `HaOptions.streams`, through a pump."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rmqstore._native.core import Pump, PumpReport
from rmqstore.errors import ArgumentError, StoreError
from rmqstore.replication.protocol.events import (
    Acked,
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
    Heartbeat,
    LogGrew,
    Opened,
    PromiseConfirm,
    Receive,
    Received,
    ReceiveEnded,
    Restart,
    SaveEpochs,
    SaveEpochState,
    Send,
    SendLog,
    SetConfirm,
    SetUntil,
    Stream,
    Streamed,
    StreamEnded,
    TruncateTo,
    Writable,
)
from rmqstore.replication.protocol.frames import (
    Frame,
    FrameError,
    Transfer,
    encode,
    encode_head,
)
from rmqstore.replication.protocol.master import MasterMachine
from rmqstore.replication.protocol.slave import SlaveMachine
from rmqstore.replication.runtime.log import StoreLog
from tests.service.pumps import PATIENCE_MS

STEPS_MAX = 10_000


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Driver:
    """Carries out what *machine* asks for, one step of `work` after another."""

    def __init__(
        self,
        log: StoreLog,
        machine: MasterMachine | SlaveMachine,
        parser: Any,
        sock: socket.socket,
        pump: Pump | None,
    ) -> None:
        self.log, self.machine, self.sock, self.pump = log, machine, sock, pump
        self._parser = parser
        self._frames: deque[Frame] = deque()
        self._fault: str | None = None
        self._wish: Stream | Receive | None = None
        self._link: int | None = None
        self._out = b""
        self._owes_writable = False
        self.handed_over = 0
        self.ended: PumpReport | None = None
        """How the pump's last link of this connection ended."""
        self.acks: list[int] = []
        self.over: str | None = None
        """Why the machine closed."""

    def open(self) -> Driver:
        return self.handle(Opened())

    def handle(self, event: Event) -> Driver:
        self._hear(event)
        while self._frames and self.over is None:
            self._hear(FrameReceived(self._frames.popleft()))
        if self._fault is not None and self.over is None:
            self._hear(Failed(self._fault))
        self._begin()
        return self

    def work_until(self, is_done: Callable[[], bool], *others: Driver) -> None:
        """Let this side and *others* work until it is so."""
        sides = (self, *others)
        for _ in range(STEPS_MAX):
            if is_done():
                return
            poller = select.poll()
            for each in sides:
                each._register(poller)
            assert poller.poll(PATIENCE_MS), [each.over for each in sides]
            for each in sides:
                each._step()
        raise AssertionError("it never ends")

    def work(self) -> None:
        """Do what there is to do at this moment."""
        for _ in range(STEPS_MAX):
            poller = select.poll()
            self._register(poller)
            if not poller.poll(0):
                return
            self._step()
        raise AssertionError("it never ends")

    def take_back(self) -> None:
        """Take the connection back from the pump and go on with it, if the pump has it."""
        if self._link is not None and self.pump is not None:
            self._take_report(self.pump.stop(self._link))
            if self.over is None:
                self.handle(LogGrew())

    def progress(self) -> PumpReport | None:
        """Return how far the pump has come with the connection, None when the pump has none."""
        if self._link is None or self.pump is None:
            return None
        try:
            return self.pump.progress(self._link)
        except ArgumentError:  # it has just ended, and the report of that is taken next
            return None

    def end(self) -> None:
        """Take the connection back and close it."""
        self._stop()
        self.sock.close()
        self.over = self.over or "ended"

    # ---- one step

    def _register(self, poller: Any) -> None:
        if self.over is None:
            what = self.pump if self._link is not None else self.sock
            poller.register(what, select.POLLIN | (select.POLLOUT if self._out else 0))

    def _step(self) -> None:
        if self.over is not None:
            return

        if self._link is not None:
            assert self.pump is not None
            for report in self.pump.poll():
                self._take_report(report)
            return

        self._flush()
        self._begin()
        if self._link is not None:
            return

        try:
            data = self.sock.recv(100_000)
        except BlockingIOError:
            return

        if not data:
            self._lose()
            return

        self._feed(data)
        if self._frames:
            self.handle(FrameReceived(self._frames.popleft()))
        elif self._fault is not None:
            self.handle(Failed(self._fault))

    def _feed(self, data: bytes) -> None:
        try:
            self._frames.extend(self._parser.feed(data))
        except FrameError as error:
            self._frames.extend(error.frames)
            self._fault = str(error)

    def _lose(self) -> None:
        """The peer is gone; a master's machine says nothing about that."""
        self.handle(Closed())
        self.over = self.over or "the peer closed the connection"

    def _take_report(self, report: PumpReport) -> None:
        if not isinstance(self.machine, MasterMachine):
            self.log.checked(report.border)

        if report.reason == "acked":
            self.handle(self._progress(report))
            return

        self._link, self.ended = None, report
        self._send(report.unsent)
        self._owes_writable = True  # whatever blocked the pump has left by the time nothing waits

        if report.reason == "closed":
            self._lose()
        elif report.reason == "error":
            self.handle(Failed(report.detail))
        else:
            self._feed(report.leftover)
            ended = self._progress(report, is_over=True)
            if report.reason == "damaged":
                self._hear(ended)
                self._frames.clear()
                self.handle(Damaged(report.offset))
            else:
                self.handle(ended)

    def _progress(self, report: PumpReport, *, is_over: bool = False) -> Event:
        common = {
            "next_offset": report.next_offset,
            "acked_offset": report.acked_offset,
            "acked_epoch": report.acked_epoch,
            "heard_ms": report.heard_ms,
            "wrote_ms": report.wrote_ms,
        }
        leftover = {"has_leftover": bool(report.leftover)} if is_over else {}
        if isinstance(self.machine, MasterMachine):
            kind = StreamEnded if is_over else Streamed
            times = {"blocked_ms": report.blocked_ms, "caught_up_ms": report.caught_up_ms}
            return kind(**common, **times, **leftover)
        ended = ReceiveEnded if is_over else Received
        return ended(**common, confirm_offset=report.confirm_offset, **leftover)

    def _hear(self, event: Event) -> None:
        self._carry_out(self.machine.on(event, now_ms()))

    def _carry_out(self, effects: list[Effect]) -> None:
        try:
            has_changed = self._carry_out_all(effects)
        except StoreError as error:
            self._hear(Failed(str(error)))
            return
        if has_changed and self.over is None:
            damaged = self.log.check()
            self._hear(LogGrew() if damaged is None else Damaged(damaged))
        self._flush()

    def _carry_out_all(self, effects: list[Effect]) -> bool:
        """Return whether the log has changed, so that the machine must be told."""
        has_changed = False
        for effect in effects:
            match effect:
                case Send(frame):
                    self._send(encode(frame))
                case SendLog(offset, size, header):
                    body = self.log.read(offset, size)
                    self._send(encode_head(header, body) + body)
                case Stream() | Receive():
                    self._wish = effect
                case SetUntil(until):
                    if self._link is not None and self.pump is not None:
                        self.pump.set_until(self._link, until)
                case Heartbeat():
                    if self._link is not None and self.pump is not None:
                        self.pump.heartbeat(self._link)
                case Append() | TruncateTo() | Restart() | FlushLog():
                    self.log.carry_out(effect)
                    has_changed = True
                case SaveEpochs() | SaveEpochState() | SetConfirm() | PromiseConfirm():
                    self.log.carry_out(effect)
                case Close(reason) | Halt(reason):
                    self._stop()
                    self.over = reason
                case Acked(_, offset):
                    self.acks.append(offset)
        return has_changed

    def _begin(self) -> None:
        """Hand the connection over when that was asked for last."""
        wish, self._wish = self._wish, None
        if wish is None or self.over is not None or not self._is_handing_over():
            return

        assert not self._out
        assert self.pump is not None
        self.handed_over += 1
        leftover = self._parser.release()

        if isinstance(wish, Stream):
            label = {}
            if isinstance(wish.header, Transfer):
                label = {
                    "epoch": wish.header.epoch,
                    "epoch_start": wish.header.epoch_start,
                    "said_confirm": wish.header.confirm_offset,
                }
            self._link = self.pump.stream(
                self.sock.fileno(),
                kind="transfer" if label else "classic",
                next_offset=wish.offset,
                acked_offset=wish.acked_offset,
                acked_epoch=wish.acked_epoch,
                proof_offset=wish.proof_offset,
                is_checked=isinstance(wish.header, Transfer) and wish.header.is_checked,
                until=wish.until,
                batch_bytes=1000,
                leftover=leftover,
                **label,
            )
            return

        epoch = wish.epoch
        self._link = self.pump.receive(
            self.sock.fileno(),
            kind="classic" if epoch is None else "transfer",
            next_offset=wish.offset,
            acked_offset=wish.acked_offset,
            acked_epoch=wish.acked_epoch,
            is_checked=wish.is_checked,
            border=self.log.whole_end,
            epoch=0 if epoch is None else epoch.epoch,
            epoch_start=0 if epoch is None else epoch.start_offset,
            ack_flushed=wish.ack_flushed,
            leftover=leftover,
        )

    def _is_handing_over(self) -> bool:
        """Tell whether the machine still wants that; a frame told since takes it back."""
        if isinstance(self.machine, MasterMachine):
            return self.machine.is_streaming
        return self.machine.is_receiving

    def _stop(self) -> None:
        if self._link is not None and self.pump is not None:
            report = self.pump.stop(self._link)
            self._link = None
            if not isinstance(self.machine, MasterMachine):
                self.log.checked(report.border)

    def _send(self, data: bytes) -> None:
        self._out += data
        self._owes_writable = self._owes_writable or bool(data)

    def _flush(self) -> None:
        """Send what waits; a master hears when all of it has left."""
        while self._out and self.over is None:
            try:
                self._out = self._out[self.sock.send(self._out) :]
            except BlockingIOError:
                return
        if self._owes_writable and self.over is None:
            self._owes_writable = False
            if isinstance(self.machine, MasterMachine):
                self._hear(Writable())
