"""The pump's link to a master: frames in pieces, checks, acknowledgements, what is handed back."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import rmqstore
from rmqstore.errors import StoreClosedError
from rmqstore.replication.protocol.frames import (
    Ack,
    Report,
    Transfer,
    encode,
)
from tests.service.pumps import (
    EPOCH,
    SIZES,
    Bench,
    bench,
    frames_of,
    is_silent,
    log_bytes,
    readable,
    receive,
    report,
    until,
)

__all__ = ["bench"]


def data(offset: int, body: bytes, *, confirm: int = -1, **label: int) -> bytes:
    return encode(Transfer(offset, **{**EPOCH, **label}, confirm_offset=confirm, body=body))


def place_of(store: rmqstore.Store, queue_offset: int) -> int:
    record = store.queue("orders", 0).get(queue_offset)
    assert record is not None
    return record.physical_offset


@pytest.mark.parametrize("piece", [1, 37, 4096, 1 << 20])
@pytest.mark.parametrize("kind", ["classic", "transfer"])
def test_slave_appends_what_comes_in_pieces_and_acknowledges_its_end(
    bench: Bench, kind: str, piece: int
) -> None:
    master, slave = bench.store(*(SIZES if piece > 1 else (10, 700, 40))), bench.store()
    slave._set_confirm_offset(0)

    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(ours.fileno(), kind=kind, next_offset=0, acked_offset=0, border=0, epoch=3)

    said = frames_of(master, batch_bytes=1000, kind=kind)
    for at in range(0, len(said), piece):
        peer.sendall(said[at : at + piece])

    now = until(pump, link, lambda now: now.acked_offset == master.end_offset)
    assert now.border == slave.confirm_offset == master.end_offset
    assert log_bytes(slave) == log_bytes(master)

    word: Any = Report if kind == "classic" else Ack
    last = encode(word(master.end_offset))
    acks = receive(peer, len(last))
    while not acks.endswith(last):
        acks += receive(peer, len(last))

    slave._wait_dispatched(slave.end_offset, 20_000)
    assert len(slave.queue("orders", 0)) == len(master.queue("orders", 0))


def test_slave_confirms_whole_checked_records_below_what_the_master_confirmed(
    bench: Bench,
) -> None:
    master, slave = bench.store(500, 500, 500), bench.store()
    second = place_of(master, 1)

    slave._set_confirm_offset(0)
    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(
        ours.fileno(), kind="transfer", next_offset=0, acked_offset=0, border=0, **EPOCH
    )

    log = log_bytes(master)
    half = second + 100
    peer.sendall(data(0, log[:half], confirm=len(log)))
    now = until(pump, link, lambda now: now.acked_offset == second)
    assert (now.border, slave.confirm_offset, now.confirm_offset) == (second, second, len(log))
    assert now.next_offset == half

    peer.sendall(data(half, log[half:], confirm=second + 1))
    until(pump, link, lambda now: now.acked_offset == len(log))
    assert slave.confirm_offset == len(log)


@pytest.mark.parametrize(
    "foreign",
    [
        data(700, b"x" * 10, epoch=4),
        data(700, b"x" * 10, epoch_start=1),
        data(701, b"x" * 10),
        data(699, b"x" * 10),
        encode(Transfer(-1, -1, -1, -1)),
        encode(Transfer(0, 3, 0, -1)),
        bytes.fromhex("00000001 00000000 0000000000000000 ffffffff"),
        bytes.fromhex("00000002 00400000") + b"\0" * 28,
        bytes.fromhex("00000002 ffffffff") + b"\0" * 28,
        bytes.fromhex("00000009 00000000") + b"\0" * 28,
    ],
    ids=[
        "label",
        "label's start",
        "gap",
        "again",
        "unknown offset",
        "other offset",
        "reply",
        "too large",
        "negative size",
        "no frame",
    ],
)
def test_frame_that_needs_a_decision_is_handed_back_from_its_first_byte(
    bench: Bench, foreign: bytes
) -> None:
    master, slave = bench.store(*SIZES), bench.store()
    log = log_bytes(master)[:700]
    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    pump.receive(ours.fileno(), kind="transfer", next_offset=0, acked_offset=0, border=0, **EPOCH)
    peer.sendall(data(0, log) + data(700, b"") + foreign + b"behind")
    end = report(pump, "foreign")
    assert end.next_offset == slave.end_offset == 700
    assert (foreign + b"behind").startswith(end.leftover)
    assert len(end.leftover) >= 4
    assert log_bytes(slave) == log


def test_damaged_record_is_neither_acknowledged_nor_confirmed(bench: Bench) -> None:
    master, slave = bench.store(500, 600, 500), bench.store()
    second = place_of(master, 1)
    slave._set_confirm_offset(0)

    log = bytearray(log_bytes(master))
    log[second + 400] ^= 1

    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    pump.receive(ours.fileno(), kind="transfer", next_offset=0, acked_offset=0, border=0, **EPOCH)

    peer.sendall(data(0, bytes(log), confirm=len(log)))
    end = report(pump, "damaged")
    assert end.offset == end.border == second
    assert "body CRC" in end.detail
    assert end.acked_offset == 0
    assert slave.confirm_offset == 0
    assert is_silent(peer)

    slave.truncate_to(second)
    assert log_bytes(slave) == log_bytes(master)[:second]


@pytest.mark.parametrize("at", [0, 4, 5, 28, 47])
def test_damage_in_a_records_head_is_found(bench: Bench, at: int) -> None:
    master, slave = bench.store(500, 600, 500), bench.store()
    second = place_of(master, 1)
    log = bytearray(log_bytes(master))
    log[second + at] ^= 0x80
    slave._set_confirm_offset(0)
    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(
        ours.fileno(), kind="transfer", next_offset=0, acked_offset=0, border=0, **EPOCH
    )
    peer.sendall(data(0, bytes(log), confirm=len(log)))
    if at == 47:  # no checksum covers the born timestamp
        until(pump, link, lambda now: now.border == len(log))
    else:
        assert report(pump, "damaged").offset == second


def test_h23_beginning_of_a_record_is_not_acknowledged_since_its_size_may_be_damaged(
    bench: Bench,
) -> None:
    master, slave = bench.store(*SIZES), bench.store()
    last = place_of(master, len(SIZES) - 1)
    slave._set_confirm_offset(0)
    log = bytearray(log_bytes(master))
    log[last + 2] ^= 0x20  # 8 KiB more
    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(
        ours.fileno(), kind="transfer", next_offset=0, acked_offset=0, border=0, **EPOCH
    )
    peer.sendall(data(0, bytes(log), confirm=len(log)))
    now = until(pump, link, lambda now: now.next_offset == len(log) and now.acked_offset > 0)
    assert (now.border, now.acked_offset) == (last, last)
    assert slave.confirm_offset == last


def test_with_ack_flushed_only_what_is_on_the_disk_is_acknowledged(bench: Bench) -> None:
    master = bench.store(*SIZES)
    slave = bench.store(flush_commit_log_interval_ms=60_000)

    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(
        ours.fileno(),
        kind="transfer",
        next_offset=0,
        acked_offset=0,
        border=0,
        ack_flushed=True,
        **EPOCH,
    )

    peer.sendall(frames_of(master))
    now = until(pump, link, lambda now: now.acked_offset == master.end_offset)
    assert slave.flushed_offset >= now.acked_offset


def test_flush_returns_at_once_and_tells_when_a_sync_is_over(bench: Bench) -> None:
    store = bench.store(*SIZES, flush_commit_log_interval_ms=60_000)
    pump = bench.pump(store)
    pump.flush(store.end_offset)
    for _ in SIZES:
        if store.flushed_offset >= store.end_offset:
            break
        readable(pump)
        assert pump.poll() == []
    assert store.flushed_offset == store.end_offset
    pump.flush(store.end_offset)
    store.close()
    with pytest.raises(StoreClosedError):
        pump.flush(1)


def test_slaves_heartbeat_repeats_its_last_word(bench: Bench) -> None:
    slave = bench.store(*SIZES)
    end = slave.end_offset
    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(
        ours.fileno(), kind="transfer", next_offset=end, border=end, acked_offset=end, **EPOCH
    )
    pump.heartbeat(link)
    assert receive(peer, 12) == encode(Ack(end))


def test_frames_left_over_from_the_parser_are_appended_first(bench: Bench) -> None:
    master, slave = bench.store(*[15_000] * 100), bench.store()
    said = frames_of(master)
    cut = 1_000_001

    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(
        ours.fileno(),
        kind="transfer",
        next_offset=0,
        acked_offset=0,
        border=0,
        leftover=said[:cut],
        **EPOCH,
    )

    peer.sendall(said[cut:])
    until(pump, link, lambda now: now.acked_offset == master.end_offset)
    assert log_bytes(slave) == log_bytes(master)


def test_frame_of_the_largest_size_is_taken(bench: Bench) -> None:
    master, slave = bench.store(*[15_000] * 400), bench.store()
    log = log_bytes(master)
    size = 4 * 1024 * 1024 - 36
    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    link = pump.receive(
        ours.fileno(), kind="transfer", next_offset=0, acked_offset=0, border=0, **EPOCH
    )
    peer.sendall(data(0, log[:size]) + data(size, log[size:]))
    until(pump, link, lambda now: now.acked_offset == len(log))
    assert log_bytes(slave) == log


def test_master_that_closes_ends_the_link_behind_what_it_sent(bench: Bench) -> None:
    master, slave = bench.store(*SIZES), bench.store()
    ours, peer = bench.sockets()
    pump = bench.pump(slave)
    pump.receive(ours.fileno(), kind="transfer", next_offset=0, acked_offset=0, border=0, **EPOCH)
    peer.sendall(frames_of(master) + b"\0\0\0\2half")
    peer.shutdown(socket.SHUT_WR)
    end = report(pump, "closed")
    assert end.next_offset == end.border == master.end_offset
    assert log_bytes(slave) == log_bytes(master)
