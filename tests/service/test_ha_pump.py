"""The pump's links over socket pairs: every byte out, every byte in, and what is handed back."""

from __future__ import annotations

from typing import Any

import pytest

from rmqstore._native.core import AckBoard, Pump
from rmqstore.errors import ArgumentError, OffsetOutOfRange, StoreClosedError, ViewsOpenError
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    Handshake,
    Report,
    Transfer,
    encode,
)
from tests.service.pumps import (
    EPOCH,
    FILE_SIZE,
    SIZES,
    Bench,
    bench,
    frames_of,
    is_silent,
    readable,
    receive,
    report,
    until,
)

__all__ = ["bench"]


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
        Pump(store)


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
