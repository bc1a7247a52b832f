"""Frames of the replication streams: head codec, validation, and the parser that is fed in pieces.

docs/protocols.md.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.c.library import SOURCES
from tests.c.memory import GuardedMemory
from tests.reference import ha_frame as reference
from tests.reference.ha_frame import CHECKED_HEADS, FRAME_SIZE_MAX, HEADS, STREAMS, Frame

OFFSETS = st.integers(0, (1 << 63) - 100)
EPOCHS = st.integers(0, (1 << 31) - 1)
BODIES = st.binary(max_size=60)
CRCS = st.integers(0, (1 << 32) - 1)
FLAGS = st.sampled_from(((False, False), (True, False), (False, True)))


@st.composite
def entry_lists(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    epochs = sorted(draw(st.sets(EPOCHS, max_size=6)))
    starts = sorted(draw(st.lists(OFFSETS, min_size=len(epochs), max_size=len(epochs))))
    return tuple(zip(epochs, starts, strict=True))


def tuples(kind: str, *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Frame]:
    return st.tuples(st.just(kind), *fields)


FRAMES: dict[str, st.SearchStrategy[Frame]] = {
    "classic slave": tuples("report", OFFSETS),
    "classic master": tuples("classic data", OFFSETS, BODIES),
    "auto-switch slave": tuples("handshake", st.booleans(), st.booleans(), OFFSETS)
    | FLAGS.flatmap(lambda flags: tuples("offering handshake", *map(st.just, flags), OFFSETS))
    | tuples("ack", OFFSETS)
    | tuples("checked ack", OFFSETS, st.integers(-1, 9)),
    "auto-switch master": tuples("handshake reply", OFFSETS, st.integers(-1, 9), entry_lists())
    | tuples("transfer", OFFSETS, EPOCHS, OFFSETS, OFFSETS, BODIES)
    | tuples("transfer", *[st.just(-1)] * 4, st.just(b""))
    | tuples("checked handshake reply", OFFSETS, st.integers(-1, 9), entry_lists(), CRCS)
    | tuples("checked transfer", OFFSETS, EPOCHS, OFFSETS, OFFSETS, BODIES)
    | tuples("checked transfer", *[st.just(-1)] * 4, st.just(b"")),
}


@st.composite
def spoken(draw: st.DrawFn) -> tuple[str, list[Frame]]:
    """Return a stream's name and some frames of it."""
    stream = draw(st.sampled_from(STREAMS))
    return stream, draw(st.lists(FRAMES[stream], max_size=6))


def joined(frames: list[Frame]) -> bytes:
    return b"".join(reference.encode(frame) for frame in frames)


class Parser:
    """The parser of the core; each piece lies in memory that ends where the piece does."""

    def __init__(self, core: Any, stream: str, *, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self.ffi, self.lib = core
        self.parser = self.ffi.gc(
            self.ffi.new("struct rmq_ha_parser *"), self.lib.rmq_ha_parser_finish
        )
        self.lib.rmq_ha_parser_begin(self.parser, STREAMS.index(stream), frame_size_max)
        self.error = self.ffi.new("struct rmq_error *")

    def feed(self, memory: GuardedMemory, piece: bytes) -> tuple[list[Frame], int]:
        """Return the frames, and the status that ended them."""
        data = self.ffi.cast("uint8_t *", memory.put_last(piece))
        self.lib.rmq_ha_parser_feed(self.parser, data, len(piece))
        frame = self.ffi.new("struct rmq_ha_frame *")
        found: list[Frame] = []
        while True:
            status = self.lib.rmq_ha_parser_next(self.parser, frame, self.error)
            if status != self.lib.RMQ_OK:
                return found, status
            found.append(self.taken(frame))
            assert len(found) <= len(piece)

    def taken(self, frame: Any) -> Frame:
        body = bytes(self.ffi.buffer(frame.body, frame.body_size)) if frame.body_size else b""
        crcs = (frame.handshake_crc,) if frame.is_checked else ()
        match ("checked " if frame.is_checked else "") + list(HEADS)[frame.kind]:
            case "report" | "ack" as kind:
                return (kind, frame.offset)
            case "checked ack" as kind:
                return (kind, frame.offset, frame.epoch)
            case "classic data" as kind:
                return (kind, frame.offset, body)
            case "handshake" as kind:
                offer = "offering " if frame.offers_checks else ""
                flags = (frame.sync_from_last_file, frame.is_learner)
                return (offer + kind, *flags, frame.broker_id)
            case "handshake reply" | "checked handshake reply" as kind:
                read = [
                    self.lib.rmq_ha_entry_decode(frame.body, index)
                    for index in range(frame.body_size // self.lib.RMQ_HA_ENTRY_SIZE)
                ]
                entries = tuple((entry.epoch, entry.start_offset) for entry in read)
                return (kind, frame.offset, frame.epoch, entries, *crcs)
            case kind:
                numbers = (frame.offset, frame.epoch, frame.epoch_start, frame.confirm_offset)
                return (kind, *numbers, body)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def test_head_sizes_are_those_of_the_reference(core: Any) -> None:
    _, lib = core
    sizes = [lib.rmq_ha_head_size(kind, False) for kind in range(len(HEADS))]
    assert sizes == [head.size for head in HEADS.values()]
    kinds = [list(HEADS).index(kind) for kind in CHECKED_HEADS]
    checked = [lib.rmq_ha_head_size(kind, True) for kind in kinds]
    assert checked == [head.size for head in CHECKED_HEADS.values()]
    assert max(checked) == lib.RMQ_HA_HEAD_SIZE_MAX
    assert lib.RMQ_HA_FRAME_SIZE_MAX == FRAME_SIZE_MAX


def test_kinds_and_streams_have_the_order_of_the_reference() -> None:
    header = (SOURCES / "format" / "ha_frame.h").read_text()

    def names(enum: str) -> list[str]:
        body = re.search(rf"enum {enum} \{{(.*?)\}}", header, re.DOTALL)
        assert body is not None
        return [name.lower().replace("_", " ") for name in re.findall(r"RMQ_HA_(\w+),", body[1])]

    assert names("rmq_ha_kind") == list(HEADS)
    assert names("rmq_ha_stream") == [name.replace("auto-", "") for name in STREAMS]


@given(spoken=spoken())
def test_encoded_heads_are_those_of_the_reference(
    core: Any, spoken: tuple[str, list[Frame]]
) -> None:
    ffi, lib = core
    stream, frames = spoken
    for frame in frames:
        data = reference.encode(frame)
        kept = ffi.new("uint8_t[]", data)
        read, needed = ffi.new("struct rmq_ha_frame *"), ffi.new("size_t *")
        decode = (STREAMS.index(stream), FRAME_SIZE_MAX, kept, len(data), read, needed)
        assert lib.rmq_ha_frame_decode(*decode, ffi.NULL) == lib.RMQ_OK
        assert needed[0] == len(data)
        out = ffi.new("uint8_t[]", lib.RMQ_HA_HEAD_SIZE_MAX)
        size = lib.rmq_ha_head_encode(read, out)
        assert bytes(ffi.buffer(out, size)) == data[: len(data) - read.body_size]


@given(spoken=spoken(), cuts=st.lists(st.integers(0, 1000), max_size=5))
def test_frames_come_back_whatever_the_pieces(
    core: Any, spoken: tuple[str, list[Frame]], cuts: list[int]
) -> None:
    stream, frames = spoken
    parser = Parser(core, stream)
    found: list[Frame] = []
    with GuardedMemory(4096) as memory:
        for piece in pieces_of(joined(frames), cuts):
            more, status = parser.feed(memory, piece)
            found += more
            assert status == parser.lib.RMQ_END
    assert found == frames
    assert parser.parser.position == len(joined(frames))


@given(
    spoken=spoken(),
    cuts=st.lists(st.integers(0, 1000), max_size=5),
    at=st.integers(0, 200),
    value=st.integers(0, 255),
)
def test_one_wrong_byte_is_judged_as_the_reference_does(
    core: Any, spoken: tuple[str, list[Frame]], cuts: list[int], at: int, value: int
) -> None:
    stream, frames = spoken
    data = bytearray(joined(frames))
    if at < len(data):
        data[at] = value

    expected, place, is_bad = reference.walk(stream, bytes(data))
    parser = Parser(core, stream)
    lib, found, status = parser.lib, [], None

    with GuardedMemory(4096) as memory:
        for piece in pieces_of(bytes(data), cuts):
            more, status = parser.feed(memory, piece)
            found += more

    assert found == expected
    assert parser.parser.position == place
    if is_bad:
        assert status in (lib.RMQ_CORRUPT, lib.RMQ_OUT_OF_RANGE)
        assert parser.error.at_offset == place
    else:
        assert status == lib.RMQ_END


@given(stream=st.sampled_from(STREAMS), data=st.binary(max_size=200))
def test_foreign_bytes_are_judged_as_the_reference_does(
    core: Any, stream: str, data: bytes
) -> None:
    parser = Parser(core, stream)
    expected, place, is_bad = reference.walk(stream, data)
    with GuardedMemory(4096) as memory:
        found, status = parser.feed(memory, data)
    assert (found, parser.parser.position) == (expected, place)
    assert (status != parser.lib.RMQ_END) == is_bad


@given(spoken=spoken())
def test_a_cut_frame_asks_for_more_and_nothing_behind_the_cut_is_read(
    core: Any, spoken: tuple[str, list[Frame]]
) -> None:
    ffi, lib = core
    stream, frames = spoken
    read, needed = ffi.new("struct rmq_ha_frame *"), ffi.new("size_t *")
    with GuardedMemory(4096) as memory:
        for frame in frames:
            data = reference.encode(frame)
            for size in range(len(data)):
                kept = ffi.cast("uint8_t *", memory.put_last(data[:size]))
                decode = (STREAMS.index(stream), FRAME_SIZE_MAX, kept, size, read, needed)
                assert lib.rmq_ha_frame_decode(*decode, ffi.NULL) == lib.RMQ_END
                assert size < needed[0] <= len(data)


@pytest.mark.parametrize("stream", ["classic master", "auto-switch master"])
@pytest.mark.parametrize(
    ("body_size", "verdict"),
    [
        (FRAME_SIZE_MAX, "OUT_OF_RANGE"),
        ((1 << 31) - 1, "OUT_OF_RANGE"),
        (-1, "CORRUPT"),
        (-(1 << 31), "CORRUPT"),
    ],
)
def test_a_hostile_size_is_refused_with_the_head(
    core: Any, stream: str, body_size: int, verdict: str
) -> None:
    if stream == "classic master":
        data = HEADS["classic data"].pack(0, body_size)
    else:
        data = HEADS["transfer"].pack(2, body_size, 0, 1, 0, 0)
    parser = Parser(core, stream)
    with GuardedMemory(4096) as memory:
        found, status = parser.feed(memory, data)
    assert (found, status) == ([], getattr(parser.lib, f"RMQ_{verdict}"))
    assert parser.parser.capacity == 0


def test_a_frame_as_large_as_can_be_comes_whole(core: Any) -> None:
    frame = ("classic data", 5, bytes(FRAME_SIZE_MAX - 12))
    data = reference.encode(frame)
    parser = Parser(core, "classic master")
    found: list[Frame] = []
    with GuardedMemory(FRAME_SIZE_MAX) as memory:
        for begin in range(0, len(data), 1 << 20):
            found += parser.feed(memory, data[begin : begin + (1 << 20)])[0]
            assert parser.parser.capacity <= FRAME_SIZE_MAX
    assert found == [frame]


def test_memory_grows_with_what_came_and_not_with_what_was_announced(core: Any) -> None:
    parser = Parser(core, "auto-switch master")
    with GuardedMemory(4096) as memory:
        parser.feed(memory, HEADS["transfer"].pack(2, FRAME_SIZE_MAX - 36, 0, 1, 0, 0))
        for _ in range(2000):
            parser.feed(memory, b"x")
    assert parser.parser.held_size == 2036
    assert parser.parser.capacity <= 2 * 2036


def test_a_failure_stays_and_nothing_fed_later_is_looked_at(core: Any) -> None:
    parser = Parser(core, "auto-switch slave")
    with GuardedMemory(4096) as memory:
        ack = reference.encode(("ack", 7))
        assert parser.feed(memory, ack + b"HTTP")[0] == [("ack", 7)]
        for piece in (b"", ack):
            assert parser.feed(memory, piece) == ([], parser.lib.RMQ_CORRUPT)
            assert parser.error.at_offset == 12


def test_without_memory_the_parser_says_so_and_goes_on_saying_it(failing_core: Any) -> None:
    parser = Parser(failing_core, "classic master")
    lib, data = parser.lib, reference.encode(("classic data", 0, b"body"))
    with GuardedMemory(4096) as memory:
        blocks = lib.failing_memory_blocks()
        lib.failing_memory_arm(0, 1)
        try:
            assert parser.feed(memory, data + data[:5]) == (
                [("classic data", 0, b"body")],
                lib.RMQ_NO_MEMORY,
            )
        finally:
            lib.failing_memory_arm(0, 0)
        assert parser.error.at_offset == len(data)
        assert parser.feed(memory, data[5:]) == ([], lib.RMQ_NO_MEMORY)
        lib.rmq_ha_parser_finish(parser.parser)
        assert lib.failing_memory_blocks() == blocks


def test_memory_is_given_back(failing_core: Any) -> None:
    parser = Parser(failing_core, "classic master")
    lib = parser.lib
    blocks = lib.failing_memory_blocks()
    with GuardedMemory(4096) as memory:
        parser.feed(memory, reference.encode(("classic data", 0, bytes(900)))[:-1])
    assert lib.failing_memory_blocks() == blocks + 1
    lib.rmq_ha_parser_finish(parser.parser)
    lib.rmq_ha_parser_finish(parser.parser)
    assert lib.failing_memory_blocks() == blocks


@pytest.mark.parametrize("stream", ["auto-switch slave", "auto-switch master"])
def test_no_bit_of_a_frame_with_checks_can_turn(core: Any, stream: str) -> None:
    frame: Frame = ("checked ack", 700, 3)
    if stream == "auto-switch master":
        frame = ("checked transfer", 500, 3, 400, 450, b"account-42")
    data = reference.encode(frame)
    for bit in range(8 * len(data)):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        parser = Parser(core, stream)
        with GuardedMemory(4096) as memory:
            found, status = parser.feed(memory, bytes(wrong))
        assert (found, status) == ([], parser.lib.RMQ_CORRUPT), bit
