"""The pump's links over socket pairs: every byte out, every byte in, and what is handed back."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import rmqstore
from rmqstore._native.core import AckBoard, HaPump
from rmqstore.errors import ArgumentError, OffsetOutOfRange, StoreClosedError, ViewsOpenError
from rmqstore.replication.frames import Ack, ClassicData, Handshake, Report, Transfer, encode
from tests.unit.pumps import (
    EPOCH,
    FILE_SIZE,
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

SIZES = (10, 700, 5000, 9000, 3000, 20, 14000, 1, 8000)
"""Bodies of a log over several files."""


def data(offset: int, body: bytes, *, confirm: int = -1, **label: int) -> bytes:
    return encode(Transfer(offset, **{**EPOCH, **label}, confirm_offset=confirm, body=body))


def place_of(store: rmqstore.Store, queue_offset: int) -> int:
    record = store.queue("orders", 0).get(queue_offset)
    assert record is not None
    return record.physical_offset


# ---- a master's link


@pytest.mark.parametrize("kind", ["classic", "transfer"])
@pytest.mark.parametrize("batch_bytes", [1000, 16384, 32768, 4 * 1024 * 1024 - 36])
def test_master_sends_its_log_in_the_frames_of_the_codec(
    bench: Bench, kind: str, batch_bytes: int
) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    start = 700
    label = EPOCH if kind == "transfer" else {}
    pump.stream(ours.fileno(), kind=kind, next_offset=start, batch_bytes=batch_bytes, **label)
    expected = frames_of(store, start=start, batch_bytes=batch_bytes, kind=kind)
    assert receive(peer, len(expected)) == expected
    end = store.end_offset
    for size in (100, 3000):
        store.put("orders", b"x" * size)
    more = frames_of(store, start=end, kind=kind)
    got = receive(peer, len(more) if kind == "classic" else 36)
    if kind == "classic" and got != more:  # it may have gone out after the first of the two
        got += receive(peer, 12)
    assert int.from_bytes(got[:8] if kind == "classic" else got[8:16], "big") == end


def test_frame_that_would_pass_until_is_left_to_the_machine(bench: Bench) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(
        ours.fileno(), kind="transfer", next_offset=0, batch_bytes=1000, until=2500, **EPOCH
    )
    end = report(pump, "until")
    assert (end.link, end.next_offset, end.leftover, end.unsent) == (link, 2000, b"", b"")
    expected = frames_of(store, end=2000, batch_bytes=1000)
    assert receive(peer, len(expected)) == expected
    assert is_silent(peer)


def test_frame_that_ends_where_the_next_label_begins_is_left_to_it(bench: Bench) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    pump.stream(
        ours.fileno(), kind="transfer", next_offset=0, batch_bytes=1000, until=2000, **EPOCH
    )
    assert report(pump, "until").next_offset == 1000
    assert receive(peer, 1036) == frames_of(store, end=1000, batch_bytes=1000)


def test_until_that_is_set_while_a_link_idles_ends_it(bench: Bench) -> None:
    store = bench.store(100)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    expected = frames_of(store)
    assert receive(peer, len(expected)) == expected
    pump.set_until(link, store.end_offset)
    assert report(pump, "until").next_offset == store.end_offset


def test_acknowledgements_are_taken_in_pieces_and_reach_board_and_report(bench: Bench) -> None:
    store = bench.store(*SIZES)
    board = AckBoard(store)
    ours, peer = bench.sockets()
    pump = bench.pump(store, board)
    slot = board.open_slot()
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, slot=slot, **EPOCH)
    receive(peer, len(frames_of(store)))
    said = encode(Ack(0)) + encode(Ack(500)) + encode(Ack(500)) + encode(Ack(store.end_offset))
    for at in range(0, len(said), 5):
        peer.sendall(said[at : at + 5])
    end = store.end_offset
    now = until(pump, link, lambda now: now.acked_offset == end)
    assert board.acks() == {slot: (end, EPOCH["epoch"])}
    assert now.caught_up_ms == now.heard_ms
    assert now.blocked_ms is None


@pytest.mark.parametrize("kind", ["classic", "transfer"])
def test_acknowledgements_left_over_from_the_parser_come_first(bench: Bench, kind: str) -> None:
    store = bench.store(*SIZES)
    word = Report if kind == "classic" else Ack
    said = encode(word(300)) + encode(word(400))
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind=kind, next_offset=400, epoch=3, leftover=said[:-3])
    until(pump, link, lambda now: now.acked_offset == 300)
    peer.sendall(said[-3:])
    until(pump, link, lambda now: now.acked_offset == 400)


@pytest.mark.parametrize(
    ("foreign", "acked"),
    [
        (encode(Ack(10_000_000)), 500),
        (encode(Ack(499)), 500),
        (encode(Handshake(False, False, 9)), 500),
        (b"\xff" * 40, 500),
        ((1 << 31).to_bytes(4, "big") + b"x" * 8, 500),
        (b"\0\0\0\2" + b"\xff" * 8, 500),
    ],
)
def test_what_is_no_acknowledgement_of_what_was_sent_is_handed_back(
    bench: Bench, foreign: bytes, acked: int
) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    receive(peer, len(frames_of(store)))
    peer.sendall(encode(Ack(500)) + foreign + b"and more")
    end = report(pump, "foreign")
    assert (end.link, end.acked_offset, end.next_offset) == (link, acked, store.end_offset)
    assert (foreign + b"and more").startswith(end.leftover)
    assert len(end.leftover) >= 4
    with pytest.raises(ArgumentError, match="no link"):
        pump.progress(link)
    with pytest.raises(ArgumentError, match="no link"):
        pump.stop(link)


def test_acknowledgement_of_a_frame_that_is_not_out_yet_counts_for_nothing(bench: Bench) -> None:
    store = bench.store(*[15_000] * 40)
    board = AckBoard(store)
    slot = board.open_slot()
    ours, peer = bench.sockets(buffer_bytes=4096)
    pump = bench.pump(store, board)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, slot=slot, **EPOCH)
    until(pump, link, lambda now: now.blocked_ms is not None)
    begun = pump.progress(link).next_offset
    peer.sendall(encode(Ack(begun)))
    end = report(pump, "foreign")
    assert end.leftover == encode(Ack(begun))
    assert end.acked_offset == -1
    assert board.acks() == {slot: (-1, -1)}


def test_slave_that_closes_ends_the_link(bench: Bench) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    receive(peer, 36)
    peer.close()
    assert report(pump, "closed").acked_offset == -1


def test_slave_that_stops_reading_is_known_and_a_stop_leaves_whole_frames(bench: Bench) -> None:
    store = bench.store(*[15_000] * 40)
    ours, peer = bench.sockets(buffer_bytes=4096)
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    now = until(pump, link, lambda now: now.blocked_ms is not None)
    assert now.next_offset < store.end_offset
    end = pump.stop(link)
    assert end.reason == "stopped"
    expected = frames_of(store, end=end.next_offset)
    got = receive(peer, len(expected) - len(end.unsent))
    assert got + end.unsent == expected
    assert is_silent(peer)
    store.put("orders", b"more")
    assert pump.poll() == []
    assert is_silent(peer)


def test_frames_that_wait_go_on_when_the_slave_reads_again(bench: Bench) -> None:
    store = bench.store(*[15_000] * 40)
    ours, peer = bench.sockets(buffer_bytes=4096)
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, batch_bytes=9999, **EPOCH)
    until(pump, link, lambda now: now.blocked_ms is not None)
    expected = frames_of(store, batch_bytes=9999)
    assert receive(peer, len(expected)) == expected
    assert until(pump, link, lambda now: now.blocked_ms is None).next_offset == store.end_offset


@pytest.mark.parametrize("kind", ["classic", "transfer"])
def test_masters_heartbeat_names_the_byte_that_comes_next(bench: Bench, kind: str) -> None:
    store = bench.store(*SIZES)
    end = store.end_offset
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind=kind, next_offset=end, epoch=3)
    pump.heartbeat(link)
    frame = ClassicData(end) if kind == "classic" else Transfer(end, 3, 0, end)
    assert receive(peer, len(encode(frame))) == encode(frame)


def test_slave_is_told_of_a_confirm_offset_that_rises_without_a_message(bench: Bench) -> None:
    store = bench.store(*SIZES)
    store._set_confirm_offset(100)
    end = store.end_offset
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    expected = frames_of(store, confirm_offset=100)
    assert receive(peer, len(expected)) == expected
    store._set_confirm_offset(end)
    peer.sendall(encode(Ack(end)))
    assert receive(peer, 36) == encode(Transfer(end, 3, 0, end))
    assert pump.progress(link).confirm_offset == end


def test_stop_returns_the_bytes_of_half_an_acknowledgement(bench: Bench) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    receive(peer, len(frames_of(store)))
    peer.sendall(encode(Ack(200)) + encode(Ack(300))[:7])
    until(pump, link, lambda now: now.acked_offset == 200)
    left = pump.stop(link).leftover
    readable_rest = b"" if is_silent(ours) else ours.recv(100)
    assert left + readable_rest == encode(Ack(300))[:7]


# ---- a slave's link


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
    if at == 47:  # the timestamp of birth is not summed by anybody
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


# ---- both


def test_log_is_not_cut_while_a_link_runs(bench: Bench) -> None:
    store = bench.store(*SIZES)
    ours, _ = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    with pytest.raises(ViewsOpenError, match="connections of replicas"):
        store.truncate_to(0)
    pump.stop(link)
    store.truncate_to(0)
    assert store.end_offset == 0


def test_closing_the_store_ends_its_links(bench: Bench) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, **EPOCH)
    receive(peer, len(frames_of(store)))
    store.close()
    end = pump.stop(link)
    assert (end.reason, end.detail) == ("error", "the store was closed")
    with pytest.raises(StoreClosedError):
        HaPump(store)


def test_pump_that_is_closed_lets_go_of_its_sockets(bench: Bench) -> None:
    store = bench.store(*SIZES)
    ours, peer = bench.sockets()
    pump = bench.pump(store)
    pump.stream(ours.fileno(), kind="transfer", next_offset=store.end_offset, **EPOCH)
    pump.close()
    pump.close()
    ours.close()
    assert peer.recv(1) == b""
    store.truncate_to(0)
    with pytest.raises(StoreClosedError, match="pump is closed"):
        pump.poll()


def test_eight_links_serve_eight_slaves(bench: Bench) -> None:
    store = bench.store(*SIZES)
    pump = bench.pump(store)
    peers = []
    for number in range(8):
        ours, peer = bench.sockets()
        pump.stream(ours.fileno(), kind="transfer", next_offset=number, **EPOCH)
        peers.append(peer)
    for number, peer in enumerate(peers):
        expected = frames_of(store, start=number)
        assert receive(peer, len(expected)) == expected
        peer.sendall(encode(Ack(store.end_offset)))
    seen: set[int] = set()
    while len(seen) < 8:
        readable(pump)
        seen |= {each.link for each in pump.poll() if each.acked_offset == store.end_offset}


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"kind": "raw"}, "no such kind"),
        ({"batch_bytes": 0}, "batch of 0 bytes"),
        ({"batch_bytes": 4 * 1024 * 1024}, "batch of 4194304 bytes"),
        ({"epoch": -1}, "epoch -1"),
        ({"acked_offset": 5}, "acknowledged 5 of 0"),
        ({"slot": 0}, "without a board"),
        ({"leftover": bytes(9_000_000)}, "9000000 bytes left over"),
    ],
)
def test_arguments_of_a_masters_link_are_judged(
    bench: Bench, arguments: dict[str, Any], what: str
) -> None:
    pump = bench.pump(bench.store(*SIZES))
    ours, _ = bench.sockets()
    with pytest.raises(ArgumentError, match=what):
        pump.stream(ours.fileno(), **{"kind": "transfer", "next_offset": 0, **arguments})


def test_links_begin_inside_the_log(bench: Bench) -> None:
    store = bench.store(*SIZES)
    pump = bench.pump(store)
    ours, _ = bench.sockets()
    end = store.end_offset
    with pytest.raises(OffsetOutOfRange):
        pump.stream(ours.fileno(), kind="transfer", next_offset=end + 1, **EPOCH)
    for offset in (end - 1, end + 1):
        with pytest.raises(OffsetOutOfRange):
            pump.receive(ours.fileno(), kind="transfer", next_offset=offset, border=0, **EPOCH)
    assert FILE_SIZE < end
