"""Which messages a reader of columns wants, by their own fields, as Python says it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reference import properties as reference

NUMBERS = 2**53
MASK = 2**64 - 1

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

KEYS = [b"", b"k1", b"k1 k2", b"k2", "\u00e9".encode()]
PROPERTIES = st.lists(
    st.sampled_from([b"KEYS", b"KEY", b"KEYSX", b"a", b"\x01", b"\x02", *KEYS]), max_size=8
).map(b"".join)
TIMES = st.sampled_from([INT64_MIN, -1, 0, 1, 5, INT64_MAX - 1, INT64_MAX])
FLAGS = st.sampled_from([-1, 0, 4, 8, 0x700])


class Filter:
    """A filter of the core, with the memory that it names."""

    def __init__(
        self,
        core: Any,
        *,
        keys: list[bytes] | None = None,
        sys_flags: list[int] | None = None,
        born: tuple[int, int] = (INT64_MIN, INT64_MAX),
        sample: tuple[int, int, int] = (0, 0, NUMBERS),
    ) -> None:
        self.ffi, self.lib = core
        self.texts = [self.ffi.new("char[]", key) for key in keys or []]
        slices = [(text, len(key)) for text, key in zip(self.texts, keys or [], strict=True)]
        self.keys = self.ffi.new("struct rmq_slice[]", slices)
        self.sys_flags = self.ffi.new("int32_t[]", sys_flags or [])
        self.filter = self.ffi.new(
            "struct rmq_message_filter *",
            {
                "keys": self.keys,
                "key_count": len(slices),
                "sys_flags": self.sys_flags,
                "sys_flag_count": len(sys_flags or []),
                "born_begin_ms": born[0],
                "born_end_ms": born[1],
                "sample_seed": sample[0],
                "sample_begin": sample[1],
                "sample_end": sample[2],
            },
        )

    def accepts(
        self,
        properties: bytes = b"",
        *,
        sys_flag: int = 0,
        born: int = 0,
        place: tuple[int, int] = (0, 0),
    ) -> bool:
        """Return whether a message with these fields passes; *place* is physical offset and queue
        offset."""
        text = self.ffi.new("char[]", properties)
        message = self.ffi.new("struct rmq_record *")
        message.properties = text
        message.properties_size = len(properties)
        message.sys_flag = sys_flag
        message.born_timestamp = born
        message.physical_offset, message.queue_offset = place
        return bool(self.lib.rmq_message_filter_accepts(self.filter, message))


@pytest.mark.parametrize(
    ("properties", "is_wanted"),
    [
        (b"KEYS\x01k1", True),
        (b"KEYS\x01k1\x02", True),
        (b"TAGS\x01k1\x02KEYS\x01k1", True),
        (b"KEYS\x01k1 k2", False),
        (b"KEYS\x01k", False),
        (b"KEYS\x01", False),
        (b"KEY\x01k1", False),
        (b"TAGS\x01k1", False),
        (b"", False),
    ],
)
def test_the_whole_text_of_the_keys_is_compared(
    properties: bytes, is_wanted: bool, core: Any
) -> None:
    assert Filter(core, keys=[b"k3", b"k1"]).accepts(properties) is is_wanted


def test_born_times_include_the_first_and_exclude_the_last(core: Any) -> None:
    chosen = Filter(core, born=(5, 7))
    assert [chosen.accepts(born=born) for born in (4, 5, 6, 7)] == [False, True, True, False]
    assert not Filter(core, born=(5, 5)).accepts(born=5)


def mix(number: int) -> int:
    """Return what SplitMix64 makes of a number in the end."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


@given(st.integers(0, MASK), st.integers(0, INT64_MAX), st.integers(-1, INT64_MAX))
def test_sample_numbers_follow_from_seed_and_place(
    core: Any, seed: int, physical_offset: int, queue_offset: int
) -> None:
    found = core[1].rmq_sample_number(seed, physical_offset, queue_offset)
    expected = mix((mix((mix(seed) + physical_offset) & MASK) + queue_offset) & MASK)
    assert found == expected % NUMBERS


def test_samples_of_one_seed_part_all_messages_in_their_shares(core: Any) -> None:
    bounds = [0, NUMBERS // 10, NUMBERS // 2, NUMBERS]
    parts = [Filter(core, sample=(7, begin, end)) for begin, end in pairwise(bounds)]
    # Messages of an inner batch have one physical offset.
    places = [(1131 * (number // 4), number) for number in range(4000)]
    counts = [sum(part.accepts(place=place) for place in places) for part in parts]
    assert sum(counts) == len(places)
    assert [round(count / len(places), 1) for count in counts] == [0.1, 0.4, 0.5]
    other = Filter(core, sample=(8, 0, NUMBERS // 2))
    half = Filter(core, sample=(7, 0, NUMBERS // 2))
    both = sum(half.accepts(place=place) and other.accepts(place=place) for place in places)
    assert round(both / len(places), 1) in (0.2, 0.3)


def test_a_filter_without_parts_accepts_every_message(core: Any) -> None:
    assert Filter(core).accepts(b"KEYS\x01k1", sys_flag=-1, born=INT64_MIN)


@given(
    text=PROPERTIES,
    sys_flag=FLAGS,
    born=TIMES,
    keys=st.lists(st.sampled_from(KEYS), max_size=2),
    sys_flags=st.lists(FLAGS, max_size=2),
    bounds=st.tuples(TIMES, TIMES),
)
@example(text=b"", sys_flag=0, born=0, keys=[], sys_flags=[], bounds=(0, 0))
def test_every_part_has_to_fit(
    core: Any,
    text: bytes,
    sys_flag: int,
    born: int,
    keys: list[bytes],
    sys_flags: list[int],
    bounds: tuple[int, int],
) -> None:
    chosen = Filter(core, keys=keys, sys_flags=sys_flags, born=bounds)
    stored = reference.decode(text).get(reference.KEYS)
    expected = (
        bounds[0] <= born < bounds[1]
        and (not sys_flags or sys_flag in sys_flags)
        and (not keys or (stored is not None and stored.encode() in keys))
    )
    assert chosen.accepts(text, sys_flag=sys_flag, born=born) is expected
