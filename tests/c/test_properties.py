"""The property text: scan, find, append, remove, numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reference import properties as reference

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# Names, separators and bits of text in any order: mostly broken, often nearly right.
NAMES = "TAGS KEYS DELAY UNIQ_KEY INNER_NUM INNER_BASE INNER_MULTI_DISPATCH __CRC32#".split()
WORDS = ("\x01", "\x02", "a", "\u00e9", "7", "-1", " ", "INNER_MULTI_QUEUE_OFFSET", *NAMES)
TEXTS = st.lists(
    st.sampled_from(WORDS),
    max_size=30,
).map(lambda parts: "".join(parts).encode())


def slice_of(ffi: Any, found: Any) -> bytes | None:
    return None if found.data == ffi.NULL else bytes(ffi.buffer(found.data, found.size))


def pairs_of(core: Any, text: bytes) -> list[tuple[bytes, bytes]]:
    ffi, lib = core
    kept = ffi.new("char[]", text)
    at = ffi.new("size_t *", 0)
    name, value = ffi.new("struct rmq_slice *"), ffi.new("struct rmq_slice *")
    pairs = []
    while lib.rmq_properties_next(kept, len(text), at, name, value):
        pairs.append((slice_of(ffi, name) or b"", slice_of(ffi, value) or b""))
        assert len(pairs) <= len(text)
    assert at[0] == len(text)
    return pairs


@given(text=TEXTS)
@example(text=b"")
@example(text=b"a\x01b")
@example(text=b"a\x01b\x01c\x02a\x01\x02\x01b\x02ab\x02\x02")
def test_pairs_are_those_of_the_reference(core: Any, text: bytes) -> None:
    pairs = {name.decode(): value.decode() for name, value in pairs_of(core, text)}
    assert pairs == reference.decode(text)


@given(text=TEXTS, name=st.sampled_from(["a", "TAGS", "KEYS", "absent"]))
def test_found_value_is_the_last_of_its_name(core: Any, text: bytes, name: str) -> None:
    ffi, lib = core
    kept = ffi.new("char[]", text)
    found = slice_of(ffi, lib.rmq_properties_find(kept, len(text), name.encode()))
    assert (found and found.decode()) == reference.decode(text).get(name)


def number(text: str | None, low: int, high: int, otherwise: int) -> int:
    digits = (text or "").removeprefix("-").removeprefix("+")
    if text is None or not (digits.isascii() and digits.isdigit()) or "+-" in text:
        return otherwise
    return int(text) if low <= int(text) <= high else otherwise


@given(text=TEXTS)
@example(text=b"DELAY\x013\x02DELAY\x01x\x02")
@example(text=b"INNER_NUM\x015\x02INNER_BASE\x019223372036854775807")
@example(text=b"DELAY\x012147483648\x02INNER_NUM\x01-2147483649\x02INNER_BASE\x01+-1\x02")
def test_scan_finds_what_dispatch_needs(core: Any, text: bytes) -> None:
    ffi, lib = core
    kept = ffi.new("char[]", text)
    out = ffi.new("struct rmq_dispatch_properties *")
    lib.rmq_properties_scan(kept, len(text), out)

    expected = reference.decode(text)
    for field, name in [
        ("tags", reference.TAGS),
        ("keys", reference.KEYS),
        ("unique_key", reference.UNIQUE_KEY),
        ("multi_dispatch", reference.LIGHT_QUEUES),
        ("multi_queue_offset", reference.LIGHT_QUEUE_OFFSETS),
    ]:
        found = slice_of(ffi, getattr(out, field))
        assert (found and found.decode()) == expected.get(name), field

    int32 = (-(1 << 31), (1 << 31) - 1)
    assert out.delay_level == number(expected.get("DELAY"), *int32, 0)
    assert out.inner_num == number(expected.get("INNER_NUM"), *int32, -1)
    assert out.inner_base == number(expected.get("INNER_BASE"), INT64_MIN, INT64_MAX, -1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        (str(INT64_MAX), INT64_MAX),
        (str(INT64_MIN), INT64_MIN),
        (str(INT64_MAX + 1), None),
        (str(INT64_MIN - 1), None),
        ("9" * 40, None),
        ("", None),
        ("-", None),
        ("+", None),
        ("--1", None),
        (" 1", None),
        ("1 ", None),
        ("1_0", None),
        ("0x10", None),
    ],
)
def test_numbers_are_read_as_java_reads_them(core: Any, text: str, expected: int | None) -> None:
    ffi, lib = core
    kept = ffi.new("char[]", text.encode())
    value = ffi.new("int64_t *")
    is_number = lib.rmq_parse_i64({"data": kept, "size": len(text)}, value)
    assert (value[0] if is_number else None) == expected


@given(number=st.integers(INT64_MIN, INT64_MAX))
def test_every_64_bit_number_is_read(core: Any, number: int) -> None:
    ffi, lib = core
    kept = ffi.new("char[]", str(number).encode())
    value = ffi.new("int64_t *")
    assert lib.rmq_parse_i64({"data": kept, "size": len(str(number))}, value)
    assert value[0] == number


@pytest.mark.parametrize("room", range(12))
def test_pair_is_appended_only_where_it_fits(core: Any, room: int) -> None:
    ffi, lib = core
    buffer = ffi.new("char[]", b"old\x02" + b"?" * 20)
    at = ffi.new("size_t *", 4)
    value = ffi.new("char[]", b"1234")
    fits = lib.rmq_properties_append(buffer, 4 + room, at, b"KEY", {"data": value, "size": 4})
    assert fits == (room >= 9)
    text = b"old\x02KEY\x011234\x02" if fits else b"old\x02"
    assert at[0] == len(text)
    assert ffi.buffer(buffer, 24)[:] == text.ljust(24, b"?")


def test_empty_value_is_appended(core: Any) -> None:
    ffi, lib = core
    buffer = ffi.new("char[]", 8)
    at = ffi.new("size_t *", 0)
    assert lib.rmq_properties_append(buffer, 8, at, b"a", {"data": ffi.NULL, "size": 0})
    assert ffi.buffer(buffer, at[0])[:] == b"a\x01\x02"
