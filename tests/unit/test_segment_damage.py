"""Damaged commit log files, read piece by piece, against the slow reference."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore._native import core
from tests.c.segments import (
    File,
    Reading,
    files_of,
    log_of,
    one,
)
from tests.golden import GoldenCase, every_case
from tests.reference import record
from tests.reference.record import BadRecord, Record
from tests.support.effort import rounds

Files = Callable[[str], list[File]]
Golden = Callable[[str, str], GoldenCase]
EXAMPLES = rounds(30, 2000)
HEAD = 112
"""More bytes than the fixed part of any record has."""


# ---- damage


def salvage(data: bytes, start: int, stop: int) -> tuple[list[int], list[int], list[int]]:
    """Offsets of records, of bad places and of unwritten ones, read by the slow reference."""

    def at_place(at: int) -> Record | None:
        try:
            found = record.decode(data, at)
        except BadRecord:
            return None
        return found if found.physical_offset == start + at else None

    good: list[int] = []
    bad: list[int] = []
    unwritten: list[int] = []
    at = 0
    while at < min(stop - start, len(data)):
        if record.is_blank(data, at):
            break
        found = at_place(at)
        if found is not None:
            good.append(start + at)
            at += found.size
            continue
        if not any(data[at : at + 8]):
            unwritten.append(start + at)
        else:
            bad.append(start + at)
            try:
                at += record.decode(data, at).size
                continue
            except BadRecord:
                pass
        at += 1
        while at < len(data):
            next_one = at_place(at) if data[at + 4 : at + 7] == b"\xda\xa3\x20" else None
            if next_one is not None and record.body_crc_is_right(next_one):
                break
            at += 1
    return good, bad, unwritten


DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 1 << 20), st.sampled_from([b"\0", b"\xff", b"\x01", bytes(40), bytes(700)])
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=EXAMPLES * 2)
@given(
    damage=DAMAGE,
    pieces=st.lists(st.integers(1, 4000), min_size=1, max_size=5),
    cut=st.integers(1, 12_000),
    case=st.sampled_from(["plain", "topic-length", "ipv6"]),
)
def test_damaged_bytes_are_passed_over_as_the_reference_does_whatever_the_pieces(
    logs: Files,
    damage: list[tuple[int, bytes]],
    pieces: list[int],
    cut: int,
    case: str,
) -> None:
    file = logs(case)[0]
    data = bytearray(file.data[:12_000])

    for at, written in damage:
        at %= len(data)
        data[at : at + len(written)] = written[: len(data) - at]

    good, bad, unwritten = salvage(bytes(data), file.start, file.start + cut)
    columns = ["physical_offset", "tags"]
    readings = [
        Reading(bytes(data), file.start, sizes, columns, batch_rows=9, resync=True)
        for sizes in (pieces, [1], [1 << 20])
    ]

    for reading in readings:
        found = reading.rows(stop=file.start + cut)
        assert [row["physical_offset"] for row in found] == good
        assert (reading.bad, reading.gaps) == (bad, unwritten)

    assert len({(tuple(one.errors), one.ending, one.offset) for one in readings}) == 1


@every_case("plain", "prop-crc", "ipv6")
def test_every_flipped_byte_of_a_record_is_found_by_its_crcs(
    golden_case: Golden, release: str, case_name: str
) -> None:
    file = files_of(golden_case(release, case_name))[0]
    places = list(file.records)
    at, size = places[1] - file.start, file.records[places[1]].size
    rest = [place for place in places if place != places[1]]

    body = file.records[places[1]].body
    inside = range(file.data.index(body, at), file.data.index(body, at) + len(body))
    flips = range(size) if case_name == "prop-crc" else [byte - at for byte in inside]
    assert flips

    for flip in flips:
        data = bytearray(file.data[: at + size * 3])
        data[at + flip] ^= 0x10

        reading = Reading(bytes(data), file.start, [997], columns=["physical_offset"], resync=True)
        found = [row["physical_offset"] for row in reading.rows(check_crc=True)]
        whole = [place for place in rest if place + file.records[place].size <= reading.end]
        assert reading.bad[0] == places[1]
        assert found == whole


def test_gap_of_zeros_is_told_and_passed_over_on_demand() -> None:
    first, second = log_of([one()], room=0), log_of([one(), one()], start=5000, room=100)
    data = first.data.ljust(5000, b"\0") + second.data
    reading = Reading(data, columns=["physical_offset"])
    assert len(reading.rows()) == 1
    assert (reading.ending, reading.offset) == ("unwritten", len(first.data))
    reading = Reading(data, 0, [1], columns=["physical_offset"], resync=True)
    assert [row["physical_offset"] for row in reading.rows()] == [0, *second.records]
    assert (reading.gaps, reading.ending) == ([len(first.data)], "blank")


@pytest.mark.parametrize("stop", [5000, 20_000, 30_000])
def test_search_that_finds_nothing_ends_where_reading_would(stop: int) -> None:
    data = b"\xda\xa3\x20\xa7" * 5000
    for piece in (1, 100, 1 << 20):
        reading = Reading(data, 0, [piece], columns=["size"], resync=True)
        assert reading.rows(stop=stop) == []
        assert reading.bad == [0]
        assert reading.offset == min(stop, 20_000)
        assert reading.ending == ("stop" if stop <= 20_000 else "blank")


@pytest.mark.parametrize("size", [0x7FFFFFFF, 1 << 29, 300_000_000])
def test_wrong_size_alone_does_not_ask_for_the_file(size: int) -> None:
    file = log_of([one(body=bytes(100))])
    data = bytearray(file.data)
    struct.pack_into(">i", data, 0, size)
    scan = core.SegmentScan(None, start=0, stop=1 << 30, file_end=1 << 30)
    assert scan.needed == HEAD
    scan.feed(data, 0)
    assert scan.summarize() == "corrupt"
    assert scan.error is not None
    assert str(size) in str(scan.error)
    assert scan.resync() == "more"
    assert scan.needed == HEAD


def test_record_of_a_gibibyte_is_asked_for_once_and_no_more_than_the_file_has() -> None:
    head = bytearray(record.encode(record.derive(one(body=b""))))
    struct.pack_into(">i", head, 0, (1 << 29) + len(head))
    struct.pack_into(">i", head, 84, 1 << 29)
    file_end = (1 << 29) + 200
    scan = core.SegmentScan(None, start=0, stop=1 << 30, file_end=file_end)
    scan.feed(bytes(head) + bytes(100), 0)
    assert (scan.summarize(), scan.needed) == ("more", (1 << 29) + len(head))
    short = core.SegmentScan(None, start=0, stop=1 << 30, file_end=1 << 29)
    short.feed(bytes(head) + bytes(100), 0)
    assert short.summarize() == "corrupt"
    assert f"{1 << 29} are left" in str(short.error)
