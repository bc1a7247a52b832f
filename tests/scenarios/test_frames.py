"""Hazards of the wire itself, played against the parsers.

docs/defects.md, "Replication".
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.epochs import EpochEntry
from rmqstore.replication.protocol.frames import (
    Ack,
    FrameError,
    Handshake,
    HandshakeReply,
    MasterFrameParser,
    SlaveFrameParser,
    Transfer,
    encode,
)


def described(frame: object) -> str:
    match frame:
        case HandshakeReply(end_offset, epoch, entries):
            last = entries[-1]
            return (
                f"reply: {len(entries)} epochs, the last {last.epoch} at {last.start_offset}, "
                f"log end {end_offset}, epoch {epoch}"
            )
        case Transfer(offset, _, _, _, body):
            return f"transfer: {len(body)} bytes at {offset}"
    return str(frame)


def play(parser: SlaveFrameParser | MasterFrameParser, pieces: Iterable[bytes]) -> str:
    """Return a line for every piece that arrives."""
    lines = []
    for piece in pieces:
        try:
            answer = ", ".join(described(frame) for frame in parser.feed(piece)) or "nothing"
            kept = parser.held_size
            lines.append(f"{len(piece)} bytes: {answer}" + (f"; {kept} kept" if kept else ""))
        except FrameError as error:
            lines.append(f"{len(piece)} bytes: refused at {error.stream_offset}, {error.limit}")
    return "\n".join(lines)


def test_h11_more_than_a_thousand_epochs_shake_hands() -> None:
    entries = tuple(EpochEntry(number, 100 * number) for number in range(1, 5001))
    reply = encode(HandshakeReply(600_000, 5000, entries))
    data = reply + encode(Transfer(600_000, 5000, 500_000, 600_000, b"record"))
    pieces = (data[begin : begin + 20_000] for begin in range(0, len(data), 20_000))
    assert (
        play(MasterFrameParser(), pieces)
        == """\
20000 bytes: nothing; 20000 kept
20000 bytes: nothing; 40000 kept
20000 bytes: nothing; 60000 kept
62 bytes: reply: 5000 epochs, the last 5000 at 500000, log end 600000, epoch 5000, \
transfer: 6 bytes at 600000"""
    )


def test_h13_a_handshake_is_read_when_all_of_it_is_there() -> None:
    data = encode(Handshake(sync_from_last_file=False, is_learner=False, broker_id=9))
    assert (
        play(SlaveFrameParser(), (data[:12], data[12:13], data[13:15], data[15:], encode(Ack(0))))
        == """\
12 bytes: nothing; 12 kept
1 bytes: nothing; 13 kept
2 bytes: nothing; 15 kept
1 bytes: Handshake(sync_from_last_file=False, is_learner=False, broker_id=9, offers_checks=False)
12 bytes: Ack(offset=0, epoch=None)"""
    )


def test_h13_a_handshake_cut_off_before_its_broker_id_is_nobody() -> None:
    data = encode(Handshake(sync_from_last_file=True, is_learner=True, broker_id=1 << 40))
    for size in range(16):
        parser = SlaveFrameParser()
        assert play(parser, [data[:size]]) == f"{size} bytes: nothing" + (
            f"; {size} kept" if size else ""
        )
        assert parser.position == 0


def test_h25_the_member_minus_one_cannot_be_named_on_the_wire() -> None:
    handshake = encode(Handshake(sync_from_last_file=False, is_learner=False, broker_id=0))
    assert (
        play(SlaveFrameParser(), [handshake[:8] + b"\xff" * 8, encode(Ack(500))])
        == """\
16 bytes: refused at 0, a handshake with broker id -1, which is below 0
12 bytes: refused at 0, a handshake with broker id -1, which is below 0"""
    )
