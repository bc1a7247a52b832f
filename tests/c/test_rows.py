"""Rows of whatever buffers: encoded or refused, and never a byte read outside of them."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.c import library
from tests.reference import record
from tests.support.effort import rounds

RECORD_SIZE_MAX = 40_000
COLUMNS = (
    "TOPIC",
    "BODY",
    "QUEUE_ID",
    "TAGS",
    "KEYS",
    "KEY_ITEMS",
    "PROPERTIES",
    "NAMES",
    "VALUES",
    "BORN",
    "STORED",
)
OFFSETS = st.lists(st.integers(-2, 9), max_size=6)
CELLS = st.tuples(
    st.integers(-1, 4),
    st.none() | st.binary(max_size=2),
    OFFSETS | OFFSETS.map(sorted),
    st.none() | st.binary(max_size=9),
)


def fill(ffi: Any, lib: Any, rows: Any, columns: dict[str, Any]) -> list[Any]:
    """Give each column buffers of its own, no larger than said; return them to be kept."""
    kept = []
    for name, (offset, validity, values, data) in columns.items():
        number = getattr(lib, f"RMQ_ROWS_{name}")
        cells = rows.cells[number]
        width = "q" if name in ("BORN", "STORED") else "i"
        cells.offset = offset
        for part, content in (
            ("validity", validity),
            ("values", struct.pack(f"={len(values)}{width}", *values)),
            ("data", data),
        ):
            if content is not None:
                kept.append(ffi.new("uint8_t[]", content) if content else ffi.new("uint8_t[1]"))
                setattr(cells, part, kept[-1])
                setattr(cells, f"{part}_size", len(content))
        rows.has[number] = True
    return kept


def new_rows(ffi: Any, count: int) -> Any:
    rows = ffi.new("struct rmq_rows *")
    rows.count = count
    rows.limits.body_size_max, rows.limits.record_size_max = 1000, RECORD_SIZE_MAX
    rows.limits.version_by_topic_size = True
    rows.log_file_size = 65536
    rows.host.size = 4
    return rows


@settings(max_examples=rounds(150 if library.is_sanitized() else 400, 20_000))
@given(
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(COLUMNS), CELLS, max_size=len(COLUMNS)),
)
def test_any_buffers_give_whole_records_or_a_refusal(
    core: Any, count: int, columns: dict[str, Any]
) -> None:
    ffi, lib = core
    columns = {
        "TOPIC": (0, None, [0, 1, 2, 3], b"abc"),
        "BODY": (0, None, [0] * 4, None),
        **columns,
    }

    rows = new_rows(ffi, count)
    error = ffi.new("struct rmq_error *")
    kept = fill(ffi, lib, rows, columns)

    if lib.rmq_rows_check(rows, error) != lib.RMQ_OK:
        assert error.status == lib.RMQ_INVALID
        return

    row, used = ffi.new("int64_t *"), ffi.new("size_t *")
    out = ffi.new("uint8_t[]", RECORD_SIZE_MAX)
    status = lib.rmq_rows_encode(rows, row, 0, 5, out, RECORD_SIZE_MAX, used, error)
    data = bytes(ffi.buffer(out, used[0]))

    at = encoded = 0
    while at < len(data):
        found = record.decode(data, at)
        assert record.body_crc_is_right(found)
        assert found.physical_offset == at
        at += found.size
        encoded += 1

    assert encoded == row[0]
    if status == lib.RMQ_OK:
        assert encoded == count
    else:
        assert encoded < count
        assert status in (lib.RMQ_INVALID, lib.RMQ_MESSAGE_ILLEGAL)
    assert kept is not None
