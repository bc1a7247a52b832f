"""What Spark reads, with either reader: rows of Java's stores, of damaged ones, by a URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
from tests.golden import RELEASES, GoldenCases
from tests.spark.either_way import READERS, read_by
from tests.spark.golden_rows import comparable, expected_rows
from tests.spark.reading import in_log_order, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 4096
MAGIC = 4


@pytest.fixture(params=READERS)
def spark(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session of all tests, with either reader."""
    with read_by(request.param, spark) as session:
        yield session


@pytest.mark.parametrize("release", RELEASES)
def test_spark_gives_the_rows_of_the_manifest(
    release: str, spark: SparkSession, golden_cases: GoldenCases, tmp_path: Path
) -> None:
    names = ("plain", "batch", "ipv6", "transactions", "compressed", "topic-length")
    cases = [golden_cases.copy(release, name, into=tmp_path) for name in names]
    reader = spark.read.format("rmqstore").option("maxPartitionBytes", 60_000)
    rows = rows_of(reader.load([str(case.root) for case in cases]).toArrow())
    count = 0
    for case in cases:
        own = [row for row in rows if row["path"].startswith(f"{case.root}/")]
        assert [comparable(row) for row in in_log_order(own)] == list(expected_rows(case))
        count += len(own)
    assert len(rows) == count


def test_damage_reaches_the_user_of_spark_by_name(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=FILE_BYTES) as store:
        for number in range(60):
            store.put("orders", bytes([number]) * (100 + number), queue=number % 3, tags="t")
    rows = read(root)
    # Both neighbours of the record are in its file as well.
    place = [row["physicalOffset"] for row in rows if row["physicalOffset"] >= FILE_BYTES][1]
    file = root / "commitlog" / f"{FILE_BYTES:020}"
    with file.open("r+b") as opened:
        opened.seek(place - FILE_BYTES + MAGIC)
        opened.write(b"\xff")

    frame = spark.read.format("rmqstore").load(str(root))
    with pytest.raises(Exception, match=f"{file.name}.*{place}") as found:
        frame.count()
    assert "Traceback" not in str(found.value)
    answer = spark.read.format("rmqstore").option("onCorrupt", "row").load(str(root))
    counts = answer.selectExpr("count(*)", "count(error)", "sum(size)").first()
    assert counts is not None
    assert tuple(counts) == (len(rows), 1, sum(row["size"] for row in rows))


def test_spark_reads_a_url(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=FILE_BYTES) as store:
        for number in range(200):
            topic = "rare" if number % 40 == 7 else "orders"
            store.put(topic, b"%d" % number * 80, queue=number % 3)
    frame = spark.read.format("rmqstore").option("topic", "rare").load(root.as_uri())
    assert sorted(row.body for row in frame.select("body").collect()) == sorted(
        row["body"] for row in read(root, topic="rare", columns="body")
    )
