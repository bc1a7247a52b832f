"""Samples that the reader in the JVM makes: of places and a seed, whatever the tasks are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore.spark.jvm import jar_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(
    jar_path() is None, reason="the jar was not built: needs a JDK and pyspark"
)

COUNT = 400


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sample") / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=16384) as store:
        for number in range(COUNT):
            store.put("orders", bytes(50), queue=number % 4, tags=("eu", "us")[number % 2])
    return root


def load(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    """Return all rows, by the reader in the JVM."""
    return spark.read.format("rmqstore").option("reader", "jvm").options(**options).load(str(root))


def offsets(frame: DataFrame) -> list[int]:
    """Return the physical offsets of the rows, ascending."""
    return sorted(row.physicalOffset for row in frame.select("physicalOffset").collect())


def test_a_seed_chooses_the_same_rows_however_the_log_is_split(
    root: Path, spark: SparkSession
) -> None:
    frame = load(spark, root).sample(fraction=0.25, seed=7)
    assert "PushedSample: seed 7" in str(frame._jdf.queryExecution().executedPlan().toString())
    chosen = offsets(frame)
    assert 60 < len(chosen) < 140
    assert (
        offsets(load(spark, root, maxPartitionBytes="5000").sample(fraction=0.25, seed=7)) == chosen
    )
    assert offsets(load(spark, root).sample(fraction=0.25, seed=8)) != chosen

    load(spark, root).createOrReplaceTempView("log")
    by_sql = [
        offsets(spark.sql(f"SELECT * FROM log TABLESAMPLE ({share} PERCENT) REPEATABLE (7)"))
        for share in (25, 50)
    ]
    assert {*by_sql[0]} < {*by_sql[1]}


def test_conditions_and_sums_are_of_the_sample(root: Path, spark: SparkSession) -> None:
    frame = load(spark, root).sample(fraction=0.25, seed=7)
    eu = sum(row.tags == "eu" for row in frame.select("tags").collect())
    assert 0 < eu < COUNT // 2
    assert frame.where("tags = 'eu'").count() == eu
    assert frame.groupBy("tags").count().where("tags = 'eu'").collect()[0]["count"] == eu
    assert frame.count() == len(offsets(frame))


def test_a_sample_of_chosen_rows_is_left_to_spark(root: Path, spark: SparkSession) -> None:
    frame = load(spark, root).where("tags = 'eu'").sample(fraction=0.5, seed=7)
    assert "PushedSample" not in str(frame._jdf.queryExecution().executedPlan().toString())
    assert 0 < frame.count() < COUNT // 2
