"""Which messages of a commit log file come out: inner batches, topics, queues, times, positions."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore._native import core
from rmqstore.errors import ArgumentError, CorruptionError
from tests.c.segments import (
    EVER,
    File,
    Reading,
    files_of,
    inner,
    log_of,
    messages_of,
    one,
)
from tests.golden import GoldenCase, every_case
from tests.reference import log, record
from tests.support.effort import rounds

Files = Callable[[str], list[File]]
Golden = Callable[[str, str], GoldenCase]
EXAMPLES = rounds(30, 2000)
HEAD = 112
"""More bytes than the fixed part of any record has."""


def test_inner_batch_larger_than_a_portion_goes_on_where_a_batch_was_full() -> None:
    file = log_of([one(), inner(1000, base=7), one(), inner(1, base=1007)])
    for batch_rows in (1, 127, 128, 129, 999, 5000):
        reading = Reading(file.data, 0, [1, 9000], batch_rows=batch_rows, batch_bytes=1 << 30)
        assert reading.rows() == file.rows()
        assert (reading.records, reading.bytes) == (4, len(file.data) - 64)
        # The last one is full and over.
        assert len(reading.sizes) == 1002 // batch_rows


def test_messages_of_an_inner_batch_are_chosen_one_by_one() -> None:
    file = log_of([inner(10, base=0), inner(10, base=10), inner(3, base=20)])

    def offsets(**options: Any) -> list[int]:
        ranges = options.pop("ranges", None)
        reading = Reading(file.data, choices=(lambda _: ranges) if ranges else None)
        found = [found["queue_offset"] for found in reading.rows(**options)]
        assert reading.records == len({offset // 10 for offset in found})
        return found

    assert offsets(ranges=[(0, 8, 12, *EVER)]) == [8, 9, 10, 11]
    assert offsets(tags="t1") == [*range(1, 20, 2), 21]
    assert offsets(tags=["t1", "x"], ranges=[(0, 19, 22, *EVER)]) == [19, 21]
    assert offsets(unwrap=False) == [0, 10, 20]


def test_compressed_or_empty_inner_batch_stays_one_row() -> None:
    flags = record.INNER_BATCH | record.COMPRESSED
    file = log_of([one(body=b"zip", sys_flag=flags), one(body=b"", sys_flag=record.INNER_BATCH)])
    assert [found["body"] for found in Reading(file.data).rows()] == [b"zip", b""]


def test_inner_batch_of_broken_messages_is_corrupt_and_passed_over_whole() -> None:
    broken = replace(inner(5, base=0), body=inner(5, base=0).body[:-1])
    file = log_of([one(body=b"a"), broken, one(body=b"b")])
    reading = Reading(file.data, resync=True)
    assert [found["body"] for found in reading.rows()] == [b"a", b"b"]
    assert reading.bad == [list(file.records)[1]]
    assert "inner batch: message at byte" in reading.errors[0]
    assert len(Reading(file.data).rows(unwrap=False)) == 3


# ---- which messages


def test_only_messages_of_the_time_are_rows() -> None:
    file = log_of([one(store_timestamp=time) for time in (5, 10, 15, 20)])
    reading = Reading(file.data, columns=["physical_offset"])
    found = reading.rows(begin_ms=10, end_ms=20)
    assert [row["physical_offset"] for row in found] == list(file.records)[1:3]
    assert reading.records == 2


def test_each_topic_is_asked_about_once_and_ranges_choose_its_messages() -> None:
    made = [
        one(topic_bytes=topic, queue_id=queue, queue_offset=offset, store_timestamp=offset)
        for offset in range(6)
        for topic in (b"a", b"b", b"c", "ü".encode() * 300)
        for queue in (0, 1, 2)
    ]
    file = log_of(made)

    choices: dict[bytes, list[tuple[int, int, int, int, int]] | None] = {
        b"a": None,
        b"b": [(1, 2, 4, *EVER), (-1, 0, 1, *EVER)],
        b"c": [(2, 0, 2, *EVER), (2, 4, 6, 0, 5), (0, 0, 0, *EVER), (1, 0, 0, *EVER)],
    }

    everything = [(-1, *EVER, *EVER)]
    reading = Reading(file.data, 0, [1], choices=lambda topic: choices.get(topic, everything))
    found = {(found["topic"], found["queue_id"], found["queue_offset"]) for found in reading.rows()}

    long = "ü" * 300
    assert found == {
        *(("b", 1, offset) for offset in (2, 3)),
        *(("b", queue, 0) for queue in (0, 2)),
        *(("c", 2, offset) for offset in (0, 1, 4)),
        *((long, queue, offset) for queue in range(3) for offset in range(6)),
    }
    assert reading.asked == [b"a", b"b", b"c", long.encode()]


def test_thousands_of_topics_are_each_asked_about_once() -> None:
    topics = [b"topic %d" % number for number in range(2000)]
    file = log_of([one(topic_bytes=topic) for topic in topics * 2])
    reading = Reading(
        file.data,
        columns=["topic"],
        choices=lambda topic: [(-1, *EVER, *EVER)] if topic.endswith(b"7") else [],
    )
    wanted = [topic.decode() for topic in topics * 2 if topic.endswith(b"7")]
    assert [found["topic"] for found in reading.rows()] == wanted
    assert reading.asked == topics


def test_later_choice_about_a_topic_replaces_the_earlier_one() -> None:
    file = log_of([one(topic_bytes=b"a"), one(topic_bytes=b"a")])
    selection = core.ArrowSelection(["topic"], batch_rows=1, batch_bytes=100, large_binary=False)
    scan = core.SegmentScan(selection, start=0, stop=999, file_end=len(file.data), by_topic=True)
    scan.feed(file.data, 0)
    scan.choose(b"a", [(-1, 0, 9, *EVER)])
    assert scan.fill() == "full"
    assert scan.take() is not None
    scan.choose(b"a", [])
    assert (scan.fill(), scan.rows, scan.ending) == ("over", 0, "blank")


@every_case("transactions", "plain")
def test_dispatched_only_leaves_out_what_is_in_no_queue(
    golden_case: Golden, release: str, case_name: str
) -> None:
    for file in files_of(golden_case(release, case_name)):
        queued = [at for at, one in file.records.items() if log.entries_of(one)]
        reading = Reading(file.data, file.start, columns=["physical_offset"])
        found = reading.rows(dispatched_only=True)
        assert [row["physical_offset"] for row in found] == queued


# ---- positions


@settings(max_examples=EXAMPLES)
@given(data=st.data(), pieces=st.lists(st.integers(1, 5000), min_size=1, max_size=4))
def test_only_records_at_the_positions_are_rows(
    logs: Files, data: st.DataObject, pieces: list[int]
) -> None:
    file = logs("batch")[1]
    chosen = sorted(data.draw(st.lists(st.sampled_from(list(file.records)), max_size=40)))
    reading = Reading(file.data, file.start, pieces, batch_rows=7, positions=chosen)
    assert reading.rows() == [
        message for at in dict.fromkeys(chosen) for message in messages_of(file.records[at])
    ]
    assert reading.ending == "stop"


def test_positions_outside_of_the_range_are_left_out() -> None:
    file = log_of([one() for _ in range(5)], start=1 << 40)
    places = list(file.records)
    reading = Reading(file.data, file.start, positions=places, columns=["physical_offset"])
    found = reading.rows(begin=places[1], stop=places[3])
    assert [row["physical_offset"] for row in found] == places[1:3]


def test_position_without_a_record_is_corrupt_and_the_next_one_is_read() -> None:
    file = log_of([one() for _ in range(5)], room=1000)
    places = list(file.records)
    last = len(file.data) - 1000
    wrong = [places[0], places[1] + 1, places[2], last, last + 500]
    reading = Reading(file.data, 0, [1], positions=wrong, columns=["physical_offset"], resync=True)
    assert [row["physical_offset"] for row in reading.rows()] == [places[0], places[2]]
    assert reading.bad == [places[1] + 1, last, last + 500]
    assert "although a queue unit points there" in reading.errors[1]
    assert reading.ending == "stop"


def test_more_positions_may_follow_when_the_first_are_read() -> None:
    file = log_of([one() for _ in range(6)])
    places = list(file.records)
    scan = core.SegmentScan(None, start=0, stop=len(file.data), file_end=len(file.data))
    scan.visit(array("q", places[:2]))
    scan.feed(file.data, 0)
    assert (scan.summarize(), scan.records) == ("over", 2)
    scan.visit(array("q", [places[1], places[4]]))
    assert scan.offset == places[4]
    assert (scan.summarize(), scan.records) == ("over", 3)


def test_positions_that_point_backwards_are_damage() -> None:
    scan = core.SegmentScan(None, start=0, stop=1000, file_end=1000)
    with pytest.raises(CorruptionError, match="position 5 comes after 700"):
        scan.visit(array("q", [100, 700, 5]))
    with pytest.raises(ArgumentError, match="9 bytes are not a whole number of int64"):
        scan.visit(bytes(9))
