"""Sums by topic and queue, against those of the reference's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.c.segments import (
    File,
    Reading,
    log_of,
    messages_of,
    one,
)
from tests.golden import GoldenCase
from tests.reference.columns import Row, row
from tests.reference.record import Record
from tests.support.effort import rounds

Files = Callable[[str], list[File]]
Golden = Callable[[str, str], GoldenCase]
EXAMPLES = rounds(30, 2000)
HEAD = 112
"""More bytes than the fixed part of any record has."""


# ---- sums


@settings(max_examples=EXAMPLES)
@given(
    case=st.sampled_from(["plain", "batch", "many-queues", "ipv6"]),
    pieces=st.lists(st.integers(1, 3000), min_size=1, max_size=4),
    unwrap=st.booleans(),
)
def test_sums_equal_those_of_the_rows(
    logs: Files, case: str, pieces: list[int], unwrap: bool
) -> None:
    file = logs(case)[0]
    wanted: dict[tuple[bytes, int], list[tuple[Record, list[Row]]]] = {}
    for found in file.records.values():
        rows = messages_of(found) if unwrap else [row(found)]
        wanted.setdefault((found.topic_bytes, found.queue_id), []).append((found, rows))

    summary = Reading(file.data, file.start, pieces).sums(unwrap=unwrap)
    assert [sums[:2] for sums in summary] == list(wanted)

    for sums, members in zip(summary, wanted.values(), strict=True):
        records = [member for member, _ in members]
        rows = [row for _, rows in members for row in rows]
        offsets = [row["queue_offset"] for row in rows]
        times = [each.store_timestamp for each in records]
        places = [each.physical_offset for each in records]

        sizes = [0] * 24
        for each in records:
            sizes[min(each.size.bit_length() - 1, 23)] += 1

        assert sums[2:] == (
            len(rows),
            len(records),
            sum(each.size for each in records),
            sum(len(row["body"]) for row in rows),
            *(min(offsets), max(offsets)),
            *(min(times), max(times)),
            *(min(places), max(places)),
            tuple(sizes),
        )


def test_sums_of_thousands_of_queues_are_kept_apart() -> None:
    file = log_of([one(queue_id=number % 1500, body=bytes(number % 7)) for number in range(4500)])
    found = Reading(file.data).sums()
    assert [sums[1] for sums in found] == list(range(1500))
    assert all(sums[2] == 3 for sums in found)
    assert sum(sums[4] for sums in found) == len(file.data) - 64


def test_damage_is_told_while_summing_up() -> None:
    file = log_of([one(body=b"one"), replace(one(body=b"two")), one(body=b"three")])
    places = list(file.records)
    data = file.data.replace(b"two", b"tWo")
    reading = Reading(data, 0, [1], resync=True)
    ((*_, sizes),) = reading.sums(check_crc=True)
    assert reading.bad == [places[1]]
    assert "body CRC" in reading.errors[0]
    assert sum(sizes) == 2
