"""A change feed: what came since the last run, appended to Parquet."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.export import PARTITIONED_BY, with_folders
from rmqstore.spark.pipelines.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Feed", "change_feed"]

_POLL_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Feed(Report):
    """What one run of a change feed brought."""

    target: str
    rows: int
    batches: int

    def lines(self) -> Iterator[str]:
        """Yield one line."""
        yield f"{self.rows} messages appended to {self.target} in {self.batches} batches"

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the summary."""
        yield {
            "type": "summary",
            "target": self.target,
            "rows": self.rows,
            "batches": self.batches,
        }


def change_feed(
    spark: SparkSession,
    path: str | Sequence[str],
    target: str,
    *,
    checkpoint: str,
    progress: work.Progress | None = None,
    **options: work.OptionValue,
) -> Feed:
    """Append the messages of the stores at *path* after *checkpoint* to Parquet at *target*.

    Runs until everything that may be read at its start is written, each message once, also when a
    run was broken off; call it again for what comes later. The first run begins at the earliest
    message unless startingOffsets or startingTimestamp is set. The folders are those of
    `export`. *progress* is called with the messages written.
    """
    reader = spark.readStream.format("rmqstore").option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, value)

    if isinstance(path, str):
        frame = reader.load(path)
    else:
        frame = reader.option("paths", work.json_list(path)).load()

    query = (
        with_folders(frame)
        .writeStream.format("parquet")
        .outputMode("append")
        .partitionBy(*PARTITIONED_BY)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(target)
    )

    rows: dict[int, int] = {}
    is_cancelled = threading.Event()

    def follow() -> None:
        try:
            is_over = False
            while not is_over and not is_cancelled.is_set():
                is_over = bool(query.awaitTermination(_POLL_SECONDS))
                # Spark keeps the last hundred reports only.
                for each in query.recentProgress:
                    rows[each["batchId"]] = each["numInputRows"]
                if progress is not None:
                    progress(sum(rows.values()), 0)
        finally:
            if query.isActive:
                query.stop()

    work.interruptible(follow, is_cancelled.set, spark=spark)
    return Feed(target, sum(rows.values()), sum(count > 0 for count in rows.values()))
