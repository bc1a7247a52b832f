"""Random schedules of masters: one log sent by the machines alone, and with a pump."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from rmqstore.epochs import EpochEntry
from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.protocol.classic import ClassicMaster
from rmqstore.replication.protocol.events import (
    NO_EPOCHS,
    LogGrew,
    SaveEpochs,
)
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicDataParser,
    Frame,
    Handshake,
    HandshakeReply,
    MasterFrameParser,
    Report,
    ReportParser,
    SlaveFrameParser,
    Transfer,
    encode,
)
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.store.replica_view import ReplicaView
from tests.service.ha_driver import Driver
from tests.service.pump_schedules import (
    ACTIONS_MAX,
    BATCH,
    OPTIONS,
    SIZES,
    Peer,
    connect,
    end_of,
    settle,
)
from tests.service.pumps import FILE_SIZE, Bench


class Reader(Peer):
    """A slave that notes which stretches of the log it is sent under which labels."""

    def __init__(self, driver: Driver, sock: socket.socket, parser: Any) -> None:
        super().__init__(driver, sock, parser)
        self.stretches: list[tuple[tuple[int, int], int, int]] = []
        self.next: int | None = None
        self.confirm = -1
        self.replies: list[HandshakeReply] = []

    def stretches_with_bytes(self) -> list[tuple[tuple[int, int], int, int]]:
        """Return the stretches sent, without labels of epochs that another followed at once."""
        *before, last = self.stretches
        return [each for each in before if each[1] < each[2]] + [last]

    def read(self, log: StoreLog, size: int = 1 << 20) -> None:
        for frame in self.frames(size):
            if isinstance(frame, HandshakeReply):
                self.replies.append(frame)
                continue
            label, body = (-1, -1), bytes(frame.body)
            if isinstance(frame, Transfer):
                label = (frame.epoch, frame.epoch_start)
                assert self.confirm <= frame.confirm_offset <= log.end_offset
                self.confirm = frame.confirm_offset
            if body and frame.offset + len(body) == label[1]:
                # The label announces the next epoch.
                self.take(log, self.stretches[-1][0], frame.offset, body)
                self.take(log, label, label[1], b"")
            else:
                self.take(log, label, frame.offset, body)

    def take(self, log: StoreLog, label: tuple[int, int], offset: int, body: bytes) -> None:
        end = offset + len(body)
        assert self.next in (None, offset), "bytes were left out, or sent twice"
        assert label[1] <= offset, "bytes of an earlier epoch"
        assert len(body) <= BATCH
        assert not body or offset // FILE_SIZE == (end - 1) // FILE_SIZE
        assert body == (log.read(offset, len(body)) if body else b"")
        self.next = end
        if self.stretches and self.stretches[-1][0] == label:
            self.stretches[-1] = (label, self.stretches[-1][1], end)
        else:
            self.stretches.append((label, offset, end))


class Masters:
    """Connections to one log, served both ways."""

    def __init__(self, bench: Bench, dice: random.Random, kind: str) -> None:
        self.dice, self.kind = dice, kind
        self.store = bench.store(*dice.choices(SIZES, k=3))
        self.log = bench.stack.enter_context(StoreLog(ReplicaView(self.store), is_gated=False))
        self.pump = bench.pump(self.store)
        entries = (EpochEntry(1, 0),)
        if dice.random() < 0.5:
            entries += (EpochEntry(3, dice.randrange(1, self.log.end_offset)),)
        self.log.carry_out(SaveEpochs(entries))

    def connection(self) -> None:
        with ExitStack() as stack:
            self.stack = stack
            buffer_bytes = self.dice.choice([4608, 4608, 100_000])
            self.ways = [self.open(streams, buffer_bytes) for streams in (False, True)]
            self.begin()
            for _ in range(self.dice.randrange(1, ACTIONS_MAX)):
                if self.ways[0].driver.over is not None:
                    break
                self.act()
                self.read_all()
            self.compare()
            for each in self.ways:
                each.driver.end()

    def open(self, streams: bool, buffer_bytes: int) -> Reader:
        options = replace(OPTIONS, streams=streams, checks=self.kind == "checked")
        ours, theirs = connect(self.stack, buffer_bytes)
        machine: Any
        if self.kind == "classic":
            machine = ClassicMaster(self.log, broker_id=2, options=options)
        else:
            machine = AutoSwitchMaster(self.log, broker_id=1, options=options)
        parser = ReportParser() if self.kind == "classic" else SlaveFrameParser()
        driver = Driver(self.log, machine, parser, ours, self.pump if streams else None).open()
        theirs_parser = ClassicDataParser() if self.kind == "classic" else MasterFrameParser()
        return Reader(driver, theirs, theirs_parser)

    def begin(self) -> None:
        start = self.dice.randrange(max(self.log.end_offset - 20_000, 1), self.log.end_offset + 1)
        self.start = start
        if self.kind != "classic":
            self.send(Handshake(False, False, 2, offers_checks=self.kind == "checked"))
        self.send(self.ack(start))
        self.settle(lambda: all(each.next is not None for each in self.ways), reads=True)

    def ack(self, offset: int) -> Frame:
        if self.kind == "classic":
            return Report(offset)
        known = [each.epoch for each in self.log.epochs if each.start_offset < offset]
        return Ack(offset, (known or [-1])[-1] if self.kind == "checked" else None)

    def send(self, *frames: Frame, tail: bytes = b"") -> None:
        data = b"".join(map(encode, frames)) + tail
        at = self.dice.randrange(len(data) + 1)
        for piece in (data[:at], data[at:]):
            for each in self.ways:
                each.send(piece)
            self.work()

    def work(self) -> None:
        for each in self.ways:
            each.driver.work()

    def act(self) -> None:
        dice = self.dice
        match dice.choices(
            ("put", "ack", "read", "hand over", "epoch", "lie", "leave"), (30, 30, 15, 12, 3, 3, 2)
        )[0]:
            case "put":
                for size in dice.choices(SIZES, k=dice.randrange(1, 4)):
                    self.store.put("orders", bytes([dice.randrange(256)]) * size)
                self.handle()
            case "ack":
                low = max(self.start, *(self.acked(each)[0] for each in self.ways))
                high = min(each.next or 0 for each in self.ways)
                if low <= high:
                    offsets = sorted(dice.randrange(low, high + 1) for _ in range(3))
                    self.send(*(self.ack(each) for each in offsets[: dice.randrange(1, 4)]))
            case "read":
                size = dice.randrange(1, 3000)
                for each in self.ways:
                    each.read(self.log, size)
                self.work()
            case "hand over":
                self.ways[1].driver.take_back()
            case "epoch":
                entry = EpochEntry(self.log.epochs[-1].epoch + 2, self.log.end_offset)
                self.log.carry_out(SaveEpochs((*self.log.epochs, entry)))
                self.handle()
            case "lie":
                self.lie()
            case "leave":
                for each in self.ways:
                    each.sock.shutdown(socket.SHUT_WR)
                self.settle(lambda: all(each.driver.over for each in self.ways), reads=True)

    def handle(self) -> None:
        for each in self.ways:
            if each.driver.over is None:
                each.driver.handle(LogGrew())

    def lie(self) -> None:
        """Send bytes that end a connection, once all bytes sent earlier have arrived."""
        end = self.log.end_offset
        self.settle(self.has_all, reads=True)
        self.send(self.ack(end))
        self.settle(self.agrees, reads=True)

        lie: bytes = self.dice.choice(
            [
                encode(self.ack(end + 1)),
                encode(self.ack(end - 1)),
                encode(Handshake(False, False, 9)),
                b"\xff" * 40,
                encode(Ack(end, None if self.kind == "checked" else 1)),
                encode(Ack(end, self.log.epochs[-1].epoch + 1)),
            ]
        )

        self.send(self.ack(end), tail=lie + b"and more")
        self.settle(self.agrees, reads=True)

    def read_all(self) -> None:
        if self.dice.random() < 0.4:
            self.settle(lambda: self.has_all() and self.agrees(), reads=True)

    def has_all(self) -> bool:
        return all(each.driver.over is not None or self.is_told_all(each) for each in self.ways)

    def is_told_all(self, reader: Reader) -> bool:
        last = self.log.epochs[-1]
        label = (-1, -1) if self.kind == "classic" else (last.epoch, last.start_offset)
        return reader.next == self.log.end_offset and reader.stretches[-1][0] == label

    def acked(self, reader: Reader) -> tuple[int, int]:
        driver = reader.driver
        found = [driver.machine, driver.progress(), driver.ended]
        return max((each.acked_offset, each.acked_epoch) for each in found if each is not None)

    def views(self) -> list[tuple[object, ...]]:
        # Without checks the known epoch depends on the moment when the label changed.
        count = 1 if self.kind == "switch" else 2
        return [(end_of(each.driver), self.acked(each)[:count]) for each in self.ways]

    def agrees(self) -> bool:
        views = self.views()
        return views[0] == views[1]

    def compare(self) -> None:
        self.settle(lambda: self.has_all() and self.agrees(), reads=True)
        self.ways[1].driver.take_back()
        self.settle(lambda: self.has_all() and self.agrees(), reads=True)
        first, second = self.ways
        for offset, epoch in map(self.acked, self.ways):
            known = [each for each in self.log.epochs if each.start_offset < offset + BATCH]
            assert epoch in (-1, NO_EPOCHS) or epoch <= known[-1].epoch
        if first.driver.over is None:
            assert first.stretches_with_bytes() == second.stretches_with_bytes()
        assert first.replies == second.replies

    def settle(self, is_settled: Callable[[], bool], *, reads: bool) -> None:
        def has_settled() -> bool:
            for each in self.ways:
                if reads:
                    each.read(self.log)
                each.flush()
            return is_settled()

        settle(
            has_settled,
            [each.driver for each in self.ways],
            lambda: (self.views(), [(each.next, each.stretches) for each in self.ways]),
        )


# ---- slaves
