"""Messages as Parquet, in folders by topic and date.

The files have the topic as well. Readers guess types from the names of folders, and would take a
topic 007 for the number 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.spark import scan
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.report import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqstore.spark import Place

__all__ = ["PARTITIONED_BY", "Export", "export", "with_folders"]

Mode = Literal["append", "error", "overwrite"]

DATE = "date_add(DATE'1970-01-01', CAST(floor(unix_micros(storeTimestamp) / 86400000000D) AS INT))"
"""The day a message was stored on, in UTC whatever the session's time zone is."""

PARTITIONED_BY = ("topicFolder", "date")


@dataclass(frozen=True, slots=True)
class Export(Report):
    """What was written."""

    target: str
    rows: int

    def lines(self) -> Iterator[str]:
        """Yield one line."""
        yield f"{self.rows} messages written to {self.target}"

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the summary."""
        yield {"type": "summary", "target": self.target, "rows": self.rows}


def export(
    spark: SparkSession,
    path: str | Sequence[str],
    target: str,
    *,
    start: Place | None = None,
    end: Place | None = None,
    columns: Sequence[str] | None = None,
    mode: Mode = "error",
    by_topic: bool = False,
    compression: str = "snappy",
    progress: work.Progress | None = None,
    **options: work.OptionValue,
) -> Export:
    """Write messages to Parquet at *target* and return their number.

    The folders are topicFolder=T/date=D; the column topic in the files is the topic as it is.
    *start* and *end* are places as `rmqstore.spark.scan` takes them. Files are sorted by queue and
    queue offset. Nothing is shuffled, so that each task writes its own file into each folder it has
    messages for; with *by_topic* messages go to one task for each folder, which makes fewer and
    larger files at the cost of sending bodies around. *columns* narrows what is written; topic,
    queueId, queueOffset and storeTimestamp are always there. *mode* is what to do if *target*
    exists. The day is that of storeTimestamp in UTC.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    if columns is not None:
        columns = list(dict.fromkeys((*_ALWAYS, *columns)))
    settings: dict[str, Any] = dict(options)
    frame = with_folders(scan(spark, path, columns=columns, start=start, end=end, **settings))
    if by_topic:
        frame = frame.repartition(*PARTITIONED_BY)
    seen = Observation()
    sorted_frame = frame.observe(seen, f.count(f.lit(1)).alias("rows")).sortWithinPartitions(
        *PARTITIONED_BY, "queueId", "queueOffset"
    )
    writer = (
        sorted_frame.write.mode(mode)
        .partitionBy(*PARTITIONED_BY)
        .option("compression", compression)
    )
    with work.leaving_no_empty_target(target):
        work.watched(spark, lambda: writer.parquet(target), progress)
    return Export(target, int(seen.get["rows"]))


_ALWAYS = ("topic", "queueId", "queueOffset", "storeTimestamp")


def with_folders(frame: DataFrame) -> DataFrame:
    """Return *frame* with the columns that Parquet is partitioned by."""
    from pyspark.sql import functions as f

    return frame.withColumns({"topicFolder": f.col("topic"), "date": f.expr(DATE)})
