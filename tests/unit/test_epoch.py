"""The epoch file as RocketMQ writes it, and what two lists of epochs have in common.

RocketMQ's EpochFileCache.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.epochs import (
    EpochEntry,
    common_end,
    epoch_at,
    format_epochs,
    parse_epochs,
)
from rmqstore.errors import ArgumentError, CorruptionError
from tests.golden import RELEASES, GoldenCase

MEASURED = "2\n946436882\n1-100\n2-300\n"


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


@st.composite
def epoch_lists(draw: st.DrawFn) -> tuple[EpochEntry, ...]:
    steps = st.tuples(st.integers(1, 9), st.integers(0, 500))
    epoch = start = 0
    found = []
    for epoch_step, bytes_ in draw(st.lists(steps, min_size=1, max_size=8)):
        epoch, start = epoch + epoch_step, start + bytes_
        found.append(EpochEntry(epoch, start))
    return tuple(found)


@pytest.mark.parametrize("release", RELEASES)
def test_the_file_that_java_wrote_is_read_and_written_alike(
    golden_case: Callable[[str, str], GoldenCase], release: str
) -> None:
    case = golden_case(release, "epoch-checkpoint")
    text = (case.root / "epochFileCheckpoint").read_text()
    (answer,) = case.expected_of("epochs")

    found = parse_epochs(text)

    assert [(each.epoch, each.start_offset) for each in found] == [
        (line["epoch"], line["startOffset"]) for line in answer["entries"]
    ]
    assert format_epochs(found) == text


def test_the_measured_file_is_read() -> None:
    assert parse_epochs(MEASURED) == entries((1, 100), (2, 300))


def test_a_crc_of_zero_is_not_checked() -> None:
    assert parse_epochs("1\n0\n7-42\n") == entries((7, 42))


@given(epoch_lists())
def test_what_is_written_is_read_back(epochs: tuple[EpochEntry, ...]) -> None:
    assert parse_epochs(format_epochs(epochs)) == epochs


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "count and a CRC"),
        ("2\n", "count and a CRC"),
        ("two\n0\n1-1\n2-2\n", "count and a CRC"),
        ("-1\n0\n", "count and a CRC"),
        ("3\n946436882\n1-100\n2-300\n", "there are 2 entries, the first line says 3"),
        ("2\n946436883\n1-100\n2-300\n", "the CRC of the entries is 946436882"),
        ("1\n0\n1--5\n", "not EPOCH-OFFSET"),
        ("1\n0\n1-9223372036854775808\n", "not EPOCH-OFFSET"),
        ("1\n0\n2147483648-1\n", "not EPOCH-OFFSET"),
        ("2\n0\n2-100\n1-300\n", "epoch 1 at 300 follows epoch 2 at 100"),
        ("2\n0\n1-300\n2-100\n", "epoch 2 at 100 follows epoch 1 at 300"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(text: str, answer: str) -> None:
    with pytest.raises(CorruptionError, match=answer):
        parse_epochs(text)


@given(st.integers(0, len(MEASURED) - 1), st.integers(0, 7))
def test_a_flipped_bit_of_an_entry_never_passes_for_another_entry(place: int, bit: int) -> None:
    data = bytearray(MEASURED.encode())
    data[place] ^= 1 << bit
    try:
        found = parse_epochs(data.decode("ascii", "replace"))
    except CorruptionError:
        return
    assert found == parse_epochs(MEASURED)


@pytest.mark.parametrize(
    "wrong",
    [(), ((-1, 0),), ((1, -1),), ((2**31, 0),), ((2, 0), (2, 10)), ((1, 10), (2, 9))],
)
def test_entries_that_no_file_can_hold_are_refused(wrong: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ArgumentError, match="cannot hold"):
        format_epochs(entries(*wrong))


def test_the_crc_has_no_sign_bit() -> None:
    lines = next(
        text
        for text in (f"{epoch}-0\n" for epoch in range(100))
        if zlib.crc32(text.encode()) > 0x7FFFFFFF
    )
    crc = format_epochs(entries((int(lines.partition("-")[0]), 0))).splitlines()[1]
    assert int(crc) == zlib.crc32(lines.encode()) - 2**31


def test_a_byte_belongs_to_the_last_epoch_that_begins_at_or_before_it() -> None:
    epochs = entries((1, 100), (3, 300))
    assert epoch_at(epochs, 99) is None
    assert epoch_at(epochs, 299) == EpochEntry(1, 100)
    assert epoch_at(epochs, 300) == EpochEntry(3, 300)


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "expected"),
    [
        # As RocketMQ's testFindConsistentPointSample1 to 4
        (((1, 100), (2, 300), (3, 500)), 700, ((1, 100), (2, 300), (3, 450)), 600, 450),
        (((1, 100), (2, 300), (3, 500)), 700, ((1, 100), (2, 300), (3, 500)), 600, 600),
        (((1, 100), (2, 300)), 500, ((1, 200), (2, 400)), 500, -1),
        (((1, 100), (2, 300), (3, 500)), 700, ((1, 100), (2, 300), (3, 500), (4, 800)), 900, 700),
        ((), 100, ((1, 0),), 100, -1),
        (((1, 0), (2, 300)), 250, ((1, 0), (2, 300)), 400, 300),
    ],
)
def test_two_logs_are_the_same_up_to_the_end_of_the_last_common_epoch(
    ours: tuple[tuple[int, int], ...],
    our_end: int,
    theirs: tuple[tuple[int, int], ...],
    their_end: int,
    expected: int,
) -> None:
    found = common_end(entries(*ours), entries(*theirs), our_end=our_end, their_end=their_end)
    assert found == expected


@given(epoch_lists(), epoch_lists(), st.integers(0, 5000), st.integers(0, 5000))
def test_both_sides_agree_on_what_they_have_in_common(
    ours: tuple[EpochEntry, ...], theirs: tuple[EpochEntry, ...], our_end: int, their_end: int
) -> None:
    assert common_end(ours, theirs, our_end=our_end, their_end=their_end) == common_end(
        theirs, ours, our_end=their_end, their_end=our_end
    )
