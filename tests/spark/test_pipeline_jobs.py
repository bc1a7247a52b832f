"""Pipelines as Spark runs them: a job or two each."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pipelines are Spark's: pip install rmqstore[spark]")

from pyarrow.dataset import dataset as arrow_dataset
from pyarrow.parquet import ParquetFile

import rmqstore
from rmqstore import Message
from rmqstore.errors import ArgumentError, NotFoundError
from rmqstore.spark import pipelines
from rmqstore.spark.pipelines import work
from tests.golden import GoldenCase
from tests.spark.checking import audited, differences, summed
from tests.support.damage import DAMAGES
from tests.support.waiting import spin_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GoldenCopy = Callable[[str, str], GoldenCase]
SMALL = {"maxPartitionBytes": 60_000}


def test_comparison_tells_the_same_by_bytes_and_by_hashes(
    spark: SparkSession, golden_case: GoldenCopy
) -> None:
    a, b = golden_case("5.3.3", "plain"), golden_case("5.3.3", "plain")
    DAMAGES["body of a record in the middle"].do(b)
    DAMAGES["several records zeroed"].do(b)

    expected = differences(a.root, b.root)
    assert len(expected) == 2

    by_bytes = pipelines.compare(spark, str(a.root), str(b.root))
    assert list(by_bytes.differences) == expected
    assert not by_bytes.is_sound

    for by in ("crc32", "blake2b"):
        found = pipelines.compare(spark, str(a.root), str(b.root), by=by)
        assert [(each.start, each.stop, each.kind) for each in found.differences] == [
            (each.start, each.stop, each.kind) for each in expected
        ]

    *lines, verdict = by_bytes.lines()
    assert lines[0].startswith(f"damage {expected[0].start} to {expected[0].stop}")
    assert "bytes compared" in verdict

    summary = list(by_bytes.as_json())[-1]
    assert summary["differences"] == 2
    assert json.loads(json.dumps(summary)) == summary


def test_comparison_of_logs_without_a_common_part_says_so(
    spark: SparkSession, golden_case: GoldenCopy
) -> None:
    late, early = golden_case("5.3.3", "deleted-head"), golden_case("5.3.3", "keys-index")
    shutil.rmtree(early.root / "consumequeue")
    with pytest.raises(ArgumentError, match="no part of the log in common"):
        pipelines.compare(spark, str(late.root), str(early.root))


def test_audit_is_that_of_its_tasks_and_tells_progress(
    spark: SparkSession, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.5.0", "plain")
    DAMAGES["body of a record in the middle"].do(case)
    answer: list[tuple[int, int]] = []
    found = pipelines.audit(
        spark, str(case.root), progress=lambda done, total: answer.append((done, total)), **SMALL
    )
    assert found == audited(case.root, **SMALL)
    assert len(found.damage) == 1
    assert all(0 <= done <= total for done, total in answer)
    rows = pipelines.audit_rows(spark, str(case.root)).where("kind = 'damage'").collect()
    assert [row.start for row in rows] == [case.manifest[150]["phyOffset"]]


def test_count_and_statistics_are_the_sums_of_their_tasks(
    spark: SparkSession, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "batch")
    merged, _ = summed(case.root)

    found = pipelines.statistics(spark, str(case.root), **SMALL)
    assert [(each.topic, each.queue_id) for each in found.queues] == sorted(merged)

    for each in found.queues:
        row = merged[each.topic, each.queue_id]
        assert each.messages == row["messages"]
        assert each.min_queue_offset == row["minQueueOffset"]
        assert each.max_store_timestamp == row["maxStoreTimestamp"]
        assert list(each.sizes) == row["sizes"]

    counted = pipelines.count(spark, str(case.root), **SMALL)
    assert counted.messages == found.messages
    assert counted.records == len(case.manifest)

    topic = found.queues[0].topic
    of_topic = pipelines.count(spark, str(case.root), topic=topic)
    assert of_topic.messages == sum(each.messages for each in found.queues if each.topic == topic)


def test_rebuild_check_finds_harm_in_queues_and_index(
    spark: SparkSession, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "plain")
    sound = pipelines.rebuild_check(spark, str(case.root), **SMALL)
    assert sound.is_sound, str(sound)
    assert sound.units == len(case.manifest)
    assert sound.entries > 0
    DAMAGES["queue flipped"].do(case)
    DAMAGES["index entries flipped"].do(case)
    found = pipelines.rebuild_check(spark, str(case.root), **SMALL)
    assert not found.is_sound
    assert {each["kind"] for each in found.as_json() if each["type"] == "finding"} == {
        "queue",
        "index",
    }
    without = pipelines.rebuild_check(spark, str(case.root), index=False)
    assert without.index_files == 0


def test_export_writes_every_message_into_the_folder_of_its_topic_and_day(
    spark: SparkSession, golden_case: GoldenCopy, tmp_path: Path
) -> None:
    case = golden_case("5.3.3", "many-queues")
    target = tmp_path / "parquet"

    done = pipelines.export(
        spark, str(case.root), str(target), columns=["body", "tags"], by_topic=True
    )
    assert done.rows == len(case.manifest)

    rows = spark.read.parquet(str(target)).collect()
    assert {(row.topic, row.queueId, row.queueOffset) for row in rows} == {
        (line["topic"], line["queueId"], line["queueOffset"]) for line in case.manifest
    }

    days = {str(row.date) for row in rows}
    times = {line["storeTimestamp"] // 86_400_000 for line in case.manifest}
    assert len(days) == len(times)

    for file in target.rglob("*.parquet"):
        table = ParquetFile(file).read(["queueId", "queueOffset"])
        places = [*zip(*(column.to_pylist() for column in table.columns), strict=True)]
        assert places == sorted(places)


def test_exported_topics_are_texts_whatever_they_look_like(
    spark: SparkSession, tmp_path: Path
) -> None:
    topics = ["007", "7", "1e3", "2024-01-01", "true", "null", "orders"]
    root, checkpoint = tmp_path / "store", str(tmp_path / "checkpoint")
    with rmqstore.open(root) as store:
        for topic in topics:
            store.put(topic, topic.encode(), keys=["k"])
    targets = {name: str(tmp_path / name) for name in ("export", "feed", "compact")}
    pipelines.export(spark, str(root), targets["export"])
    pipelines.change_feed(spark, str(root), targets["feed"], checkpoint=checkpoint)
    pipelines.compact(spark, str(root), targets["compact"], form="parquet")
    for target in targets.values():
        rows = spark.read.parquet(target).select("topic", "body").collect()
        assert sorted(row.topic for row in rows) == sorted(topics)
        assert all(row.topic.encode() == row.body for row in rows)
        table = arrow_dataset(target, partitioning="hive").to_table(columns=["topic"])
        assert sorted(table.column("topic").to_pylist()) == sorted(topics)


def test_an_export_that_fails_leaves_no_empty_target(spark: SparkSession, tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "target"
    with rmqstore.open(root) as store:
        place = store.put("orders", bytes(100)).physical_offset
        store.put("orders", bytes(100))
    file = root / "commitlog" / f"{0:020d}"
    whole = file.read_bytes()
    file.write_bytes(whole[: place + 4] + b"\xff" + whole[place + 5 :])
    with pytest.raises(Exception, match="CorruptionError"):
        pipelines.export(spark, str(root), str(target))
    assert not target.exists()

    target.mkdir()
    with pytest.raises(Exception, match="CorruptionError"):
        pipelines.export(spark, str(root), str(target), mode="append")
    assert target.exists()

    file.write_bytes(whole)
    assert pipelines.export(spark, str(root), str(target / "new")).rows == 2


@pytest.mark.parametrize("runs", [True, False], ids=["job", "planning"])
def test_an_interrupt_cancels_a_pipeline_and_is_raised(spark: SparkSession, runs: bool) -> None:
    """Before the job begins, too: Spark cancels no job that comes later."""
    context = spark.sparkContext
    begun = threading.Event()

    def interrupt() -> None:
        assert begun.wait(60)
        if runs:
            spin_until(lambda: context.statusTracker().getActiveJobsIds(), "a job runs")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def action() -> None:
        begun.set()
        if not runs:
            spin_until(lambda: not interrupter.is_alive(), "the interrupt was sent")
        slow = "java_method('java.lang.Thread', 'sleep', 100L)"
        spark.range(0, 5000, 1, 1).selectExpr(slow).write.format("noop").mode("append").save()

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        work.watched(spark, action)
    interrupter.join()
    assert not context.statusTracker().getActiveJobsIds()
    assert spark.range(3).count() == 3


def test_compaction_keeps_the_newest_of_each_key_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    kept: dict[tuple[int, str], str] = {}

    with rmqstore.open(source, commit_log_file_size_bytes=1 << 16) as store:
        for number in range(400):
            key = f"k{number * 7 % 60}"
            body = b"" if number == 399 else f"body {number}".encode()
            store.put("orders", body, queue=number % 2, keys=[key], tags="t")
            kept[number % 2, key] = body.decode()
        store.put("orders", b"alone")
        deleted = next(key for key, body in kept.items() if not body)

    wanted = sorted((*key, body) for key, body in kept.items() if key != deleted)

    rows = pipelines.latest(spark, str(source), tombstones=True, without_key="drop", **SMALL)
    found = rows.collect()
    assert sorted((row.queueId, row.keys, bytes(row.body).decode()) for row in found) == wanted
    assert [row.physicalOffset for row in found] == sorted(row.physicalOffset for row in found)

    target = tmp_path / "target"
    done = pipelines.compact(spark, str(source), str(target), tombstones=True, **SMALL)
    assert done.rows == len(wanted) + 1

    with rmqstore.open(target, read_only=True) as store:
        records = [record for queue in store.queues("orders") for record in queue.records()]
        assert sorted((r.queue, *r.keys, r.body.decode()) for r in records) == sorted(
            [*wanted, (0, "alone")]
        )

        for queue in store.queues("orders"):
            numbers = [int(r.body.split()[-1]) for r in queue.records() if b" " in r.body]
            assert numbers == sorted(numbers)


def _half(number: int, key: str) -> Message:
    return Message(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        f"half {number}".encode(),
        properties={"REAL_TOPIC": "orders", "REAL_QID": "3"},
        unique_key=key,
    )


def test_transactions_without_an_end_are_told_once_with_their_checks(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"

    with rmqstore.open(root) as store:
        for number, key in enumerate(("ended", "open", "ended later", "open")):
            place = store.put(_half(number, key)).physical_offset
        store.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"0,2,", tags="d")

        # Level 1 waits in queue 0: what it is due at stands in its queue entry.
        late = [
            store.put(Message("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": "1"}))
            for _ in range(3)
        ]

    now_ms = late[-1].store_timestamp + 1_000_000
    found = pipelines.transactions(spark, str(root), now_ms=now_ms, delay_offsets={1: 1})

    (hanging,) = found.transactions
    assert (hanging.topic, hanging.queue_id) == ("orders", 3)
    assert (hanging.unique_key, hanging.checks) == ("open", 1)
    assert hanging.physical_offset == place

    (level,) = found.delays
    assert (level.level, level.messages, level.overdue) == (1, 3, 2)
    assert level.oldest_due == late[1].store_timestamp + 1000
    assert not found.is_sound

    early = pipelines.transactions(spark, str(root), now_ms=late[0].store_timestamp - 1_000_000)
    assert early.transaction_count == 0
    assert early.overdue == 0


_PREPARED_OFFSET_AT = 76
"""Of the place of the prepared record in a record with IPv4 hosts."""


def test_a_prepared_record_is_open_when_no_other_names_its_place(
    spark: SparkSession, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "transactions")
    rollback = next(line for line in case.manifest if line["sysFlag"] & 0xC == 0xC)
    place = rollback["phyOffset"] + _PREPARED_OFFSET_AT
    path = [
        each for each in sorted((case.root / "commitlog").iterdir()) if int(each.name) <= place
    ][-1]
    with path.open("r+b") as file:
        file.seek(place - int(path.name))
        assert file.read(8) == rollback["preparedTransactionOffset"].to_bytes(8, "big")
        file.seek(-8, 1)
        file.write(bytes(8))
    found = pipelines.transactions(spark, str(case.root), now_ms=2**62)
    (hanging,) = found.transactions
    assert hanging.physical_offset == rollback["preparedTransactionOffset"]
    assert (hanging.topic, hanging.queue_id) == (rollback["topic"], rollback["queueId"])


def test_delayed_messages_are_due_when_their_queue_entries_say(
    spark: SparkSession, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.5.0", "delay")
    rows = pipelines.delays(spark, str(case.root)).collect()
    assert {(row.level, row.queueOffset, row.due) for row in rows} == {
        (line["queueId"] + 1, line["queueOffset"], line["tagsCode"])
        for line in case.manifest
        if line["topic"] == "SCHEDULE_TOPIC_XXXX"
    }


def test_change_feed_appends_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    root, target = tmp_path / "store", str(tmp_path / "feed")
    checkpoint = str(tmp_path / "checkpoint")
    counts = []
    for first in (0, 100, 100):
        with rmqstore.open(root) as store:
            if len(counts) < 2:
                for number in range(first, first + 100):
                    store.put("orders", f"{number}".encode(), queue=number % 2)
        counts.append(pipelines.change_feed(spark, str(root), target, checkpoint=checkpoint).rows)
    assert counts == [100, 100, 0]
    bodies = [int(row.body) for row in spark.read.parquet(target).collect()]
    assert sorted(bodies) == list(range(200))


def test_a_place_without_a_store_is_not_found(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        pipelines.audit(spark, str(tmp_path / "nowhere"))
    with pytest.raises(ArgumentError, match="maxPartitionBytes"):
        pipelines.audit(spark, str(tmp_path), maxPartitionByte="1m")
