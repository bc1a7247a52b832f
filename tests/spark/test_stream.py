"""A streaming query reads every message once, whatever happens to it and to the log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="streaming is Spark's: pip install rmqstore[spark]")

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)

import rmqstore
from rmqstore import CorruptionError, Message, NotFoundError
from rmqstore.errors import ArgumentError
from rmqstore.spark.source import RmqStoreDataSource
from rmqstore.spark.stream import follow, stream
from tests.golden import GoldenCase
from tests.spark.reading import read
from tests.spark.streaming import Query, ends_of_records, messages, numbers, open_store, query_all
from tests.support.native_store import set_clock

WAIT_SECONDS = 60


def _flush(store: rmqstore.Store) -> None:
    """Bring everything to the disk and tell so: only what is in its queue by then is told of."""
    store.wait_dispatched()
    store.flush()


def test_a_topic_that_no_store_has_is_named_once_and_awaited(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(path) as store:
        store.put("orders", b"0:")
    query = Query(path, topic="ordres,orders", startingOffsets="earliest")
    assert numbers(query.rows()) == [0]
    (warning,) = [each.getMessage() for each in caplog.records]
    assert "there is no topic ordres; did you mean orders?" in warning
    assert "the query waits" in warning

    with open_store(path) as store:
        store.put("ordres", b"1:")
    assert numbers(query.rows()) == [1]
    assert len(caplog.records) == 1


# ---- every message once ----


@pytest.mark.parametrize(
    "limit",
    [ReadAllAvailable(), ReadMaxBytes(5000), ReadMaxBytes(40_000), ReadMaxRows(37)],
    ids=lambda limit: "-".join(str(part) for part in (type(limit).__name__, *vars(limit).values())),
)
def test_every_message_is_read_once_while_a_writer_appends(path: Path, limit: ReadLimit) -> None:
    count = 2000

    def write() -> None:
        with open_store(
            path, flush_commit_log_interval_ms=2, flush_commit_log_least_pages=0
        ) as store:
            for first in range(0, count, 25):
                store.put_many(messages(25, first=first))

    open_store(path).close()
    query = Query(path, startingOffsets="earliest")
    writer = threading.Thread(target=write)
    writer.start()
    found: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} were read"
        found += numbers(query.batch(limit) or [])
    writer.join()
    assert found == list(range(count))
    assert query.batch(limit) is None
    assert len(query.offsets) > 1


def test_two_stores_are_read_side_by_side(tmp_path: Path) -> None:
    for number in range(2):
        with open_store(tmp_path / f"{number}.store") as store:
            store.put_many(messages(200, first=number * 1000))
    query = query_all(tmp_path / "*.store", maxBytesPerTrigger=20_000)
    batches = query.batches()
    assert len(batches) >= 6
    assert sorted(numbers([row for rows in batches for row in rows])) == [
        *range(200),
        *range(1000, 1200),
    ]
    # Each has its part of a batch.
    assert {number // 1000 for number in numbers(batches[0])} == {0, 1}
    assert list(query.places()) == [str(tmp_path / "0.store"), str(tmp_path / "1.store")]


def test_a_store_that_comes_later_is_read_from_its_start(tmp_path: Path) -> None:
    with open_store(tmp_path / "0.store") as store:
        store.put_many(messages(10))
    query = Query(tmp_path / "*.store")
    assert query.rows() == []
    with open_store(tmp_path / "1.store") as store:
        store.put_many(messages(10, first=100))
    with open_store(tmp_path / "0.store") as store:
        store.put_many(messages(10, first=10))
    assert query.plan()
    assert sorted(numbers(query.restarted().rows())) == [*range(10, 20), *range(100, 110)]


def test_an_empty_store_gives_rows_once_there_are_some(path: Path) -> None:
    open_store(path).close()
    query = Query(path)
    assert query.rows() == []
    with open_store(path) as store:
        store.put_many(messages(5))
    assert numbers(query.rows()) == list(range(5))


# ---- where a batch ends ----


def test_batches_end_at_borders_and_keep_to_their_bytes(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(400))
    borders = ends_of_records(store)
    query = query_all(path, maxBytesPerTrigger=7000)
    sizes = [sum(row["size"] for row in rows) for rows in query.batches()]
    ends = {
        log["physicalOffset"]
        for text in query.offsets
        for log in json.loads(text)["commitLog"].values()
    }
    assert len(ends) == len(query.offsets)
    assert ends - borders <= set(range(0, store.end_offset, 16_384))
    assert all(size <= 7000 for size in sizes)
    assert sum(size > 5000 for size in sizes) > len(sizes) // 2


def test_batches_keep_to_their_rows(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(1000))
    query = query_all(path, maxOffsetsPerTrigger=64)
    assert [len(rows) for rows in query.batches()] == [64] * 15 + [40]


def test_rows_are_counted_of_the_topics_that_are_read(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(300))
    query = query_all(path, maxOffsetsPerTrigger=30, topic="payments")
    batches = query.batches()
    assert [len(rows) for rows in batches if rows] == [30, 30, 30, 10]
    assert numbers([row for rows in batches for row in rows]) == list(range(1, 300, 3))


def test_a_rare_topic_is_looked_for_a_stretch_at_a_time(
    store: rmqstore.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "WALK_BYTES_MAX", 30_000)
    store.put_many(messages(300))
    store.put(Message("rare", b"300:"))
    batches = query_all(path, maxOffsetsPerTrigger=30, topic="rare").batches()
    assert len(batches) > 3
    assert [numbers(rows) for rows in batches if rows] == [[300]]


@pytest.mark.parametrize("option", ["maxBytesPerTrigger", "maxOffsetsPerTrigger"])
def test_what_is_larger_than_a_limit_is_a_batch_of_its_own(
    store: rmqstore.Store, path: Path, option: str
) -> None:
    store.put(Message("orders", b"0:"))
    store.create_topic("batches", attributes={"queue.type": "BatchCQ"})
    store.put_batch([Message("batches", b"%d:" % number) for number in range(1, 8)])
    store.put(Message("orders", b"8:"))
    found = [numbers(rows) for rows in query_all(path, **{option: 3}).batches()]
    assert found == [[0], list(range(1, 8)), [8]]


def test_a_limit_nobody_offered_is_refused(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(5))
    with pytest.raises(ArgumentError, match="ReadMaxFiles"):
        query_all(path).batch(ReadMaxFiles(3))


def test_a_limit_goes_for_the_trigger_that_gives_it(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(50))
    query = query_all(path, maxOffsetsPerTrigger=10)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert len(query.batch() or []) == 10
    assert len(query.batch(ReadAllAvailable()) or []) == 40
    assert Query(path, maxBytesPerTrigger="1k").reader.getDefaultReadLimit() == ReadMaxBytes(1024)
    assert Query(path).reader.getDefaultReadLimit() == ReadAllAvailable()


def test_only_what_is_durable_is_read(path: Path) -> None:
    with open_store(path, flush_commit_log_interval_ms=3_600_000) as store:
        store.put_many(messages(20))
        _flush(store)
        durable = store.flushed_offset
        query = Query(path, startingOffsets="earliest")
        store.put_many(messages(20, first=20))
        query.rows()
        assert query.places() == {str(path): durable}
        assert len(query_all(path).rows()) == 40
        _flush(store)
        assert numbers(query.rows()) == list(range(20, 40))
        assert query.reader.reportLatestOffset() == {
            "version": 1,
            "commitLog": {
                str(path): {
                    "physicalOffset": store.end_offset,
                    "initialOffset": store.end_offset,
                }
            },
        }
        end = store.end_offset
        starts = [{"version": 1, "commitLog": {}}, *map(json.loads, query.offsets)]
        assert [query.reader.bytes_behind(each) for each in starts] == [[end], [end - durable], [0]]


# ---- where a query starts ----


def test_a_query_starts_at_the_end_unless_told_otherwise(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(10))
    query = query_all(path, startingOffsets="latest")
    start = query.reader.initialOffset()
    store.put_many(messages(10, first=10))
    assert query.reader.initialOffset() == start
    assert numbers(query.rows()) == list(range(10, 20))


def test_a_first_batch_that_was_not_committed_is_read_from_where_it_began(
    store: rmqstore.Store, path: Path
) -> None:
    store.put_many(messages(10))
    query = query_all(path, startingOffsets="latest")
    query.reader.initialOffset()
    store.put_many(messages(10, first=10))
    assert query.plan()
    store.put_many(messages(10, first=20))
    # A new process does not know where the query began, and would begin behind it all.
    assert numbers(query.restarted().read()) == list(range(10, 20))
    assert numbers(query.rows()) == list(range(10, 30))


def test_starting_offsets_choose_by_queue_and_only_for_a_new_query(
    store: rmqstore.Store, path: Path
) -> None:
    store.put_many(messages(120))
    store.wait_dispatched()

    starting = {"orders": {"0": 15, "1": -2}, "payments": {"0": -1, "1": 19}}
    topics = {"subscribe": "orders,payments"}
    query = query_all(path, startingOffsets=json.dumps(starting), maxBytesPerTrigger=4000, **topics)

    first = query.batch() or []
    assert "starting" in json.loads(query.offsets[-1])

    store.put_many(messages(60, first=120))
    query.restarted(startingOffsets="latest")
    rows = first + query.rows()
    assert "starting" not in json.loads(query.offsets[-1])

    expected = [
        number
        for number in range(180)
        if number % 3 < 2
        and (
            number >= 120
            or (number % 6 == 0 and number >= 15 * 6)
            or number % 6 == 3
            or (number % 6 == 1 and number >= 19 * 6)
        )
    ]
    assert numbers(rows) == expected


def test_a_starting_timestamp_chooses_until_the_end_the_query_began_at(
    store: rmqstore.Store, path: Path
) -> None:
    for second in range(100):
        set_clock(store, 1_700_000_000_000 + second * 1000)
        store.put(messages(1, first=second)[0])
    query = query_all(path, startingTimestamp=1_700_000_070_000, maxOffsetsPerTrigger=7)
    # A clock set back: what is put after the query began is wanted whatever its time.
    set_clock(store, 1_700_000_050_000)
    query.reader.initialOffset()
    store.put_many(messages(10, first=100))
    rows = query.batch() or []
    rows += query.restarted(startingTimestamp=1_800_000_000_000).rows()
    assert numbers(rows) == list(range(70, 110))


def test_without_a_message_since_the_starting_timestamp_the_strategy_decides(
    store: rmqstore.Store, path: Path
) -> None:
    store.put_many(messages(10))
    store.wait_dispatched()
    options = {"startingTimestamp": 2**62, "topic": "orders"}
    with pytest.raises(NotFoundError, match="startingOffsetsByTimestampStrategy"):
        query_all(path, **options).batch()
    query = query_all(path, **options, startingOffsetsByTimestampStrategy="latest")
    assert query.rows() == []
    store.put_many(messages(9, first=12))
    assert numbers(query.rows()) == [12, 15, 18]


def test_a_batch_that_was_planned_is_the_same_after_a_restart(
    store: rmqstore.Store, path: Path
) -> None:
    store.put_many(messages(300))
    query = query_all(path, maxBytesPerTrigger=9000)
    found: list[int] = []
    for first in range(300, 600, 30):
        assert query.plan()
        planned = query.read()
        store.put_many(messages(30, first=first))
        assert query.restarted().read() == planned
        found += numbers(planned)
        query.commit()
    found += numbers(query.rows())
    assert found == list(range(600))


# ---- what there is to read ----


@pytest.mark.parametrize(
    ("case", "options", "by_queues"),
    [
        ("plain", {}, False),
        ("plain", {}, True),
        ("batch", {"maxOffsetsPerTrigger": 1}, False),
        ("batch", {}, True),
        ("transactions", {"maxOffsetsPerTrigger": 1}, True),
    ],
)
def test_a_golden_store_gives_the_rows_of_a_batch_read(
    golden_case: Callable[[str, str], GoldenCase],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    options: dict[str, object],
    by_queues: bool,
) -> None:
    root = golden_case("5.5.0", case).root
    if by_queues:
        monkeypatch.setattr(stream, "_QUEUES_FROM_BYTES", 0)
    rows = read(root)
    batches = query_all(root, **options).batches()
    assert [row for batch in batches for row in batch] == rows
    records = len({row["physicalOffset"] for row in rows})
    assert len([batch for batch in batches if batch]) == (records if options else 1)
    topic = rows[len(rows) // 2]["topic"]
    of_topic = [
        row for row in rows if row["topic"] == topic and row["sysFlag"] & 0xC not in (4, 12)
    ]
    assert query_all(root, topic=topic, **options).rows() == of_topic


@pytest.mark.parametrize("limit", [{"maxBytesPerTrigger": 1500}, {"maxOffsetsPerTrigger": 3}])
def test_limits_lead_over_damage(path: Path, limit: dict[str, int]) -> None:
    with open_store(path) as store:
        store.put_many(messages(200))
        records = list(store.scan_log())

        damaged = (3, 4, 50, 119)
        places = [records[number].physical_offset for number in damaged]

    for at in places:
        with (path / "commitlog" / f"{at // 16_384 * 16_384:020d}").open("r+b") as file:
            file.seek(at % 16_384 + 4)
            file.write(b"none")

    query = query_all(path, **limit, onCorrupt="skip")
    assert numbers(query.rows()) == [each for each in range(200) if each not in damaged]

    # Two neighbours are one place.
    query = query_all(path, **limit, onCorrupt="row", columns="error,physicalOffset")
    rows = query.rows()
    del places[1]
    assert [row["physicalOffset"] for row in rows if row["error"]] == places
    assert len(rows) == 196 + 3

    with pytest.raises(CorruptionError, match=f"record at {places[0]}"):
        query_all(path, **limit).rows()


def test_a_missing_file_does_not_hold_a_query_up(path: Path) -> None:
    with open_store(path) as store:
        store.put_many(messages(200))
        kept = [record for record in store.scan_log() if record.physical_offset // 16_384 != 1]
    (path / "commitlog" / f"{16_384:020d}").unlink()
    for option in ("maxBytesPerTrigger", "maxOffsetsPerTrigger"):
        found = query_all(path, **{option: 50}, failOnDataLoss=False).rows()
        assert [row["physicalOffset"] for row in found] == [each.physical_offset for each in kept]
        with pytest.raises(NotFoundError, match="failOnDataLoss"):
            query_all(path, **{option: 50}).rows()


def test_a_store_behind_a_url_is_followed(path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    query = None
    for first in (0, 100):
        with open_store(path) as store:
            store.put_many(messages(100, first=first))
        memory.put(f"{path}/", "/stream.store/", recursive=True)
        query = query or query_all("memory://stream.store", maxBytesPerTrigger=9000)
        assert numbers(query.rows()) == list(range(first, first + 100))
    memory.rm("/stream.store", recursive=True)


# ---- until what is there is read ----


@pytest.mark.parametrize("options", [{}, {"maxBytesPerTrigger": 6000}, {"maxOffsetsPerTrigger": 9}])
def test_available_now_ends_where_the_log_ended(
    store: rmqstore.Store, path: Path, options: dict[str, int]
) -> None:
    store.put_many(messages(100))
    query = query_all(path, **options)
    query.reader.prepareForTriggerAvailableNow()
    store.put_many(messages(100, first=100))
    assert numbers(query.rows()) == list(range(100))
    query.restarted().reader.prepareForTriggerAvailableNow()
    store.put_many(messages(100, first=200))
    assert numbers(query.rows()) == list(range(100, 200))


def test_available_now_leaves_stores_alone_that_come_later(tmp_path: Path) -> None:
    with open_store(tmp_path / "0.store") as store:
        store.put_many(messages(10))
    query = query_all(tmp_path / "*.store")
    query.reader.prepareForTriggerAvailableNow()
    with open_store(tmp_path / "1.store") as store:
        store.put_many(messages(10, first=100))
    assert numbers(query.rows()) == list(range(10))


# ---- what is wrong from the start ----


def test_options_and_places_are_judged_when_the_query_is_made(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="endingOffsets"):
        Query(tmp_path, endingOffsets="latest")
    with pytest.raises(NotFoundError):
        Query(tmp_path / "nowhere").batch()
    with pytest.raises(ArgumentError, match="checkpoint"):
        Query(tmp_path).reader.latestOffset({"phy": 3}, ReadAllAvailable())


def test_no_partitions_are_read_as_no_rows(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(5))
    query = query_all(path)
    assert query.plan()
    end = json.loads(query.offsets[0])
    assert query.reader.partitions(end, end) == []
    assert query.task_rows(type("None", (), {"value": None})()) == []


def test_a_stream_in_the_jvm_needs_the_jar(path: Path) -> None:
    source = RmqStoreDataSource(CaseInsensitiveDict({"path": str(path), "reader": "jvm"}))
    with pytest.raises(ArgumentError, match="reader: jvm"):
        source.streamReader(source.schema())
