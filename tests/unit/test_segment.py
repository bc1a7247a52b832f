"""Rows out of the bytes of one commit log file: the reference's, however the bytes are cut."""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore._native import core
from rmqstore.errors import ArgumentError
from tests.c.memory import GuardedMemory
from tests.c.segments import (
    STEPS_MAX,
    File,
    Reading,
    files_of,
    log_of,
    messages_of,
    one,
)
from tests.golden import GoldenCase, every_case
from tests.reference.columns import NAMES, Row
from tests.support.effort import rounds

Files = Callable[[str], list[File]]
Golden = Callable[[str, str], GoldenCase]
EXAMPLES = rounds(30, 2000)
HEAD = 112
"""More bytes than the fixed part of any record has."""


# ---- rows, however the bytes come


@every_case()
@pytest.mark.parametrize("piece", [1, 4096, 1 << 20])
def test_rows_of_every_file_equal_the_reference_in_pieces_of_any_size(
    golden_case: Golden, release: str, case_name: str, piece: int
) -> None:
    files = files_of(golden_case(release, case_name))
    for file in files:
        reading = Reading(file.data, file.start, [piece])
        assert reading.rows(check_crc=True) == file.rows()
        assert reading.records == len(file.records)
        assert reading.bytes == sum(one.size for one in file.records.values())
        if reading.bad:
            assert (case_name, reading.ending) == ("crash-torn", None)
        else:
            is_last = not any(later.records for later in files if later.start > file.start)
            assert reading.ending == ("unwritten" if is_last else "blank")
    wrapped = Reading(file.data, file.start, [piece])
    assert wrapped.rows(unwrap=False) == file.rows(unwrap=False)


@settings(max_examples=EXAMPLES)
@given(
    case=st.sampled_from(["plain", "batch", "ipv6", "topic-length", "prop-crc"]),
    pieces=st.lists(st.integers(1, 3000), min_size=1, max_size=6),
    batch_rows=st.integers(1, 200),
    batch_bytes=st.integers(1, 20_000),
    names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
)
def test_rows_depend_on_neither_pieces_nor_batches(
    logs: Files,
    case: str,
    pieces: list[int],
    batch_rows: int,
    batch_bytes: int,
    names: list[str],
) -> None:
    file = logs(case)[0]
    reading = Reading(file.data, file.start, pieces, names, batch_rows, batch_bytes)
    found = reading.rows()
    assert found == [{name: one[name] for name in names} for one in file.rows()]
    assert reading.records == len(file.records)
    assert all(0 < size <= batch_rows for size in reading.sizes)


@settings(max_examples=EXAMPLES)
@given(
    cuts=st.lists(st.integers(0, 200_000), max_size=5),
    case=st.sampled_from(["plain", "batch", "topic-length"]),
)
def test_each_record_belongs_to_the_range_it_begins_in(
    logs: Files, case: str, cuts: list[int]
) -> None:
    file = logs(case)[0]
    places = [*file.records, file.end]
    borders = sorted({file.start, *(file.start + cut % len(file.data) for cut in cuts), file.end})

    found: list[Row] = []
    for border, stop in pairwise(borders):
        begin = min(place for place in places if place >= border)
        if begin >= stop:
            continue

        reading = Reading(file.data, file.start, [700])
        part = reading.rows(begin=begin, stop=stop)

        inside = [place for place in file.records if begin <= place < stop]
        assert [one["physical_offset"] for one in part if one["version"]] == [
            place for place in inside for _ in messages_of(file.records[place])
        ]
        assert reading.ending in ("stop", "unwritten", "blank")
        found += part

    assert found == file.rows()


def test_bytes_before_and_behind_a_piece_are_not_touched(
    logs: Files,
) -> None:
    file = logs("batch")[0]
    damaged = bytearray(file.data)
    damaged[len(damaged) // 3] ^= 0xFF
    at = 0

    selection = core.ArrowSelection(NAMES, batch_rows=9, batch_bytes=5000, large_binary=False)
    scan = core.SegmentScan(selection, start=file.start, stop=file.end, file_end=file.end)

    with GuardedMemory(len(damaged)) as memory:
        step: Callable[[], str] = scan.fill
        for _ in range(STEPS_MAX):
            state = step()
            step = scan.fill
            at = scan.offset - file.start

            if state == "more":
                piece = bytes(damaged[at : at + scan.needed])
                place = memory.put_last(piece)
                scan.feed((ctypes.c_char * len(piece)).from_address(place), scan.offset)
            elif state == "corrupt":
                step = scan.resync
            elif state == "over":
                break
            scan.take()
        scan.close()

    assert at > len(damaged) // 2


# ---- batches and misuse


def _scan(file: File, **options: Any) -> Any:
    selection = core.ArrowSelection(
        ["body"], batch_rows=2, batch_bytes=1000, large_binary=False, **options
    )
    return core.SegmentScan(selection, start=0, stop=len(file.data), file_end=len(file.data))


def test_batch_outlives_its_scan_and_is_handed_over_once() -> None:
    file = log_of([one(body=b"a"), one(body=b"b"), one(body=b"c")])
    scan = _scan(file)
    assert scan.take() is None
    scan.feed(bytearray(file.data), 0)
    assert (scan.fill(), scan.rows) == ("full", 2)
    taken = scan.take()
    assert (len(taken), scan.rows, scan.take()) == (2, 0, None)
    scan.close()
    scan.close()
    assert pa.record_batch(taken).column(0).to_pylist() == [b"a", b"b"]
    with pytest.raises(ArgumentError, match="handed over before"):
        taken.__arrow_c_array__()
    with pytest.raises(ArgumentError, match="the scan is closed"):
        scan.fill()


def test_batch_that_nobody_takes_is_let_go_of() -> None:
    file = log_of([one(body=b"a")])
    scan = _scan(file)
    scan.feed(file.data, 0)
    assert (scan.fill(), scan.rows) == ("over", 1)
    assert scan.take().__arrow_c_array__() is not None


def test_bytes_that_do_not_reach_the_place_are_refused() -> None:
    file = log_of([one(), one()])
    scan = _scan(file)
    with pytest.raises(ArgumentError, match="5 bytes from offset 7 on do not reach offset 0"):
        scan.feed(bytes(5), 7)
    scan.feed(file.data[:150], 0)
    assert scan.fill() == "more"
    at = scan.offset
    assert at > 0
    with pytest.raises(ArgumentError, match=f"do not reach offset {at}"):
        scan.feed(file.data[: at - 1], 0)
    with pytest.raises(ArgumentError, match="do not reach"):
        scan.feed(file.data, -1)
    # Too few bytes are asked for again.
    scan.feed(file.data[at : at + 3], at)
    assert (scan.fill(), scan.offset, scan.rows) == ("more", at, 1)


def test_fed_bytes_are_held_until_the_next_ones() -> None:
    file = log_of([one()])
    first, second = bytearray(file.data), bytearray(file.data)
    scan = _scan(file)
    scan.feed(first, 0)
    with pytest.raises(BufferError):
        first.clear()
    scan.feed(second, 0)
    first.clear()
    scan.close()
    second.clear()


def test_ranges_and_arguments_are_judged() -> None:
    for start, stop, end in ((-1, 0, 0), (5, 4, 9), (5, 6, 4)):
        with pytest.raises(ArgumentError, match="does not ascend"):
            core.SegmentScan(None, start=start, stop=stop, file_end=end)
    scan = core.SegmentScan(None, start=0, stop=0, file_end=0)
    with pytest.raises(ArgumentError, match="without a selection"):
        scan.fill()
    with pytest.raises(ArgumentError, match="nothing to pass over"):
        scan.resync()
    with pytest.raises(ArgumentError, match="queue ids begin at 0"):
        scan.choose(b"t", [(-2, 0, 1, 0, 1)])
    with pytest.raises(TypeError, match="begun once"):
        core.SegmentScan.__init__(scan, None, start=0, stop=0, file_end=0)
    assert (scan.summarize(), scan.ending, scan.rows) == ("over", "stop", 0)


def test_empty_file_and_place_behind_its_end_are_over() -> None:
    scan = core.SegmentScan(None, start=0, stop=10, file_end=0)
    assert (scan.summarize(), scan.ending) == ("over", "blank")
    scan = core.SegmentScan(None, start=0, stop=10, file_end=5)
    scan.feed(bytes(5), 0)
    assert (scan.summarize(), scan.ending) == ("over", "unwritten")
    scan = core.SegmentScan(None, start=0, stop=10, file_end=5)
    scan.feed(b"abcde", 0)
    assert scan.summarize() == "corrupt"
    assert (scan.resync(), scan.ending, scan.offset) == ("over", "blank", 5)


# ---- units and bytes


@given(
    st.lists(
        st.tuples(st.integers(-5, 1000), st.sampled_from([0, -1, 1, 91, 0x7FFFFFFF])), max_size=50
    ),
    st.integers(0, 1000),
    st.integers(0, 1000),
)
def test_positions_of_units_are_those_in_the_range(
    units: list[tuple[int, int]], start: int, stop: int
) -> None:
    data = b"".join(struct.pack(">qiq", offset, size, -1) for offset, size in units)
    wanted = [offset for offset, size in units if start <= offset < stop and 0 < size < 0x7FFFFFFF]
    assert array("q", core.unit_positions(data, start, stop)).tolist() == wanted


def test_part_of_a_unit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="21 bytes are not a whole number of units"):
        core.unit_positions(bytes(21), 0, 1)


def units_of(*records: tuple[int, int], unit_size: int = 20) -> bytes:
    """Return units for records given by offset and size."""
    return b"".join(struct.pack(">qi", *each).ljust(unit_size, b"\0") for each in records)


@pytest.mark.parametrize("unit_size", [20, 46])
def test_records_are_summed_up_by_the_file_in_which_they_begin(unit_size: int) -> None:
    sums = core.UnitSums(start=1000, stop=1900, file_size=500, file_count=2)
    first = [(900, 91), (1000, 100), (1300, 150), (1700, 0)]
    assert sums.add(units_of(*first, unit_size=unit_size), unit_size=unit_size, last=-1) == 1300
    more = [(1500, 100), (1600, 91), (0, 0x7FFFFFFF), (1900, 91)]
    assert sums.add(units_of(*more, unit_size=unit_size), unit_size=unit_size, last=1300) == 1600
    other = units_of((1100, 200), unit_size=unit_size)
    assert sums.add(other, unit_size=unit_size, last=-1) == 1100
    assert sums.files() == [(450, 1450), (191, 1691)]


@pytest.mark.parametrize(
    "records", [[(1300, 91), (1300, 91)], [(1400, 91), (1300, 91)], [(1500, 91)]]
)
def test_units_that_do_not_ascend_within_the_files_have_no_sum(
    records: list[tuple[int, int]],
) -> None:
    sums = core.UnitSums(start=1000, stop=9000, file_size=500, file_count=1)
    assert sums.add(units_of(*records), unit_size=20, last=-1) is None
    assert sums.add(units_of((1200, 91)), unit_size=20, last=1200) is None


def test_sums_of_no_log_are_refused() -> None:
    for file_size, file_count in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(ArgumentError, match="are not a log"):
            core.UnitSums(start=0, stop=1, file_size=file_size, file_count=file_count)
    sums = core.UnitSums(start=0, stop=1, file_size=1, file_count=1)
    with pytest.raises(TypeError, match="begun once"):
        core.UnitSums.__init__(sums, start=0, stop=1, file_size=1, file_count=1)
    with pytest.raises(ArgumentError, match="20 are the least"):
        sums.add(b"", unit_size=19, last=0)


@given(st.binary(max_size=20), st.integers(0, 9000), st.data())
def test_first_difference_is_the_first_one(tail: bytes, size: int, data: st.DataObject) -> None:
    first = bytearray(bytes(size) + tail)
    assert core.first_difference(first, bytes(first)) == -1
    if first:
        places = data.draw(st.sets(st.integers(0, len(first) - 1), min_size=1, max_size=3))
        second = bytearray(first)
        for place in places:
            second[place] ^= 1
        assert core.first_difference(first, second) == min(places)
    with pytest.raises(ArgumentError, match="not of equal length"):
        core.first_difference(first, first + b"x")
