"""Machines that hand connections over to a pump, beside machines that do all by themselves.

The same bytes go over the wire, and the same log is there at the end.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest

import rmqstore
from rmqstore.epochs import EpochEntry
from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.protocol.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.protocol.classic import ClassicMaster, ClassicSlave
from rmqstore.replication.protocol.events import HaOptions, LogGrew, SaveEpochs, Tick
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    ClassicDataParser,
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
from tests.golden.wire import NAMES
from tests.golden.wire import Stream as RecordedStream
from tests.golden.wire import streams as streams_of
from tests.scenarios.replay import frames_of as frames_in
from tests.service.ha_driver import Driver
from tests.service.pumps import FILE_SIZE, Bench, bench, frames_of, log_bytes, receive

__all__ = ["bench"]

SIZES = (10, 700, 5000, 9000, 3000, 20, 14000, 1, 8000)
OPTIONS = HaOptions(batch_bytes=1000, overlap_bytes=0)
WAYS = pytest.mark.parametrize("streams", [False, True], ids=["machine", "pump"])


class LogOf(StoreLog):
    """The log of *store*, which readers see whole."""

    def __init__(self, store: rmqstore.Store) -> None:
        super().__init__(ReplicaView(store), is_gated=False)
        self.store = store


class Sides:
    """Masters and slaves over the stores of one test."""

    def __init__(self, bench: Bench, *, streams: bool) -> None:
        self.bench = bench
        self.options = replace(OPTIONS, streams=streams)

    def log(self, *sizes: int, epochs: tuple[tuple[int, int], ...] = ((1, 0),)) -> LogOf:
        store = self.bench.store(*sizes)
        log = self.bench.stack.enter_context(LogOf(store))
        log.carry_out(SaveEpochs(tuple(EpochEntry(*each) for each in epochs)))
        return log

    def driver(
        self, kind: Any, parser: Any, log: LogOf, sock: socket.socket, **more: Any
    ) -> Driver:
        sock.setblocking(False)
        pump = self.bench.pump(log.store) if self.options.streams else None
        return Driver(log, kind(log, options=self.options, **more), parser, sock, pump).open()

    def switch_master(self, log: LogOf, sock: socket.socket) -> Driver:
        return self.driver(AutoSwitchMaster, SlaveFrameParser(), log, sock, broker_id=1)

    def classic_master(self, log: LogOf, sock: socket.socket) -> Driver:
        return self.driver(ClassicMaster, ReportParser(), log, sock, broker_id=2)

    def switch_slave(self, log: LogOf, sock: socket.socket) -> Driver:
        return self.driver(AutoSwitchSlave, MasterFrameParser(), log, sock, broker_id=2)

    def classic_slave(self, log: LogOf, sock: socket.socket) -> Driver:
        return self.driver(ClassicSlave, ClassicDataParser(), log, sock)


@pytest.fixture
def sides(bench: Bench, streams: bool) -> Sides:
    return Sides(bench, streams=streams)


def labelled(store: rmqstore.Store, start: int, end: int, *label: int) -> bytes:
    return frames_of(
        store, start=start, end=end, batch_bytes=1000, epoch=label[0], epoch_start=label[1]
    )


@WAYS
def test_auto_switch_master_says_the_same_either_way(
    bench: Bench, sides: Sides, streams: bool
) -> None:
    """Handshake, catching up over a fork of epochs, a message, a new epoch, a lie."""
    log = sides.log(*SIZES, epochs=((1, 0), (4, 2500)))
    store, end = log.store, log.end_offset
    ours, peer = bench.sockets()
    master = sides.switch_master(log, ours)
    peer.sendall(encode(Handshake(False, False, 2)))
    said = [encode(HandshakeReply(end, 4, tuple(log.epochs))), encode(Transfer(0, 1, 0, end))]
    reply = len(said[0])
    master.work_until(lambda: getattr(master.machine, "slave", None) is not None)
    assert receive(peer, reply) == said[0]
    peer.sendall(encode(Ack(0)))
    expected = said[1] + labelled(store, 0, 2000, 1, 0) + labelled(store, 2000, 2500, 4, 2500)
    expected += labelled(store, 2500, end, 4, 2500)
    master.work_until(lambda: (master.machine.next_offset or 0) >= 2500)
    if not streams:
        master.work_until(lambda: master.machine.next_offset == end)
    assert receive(peer, len(expected)) == expected
    peer.sendall(encode(Ack(end)))
    master.work_until(lambda: master.machine.acked_offset == end)

    store.put("orders", b"one more")
    master.handle(LogGrew())
    assert receive(peer, 36 + store.end_offset - end) == labelled(
        store, end, store.end_offset, 4, 2500
    )
    end = store.end_offset
    log.carry_out(SaveEpochs((*log.epochs, EpochEntry(9, end))))
    master.handle(LogGrew())
    if streams:
        master.work_until(lambda: master.handed_over == 3)
    assert receive(peer, 36) == encode(Transfer(end, 9, end, end))
    store.put("orders", b"of another epoch")
    master.handle(LogGrew())
    assert receive(peer, 36 + store.end_offset - end) == labelled(
        store, end, store.end_offset, 9, end
    )
    peer.sendall(encode(Ack(store.end_offset + 1)))
    master.work_until(lambda: master.over is not None)
    assert "only bytes up to" in str(master.over)
    assert master.acks[-1] <= store.end_offset


@WAYS
def test_classic_master_says_the_same_either_way(bench: Bench, sides: Sides, streams: bool) -> None:
    log = sides.log(*SIZES)
    store, end = log.store, log.end_offset
    ours, peer = bench.sockets()
    master = sides.classic_master(log, ours)
    peer.sendall(encode(Report(777))[:5])
    peer.sendall(encode(Report(777))[5:] + encode(Report(777))[:3])
    expected = frames_of(store, start=777, batch_bytes=1000, kind="classic")
    master.work_until(lambda: master.machine.acked_offset == 777)
    assert receive(peer, len(expected)) == expected
    peer.sendall(encode(Report(777))[3:] + encode(Report(end)) + encode(Report(end - 1)))
    master.work_until(lambda: master.over is not None)
    assert master.over == f"the slave acknowledged {end} and then {end - 1}"
    assert master.acks[-1] == end
    assert master.handed_over == streams


@WAYS
def test_auto_switch_slave_does_the_same_either_way(
    bench: Bench, sides: Sides, streams: bool
) -> None:
    """It takes a tail, a new epoch that begins inside of a record, a heartbeat, a gap."""
    source = bench.store(*SIZES)
    log = sides.log(epochs=())
    data, end = log_bytes(source), source.end_offset

    ours, peer = bench.sockets()
    slave = sides.switch_slave(log, ours)
    assert receive(peer, 16) == encode(Handshake(False, False, 2))

    entries = (EpochEntry(1, 0), EpochEntry(2, 9000))
    peer.sendall(encode(HandshakeReply(end, 2, entries)))
    slave.work_until(lambda: slave.machine.reported_offset == 0)
    assert receive(peer, 12) == encode(Ack(0))

    said = b"".join(
        encode(Transfer(at, *label, 0, data[at:to]))
        for at, to, label in (
            (0, 700, (1, 0)),
            (700, 701, (1, 0)),
            (701, 5000, (1, 0)),
            (5000, 9000, (2, 9000)),
            (9000, 9000, (2, 9000)),
            (9000, 16000, (2, 9000)),
            (16000, end, (2, 9000)),
        )
    )

    for at in range(0, len(said), 3001):
        peer.sendall(said[at : at + 3001])
        slave.work()

    slave.work_until(lambda: slave.machine.reported_offset == end)
    assert log_bytes(log.store) == data
    assert tuple(log.epochs) == entries
    assert log.whole_end == end

    acks = receive(peer, 12)
    while not acks.endswith(encode(Ack(end))):
        acks += receive(peer, 12)

    peer.sendall(encode(Transfer(end + 5, 2, 9000, end, b"gap")))
    slave.work_until(lambda: slave.over is not None)
    assert slave.over == (
        f"the master sent byte {end + 5} where {end} was to come; this log ends at {end}"
    )

    assert slave.handed_over >= 2 * streams


@WAYS
def test_damage_is_cut_off_either_way(bench: Bench, sides: Sides, streams: bool) -> None:
    source = bench.store(500, 600, 500)
    record = source.queue("orders", 0).get(1)
    assert record is not None
    second = record.physical_offset

    data = bytearray(log_bytes(source))
    data[second + 300] ^= 4

    log = sides.log(epochs=())
    ours, peer = bench.sockets()
    slave = sides.classic_slave(log, ours)

    first = second + 100
    peer.sendall(encode(ClassicData(0, bytes(data[:first]))))
    slave.work_until(lambda: slave.machine.reported_offset == second)
    peer.sendall(encode(ClassicData(first, bytes(data[first:]))))
    slave.work_until(lambda: slave.over is not None)

    assert slave.over is not None
    assert slave.over.startswith(f"damaged bytes from {second} on: ")
    assert log.end_offset == second
    assert receive(peer, 16) == encode(Report(0)) + encode(Report(second))
    assert slave.handed_over == streams


@WAYS
def test_heartbeats_come_either_way(bench: Bench, sides: Sides, streams: bool) -> None:
    sides.options = replace(sides.options, heartbeat_ms=1)
    log = sides.log(*SIZES)
    end = log.end_offset
    ours, peer = bench.sockets()
    master = sides.classic_master(log, ours)
    peer.sendall(encode(Report(end)))
    master.work_until(lambda: master.machine.acked_offset == end)
    beat = encode(ClassicData(end))
    got = b""
    for _ in range(100_000):
        master.handle(Tick())
        got += b"" if not has_data(peer) else peer.recv(1000)
        if len(got) >= 3 * len(beat):
            break
    assert got[: 3 * len(beat)] == 3 * beat


@pytest.mark.parametrize("name", NAMES)
def test_what_java_masters_said_makes_the_same_log_either_way(bench: Bench, name: str) -> None:
    for stream in streams_of(name):
        if not stream.speaker.endswith("master") or begins_behind_zero(stream):
            continue
        ends = [play(bench, stream, streams=streams) for streams in (False, True)]
        assert ends[0] == ends[1]
        assert ends[0][0]


def begins_behind_zero(stream: RecordedStream) -> bool:
    """Tell whether the slave that heard it had a log already, or heard no byte of one."""
    frames = frames_in(stream)
    bodies = [each for each in frames if isinstance(each, ClassicData | Transfer) and each.body]
    return not bodies or bodies[0].offset % FILE_SIZE != 0


def play(
    bench: Bench, stream: RecordedStream, *, streams: bool
) -> tuple[bytes, int, tuple[EpochEntry, ...], str | None]:
    """Let an empty slave hear a recorded master; return its log, where that begins, its epochs, and
    why it closed if it did."""
    sides = Sides(bench, streams=streams)
    log = sides.log(epochs=())
    ours, peer = bench.sockets()
    is_classic = stream.speaker == "classic master"
    slave = (sides.classic_slave if is_classic else sides.switch_slave)(log, ours)
    for at in range(0, len(stream.data), 5000):
        if slave.over is not None:
            break
        peer.sendall(stream.data[at : at + 5000])
        slave.work()
    peer.shutdown(socket.SHUT_WR)
    slave.work_until(lambda: slave.over is not None)
    return log_bytes(log.store), log.start_offset, tuple(log.epochs), slave.over


def has_data(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return bool(peer.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        peer.settimeout(20)


@pytest.mark.parametrize("protocol", ["classic", "switch"])
@pytest.mark.parametrize("slave_streams", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_pairs_of_either_kind_end_with_one_log(
    bench: Bench, sides: Sides, protocol: str, slave_streams: bool
) -> None:
    log = sides.log(*SIZES, *SIZES, *SIZES)

    others = Sides(bench, streams=slave_streams)
    copy = others.log(epochs=())

    ours, theirs = bench.sockets()
    master = getattr(sides, f"{protocol}_master")(log, ours)
    slave = getattr(others, f"{protocol}_slave")(copy, theirs)

    if protocol == "classic":
        start = log.last_file_start
    else:
        start = 0

    for _ in range(5):
        end = log.end_offset
        master.work_until(lambda: bool(master.acks) and master.acks[-1] == end, slave)  # noqa: B023
        log.store.put("orders", b"again" * 100)
        master.handle(LogGrew())

    end = log.end_offset
    master.work_until(lambda: master.acks[-1] == end, slave)
    slave.work_until(lambda: copy.whole_end == end, master)

    assert log_bytes(copy.store) == log_bytes(log.store)[start:]
    if protocol == "switch":
        assert tuple(copy.epochs) == tuple(log.epochs)

    master.end()
    slave.end()
