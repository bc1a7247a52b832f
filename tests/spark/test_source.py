"""The format as a user of Spark meets it: loading, SQL, schemas, names, and a writer beside it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
import rmqstore.spark
from rmqstore import Message
from rmqstore.spark import files
from rmqstore.spark.source import RmqStoreDataSource
from tests.spark.clocked import CLOCK_MS, write_clocked
from tests.spark.either_way import READERS, read_by
from tests.spark.reading import Read, in_log_order, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 120


@pytest.fixture(params=READERS)
def spark(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session of all tests, with either reader."""
    with read_by(request.param, spark) as session:
        yield session


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store: two topics, keys and properties, a second between puts."""

    def put(number: int) -> dict[str, Any]:
        return {
            "topic": "orders" if number % 3 else "audit",
            "queue": number % 2,
            "tags": "even" if number % 2 == 0 else None,
            "keys": [f"k{number}"] if number % 5 else (),
        }

    root = tmp_path_factory.mktemp("source") / "broker-a"
    return write_clocked(root, put, count=COUNT, step_ms=1000, file_bytes=8192)


def test_the_format_is_found_without_registration_in_sql_too(
    root: Path, spark: SparkSession
) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING rmqstore "
        f"OPTIONS (path '{root}', topic 'orders', columns 'queueId,queueOffset,properties')"
    )
    (row,) = spark.sql(
        "SELECT count(*), sum(queueOffset), sum(cast(properties['n'] AS INT)),"
        " count(DISTINCT queueId) FROM orders"
    ).collect()
    chosen = [number for number in range(COUNT) if number % 3]
    offsets = [chosen_before(number) for number in chosen]
    assert tuple(row) == (len(chosen), sum(offsets), sum(chosen), 2)


def chosen_before(number: int) -> int:
    """Return the queue offset of a message of topic orders."""
    return sum(1 for before in range(number) if before % 3 and before % 2 == number % 2)


def test_a_user_schema_narrows_and_orders_the_columns(root: Path, spark: SparkSession) -> None:
    rmqstore.spark.register(spark)
    frame = (
        spark.read.format("rmqstore")
        .schema("storeTimestamp TIMESTAMP, queueId INT, tags STRING")
        .load(str(root))
    )

    rows = frame.orderBy("storeTimestamp").collect()

    assert frame.columns == ["storeTimestamp", "queueId", "tags"]
    assert len(rows) == COUNT
    assert [row.tags for row in rows[:3]] == ["even", None, "even"]

    last = datetime.fromtimestamp((CLOCK_MS + 1000 * (COUNT - 1)) / 1000, UTC)
    assert frame.selectExpr("date_format(max(storeTimestamp), 'yyyy-MM-dd HH:mm:ss')").first()[
        0
    ] == (  # type: ignore[index]
        last.strftime("%Y-%m-%d %H:%M:%S")
    )


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.timestampType=TIMESTAMP_NTZ",
        "spark.sql.session.timeZone=America/New_York",
        "spark.sql.caseSensitive=true",
        "spark.sql.ansi.enabled=false",
        "spark.sql.datetime.java8API.enabled=true",
        "spark.sql.execution.arrow.maxRecordsPerBatch=7",
        "spark.sql.execution.arrow.useLargeVarTypes=true",
        "spark.sql.codegen.wholeStage=false",
    ],
)
def test_settings_of_a_session_change_no_row(setting: str, root: Path, spark: SparkSession) -> None:
    rows = read(root, columns="topic,queueOffset,storeTimestamp,body")
    name, _, value = setting.partition("=")
    spark.conf.set(name, value)
    try:
        frame = spark.read.format("rmqstore").load(str(root))
        found = frame.selectExpr("topic", "queueOffset", "unix_millis(storeTimestamp)", "body")
        assert sorted(map(tuple, found.collect())) == sorted(
            (row["topic"], row["queueOffset"], _millis(row["storeTimestamp"]), row["body"])
            for row in rows
        )
        (late,) = (
            frame.where(f"storeTimestamp >= timestamp_millis({CLOCK_MS + 60_000})")
            .selectExpr("count(*)", "unix_millis(max(storeTimestamp))")
            .collect()
        )
        assert tuple(late) == (COUNT - 60, CLOCK_MS + 1000 * (COUNT - 1))
    finally:
        spark.conf.unset(name)


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def test_a_schema_whose_times_have_no_zone_is_answered_with_the_type_that_has(
    root: Path, spark: SparkSession
) -> None:
    reader = spark.read.format("rmqstore").schema("storeTimestamp TIMESTAMP_NTZ")
    with pytest.raises(Exception, match="storeTimestamp is TIMESTAMP_LTZ, not TIMESTAMP_NTZ"):
        reader.load(str(root)).collect()


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "ordres"},
        {"path": "/nowhere/at/all"},
        {"topik": "orders"},
        {"columns": "bdoy"},
        {"startingTimestamp": "1700000000"},
        {"startingOffsets": '{"orders": {"0": 999999}}'},
        {"assign": '{"orders": [77]}'},
        {"maxOffsetsPerTrigger": "5"},
        {"startingOffsetsByTimestamp": '{"orders": {"0": 2000000000000}}'},
    ],
    ids=str,
)
def test_a_mistake_is_answered_without_a_trace_of_python(
    options: dict[str, str], root: Path, spark: SparkSession
) -> None:
    options = {"path": str(root), **options}
    with pytest.raises(Exception, match=r"rmqstore\.errors\.\w+: ") as found:
        spark.read.format("rmqstore").options(**options).load().collect()
    assert "Traceback" not in str(found.value)
    assert 'File "' not in str(found.value)


@pytest.mark.parametrize(
    ("schema", "option", "named"),
    [
        pytest.param("queueOfset BIGINT", {}, "queueOffset", id="unknown-column"),
        pytest.param("queueOffset STRING", {}, "queueOffset", id="wrong-type"),
        pytest.param(None, {"columns": "bdoy"}, "body", id="unknown-in-columns"),
        pytest.param(None, {"topik": "x"}, "topic", id="unknown-option"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(
    root: Path, schema: str | None, option: dict[str, str], named: str, spark: SparkSession
) -> None:
    reader = spark.read.format("rmqstore").options(**option)
    if schema is not None:
        reader = reader.schema(schema)
    with pytest.raises(Exception, match=named):
        reader.load(str(root)).count()


def test_scan_bounds_and_narrows(root: Path, spark: SparkSession) -> None:
    begin, end = CLOCK_MS + 10_000, CLOCK_MS + 20_000
    frame = rmqstore.spark.scan(
        spark,
        str(root),
        columns=["topic", "storeTimestamp", "body"],
        topic=["audit", "orders"],
        start=begin,
        end=datetime.fromtimestamp(end / 1000, UTC),
    )

    assert frame.columns == ["topic", "storeTimestamp", "body"]
    assert sorted(row.body for row in frame.collect()) == sorted(
        b"body %d" % number for number in range(10, 20)
    )

    by_offset = rmqstore.spark.scan(
        spark, str(root), columns=["queueOffset"], topic="audit", start={"audit": {0: 3, 1: -2}}
    )
    offsets = sorted(row.queueOffset for row in by_offset.collect())
    assert offsets == sorted([*range(3, 20), *range(20)])


def test_kafka_names_have_the_types_of_the_kafka_source(root: Path, spark: SparkSession) -> None:
    frame = (
        spark.read.format("rmqstore")
        .option("subscribe", "orders")
        .option("columnNames", "kafka")
        .option("includeHeaders", "true")
        .load(str(root))
    )

    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]

    rows = {row.value: row for row in frame.collect()}
    row = rows[b"body 7"]
    assert (row.key, row.topic, row.partition, row.offset, row.timestampType) == (
        b"k7",
        "orders",
        1,
        chosen_before(7),
        0,
    )

    headers = {header.key: header.value for header in row.headers}
    assert headers["n"] == b"7"
    assert headers["KEYS"] == b"k7"
    assert rows[b"body 5"].key is None


def test_kafka_names_without_spark(root: Path) -> None:
    rows = read(root, topic="audit", columnNames="kafka", includeHeaders=True, maxPartitionBytes=1)
    assert len(rows) == COUNT // 3
    for row in rows:
        number = int(row["value"].split()[1])
        assert row["key"] == (b"k%d" % number if number % 5 else None)
        assert {"key": "n", "value": b"%d" % number} in row["headers"]


def test_body_crc_is_that_of_the_body_of_the_row(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root) as store:
        store.create_topic("orders", attributes={"queue.type": "BatchCQ"})
        store.put_batch([Message("orders", b"%d" % number * number) for number in range(5)])
        store.put_batch([Message("orders", body) for body in (b"first", b"second", b"third")])
        store.put(Message("plain", b"alone"))
    (file,) = (root / "commitlog").iterdir()
    file.write_bytes(file.read_bytes().replace(b"second", b"Second"))

    rows = in_log_order(rows_of(spark.read.format("rmqstore").load(str(root)).toArrow()))

    assert [row["body"] for row in rows[5:]] == [b"first", b"Second", b"third", b"alone"]
    assert [row["bodyCrc"] for row in rows] == [
        zlib.crc32(row["body"]) & 0x7FFFFFFF for row in rows
    ]
    assert [row["bodyCrcOk"] for row in rows] == [True] * 5 + [False] * 3 + [True]


def test_several_stores_and_globs_are_one_frame(
    root: Path, tmp_path: Path, spark: SparkSession
) -> None:
    for name in ("x1", "x2", "y1"):
        with rmqstore.open(tmp_path / name) as store:
            store.put(f"in-{name}", b"1")
    reader = spark.read.format("rmqstore").option("columns", "topic,path")
    several = reader.load([f"{tmp_path}/x*", str(tmp_path / "y1"), str(root)])
    counts = {row.topic: row["count"] for row in several.groupBy("topic").count().collect()}
    assert counts == {"in-x1": 1, "in-x2": 1, "in-y1": 1, "orders": 80, "audit": 40}


def test_columns_made_here_need_no_others(root: Path) -> None:
    paths = read(root, columns="path")
    assert len(paths) == COUNT
    assert {Path(row["path"]).parent for row in paths} == {root / "commitlog"}
    assert all(set(row) == {"path"} for row in paths)


def test_a_planned_read_is_small_and_fixed(root: Path) -> None:
    planned = Read(root)
    assert sum(len(each) for each in planned._pickled_partitions) < 6000
    assert len(planned._pickled_reader) < 6000
    assert RmqStoreDataSource.name() == "rmqstore"


def test_a_rare_topic_is_read_without_the_rest_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=16 << 20) as store:
        for number in range(400):
            store.put("bulk", bytes(100_000))
            if number % 20 == 3:
                store.put("rare", b"%d" % number)
        for number in range(400, 450):
            store.put("rare", b"%d" % number)
    read_bytes: list[int] = []
    real = files.RangeFile.read_into

    def counted(self: files.RangeFile, offset: int, target: memoryview) -> int:
        read_bytes.append(len(target))
        return real(self, offset, target)

    planned = Read(root, topic="rare", columns="body")
    monkeypatch.setattr(files.RangeFile, "read_into", counted)
    expected = [number for number in range(450) if number >= 400 or number % 20 == 3]
    assert [int(row["body"]) for row in planned.rows()] == expected
    # One call for each lone record, one or two for the many that lie together.
    assert len(read_bytes) <= 20 + 2
    assert sum(read_bytes) < 200_000


def test_a_read_beside_a_writer_has_whole_messages_up_to_its_planning(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = tmp_path / "store"
    stop = threading.Event()
    with rmqstore.open(root, commit_log_file_size_bytes=1 << 16) as store:
        for number in range(500):
            store.put("orders", b"%d" % number * 10, queue=0)
        store.flush()

        def write() -> None:
            number = 500
            while not stop.is_set() and number < 50_000:
                store.put("orders", b"%d" % number * 10, queue=0)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            frame = (
                spark.read.format("rmqstore")
                .option("upTo", "max")
                .option("maxPartitionBytes", 1 << 18)
                .option("columns", "queueOffset,body,bodyCrcOk")
                .load(str(root))
            )
            table = frame.toArrow()
            rows_without_spark = [read(root, upTo=up_to) for up_to in ("max", "confirm")]
        finally:
            stop.set()
            writer.join()
    for rows in (rows_of(table), *rows_without_spark):
        assert len(rows) >= 500 or rows is rows_without_spark[1]
        offsets = sorted(row["queueOffset"] for row in rows)
        assert offsets == list(range(len(rows)))
        assert all(row["bodyCrcOk"] for row in rows)
        assert all(row["body"] == b"%d" % row["queueOffset"] * 10 for row in rows)
