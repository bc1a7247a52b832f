"""Java's string hash of UTF-8 bytes, and the hash of tables in memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reference import java_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TAG1", 2567159),
        ("polygenelubricants", -(1 << 31)),
        ("\u00e9", 233),
        ("\u4e2d\u6587", 0x4E2D * 31 + 0x6587),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_known_hashes(core: Any, text: str, expected: int) -> None:
    _, lib = core
    data = text.encode()
    assert lib.rmq_java_hash(0, data, len(data)) == expected


TEXTS = st.text().map(str.encode)
DAMAGED = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.text(max_size=3).map(str.encode),
        st.sampled_from([b"\xed\xa0\x80", b"\xed\xbf", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98"]),
    ),
    max_size=12,
).map(b"".join)


@given(data=st.one_of(TEXTS, DAMAGED))
@example(data=b"\xed\xa0\x80x")
@example(data=b"abcd\xed\xa0")
@example(data=b"\xf0\x9f\x98")
@example(data=b"\xe0\x80\x80")
@example(data=b"\xf0\x80\x80\x80")
@example(data=b"\xf5\x80\x80\x80")
@example(data=b"\xc0\x80\xc3")
def test_hash_is_that_of_java(core: Any, data: bytes) -> None:
    _, lib = core
    text = java_text.decode(data)
    assert lib.rmq_java_hash(0, data, len(data)) == java_text.string_hash(text)


@given(first=TEXTS, second=TEXTS)
def test_hash_continues_over_parts(core: Any, first: bytes, second: bytes) -> None:
    _, lib = core
    joined = first + b"#" + second
    value = lib.rmq_java_hash(0, first, len(first))
    value = lib.rmq_java_hash(value, b"#", 1)
    value = lib.rmq_java_hash(value, second, len(second))
    assert value == lib.rmq_java_hash(0, joined, len(joined))


def test_table_hash_spreads_similar_names_over_buckets(core: Any) -> None:
    _, lib = core
    names = [f"%RETRY%group-{number}".encode() for number in range(4096)]
    hashes = [lib.rmq_table_hash(name, len(name), 0) for name in names]
    assert len(set(hashes)) == len(names)
    loads = [0] * 256
    for value in hashes:
        loads[value & 255] += 1
    # 16 on average; a fair spread of 4096 over 256 exceeds 48 about never.
    assert max(loads) < 48


@given(data=st.binary(min_size=1, max_size=70), seed=st.integers(0, (1 << 64) - 1), at=st.data())
def test_table_hash_changes_with_every_byte_and_with_the_seed(
    core: Any, data: bytes, seed: int, at: st.DataObject
) -> None:
    _, lib = core
    place = at.draw(st.integers(0, len(data) - 1))
    other = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    value = lib.rmq_table_hash(data, len(data), seed)
    assert value == lib.rmq_table_hash(data, len(data), seed)
    assert value != lib.rmq_table_hash(other, len(other), seed)
    assert value != lib.rmq_table_hash(data, len(data), seed ^ 1)
    assert value != lib.rmq_table_hash(data + b"\0", len(data) + 1, seed)
