"""Rows become a store: every cell in its place, in order."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

pytest.importorskip("pyspark", reason="the writer is PySpark's: pip install rmqstore[spark]")

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

import rmqstore
from rmqstore import Message
from rmqstore.check import verify
from rmqstore.errors import ArgumentError, ConfigError, MessageRejected, StoreError
from rmqstore.spark.schema import known_columns
from rmqstore.spark.write import writer as writer_module
from rmqstore.spark.write.writer import RmqStoreWriter
from tests.reference import log, record
from tests.spark.reading import Read
from tests.spark.writing import (
    BATCH_ROWS,
    BORN,
    SMALL,
    Row,
    batch_of,
    begin,
    check_holds,
    left_over,
    list_bodies,
    numbered,
    run_task,
    save,
    save_or_abort,
    schema_of,
    snapshot,
)
from tests.support.every_kind import Case, assert_accepted, read_by_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.java_store import JavaStore


# ---- cells


def test_every_column_becomes_what_a_put_of_it_makes(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"topic": "a", "body": b"plain"},
        {"topic": "b", "body": b"", "queueId": 7, "tags": "red", "keys": "one two"},
        {"topic": "grüße", "body": bytes(range(256)), "properties": {"x": "1", "ключ": "значение"}},
        {"topic": "t" * 200, "body": b"v2", "tags": "", "keys": "", "properties": {}},
        {
            "topic": "a",
            "body": b"same",
            "tags": "t",
            "keys": "k",
            "properties": {"TAGS": "t", "KEYS": "k", "UNIQ_KEY": "u", "gone": None},
        },
        {"topic": "a", "body": b"crc", "properties": {"__CRC32#": "0123456789", "y": "2"}},
        {"topic": "a", "body": b"born", "bornTimestamp": BORN},
        {
            "topic": "a",
            "body": b"early",
            "bornTimestamp": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        },
    ]

    before = time.time_ns() // 1_000_000
    save(tmp_path / "s", rows, brokerIP1="10.1.2.3", listenPort=4711)
    after = time.time_ns() // 1_000_000

    _, data = log.read_run(tmp_path / "s" / "commitlog")
    at = 0
    for row in rows:
        found = record.decode(data, at)
        assert record.encode(found) == data[at : at + found.size]
        assert (found.topic, found.body) == (row["topic"], row["body"])
        assert found.body_crc == record.crc(row["body"])
        assert found.version == (2 if len(row["topic"]) > 127 else 1)
        assert found.queue_id == (row.get("queueId") or 0)
        assert str(found.store_host) == str(found.born_host) == "10.1.2.3:4711"
        assert before <= found.store_timestamp <= after
        assert found.flag == found.sys_flag == found.reconsume_times == 0

        named = {"KEYS": row.get("keys"), "TAGS": row.get("tags")}
        given = {k: v for k, v in (row.get("properties") or {}).items() if k != "__CRC32#"}
        assert found.properties == {k: v for k, v in {**given, **named}.items() if v}

        born = row.get("bornTimestamp")
        if born is None:
            assert before <= found.born_timestamp <= found.store_timestamp
        else:
            assert found.born_timestamp == (born - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
                milliseconds=1
            )

        at += found.size

    assert at == len(data.rstrip(b"\0")) or data[at:].strip(b"\0") == b""
    assert verify(tmp_path / "s", full=True).is_sound


def test_keys_of_a_list_are_joined_and_found(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"topic": "a", "body": b"0", "keys": ["one", "two"]},
        {"topic": "a", "body": b"1", "keys": []},
        {"topic": "a", "body": b"2", "keys": None},
        {"topic": "a", "body": b"3", "keys": ["", None, "three"]},
    ]
    save(tmp_path / "s", rows)
    with rmqstore.open(tmp_path / "s") as store:
        keys = [store.get("a", offset=n).keys for n in range(4)]
        assert keys == [["one", "two"], [], [], ["three"]]
        assert [each.body for each in store.find("a", "two")] == [b"0"]


def test_slices_of_batches_and_other_widths_read_the_same(tmp_path: Path) -> None:
    rows = [
        {
            **row,
            "properties": {"n": str(number), "m": None} if number % 3 else None,
            "keys": [f"k{number}", f"l{number}"],
            "queueId": number % 5 if number % 4 else None,
        }
        for number, row in enumerate(numbered(0, 100))
    ]

    whole = batch_of(rows)

    wide = pa.schema(
        [
            pa.field("topic", pa.large_string()),
            pa.field("body", pa.large_binary()),
            pa.field("queueId", pa.int16()),
            pa.field("keys", pa.list_(pa.large_string())),
            pa.field("properties", pa.map_(pa.string(), pa.string())),
        ]
    )

    writer = begin(tmp_path / "s", rows)
    parts = [whole.slice(0, 7), whole.slice(7, 0), whole.slice(7, 30).cast(wide), whole.slice(37)]
    writer.commit([run_task(writer, 0, iter(parts))])
    check_holds(tmp_path / "s", rows)

    with rmqstore.open(tmp_path / "s") as store:
        for each, row in zip(store.scan_log(), rows, strict=True):
            assert each.keys == row["keys"]
            assert each.properties.get("n") == (row["properties"] or {}).get("n")


def test_text_bodies_are_stored_as_utf_8(tmp_path: Path) -> None:
    schema = StructType([StructField("body", StringType()), StructField("topic", StringType())])
    writer = RmqStoreWriter({"PATH": str(tmp_path / "s")}, schema, False)
    batch = pa.record_batch([pa.array(["grüße"]), pa.array(["a"])], names=["body", "topic"])
    writer.commit([writer.write(iter([batch]))])
    with rmqstore.open(tmp_path / "s") as store:
        assert store.get("a", offset=0).body == "grüße".encode()
        assert store.config.commit_log_file_size_bytes == 1 << 30


# ---- order


def test_partitions_follow_each_other_by_number(tmp_path: Path) -> None:
    rows = numbered(0, 3000)
    with mock.patch.object(writer_module, "_CHUNK_BYTES", 12_000):
        save(tmp_path / "s", rows[:1000], rows[1000:1000], rows[1000:1010], rows[1010:])
    check_holds(tmp_path / "s", rows)
    assert left_over(tmp_path / "s") == []
    assert len(os.listdir(tmp_path / "s" / "commitlog")) > 5


@pytest.mark.parametrize("property_crc", [False, True])
def test_append_goes_on_where_the_store_ended(property_crc: bool, tmp_path: Path) -> None:
    rows = numbered(0, 700)
    save(tmp_path / "s", rows[:300], enabledAppendPropCRC=property_crc)
    save(tmp_path / "s", rows[300:500])
    with rmqstore.open(tmp_path / "s") as store:
        for row in rows[500:600]:
            store.put(row["topic"], row["body"], queue=row["queueId"], keys=row["keys"])
    save(tmp_path / "s", rows[600:])
    check_holds(tmp_path / "s", rows)
    _, data = log.read_run(tmp_path / "s" / "commitlog")
    assert record.property_crc_is_right(data[: record.decode(data, 0).size]) is (
        True if property_crc else None
    )


def test_store_timestamps_that_ascend_are_kept(tmp_path: Path) -> None:
    times = [BORN + timedelta(milliseconds=n // 2, microseconds=n) for n in range(200)]
    rows = [{**row, "storeTimestamp": at} for row, at in zip(numbered(0, 200), times, strict=True)]
    save(tmp_path / "s", rows[:50], rows[50:120])
    save(tmp_path / "s", rows[120:])
    check_holds(tmp_path / "s", rows)
    with rmqstore.open(tmp_path / "s") as store:
        found = [each.store_timestamp for each in store.scan_log()]
        assert found == [int(at.timestamp() * 1_000_000) // 1000 for at in times]
        assert [each.born_timestamp for each in store.scan_log()] == found


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ([0, 5, 4], "partition 2: .* older than .* order the rows by storeTimestamp"),
        ([0, 5, None], "row 0 of partition 2: .*storeTimestamp is null in some rows"),
        ([-1], "partition 0: .* older than"),
        ([0, 10**12], "partition 1: .* in the future"),
    ],
)
def test_store_timestamps_that_descend_are_refused(
    times: list[int | None], complaint: str, tmp_path: Path
) -> None:
    first = [{"topic": "a", "body": b"0", "storeTimestamp": BORN}]
    save(tmp_path / "s", first)
    before = list_bodies(tmp_path / "s")

    parts = [
        [
            {
                "topic": "a",
                "body": b"x",
                "storeTimestamp": None if each is None else BORN + timedelta(milliseconds=each),
            }
        ]
        for each in times
    ]

    with pytest.raises(MessageRejected, match=f"(?s){complaint}"):
        save_or_abort(tmp_path / "s", *parts)

    assert list_bodies(tmp_path / "s") == before
    check_holds(tmp_path / "s", first)
    assert left_over(tmp_path / "s") == []


def _timed(first: int, times: list[datetime | None]) -> list[Row]:
    rows = numbered(first, len(times))
    return [{**row, "storeTimestamp": at} for row, at in zip(rows, times, strict=True)]


def test_store_timestamps_that_are_null_in_all_rows_are_those_of_the_commit(tmp_path: Path) -> None:
    rows = _timed(0, [None] * (BATCH_ROWS + 10))
    save(tmp_path / "s", _timed(0, [BORN]))
    begun_ms = time.time_ns() // 1_000_000
    save(tmp_path / "s", rows[:5], rows[5:])
    check_holds(tmp_path / "s", [*_timed(0, [BORN]), *rows])
    with rmqstore.open(tmp_path / "s", read_only=True) as store:
        stored = [each.store_timestamp for each in store.scan_log()][1:]
        assert begun_ms <= stored[0] <= stored[-1]
        assert stored == sorted(stored)


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ([*[BORN] * 3, None, BORN], "row 3 of partition 0: .*store timestamp is null"),
        ([*[None] * 3, BORN], "row 0 of partition 0: .*store timestamp is null"),
        ([*[BORN] * BATCH_ROWS, None], f"row {BATCH_ROWS} of .* is null in some rows"),
        ([*[None] * BATCH_ROWS, BORN], f"row {BATCH_ROWS} of .* is null in some rows"),
    ],
)
def test_store_timestamps_that_are_null_in_some_rows_are_refused(
    times: list[datetime | None], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(MessageRejected, match=complaint):
        save(tmp_path / "s", _timed(0, times))


# ---- what is refused before any task runs


def test_every_wrong_column_is_named_with_the_right_one(tmp_path: Path) -> None:
    schema = StructType(
        [
            StructField("bodi", BinaryType()),
            StructField("topics", StringType()),
            StructField("queueId", LongType()),
            StructField("TAGS", StringType()),
            StructField("keys", MapType(StringType(), StringType())),
            StructField("properties", MapType(StringType(), IntegerType())),
            StructField("storeTimestamp", LongType()),
            StructField("xyz", LongType()),
        ]
    )

    with pytest.raises(ArgumentError) as caught:
        RmqStoreWriter({"path": str(tmp_path / "s")}, schema, False)

    lines = str(caught.value).splitlines()[1:]
    assert [line.strip() for line in lines] == [
        "column bodi: unknown; did you mean body?",
        "column topics: unknown; did you mean topic?",
        "column queueId: bigint is not int or smallint or tinyint; cast it",
        "column TAGS: unknown; did you mean tags?",
        "column keys: map<string,string> is not string or array<string>; cast it",
        "column properties: map<string,int> is not map<string,string>; cast it",
        "column storeTimestamp: bigint is not timestamp_ltz; cast it",
        "column xyz: unknown; there are topic, body, queueId, tags, keys, properties, "
        "bornTimestamp, storeTimestamp",
        "column topic: missing",
        "column body: missing",
    ]

    assert os.listdir(tmp_path) == []


def read_back(path: Path, *, sys_flag: int = 0) -> pa.Table:
    """Return all columns that a read has of a store of three messages, with this sysFlag."""
    save(path, [{**row, "tags": "eu", "properties": {"n": "1"}} for row in numbered(0, 3)])
    columns = [*known_columns(kafka=False)]
    read = Read(path, columns=",".join(each.name for each in columns if each.name != "error"))
    table = pa.Table.from_batches(read.batches())
    flags = pa.array([sys_flag * (row == 2) for row in range(3)], pa.int32())
    return table.set_column(table.schema.names.index("sysFlag"), "sysFlag", flags)


def store_table(path: Path, table: pa.Table, **options: str) -> None:
    """Store a table as a job of one task."""
    writer = RmqStoreWriter({"path": str(path), **options}, from_arrow_schema(table.schema), False)
    try:
        writer.commit([run_task(writer, 0, iter(table.to_batches()))])
    except StoreError:
        writer.abort([])
        raise


def test_what_was_read_can_be_written(tmp_path: Path) -> None:
    table = read_back(tmp_path / "a")
    with pytest.raises(ArgumentError, match="column msgId: unknown"):
        store_table(tmp_path / "b", table, strictColumns="true")
    store_table(tmp_path / "b", table)
    kept = ["topic", "queueId", "queueOffset", "body", "tags", "keys", "properties"]
    times = ["storeTimestamp", "bornTimestamp"]
    first, second = (
        Read(tmp_path / name, columns=",".join(kept + times)).rows() for name in ("a", "b")
    )
    assert first == second


def test_messages_of_an_inner_batch_keep_their_body_crc_as_messages(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "a") as store:
        store.create_topic("orders", attributes={"queue.type": "BatchCQ"})
        store.put_batch([Message("orders", b"%d" % number) for number in range(3)])
    store_table(tmp_path / "b", pa.Table.from_batches(Read(tmp_path / "a").batches()))
    first, second = (
        Read(tmp_path / name, columns="body,bodyCrc,bodyCrcOk").rows() for name in ("a", "b")
    )
    assert first == second


@pytest.mark.parametrize("sys_flag", [0x1, 0x4, 0xC])
def test_a_row_that_would_lose_its_mark_is_refused(sys_flag: int, tmp_path: Path) -> None:
    table = read_back(tmp_path / "a", sys_flag=sys_flag)
    with pytest.raises(MessageRejected, match=f"row 2 of partition 0: sysFlag {sys_flag} marks"):
        store_table(tmp_path / "b", table)
    assert os.listdir(tmp_path) == ["a"]


def test_column_of_smaller_integers_will_do(tmp_path: Path) -> None:
    schema = StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("body", BinaryType(), nullable=False),
            StructField("queueId", ShortType()),
        ]
    )
    RmqStoreWriter({"path": str(tmp_path / "s")}, schema, False).abort([])
    assert os.listdir(tmp_path) == []


def test_every_wrong_option_is_named_with_the_right_one(tmp_path: Path) -> None:
    options = {
        "mapedFileSizeCommitLog": "65536",
        "maxindexnum": "many",
        "storePathCommitLog": "/a,/b",
        "enabledAppendPropCRC": "true",
    }

    with pytest.raises(ArgumentError) as caught:
        begin(tmp_path / "s", numbered(0, 1), **options)

    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        "option mapedFileSizeCommitLog: unknown; did you mean mappedFileSizeCommitLog?",
        "option maxIndexNum: 'many' is not a whole number; correct it, or leave it out for the "
        "default, 20000000",
        "option storePathCommitLog: a store is made in one directory, path",
    ]

    with pytest.raises(ConfigError, match=r"mappedFileSizeCommitLog.*below the limit"):
        begin(tmp_path / "s", numbered(0, 1), mappedFileSizeCommitLog=1)
    assert os.listdir(tmp_path) == []


def test_sizes_other_than_those_of_the_store_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "s", numbered(0, 10))
    with pytest.raises(ArgumentError, match=r"mappedFileSizeCommitLog: .* has 65536, not 131072"):
        begin(tmp_path / "s", numbered(0, 1), mappedFileSizeCommitLog=131072)
    assert left_over(tmp_path / "s") == []


@pytest.mark.parametrize("kind", ["file", "other", "bare log"])
def test_target_that_is_no_store_is_refused(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "s"
    if kind == "file":
        target.write_text("x")
    else:
        target.mkdir()
        (target / ("notes.txt" if kind == "other" else f"{0:020}")).write_text("x")
    with pytest.raises(ArgumentError, match=str(target)):
        begin(target, numbered(0, 1))
    assert left_over(target) == []


@pytest.mark.parametrize("path", ["", "s3://bucket/store"])
def test_path_that_is_none_of_a_file_system_is_refused(path: str) -> None:
    with pytest.raises(ArgumentError, match=path or "save"):
        RmqStoreWriter({"path": path}, schema_of(numbered(0, 1)), False)


def test_overwrite_never_deletes_messages(tmp_path: Path) -> None:
    rows = numbered(0, 5)
    save(tmp_path / "s", rows)
    sizes = {key: str(value) for key, value in SMALL.items()}
    with pytest.raises(ArgumentError, match="overwrite would delete its messages"):
        RmqStoreWriter({"path": str(tmp_path / "s"), **sizes}, schema_of(rows), True)
    check_holds(tmp_path / "s", rows)
    fresh = RmqStoreWriter({"path": str(tmp_path / "t"), **sizes}, schema_of(rows), True)
    fresh.commit([fresh.write(iter([batch_of(rows)]))])
    check_holds(tmp_path / "t", rows)


@pytest.mark.parametrize("kind", ["empty", "nested", "url", "link"])
def test_targets_where_nothing_is_yet(kind: str, tmp_path: Path) -> None:
    rows = numbered(0, 5)
    target = tmp_path / "s"
    given = str(target)
    if kind == "empty":
        target.mkdir()
    elif kind == "nested":
        target = tmp_path / "a" / "b" / "s"
        given = str(target)
    elif kind == "url":
        given = f"file://{target}"
    else:
        (tmp_path / "link").symlink_to(target)
        given = str(tmp_path / "link")

    sizes = {key: str(value) for key, value in SMALL.items()}
    writer = RmqStoreWriter({"path": given, **sizes}, schema_of(rows), False)
    assert not target.exists() or not os.listdir(target)

    writer.commit([writer.write(iter([batch_of(rows)]))])
    check_holds(target, rows)
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


# ---- read back by the real store


def test_java_opens_what_was_written(java_store: JavaStore, tmp_path: Path) -> None:
    rows = [
        {
            **row,
            "tags": f"tag-{number % 3}",
            "properties": {"UNIQ_KEY": f"U{number:030}", "n": str(number)},
            "bornTimestamp": BORN + timedelta(seconds=number),
        }
        for number, row in enumerate(numbered(0, 1500))
    ]

    case = Case(tmp_path / "case", SMALL)
    case.directory.mkdir()
    save(case.root, rows[:700], rows[700:1200])
    save(case.root, rows[1200:])
    case.write_spec()

    with rmqstore.open(case.root, read_only=True) as store:
        messages = case.write_manifest(store)

    assert messages == len(rows)
    assert_accepted(read_by_java(java_store, case), messages=messages)


# ---- through Spark


def test_spark_writes_many_partitions_into_one_store(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of five partitions, with every column, then an append, then a task that fails."""
    target = tmp_path / "s"
    frame = spark.range(0, 4000, 1, 5).selectExpr(
        "concat('topic-', id % 3) AS topic",
        "encode(repeat(concat(id, ';'), 20), 'UTF-8') AS body",
        "CAST(id % 4 AS INT) AS queueId",
        "concat('tag', id % 2) AS tags",
        "array(concat('k', id), 'all') AS keys",
        "map('id', CAST(id AS STRING)) AS properties",
        "timestamp_millis(1700000000000 + id) AS bornTimestamp",
        "timestamp_millis(1700000100000 + id) AS storeTimestamp",
    )

    def save_frame(rows: Any) -> None:
        options = {key: str(value) for key, value in SMALL.items()}
        rows.write.format("rmqstore").options(**options).mode("append").save(str(target))

    save_frame(frame)
    assert left_over(target) == []
    report = verify(target, full=True)
    assert report.is_sound, report.damage
    assert report.records == report.units == 4000
    with rmqstore.open(target) as store:
        for number, each in enumerate(store.scan_log()):
            assert each.body == f"{number};".encode() * 20
            assert (each.topic, each.queue) == (f"topic-{number % 3}", number % 4)
            assert each.keys == [f"k{number}", "all"]
            assert each.properties["id"] == str(number)
            assert each.born_timestamp == 1_700_000_000_000 + number
            assert each.store_timestamp == 1_700_000_100_000 + number
        assert all(len(queue) in (333, 334) for queue in store.queues())
    before = snapshot(target)

    failing = frame.selectExpr(
        "topic", "CASE WHEN properties['id'] = '3333' THEN NULL ELSE body END AS body"
    )
    with pytest.raises(Exception, match=r"row 133 of partition 4: .*body is null"):
        save_frame(failing)
    # A task that was running is seen to the end before the next job gets its core.
    spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id BIGINT").collect()
    assert snapshot(target) == before
    assert left_over(target) == []

    save_frame(frame.select("topic", "body").limit(10))
    with rmqstore.open(target) as store:
        assert sum(len(queue) for queue in store.queues()) == 4010
    with pytest.raises(Exception, match="overwrite would delete"):
        frame.write.format("rmqstore").mode("overwrite").save(str(target))
