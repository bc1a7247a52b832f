"""A machine at work on a store and a socket, alone or, with `HaOptions.streams`, through a pump."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rmqstore._native.core import HaPump, HaReport
from rmqstore.replication.events import (
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
    Receive,
    Received,
    ReceiveEnded,
    Restart,
    SaveEpochs,
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
from rmqstore.replication.frames import Frame, Transfer, encode, encode_head
from rmqstore.replication.log import StoreLog
from rmqstore.replication.master import MasterMachine
from rmqstore.replication.slave import SlaveMachine
from tests.unit.pumps import PATIENCE_MS

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
        pump: HaPump | None,
    ) -> None:
        self.log, self.machine, self.sock, self.pump = log, machine, sock, pump
        self._parser = parser
        self._frames: deque[Frame] = deque()
        self._wish: Stream | Receive | None = None
        self._link: int | None = None
        self._out = b""
        self._owes_writable = False
        self.handed_over = 0
        self.acks: list[int] = []
        self.over: str | None = None
        """Why the machine closed."""

    def open(self) -> Driver:
        return self.tell(Opened())

    def tell(self, event: Event) -> Driver:
        self._hear(event)
        while self._frames and self.over is None:
            self._hear(FrameReceived(self._frames.popleft()))
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
            self.tell(Closed())
            return
        self._frames.extend(self._parser.feed(data))
        if self._frames:
            self.tell(FrameReceived(self._frames.popleft()))

    def _take_report(self, report: HaReport) -> None:
        if report.reason == "acked":
            self.tell(self._progress(report))
            return
        self._link = None
        self._send(report.unsent)
        if report.reason == "closed":
            self.tell(Closed())
        elif report.reason == "error":
            self.tell(Failed(report.detail))
        else:
            self._frames.extend(self._parser.feed(report.leftover))
            ended = self._progress(report, is_over=True)
            if report.reason == "damaged":
                self.log.checked(report.border)
                self._hear(ended)
                self._frames.clear()
                self.tell(Damaged(report.offset))
            else:
                self.tell(ended)

    def _progress(self, report: HaReport, *, is_over: bool = False) -> Event:
        common = {
            "next_offset": report.next_offset,
            "acked_offset": report.acked_offset,
            "heard_ms": report.heard_ms,
            "wrote_ms": report.wrote_ms,
        }
        leftover = {"has_leftover": report.reason == "foreign"} if is_over else {}
        if isinstance(self.machine, MasterMachine):
            kind = StreamEnded if is_over else Streamed
            times = {"blocked_ms": report.blocked_ms, "caught_up_ms": report.caught_up_ms}
            return kind(**common, **times, **leftover)
        self.log.checked(report.border)
        ended = ReceiveEnded if is_over else Received
        return ended(**common, confirm_offset=report.confirm_offset, **leftover)

    def _hear(self, event: Event) -> None:
        self._carry_out(self.machine.on(event, now_ms()))

    def _carry_out(self, effects: list[Effect]) -> None:
        has_changed = False
        self._wish = None
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
                case SaveEpochs() | SetConfirm():
                    self.log.carry_out(effect)
                case Close(reason) | Halt(reason):
                    self._stop()
                    self.over = reason
                case Acked(_, offset):
                    self.acks.append(offset)
        if has_changed and self.over is None:
            damaged = self.log.check()
            self._hear(LogGrew() if damaged is None else Damaged(damaged))
        self._flush()

    def _begin(self) -> None:
        """Hand the connection over when that was asked for last."""
        wish, self._wish = self._wish, None
        if wish is None or self.over is not None:
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
            border=self.log.whole_end,
            epoch=0 if epoch is None else epoch.epoch,
            epoch_start=0 if epoch is None else epoch.start_offset,
            ack_flushed=wish.ack_flushed,
            leftover=leftover,
        )

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
