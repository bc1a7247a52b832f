"""Random schedules of slaves: one log copied by the machines alone, and with a pump."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import rmqstore
from rmqstore.epochs import EpochEntry
from rmqstore.replication.protocol.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.protocol.classic import ClassicSlave
from rmqstore.replication.protocol.events import (
    Closed,
    HaState,
)
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    ClassicDataParser,
    Handshake,
    HandshakeReply,
    MasterFrameParser,
    ReportParser,
    SlaveFrameParser,
    Transfer,
    encode,
    handshake_crc,
)
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.store.replica_view import ReplicaView
from tests.service.ha_driver import Driver
from tests.service.pump_schedules import (
    ACTIONS_MAX,
    OPTIONS,
    SIZES,
    Peer,
    connect,
    end_of,
    settle,
)
from tests.service.pumps import FILE_SIZE, Bench, log_bytes


class Sender(Peer):
    """A master that notes what its slave acknowledges."""

    def __init__(self, driver: Driver, sock: socket.socket, parser: Any) -> None:
        super().__init__(driver, sock, parser)
        self.acks: list[tuple[int, int | None]] = []
        self.hello: Handshake | None = None

    def read(self) -> None:
        for frame in self.frames():
            if isinstance(frame, Handshake):
                self.hello = frame
                continue
            ack = (frame.offset, frame.epoch if isinstance(frame, Ack) else None)
            assert not self.acks or self.acks[-1][0] <= ack[0], "an acknowledgement went back"
            self.acks.append(ack)

    def last_ack(self, named: Callable[[int, int | None], object]) -> object:
        return named(*self.acks[-1]) if self.acks else None


class Slaves:
    """Copies of one log, made both ways."""

    def __init__(self, bench: Bench, dice: random.Random, kind: str) -> None:
        self.bench, self.dice, self.kind = bench, dice, kind
        self.source = bench.store(*dice.choices(SIZES, k=40))
        self.data, self.end = log_bytes(self.source), self.source.end_offset

        self.ends = {0}
        for record in self.source.scan_log():
            self.ends.add(record.physical_offset + record.size)
            self.ends.add(-(-(record.physical_offset + record.size) // FILE_SIZE) * FILE_SIZE)

        self.entries = [EpochEntry(1, 0)]
        self.options = replace(
            OPTIONS,
            checks=kind == "checked",
            overlap_bytes=dice.choice([0, 0, 500]),
            ack_flushed=dice.random() < 0.1,
        )

        self.stores: list[rmqstore.Store] = []
        self.logs = [self.new_log() for _ in range(2)]
        self.pump = bench.pump(self.stores[1])
        self.machines = [self.new_machine(streams) for streams in (False, True)]
        self.confirm = 0

    def new_log(self) -> StoreLog:
        store = self.bench.store()
        self.stores.append(store)
        log = StoreLog(ReplicaView(store), is_gated=self.kind != "classic")
        return self.bench.stack.enter_context(log)

    def new_machine(self, streams: bool) -> Any:
        options = replace(self.options, streams=streams)
        log = self.logs[streams]
        if self.kind == "classic":
            return ClassicSlave(log, options=options)
        return AutoSwitchSlave(log, broker_id=2, options=options)

    @property
    def is_over(self) -> bool:
        """Whether the copies are complete, or their machines have halted."""
        return self.logs[0].end_offset >= self.end or any(
            each.state is HaState.SUSPEND for each in self.machines
        )

    def connection(self) -> None:
        with ExitStack() as stack:
            self.held_before = self.logs[0].end_offset
            self.ways = [self.open(stack, streams) for streams in (False, True)]
            self.at = self.begun_at = self.begin()
            for _ in range(self.dice.randrange(1, ACTIONS_MAX)):
                if self.ways[0].driver.over is not None:
                    break
                self.act()
                if self.dice.random() < 0.7:
                    self.settle()
            self.settle()
            self.ways[1].driver.take_back()
            self.settle()
            self.compare()
            for each in self.ways:
                each.driver.end()
                if each.driver.machine.state is not HaState.READY:
                    each.driver.machine.on(Closed(), 0)

    def open(self, stack: ExitStack, streams: bool) -> Sender:
        ours, theirs = connect(stack, 100_000)
        classic = self.kind == "classic"
        parser = ClassicDataParser() if classic else MasterFrameParser()
        pump = self.pump if streams else None
        driver = Driver(self.logs[streams], self.machines[streams], parser, ours, pump).open()
        return Sender(driver, theirs, ReportParser() if classic else SlaveFrameParser())

    def begin(self) -> int:
        """Shake hands; return the offsets at which the slaves begin."""
        if self.kind != "classic":
            for each in self.ways:
                self.await_word(each, lambda: each.hello is not None)  # noqa: B023
            hello = self.ways[0].hello
            assert hello == self.ways[1].hello
            assert hello is not None
            crc = handshake_crc(hello) if self.kind == "checked" else None
            entries = tuple(self.entries)
            self.send(encode(HandshakeReply(self.end, entries[-1].epoch, entries, crc)))

        for each in self.ways:
            self.await_word(each, lambda: bool(each.acks) or bool(each.driver.over))  # noqa: B023
        assert self.ways[0].acks[:1] == self.ways[1].acks[:1]
        begins_at = self.ways[0].acks[0][0] if self.ways[0].acks else 0

        if self.kind != "classic":
            self.send(self.frame(begins_at, b""))  # as every master does

        return begins_at

    def await_word(self, sender: Sender, has_come: Callable[[], bool]) -> None:
        def has_settled() -> bool:
            sender.read()
            return has_come()

        settle(has_settled, [sender.driver], lambda: sender.driver.over)

    def send(self, data: bytes) -> None:
        while data:
            size = self.dice.randrange(1, len(data) + 1)
            for each in self.ways:
                each.send(data[:size])
            data = data[size:]
            if self.dice.random() < 0.5:
                for each in self.ways:
                    each.driver.work()
        for each in self.ways:
            each.driver.work()

    def frame(self, offset: int, body: bytes, label: EpochEntry | None = None) -> bytes:
        if self.kind == "classic":
            return encode(ClassicData(offset, body))
        if label is None:
            end = max(offset + len(body), offset + 1)
            label = next(each for each in reversed(self.entries) if each.start_offset < end)
        return encode(
            Transfer(
                offset,
                label.epoch,
                label.start_offset,
                self.confirm,
                body,
                is_checked=self.kind == "checked",
            )
        )

    def next_body(self) -> bytes:
        size = min(
            self.dice.choice([1, 50, 400, 1000, 3000]),
            self.end - self.at,
            FILE_SIZE - self.at % FILE_SIZE,
        )
        for each in self.entries:
            if self.at < each.start_offset:
                size = min(size, each.start_offset - self.at)
        return self.data[self.at : self.at + size]

    def act(self) -> None:
        dice = self.dice
        match dice.choices(
            ("data", "heartbeat", "confirm", "epoch", "hand over", "fault", "leave"),
            (60, 6, 6, 3, 12, 4, 2),
        )[0]:
            case "data":
                out = b""
                for _ in range(dice.randrange(1, 6)):
                    body = self.next_body()
                    out += self.frame(self.at, body)
                    self.at += len(body)
                self.send(out)
            case "heartbeat":
                self.send(self.frame(self.at, b""))
            case "confirm":
                self.confirm = max(self.confirm, dice.randrange(self.at + 1))
            case "epoch" if self.at < self.end and self.at > self.entries[-1].start_offset:
                self.entries.append(EpochEntry(self.entries[-1].epoch + 1, self.at))
                if dice.random() < 0.5:
                    self.send(self.frame(self.at, b""))
            case "hand over":
                self.ways[1].driver.take_back()
            case "fault":
                self.settle()
                self.send(self.fault() + b"and more")
            case "leave":
                out = self.frame(self.at, self.next_body())
                self.send(out[: dice.randrange(len(out) + 1)])
                for each in self.ways:
                    each.sock.shutdown(socket.SHUT_WR)

    def fault(self) -> bytes:
        dice, at = self.dice, self.at
        body = self.data[at : at + min(100, FILE_SIZE - at % FILE_SIZE)]
        last = self.entries[-1]
        damaged = bytearray(self.frame(at, body))
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        choices = [
            self.frame(at + 5, body),
            self.frame(max(at - 5, 0), self.data[max(at - 5, 0) : at]),
            self.frame(at, body, EpochEntry(last.epoch - 1, last.start_offset)),
            self.frame(at, body, EpochEntry(last.epoch, last.start_offset + 1)),
            encode(Transfer(at, last.epoch, last.start_offset, 0, body, self.kind != "checked")),
            b"\xff" * 60,
            bytes(damaged),
        ]
        return dice.choice(choices)

    def named(self, offset: int, epoch: int | None) -> tuple[int, int | None]:
        """Return an acknowledgement; where it begins, a machine alone names the epoch later."""
        is_start = offset in {self.begun_at, *(each.start_offset for each in self.entries)}
        return offset, None if is_start else epoch

    def view(self, sender: Sender) -> tuple[object, ...]:
        driver = sender.driver
        progress = driver.progress()
        if progress is not None:
            driver.log.checked(progress.border)

        reported = [(driver.machine.reported_offset, driver.machine.reported_epoch)]
        for each in (progress, driver.ended):
            if each is not None:
                reported.append((each.acked_offset, each.acked_epoch))

        log = driver.log
        return (
            end_of(driver),
            # A pump no longer acknowledges bytes that came together with the end.
            None if driver.over else (self.named(*max(reported)), sender.last_ack(self.named)),
            log.end_offset,
            log.whole_end,
            # A pump takes no confirm offset that came with the end either, so its own stays lower.
            None if driver.over else log.confirm_offset,
            tuple(log.epochs),
        )

    def settle(self) -> None:
        def agrees() -> bool:
            for each in self.ways:
                each.flush()
                each.read()
            return self.view(self.ways[0]) == self.view(self.ways[1]) and not any(
                each.unsent for each in self.ways
            )

        settle(
            agrees,
            [each.driver for each in self.ways],
            lambda: [self.view(each) for each in self.ways],
        )

    def compare(self) -> None:
        held = [log_bytes(store) for store in self.stores]
        assert held[0] == held[1]
        # Without checks a size may be damaged; the disk may hold a part of a record.
        if self.kind != "checked" or self.options.ack_flushed:
            return
        for each in self.ways:
            # Bytes held before the connection are compared first, and acknowledged step by step.
            assert {offset for offset, _ in each.acks if offset > self.held_before} <= self.ends
