"""Typed frames: what real replicas said comes back byte for byte, and foreign bytes go no further.

docs/protocols.md; tests/golden/wire.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore._native.core import HaParser, encode_ha_head
from rmqstore.epochs import EpochEntry
from rmqstore.errors import ArgumentError, StoreError
from rmqstore.replication.protocol.frames import (
    FRAME_SIZE_MAX,
    Ack,
    ClassicData,
    ClassicDataParser,
    Frame,
    FrameError,
    Handshake,
    HandshakeReply,
    MasterFrameParser,
    Report,
    ReportParser,
    SlaveFrameParser,
    Transfer,
    encode,
    encode_head,
)
from tests.golden.wire import Stream, every_stream
from tests.reference import ha_frame as reference

Parser = ReportParser | ClassicDataParser | SlaveFrameParser | MasterFrameParser
PARSERS: Mapping[str, Callable[[], Parser]] = {
    "classic slave": ReportParser,
    "classic master": ClassicDataParser,
    "auto-switch slave": SlaveFrameParser,
    "auto-switch master": MasterFrameParser,
}
RECORDED = every_stream()
SMALL = 3000

OFFSETS = st.integers(0, (1 << 63) - 100)
EPOCHS = st.integers(0, (1 << 31) - 1)
BODIES = st.binary(max_size=80)


@st.composite
def entry_lists(draw: st.DrawFn) -> tuple[EpochEntry, ...]:
    epochs = sorted(draw(st.sets(EPOCHS, max_size=6)))
    starts = sorted(draw(st.lists(OFFSETS, min_size=len(epochs), max_size=len(epochs))))
    return tuple(map(EpochEntry, epochs, starts))


FRAMES: Mapping[str, st.SearchStrategy[Frame]] = {
    "classic slave": st.builds(Report, OFFSETS),
    "classic master": st.builds(ClassicData, OFFSETS, BODIES),
    "auto-switch slave": st.builds(Handshake, st.booleans(), st.booleans(), OFFSETS)
    | st.builds(Handshake, st.just(False), st.booleans(), OFFSETS, st.just(True))
    | st.builds(Handshake, st.just(True), st.just(False), OFFSETS, st.just(True))
    | st.builds(Ack, OFFSETS, st.none() | st.integers(-1, 9)),
    "auto-switch master": st.builds(
        HandshakeReply,
        OFFSETS,
        st.integers(-1, 9),
        entry_lists(),
        st.none() | st.integers(0, (1 << 32) - 1),
    )
    | st.builds(Transfer, OFFSETS, EPOCHS, OFFSETS, OFFSETS, BODIES, st.booleans())
    | st.builds(Transfer, *[st.just(-1)] * 4, st.just(b""), st.booleans()),
}


@st.composite
def spoken(draw: st.DrawFn) -> tuple[str, list[Frame]]:
    """Return a stream's name and some frames of it."""
    stream = draw(st.sampled_from(sorted(PARSERS)))
    return stream, draw(st.lists(FRAMES[stream], max_size=6))


def feed(parser: Parser, data: bytes | bytearray | memoryview) -> list[Frame]:
    return list(parser.feed(data))


def plain(frame: Frame) -> reference.Frame:
    """Return the frame as the reference writes it."""
    match frame:
        case Report(offset):
            return ("report", offset)
        case ClassicData(offset, body):
            return ("classic data", offset, bytes(body))
        case Handshake(last_file, learner, broker_id, offers_checks):
            kind = "offering handshake" if offers_checks else "handshake"
            return (kind, last_file, learner, broker_id)
        case HandshakeReply(end_offset, epoch, entries, handshake_crc):
            pairs = tuple((entry.epoch, entry.start_offset) for entry in entries)
            if handshake_crc is not None:
                return ("checked handshake reply", end_offset, epoch, pairs, handshake_crc)
            return ("handshake reply", end_offset, epoch, pairs)
        case Transfer(offset, epoch, epoch_start, confirm_offset, body, is_checked):
            kind = "checked transfer" if is_checked else "transfer"
            return (kind, offset, epoch, epoch_start, confirm_offset, bytes(body))
        case Ack(offset, epoch):
            return ("ack", offset) if epoch is None else ("checked ack", offset, epoch)


def as_recorded(frame: Frame) -> dict[str, Any]:
    """Return what the recorder says of such a frame, beside its place and size."""
    match frame:
        case Report(offset):
            return {"kind": "report", "offset": offset}
        case Ack(offset):
            return {"kind": "report", "state": "TRANSFER", "offset": offset}
        case Handshake(last_file, learner, broker_id):
            answer = {"syncFromLastFile": int(last_file), "asyncLearner": int(learner)}
            return {"kind": "handshake", "state": "HANDSHAKE", **answer, "slaveId": broker_id}
        case HandshakeReply(end_offset, epoch, entries):
            return {
                "kind": "handshake",
                "state": "HANDSHAKE",
                "bodySize": 12 * len(entries),
                "masterMaxOffset": end_offset,
                "masterEpoch": epoch,
                "epochs": [[entry.epoch, entry.start_offset] for entry in entries],
            }
        case ClassicData(offset, body):
            return {"offset": offset, **_body_as_recorded(body)}
        case Transfer(offset, epoch, epoch_start, confirm_offset, body):
            return {
                "state": "TRANSFER",
                "offset": offset,
                "epoch": epoch,
                "epochStartOffset": epoch_start,
                "confirmOffset": confirm_offset,
                **_body_as_recorded(body),
            }


def _body_as_recorded(body: bytes | memoryview) -> dict[str, Any]:
    if not body:
        return {"kind": "heartbeat", "bodySize": 0}
    return {"kind": "transfer", "bodySize": len(body), "bodyCrc32": zlib.crc32(body)}


def whole_frames(stream: Stream) -> list[Mapping[str, Any]]:
    return [frame for frame in stream.frames if frame["kind"] != "partial"]


# ---- what real replicas said


def test_every_kind_of_frame_was_recorded() -> None:
    kinds = {type(frame) for each in RECORDED for frame in PARSERS[each.speaker]().feed(each.data)}
    assert kinds == {Report, ClassicData, Handshake, HandshakeReply, Transfer, Ack}


@pytest.mark.parametrize("stream", RECORDED, ids=str)
def test_a_recorded_stream_is_read_as_the_recorder_did_and_written_byte_for_byte(
    stream: Stream,
) -> None:
    parser = PARSERS[stream.speaker]()
    found = feed(parser, stream.data)
    skipped = {"conn", "dir", "frame", "at", "len"}
    answer = [
        {key: value for key, value in frame.items() if key not in skipped}
        for frame in whole_frames(stream)
    ]
    assert [as_recorded(frame) for frame in found] == answer
    assert b"".join(map(encode, found)) == stream.data[: parser.position]
    assert parser.position + parser.held_size == len(stream.data)


@pytest.mark.parametrize("stream", RECORDED, ids=str)
def test_a_recorded_stream_fed_byte_by_byte_gives_each_frame_with_its_last_byte(
    stream: Stream,
) -> None:
    parser = PARSERS[stream.speaker]()
    ends = {}
    for at in range(len(stream.data)):
        found = feed(parser, stream.data[at : at + 1])
        if found:
            (ends[at + 1],) = found
    assert list(ends) == [frame["at"] + frame["len"] for frame in whole_frames(stream)]
    assert list(ends.values()) == feed(PARSERS[stream.speaker](), stream.data)


@pytest.mark.parametrize("stream", [each for each in RECORDED if len(each.data) <= SMALL], ids=str)
def test_a_recorded_stream_cut_at_any_byte_gives_the_same_frames(stream: Stream) -> None:
    expected = feed(PARSERS[stream.speaker](), stream.data)
    for cut in range(len(stream.data) + 1):
        parser = PARSERS[stream.speaker]()
        found = feed(parser, stream.data[:cut])
        assert parser.position + parser.held_size == cut
        assert found + feed(parser, stream.data[cut:]) == expected


# ---- any frames


@given(spoken=spoken(), cuts=st.lists(st.integers(0, 600), max_size=4))
def test_frames_come_back_in_the_bytes_of_the_reference(
    spoken: tuple[str, list[Frame]], cuts: list[int]
) -> None:
    stream, frames = spoken
    data = b"".join(reference.encode(plain(frame)) for frame in frames)
    assert b"".join(map(encode, frames)) == data
    parser = PARSERS[stream]()
    found: list[Frame] = []
    begin = 0
    for end in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        found += feed(parser, data[begin:end])
        begin = end
    assert found == frames
    assert (parser.position, parser.held_size) == (len(data), 0)


@given(spoken=spoken(), at=st.integers(0, 150), value=st.integers(0, 255))
def test_a_wrong_byte_is_judged_as_the_reference_does(
    spoken: tuple[str, list[Frame]], at: int, value: int
) -> None:
    stream, frames = spoken
    data = bytearray(b"".join(map(encode, frames)))
    if at < len(data):
        data[at] = value
    expected, place, is_bad = reference.walk(stream, bytes(data))
    parser = PARSERS[stream]()
    if is_bad:
        with pytest.raises(FrameError) as caught:
            parser.feed(bytes(data))
        assert caught.value.stream_offset == place
        found = list(caught.value.frames)
    else:
        found = feed(parser, bytes(data))
    assert [plain(frame) for frame in found] == expected
    assert parser.position == place


@given(frame=FRAMES["classic master"] | FRAMES["auto-switch master"])
def test_a_head_is_the_frame_without_its_body(frame: Frame) -> None:
    if isinstance(frame, ClassicData | Transfer):
        whole = encode(frame)
        size = len(frame.body)
        assert encode_head(frame, frame.body) == whole[: len(whole) - size]


# ---- bodies


def test_a_body_whole_in_the_bytes_fed_is_a_view_of_them() -> None:
    data = encode(ClassicData(0, b"body"))
    (frame,) = ClassicDataParser().feed(data)
    assert isinstance(frame.body, memoryview)
    assert frame.body.obj is data
    assert frame.body.readonly


def test_a_body_of_a_buffer_that_may_change_is_a_copy() -> None:
    data = bytearray(encode(Transfer(0, 1, 0, 0, b"body")))
    (frame,) = MasterFrameParser().feed(data)
    data[:] = bytes(len(data))
    assert frame == Transfer(0, 1, 0, 0, b"body")


def test_a_body_in_pieces_outlives_the_parser() -> None:
    data = encode(ClassicData(0, b"body" * 200))
    parser = ClassicDataParser()
    assert parser.feed(data[:300]) == []
    (frame,) = parser.feed(data[300:])
    parser.feed(encode(ClassicData(800, b"next" * 200))[:-1])
    del parser
    assert frame.body == b"body" * 200


# ---- what is refused


REFUSED: Mapping[str, tuple[str, bytes]] = {
    "state 0 of a slave": ("auto-switch slave", bytes(16)),
    "state 3 of a slave": ("auto-switch slave", b"\0\0\0\3" + bytes(12)),
    "state 4 of a master": ("auto-switch master", b"\0\0\0\4" + bytes(32)),
    "a request of another protocol": ("auto-switch slave", b"GET / HTTP/1.1\r\n\r\n"),
    "a negative report": ("classic slave", b"\xff" * 8),
    "a negative acknowledgement": ("auto-switch slave", b"\0\0\0\2" + b"\xff" * 8),
    "a negative broker id": ("auto-switch slave", b"\0\0\0\1" + bytes(4) + b"\xff" * 8),
    "a flag of 2": ("auto-switch slave", b"\0\0\0\1\0\2\0\0" + bytes(8)),
    "half an entry": ("auto-switch master", b"\0\0\0\1\0\0\0\6" + bytes(12) + bytes(6)),
    "epochs that descend": (
        "auto-switch master",
        reference.encode(("handshake reply", 9, 1, ((2, 0), (1, 5)))),
    ),
    "starts that descend": (
        "auto-switch master",
        reference.encode(("handshake reply", 9, 2, ((1, 5), (2, 0)))),
    ),
    "a body before the master knows its place": (
        "auto-switch master",
        reference.encode(("transfer", -1, 1, 0, 0, b"body")),
    ),
    "a body that ends behind all offsets": (
        "classic master",
        reference.encode(("classic data", (1 << 63) - 3, b"body")),
    ),
    "a body larger than a frame": ("classic master", bytes(8) + b"\x7f\xff\xff\xff"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_frame_no_peer_sends_is_refused_at_its_place(name: str) -> None:
    stream, data = REFUSED[name]
    parser = PARSERS[stream]()
    firsts: Mapping[str, Frame] = {
        "classic slave": Report(7),
        "classic master": ClassicData(7, b"x"),
        "auto-switch slave": Ack(7),
        "auto-switch master": Transfer(7, 1, 0, 0, b"x"),
    }
    before = firsts[stream]
    place = len(encode(before))
    with pytest.raises(FrameError, match=f"stream of the {stream}, byte {place}: ") as caught:
        parser.feed(encode(before) + data)
    assert caught.value.frames == (before,)
    assert caught.value.stream_offset == parser.position == place


def test_the_error_names_place_limit_and_cure() -> None:
    parser = ClassicDataParser(frame_size_max=4096)
    with pytest.raises(FrameError) as caught:
        parser.feed(encode_head(ClassicData(0), bytes(4085)))
    error = caught.value
    assert error.place == "stream of the classic master, byte 0"
    assert "body size 4085, which is above the limit of 4084" in error.limit
    assert "haTransferBatchSize keeps its frames within 4096 bytes" in error.cure
    assert str(error) == f"{error.place}: {error.limit}; {error.cure}"
    assert isinstance(error, StoreError)


def test_after_an_error_every_feed_raises_it() -> None:
    parser = SlaveFrameParser()
    with pytest.raises(FrameError) as first:
        parser.feed(encode(Ack(7)) + b"\0\0\0\0")
    for data in (b"", encode(Ack(8))):
        with pytest.raises(FrameError) as again:
            parser.feed(data)
        assert str(again.value) == str(first.value)
        assert again.value.frames == ()


def test_an_error_survives_pickling() -> None:
    error = FrameError("place", "limit", "cure", stream_offset=5, frames=(Ack(3),))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.stream_offset, copy.frames) == (str(error), 5, (Ack(3),))


@pytest.mark.parametrize(
    "frame",
    [
        Report(-1),
        Ack(-1),
        ClassicData(-1, b""),
        ClassicData((1 << 63) - 1, b"x"),
        ClassicData(0, bytes(FRAME_SIZE_MAX - 11)),
        Handshake(False, False, -1),
        HandshakeReply(-1, 1, ()),
        HandshakeReply(0, -2, ()),
        HandshakeReply(9, 2, (EpochEntry(2, 0), EpochEntry(2, 5))),
        HandshakeReply(9, 2, (EpochEntry(-1, 0),)),
        Transfer(-1, 1, 0, 0, b"x"),
        Transfer(0, -1, 0, 0, b"x"),
        Transfer(-2, -1, -1, -1, b""),
        Transfer(0, 1, 0, -2, b"x"),
    ],
    ids=lambda frame: repr(frame)[:70],
)
def test_a_frame_its_reader_would_refuse_is_not_written(frame: Frame) -> None:
    with pytest.raises(ArgumentError):
        encode(frame)


# ---- bounds


def test_the_largest_body_comes_whole_and_one_byte_more_is_refused() -> None:
    largest = Transfer(0, 1, 0, 0, bytes(FRAME_SIZE_MAX - 36))
    assert MasterFrameParser().feed(encode(largest)) == [largest]
    with pytest.raises(ArgumentError, match="above the limit of 4194268"):
        encode_head(largest, bytes(FRAME_SIZE_MAX - 35))


@pytest.mark.parametrize("size", [0, 43, FRAME_SIZE_MAX + 1])
def test_a_frame_size_that_no_stream_could_keep_is_refused(size: int) -> None:
    with pytest.raises(ArgumentError, match="44 to 4194304 bytes"):
        MasterFrameParser(frame_size_max=size)


def test_unknown_streams_and_kinds_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match="there are classic slave, classic master"):
        HaParser("slave", {})
    with pytest.raises(ArgumentError, match="there are report, classic data"):
        encode_ha_head("heartbeat")


def test_a_parser_that_lost_frames_does_not_go_on() -> None:
    def refuse(_offset: int) -> None:
        raise MemoryError

    parser = HaParser("classic slave", {"report": refuse})
    with pytest.raises(MemoryError):
        parser.feed(encode(Report(1)) + encode(Report(2)))
    with pytest.raises(ArgumentError, match="frames were lost"):
        parser.feed(b"")
