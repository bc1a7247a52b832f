"""Which stretches of which files are read, for every way to ask."""

from __future__ import annotations

import logging
import os
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="rows are Spark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore.errors import ArgumentError, NotFoundError, OffsetOutOfRange
from rmqstore.spark import schema
from rmqstore.spark.options import Options
from rmqstore.spark.read import partitions as partitions_module
from rmqstore.spark.read import reader, splitting
from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.partitions import Plan, plan
from rmqstore.spark.read.queue_ranges import range_of
from rmqstore.spark.read.ranges import Partition, Split
from tests.support.effort import rounds
from tests.support.native_store import set_clock

FILE_BYTES = 8192
MESSAGES = 240
MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_000_000
COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset")
SMALL: Mapping[str, Any] = {
    "commit_log_file_size_bytes": FILE_BYTES,
    "consume_queue_file_size_bytes": 400,
    "index_slot_count": 64,
    "index_entry_count": 500,
}
TOPICS = ("orders", "orders", "orders", "payments", "rare")


@dataclass(frozen=True)
class Message:
    topic: str
    queue_id: int
    queue_offset: int
    place: int
    end: int
    time: int

    @property
    def row(self) -> tuple[str, int, int, int]:
        return (self.topic, self.queue_id, self.queue_offset, self.place)


class Stored:
    """A store of several small files, a minute between messages, and what is in it."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        rng = random.Random(5)

        with rmqstore.open(root, **SMALL) as store:
            for number in range(MESSAGES):
                set_clock(store, BEGIN_MS + number * MINUTE_MS)
                topic = "rare" if number % 40 == 7 else TOPICS[rng.randrange(4)]
                store.put(topic, bytes(rng.randrange(700)), queue=rng.randrange(3))

            self.messages = [
                Message(
                    each.topic,
                    each.queue,
                    each.queue_offset,
                    each.physical_offset,
                    each.physical_offset + each.size,
                    each.store_timestamp,
                )
                for each in store.scan_log()
            ]

        self.layout = Layout.of(self.root)
        self.by_log = replace(self.layout, queues=None)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return Stored(tmp_path_factory.mktemp("partitions") / "store")


def options_of(**given: object) -> Options:
    return Options.parse({"path": "/store", **{name: str(value) for name, value in given.items()}})


def planned(layouts: Layout | Sequence[Layout], **given: object) -> Plan:
    chosen = [layouts] if isinstance(layouts, Layout) else layouts
    return plan(chosen, options_of(**given))


def splits(made: Plan) -> list[Split]:
    return [split for partition in made.partitions for split in partition.splits]


def rows(made: Plan) -> list[tuple[str, int, int, int]]:
    wanted = schema.arrow_schema(schema.struct(COLUMNS, False))
    return [
        tuple(row.values())
        for partition in made.partitions
        for batch in reader.batches(
            pickle.loads(pickle.dumps(partition)), made.options, COLUMNS, wanted
        )
        for row in batch.to_pylist()
    ]


def weight(partition: Partition) -> int:
    return sum(split.stop - split.start for split in partition.splits)


# ---- every record once ----


@pytest.mark.parametrize("size", [1, 300, 1000, 5000, 70_000, 1 << 27])
def test_partitions_cover_the_log_once_and_are_cut_between_records(
    stored: Stored, size: int
) -> None:
    borders = {each.place for each in stored.messages} | {each.end for each in stored.messages}
    for layout in (stored.layout, stored.by_log):
        made = planned(layout, maxPartitionBytes=size)
        found = splits(made)
        assert found[0].start == layout.start
        assert found[-1].stop == layout.readable_end
        for before, after in pairwise(found):
            assert before.stop == after.start
        assert all(split.start in borders for split in found)
        assert [split.file for split in found] == [
            next(file for file in layout.files if file.start <= split.start < file.end)
            for split in found
        ]
        largest = max(each.end - each.place for each in stored.messages)
        for partition in made.partitions:
            # The blank at the end of a file counts, though nothing is read there.
            assert weight(partition) <= max(size + largest, 3 * largest)


def test_one_byte_a_partition_is_one_record_a_partition(stored: Stored) -> None:
    for layout in (stored.layout, stored.by_log):
        made = planned(layout, maxPartitionBytes=1)
        assert len(made.partitions) == MESSAGES
        assert [each.splits[0].start for each in made.partitions] == [
            each.place for each in stored.messages
        ]
    rare = [each for each in stored.messages if each.topic == "rare"]
    made = planned(stored.layout, topic="rare", maxPartitionBytes=1)
    assert len(made.partitions) == len(rare)


def test_a_large_enough_size_is_one_partition_of_whole_files(stored: Stored) -> None:
    made = planned(stored.layout)
    (partition,) = made.partitions
    assert [split.file for split in partition.splits] == list(stored.layout.files)


def test_the_least_number_of_partitions_is_met(stored: Stored) -> None:
    for count in (1, 2, 7, 50):
        assert len(planned(stored.layout, minPartitions=count).partitions) >= count
        assert len(planned(stored.by_log, minPartitions=count).partitions) >= count
    assert len(planned(stored.layout, minPartitions=7).partitions) <= 14


def test_partitions_hold_paths_and_numbers_only(stored: Stored) -> None:
    for given in ({}, {"topic": "rare"}):
        for partition in planned(stored.layout, **given).partitions:
            assert len(pickle.dumps(partition)) < 1000 * len(partition.splits)


def _choices(stored: Stored, count: int) -> Iterator[dict[str, Any]]:
    """Yield options of all sorts, with the names and numbers of the store."""
    rng = random.Random(11)
    times = [each.time for each in stored.messages]
    ends: dict[tuple[str, int], int] = {}
    for each in stored.messages:
        ends[each.topic, each.queue_id] = each.queue_offset + 1

    for _ in range(count):
        given: dict[str, Any] = {}
        match rng.randrange(5):
            case 0:
                given["topic"] = rng.choice(["rare", "orders", "rare,payments"])
            case 1:
                given["subscribePattern"] = rng.choice(["r.*", ".*s", "p.*|rare"])
            case 2:
                given["assign"] = rng.choice(['{"orders": [1]}', '{"rare": [0, 2]}'])

        names = [name for name in ends if range_of(options_of(**given), *name) is not None]
        for side in ("starting", "ending"):
            some = rng.sample(names, min(len(names), 2))
            match rng.randrange(6):
                case 0:
                    given[f"{side}Timestamp"] = rng.choice(times) + rng.randrange(-1, 2)
                case 1:
                    given[f"{side}OffsetsByTimestamp"] = _json(
                        {name: rng.choice(times) + rng.randrange(-1, 2) for name in some}
                    )
                case 2:
                    given[f"{side}Offsets"] = _json(
                        {name: rng.randrange(ends[name] + 1) for name in some}
                    )

        if _is_empty(given):
            continue

        given["startingOffsetsByTimestampStrategy"] = "latest"
        given["maxPartitionBytes"] = rng.choice([1, 500, 3000, 100_000])
        yield given


def _is_empty(given: Mapping[str, Any]) -> bool:
    """Whether the options are refused because a start is after its end."""
    try:
        options_of(**given)
    except ArgumentError as error:
        return "is after" in str(error)
    return False


def _json(by_queue: Mapping[tuple[str, int], int]) -> str:
    text = ", ".join(
        f'"{topic}": {{'
        + ", ".join(f'"{queue}": {n}' for (name, queue), n in by_queue.items() if name == topic)
        + "}"
        for topic in {topic for topic, _ in by_queue}
    )
    return f"{{{text}}}"


def _chosen(stored: Stored, options: Options) -> list[tuple[str, int, int, int]]:
    found = []
    for each in stored.messages:
        range_ = range_of(options, each.topic, each.queue_id)
        if (
            range_ is not None
            and range_.start <= each.queue_offset < range_.stop
            and range_.begin_ms <= each.time < range_.end_ms
        ):
            found.append(each.row)
    return found


def test_queues_and_log_give_the_rows_that_the_options_choose(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_queue = 0
    for given in _choices(stored, rounds(60, 2000)):
        expected = _chosen(stored, options_of(**given))
        monkeypatch.setattr(partitions_module, "_SPARSE", 1e9)
        made = planned(stored.layout, **given)
        by_queue += any(split.units for split in splits(made))
        assert sorted(rows(made)) == sorted(expected), given
        assert sorted(rows(planned(stored.by_log, **given))) == sorted(expected), given
    assert by_queue > 5


def test_what_is_behind_the_queues_is_read_from_the_log(stored: Stored) -> None:
    middle = stored.messages[MESSAGES // 2].place
    lagging = replace(stored.layout, dispatched_end=middle)
    made = planned(lagging, topic="rare")
    assert [split.units is None for split in splits(made) if split.stop > middle][-1]
    assert all(split.stop <= middle for split in splits(made) if split.units)
    assert sorted(rows(made)) == sorted(
        each.row for each in stored.messages if each.topic == "rare"
    )


def test_a_topic_that_is_most_of_the_log_is_read_from_the_log(stored: Stored) -> None:
    assert all(
        split.units is None for split in splits(planned(stored.layout, topic="orders,payments"))
    )
    assert all(split.units for split in splits(planned(stored.layout, topic="rare")))


def test_a_topic_whose_queue_files_are_broken_is_read_from_the_log(stored: Stored) -> None:
    broken = replace(stored.layout, doubtful=frozenset({"rare"}))
    made = planned(broken, topic="rare")
    assert all(split.units is None for split in splits(made))
    assert sorted(rows(made)) == sorted(
        each.row for each in stored.messages if each.topic == "rare"
    )
    assert all(split.units for split in splits(planned(broken, assign='{"payments": [1]}')))


# ---- files that are not needed ----


def test_files_outside_a_range_of_time_are_not_read(stored: Stored) -> None:
    files = stored.layout.files
    inside = [each for each in stored.messages if each.place // FILE_BYTES == 5]
    begin, end = inside[1].time, inside[-2].time

    for given in ({}, {"topic": "orders"}, {"assign": '{"orders": [0, 1]}'}):
        bounds = {"startingTimestamp": begin, "endingTimestamp": end}
        made = planned(stored.layout, **bounds, **given, maxClockStepMs=10_000)
        assert [split.file for split in splits(made)] == [files[5]]
        everything = planned(stored.layout, **bounds, **given)
        assert [split.file for split in splits(everything)] == list(files)

    narrow = planned(
        stored.layout,
        maxClockStepMs=10_000,
        startingTimestamp=inside[2].time,
        endingTimestamp=inside[3].time,
        maxPartitionBytes=1,
    )
    assert len(narrow.partitions) <= 3


STEP_MS = 2 * 60 * MINUTE_MS
"""Greater than what a file of the store splits."""


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Layout, list[int]]:
    """A store whose clock was back for every fiftieth message; its layout and store timestamps."""
    root = tmp_path_factory.mktemp("stepped") / "store"
    with rmqstore.open(root, **SMALL) as store:
        for number in range(MESSAGES):
            is_back = number % 50 == 49
            set_clock(store, BEGIN_MS + number * MINUTE_MS - (STEP_MS if is_back else 0))
            store.put("orders", bytes(300))
        times = [each.store_timestamp for each in store.scan_log()]
    assert any(later < before for before, later in pairwise(times))
    return Layout.of(str(root)), times


@pytest.mark.parametrize("given", [{}, {"topic": "orders"}, {"maxPartitionBytes": 1}])
@pytest.mark.parametrize("step", [{}, {"maxClockStepMs": STEP_MS + MINUTE_MS}])
def test_messages_stored_after_the_clock_stepped_back_are_in_the_range_of_their_time(
    step: dict[str, int], given: dict[str, object], stepped: tuple[Layout, list[int]]
) -> None:
    layout, times = stepped
    for time in times[49::50]:
        made = planned(
            layout,
            startingTimestamp=time,
            endingTimestamp=time + 1,
            **given,
            **step,
            startingOffsetsByTimestampStrategy="latest",
        )
        assert len(rows(made)) == times.count(time)


def test_files_that_no_unit_points_into_are_not_read(stored: Stored) -> None:
    rare = [each for each in stored.messages if each.topic == "rare"]
    made = planned(stored.layout, topic="rare")
    assert {split.file.start for split in splits(made)} == {
        each.place // FILE_BYTES * FILE_BYTES for each in rare
    }
    first = rare[0]
    made = planned(
        stored.layout,
        assign=f'{{"rare": [{first.queue_id}]}}',
        endingOffsets=f'{{"rare": {{"{first.queue_id}": {first.queue_offset + 1}}}}}',
    )
    assert rows(made) == [first.row]
    assert len(splits(made)) == 1


# ---- bounds from outside, several stores ----


def test_physical_bounds_narrow_a_store(stored: Stored) -> None:
    start, stop = stored.messages[30].place, stored.messages[90].place
    for given in ({}, {"topic": "rare"}, {"topic": "orders"}):
        options = options_of(**given)
        made = plan([stored.layout], options, start={stored.root: start}, stop={stored.root: stop})
        inside = [each for each in stored.messages if start <= each.place < stop]
        assert sorted(rows(made)) == sorted(
            each.row for each in inside if options.topics is None or each.topic in options.topics
        )
    nothing = plan(
        [stored.layout], options_of(), start={stored.root: stop}, stop={stored.root: stop}
    )
    assert nothing.partitions == ()


def test_small_stores_share_partitions_and_none_is_read_twice(tmp_path: Path) -> None:
    for name in "abc":
        with rmqstore.open(tmp_path / name, **SMALL) as store:
            store.put("orders", name.encode())
    layouts = [Layout.of(str(tmp_path / name)) for name in "abc"]
    alias = Layout.of(str(tmp_path / "a" / "commitlog"))
    made = planned([*layouts, alias, layouts[1]])
    (partition,) = made.partitions
    assert {split.store for split in partition.splits} == {
        str(tmp_path / "a" / "commitlog"),
        layouts[1].name,
        layouts[2].name,
    }
    assert len(rows(made)) == 3


def test_an_empty_store_has_no_partitions(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **SMALL):
        pass
    layout = Layout.of(str(tmp_path / "store"))
    assert planned(layout).partitions == ()
    assert planned(layout, topic="orders", startingTimestamp=0).partitions == ()


# ---- what is gone ----


@pytest.fixture
def expired(tmp_path: Path) -> Stored:
    """Return a store whose first two files were deleted."""
    found = Stored(tmp_path / "store")
    for file in found.layout.files[:2]:
        os.unlink(file.path)
    found.layout = Layout.of(found.root)
    found.messages = [each for each in found.messages if each.place >= found.layout.start]
    return found


def test_deleted_offsets_are_data_loss(expired: Stored, caplog: pytest.LogCaptureFixture) -> None:
    first = next(each for each in expired.messages if (each.topic, each.queue_id) == ("orders", 1))
    given = {
        "topic": "orders",
        "startingOffsets": f'{{"orders": {{"1": {first.queue_offset - 1}}}}}',
    }
    with pytest.raises(OffsetOutOfRange, match="startingOffsets names offset") as caught:
        planned(expired.layout, **given)
    assert "orders/1" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    assert caught.value.nearest == caught.value.start == first.queue_offset

    with caplog.at_level(logging.WARNING, "rmqstore.spark"):
        made = planned(expired.layout, failOnDataLoss="false", **given)
    assert sorted(rows(made)) == sorted(e.row for e in expired.messages if e.topic == "orders")
    assert len(made.expired) == 1
    assert "orders/1" in caplog.text

    given["startingOffsets"] = f'{{"orders": {{"1": {first.queue_offset}}}}}'
    assert planned(expired.layout, **given).expired == ()
    assert len(rows(planned(expired.layout))) == len(expired.messages)


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_offsets_beyond_a_queue_are_data_loss(stored: Stored, side: str) -> None:
    last = [e for e in stored.messages if (e.topic, e.queue_id) == ("payments", 2)][-1]
    end = last.queue_offset + 1
    named = f"{side}Offsets"
    with pytest.raises(OffsetOutOfRange, match=rf"{named} names offset {end + 1} of payments/2"):
        planned(stored.layout, **{named: f'{{"payments": {{"2": {end + 1}}}}}'})
    given = {named: f'{{"payments": {{"2": {end + 1}}}}}', "failOnDataLoss": "false"}
    assert len(planned(stored.layout, **given).expired) == 1
    assert planned(stored.layout, **{named: f'{{"payments": {{"2": {end}}}}}'}).expired == ()


def test_a_start_of_a_stream_that_was_deleted_is_data_loss(expired: Stored) -> None:
    start = {expired.root: expired.layout.start - 1}
    with pytest.raises(OffsetOutOfRange, match="was deleted, the log begins at") as caught:
        plan([expired.layout], options_of(), start=start)
    assert caught.value.nearest == expired.layout.start
    made = plan([expired.layout], options_of(failOnDataLoss="false"), start=start)
    assert len(made.expired) == 1
    assert len(rows(made)) == len(expired.messages)


@pytest.mark.parametrize("is_cut", [False, True], ids=["missing", "cut"])
def test_a_gap_between_files_is_data_loss(tmp_path: Path, is_cut: bool) -> None:
    found = Stored(tmp_path / "store")
    victim = found.layout.files[2]
    border = victim.start
    if is_cut:
        border = next(e.place for e in found.messages if e.place > victim.start + 2000)
        os.truncate(victim.path, border - victim.start)
    else:
        os.unlink(victim.path)

    layout = Layout.of(found.root)
    left = [e for e in found.messages if not border <= e.place < victim.end]

    with pytest.raises(NotFoundError, match=f"no file holds the physical offsets {border} to"):
        planned(layout)

    for given in ({}, {"topic": "payments"}, {"topic": "orders,payments"}):
        options = options_of(failOnDataLoss="false", **given)
        made = plan([layout], options)
        assert len(made.expired) == 1
        assert sorted(rows(made)) == sorted(
            e.row for e in left if options.topics is None or e.topic in options.topics
        )

    behind = plan([layout], options_of(), start={found.root: victim.end})
    assert behind.expired == ()


# ---- what is not there ----


def test_a_topic_that_is_not_there_is_answered_with_the_nearest(stored: Stored) -> None:
    with pytest.raises(NotFoundError, match=r"there is no topic order; did you mean orders\?"):
        planned(stored.layout, topic="order")
    with pytest.raises(NotFoundError, match="there is no topic xyz; there are orders, payments, r"):
        planned(stored.layout, topic="rare,xyz")
    with pytest.raises(NotFoundError, match="topic orders has no queue 9"):
        planned(stored.layout, assign='{"orders": [0, 9]}')
    with pytest.raises(NotFoundError, match="there is no topic xyz"):
        planned(stored.layout, endingOffsets='{"xyz": {"0": 4}}')


def test_a_topic_that_may_come_or_be_there_is_no_error(stored: Stored, tmp_path: Path) -> None:
    assert plan([stored.layout], options_of(topic="xyz"), start={}).partitions == ()
    assert rows(planned(stored.by_log, topic="xyz")) == []
    lagging = replace(stored.layout, dispatched_end=stored.messages[-1].place)
    assert rows(planned(lagging, topic="xyz")) == []
    assert planned(stored.layout, subscribePattern="xyz").partitions == ()
    with rmqstore.open(tmp_path / "store", **SMALL) as store:
        store.put("orders", b"1")
        store.create_topic("idle", read_queue_count=2, write_queue_count=2)
    assert planned(Layout.of(str(tmp_path / "store")), topic="idle").partitions == ()
    assert planned(Layout.of(str(tmp_path / "store")), assign='{"idle": [1]}').partitions == ()


def test_queues_without_a_message_since_the_start_are_told(stored: Stored) -> None:
    last = {(e.topic, e.queue_id): e.time for e in stored.messages}
    begin = sorted(last.values())[2] + 1
    late = [f"{topic}/{queue}" for (topic, queue), time in last.items() if time < begin]
    assert 0 < len(late) < len(last)
    with pytest.raises(NotFoundError, match="was stored before the starting timestamp") as caught:
        planned(stored.layout, subscribePattern=".*", startingTimestamp=begin)
    answer = str(caught.value)
    assert all(
        (f"{topic}/{queue}" in answer) == (f"{topic}/{queue}" in late) for topic, queue in last
    )
    assert "startingOffsetsByTimestampStrategy latest" in answer

    by_queue = _json(dict.fromkeys(last, begin))
    with pytest.raises(NotFoundError, match="was stored before the starting"):
        planned(stored.layout, startingOffsetsByTimestamp=by_queue)
    in_time = _json({name: begin for name, time in last.items() if time >= begin})
    planned(stored.layout, startingOffsetsByTimestamp=in_time)
    made = planned(
        stored.layout,
        subscribePattern=".*",
        startingTimestamp=begin,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert sorted(rows(made)) == sorted(e.row for e in stored.messages if e.time >= begin)
    # Nobody asked for a queue here.
    assert len(rows(planned(stored.layout, startingTimestamp=begin))) == len(rows(made))


def test_files_of_different_topics_are_cut_by_their_own_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rmqstore.open(
        tmp_path / "store", **{**SMALL, "commit_log_file_size_bytes": 1 << 20}
    ) as store:
        for number in range(4000):
            store.put(f"topic-{number // 300}", bytes(1000))
    layout = Layout.of(str(tmp_path / "store"))

    def walk(*_: object, **__: object) -> list[tuple[int, int]]:
        raise AssertionError("records were walked over although queues tell where they are")

    monkeypatch.setattr(splitting, "split_boundaries", walk)
    made = planned(layout, maxPartitionBytes="128k")
    assert len(made.partitions) >= layout.end // (128 << 10)
    assert all(weight(partition) <= 136 << 10 for partition in made.partitions)
