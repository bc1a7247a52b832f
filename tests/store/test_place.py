"""Rows as records by their Arrow buffers alone, and their way into a log."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import ArgumentError, CorruptionError, MessageRejected
from rmqstore._native import core
from tests.reference import record

RECORD_SIZE_MAX = 4096
Cells = tuple[int, bytes | None, bytes | None, bytes | None]


def encoder(**changes: Any) -> core.RowEncoder:
    settings: dict[str, Any] = {
        "body_size_max": 1000,
        "record_size_max": RECORD_SIZE_MAX,
        "version_by_topic_size": True,
        "append_property_crc": False,
        "log_file_size": 65536,
        "host": ("127.0.0.1", 10911),
    }
    return core.RowEncoder(**{**settings, **changes})


def ints(*values: int) -> bytes:
    return struct.pack(f"={len(values)}i", *values)


def texts(*values: str, skip: int = 0) -> Cells:
    """Return the cells of a column; *skip* more lie before the first one."""
    encoded = [b"?"] * skip + [value.encode() for value in values]
    ends = [sum(map(len, encoded[:count])) for count in range(len(encoded) + 1)]
    return skip, None, ints(*ends), b"".join(encoded)


def encode(count: int, columns: Mapping[str, Cells], **changes: Any) -> list[record.Record]:
    made = encoder(**changes)
    made.begin(count, columns)
    out = bytearray(2 * RECORD_SIZE_MAX)
    used = made.encode(out, begin=0, place=0, now_ms=1_700_000_000_000)
    assert made.row == count
    found = []
    at = 0
    while at < used:
        found.append(record.decode(bytes(out), at))
        at += found[-1].size
    return found


TWO: Mapping[str, Cells] = {"topic": texts("a", "b"), "body": texts("first", "")}


def test_rows_become_records_side_by_side() -> None:
    first, second = encode(2, TWO)
    assert (first.topic, first.body, first.queue_id) == ("a", b"first", 0)
    assert (second.topic, second.body, second.property_bytes) == ("b", b"", b"")
    assert second.physical_offset == first.size
    assert first.born_timestamp == first.store_timestamp == 1_700_000_000_000
    assert record.body_crc_is_right(first)


def test_cells_before_the_first_row_are_passed_over() -> None:
    columns: Mapping[str, Cells] = {
        "topic": texts("a", "b", skip=3),
        "body": texts("x", "y", skip=9),
        "queue_id": (1, b"\x05", ints(7, 8, 9), None),
        "keys": (2, b"\x08", ints(0, 0, 0, 1, 2), None),
        "key_items": texts("one", "two", skip=1),
    }
    first, second = encode(2, columns)
    assert (first.topic, first.body, first.queue_id) == ("a", b"x", 0)
    assert (second.topic, second.body, second.queue_id) == ("b", b"y", 9)
    assert (first.properties, second.properties) == ({}, {"KEYS": "two"})


def test_rows_go_on_where_the_room_ended() -> None:
    made = encoder()
    made.begin(9, {"topic": texts(*"abcdefghi"), "body": texts(*["." * 900] * 9)})
    out = bytearray(RECORD_SIZE_MAX)

    bodies = []
    place = 0

    while made.row < 9:
        used = made.encode(out, begin=0, place=place, now_ms=1)
        assert 0 < used <= len(out)

        at = 0
        while at < used:
            found = record.decode(bytes(out), at)
            assert found.physical_offset == place + at
            bodies.append(found.topic)
            at += found.size
        place += used

    assert "".join(bodies) == "abcdefghi"
    assert made.encode(out, begin=0, place=place, now_ms=1) == 0


@pytest.mark.parametrize("offsets", [(0, 4), (2, 1), (-1, 2), (2**31 - 1, 2**31 - 1)])
@pytest.mark.parametrize("column", ["body", "topic", "tags", "keys", "names", "values"])
def test_offsets_that_lead_out_of_the_buffers_are_refused(
    column: str, offsets: tuple[int, int]
) -> None:
    columns: dict[str, Cells] = {
        "topic": texts("a"),
        "body": texts("b"),
        "properties": (0, None, ints(0, 1), None),
        "names": texts("n"),
        "values": texts("v"),
    }
    columns[column] = (0, None, ints(*offsets), b"xyz")
    with pytest.raises(ArgumentError, match="offsets"):
        encode(1, columns)


@pytest.mark.parametrize("offsets", [(0, 3), (2, 1), (-1, 1)])
@pytest.mark.parametrize("column", ["properties", "keys"])
def test_lists_that_lead_out_of_their_items_are_refused(
    column: str, offsets: tuple[int, int]
) -> None:
    columns: dict[str, Cells] = {
        "topic": texts("a"),
        "body": texts("b"),
        "names": texts("n", "m"),
        "values": texts("v", "w", skip=4),
        "key_items": texts("v", "w", skip=4),
    }
    columns[column] = (0, None, ints(*offsets), None)
    with pytest.raises(ArgumentError, match="offsets"):
        encode(1, columns)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("topic", (0, None, ints(0, 1), b"a")),
        ("topic", (-1, None, ints(0, 1, 2, 3), b"abc")),
        ("topic", (5, None, ints(0, 1, 2), b"ab")),
        ("topic", (0, None, None, None)),
        ("queue_id", (0, None, ints(1), None)),
        ("tags", (7, b"\xff", ints(*range(10)), b"x" * 10)),
        ("born", (0, None, bytes(15), None)),
    ],
)
def test_columns_with_fewer_cells_than_rows_are_refused(name: str, cells: Cells) -> None:
    with pytest.raises(ArgumentError, match="cells for 2 rows"):
        encode(2, {**TWO, name: cells})


def test_topic_and_body_are_needed() -> None:
    with pytest.raises(ArgumentError, match="topic and body"):
        encode(2, {"topic": TWO["topic"]})
    with pytest.raises(ArgumentError, match="names and values"):
        encode(2, {**TWO, "properties": (0, None, ints(0, 0, 0), None)})


def test_too_little_room_for_any_record_is_refused() -> None:
    made = encoder()
    made.begin(2, TWO)
    out = bytearray(2 * RECORD_SIZE_MAX)
    for begin in (RECORD_SIZE_MAX + 1, 2 * RECORD_SIZE_MAX, 3 * RECORD_SIZE_MAX):
        with pytest.raises(ArgumentError, match="too few"):
            made.encode(out, begin=begin, place=0, now_ms=1)


def test_refused_row_is_told_by_its_number() -> None:
    made = encoder()
    made.begin(2, {**TWO, "queue_id": (0, None, ints(0, -1), None)})
    with pytest.raises(MessageRejected, match="queue -1"):
        made.encode(bytearray(RECORD_SIZE_MAX), begin=0, place=0, now_ms=1)
    assert made.row == 1


def test_placed_records_are_messages_of_the_store(tmp_path: Path) -> None:
    made = encoder()
    made.begin(2, {**TWO, "tags": texts("x", "y")})
    out = bytearray(RECORD_SIZE_MAX)
    run = out[: made.encode(out, begin=0, place=0, now_ms=1_700_000_000_000)]

    with rmqstore.open(tmp_path, commit_log_file_size_bytes=65536) as store:
        assert store.put("a", b"before").queue_offset == 0

        count, last = core.place_records(store, run, least_timestamp=None)
        assert count == 2
        assert store.get("a", offset=1).body == b"first"
        assert store.get("b", offset=0).store_timestamp == last

        assert core.place_records(store, b"") == (0, 0)
        with pytest.raises(MessageRejected, match="older than"):
            core.place_records(store, run, least_timestamp=last)
        assert core.place_records(store, run, least_timestamp=0) == (2, 1_700_000_000_000)
        assert store.get("b", offset=1).tags == "y"

        with pytest.raises(CorruptionError):
            core.place_records(store, run[1:])
        assert store.put("a", b"after").queue_offset == 3
