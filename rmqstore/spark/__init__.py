"""Commit log segments as Spark DataFrames.

    from rmqstore import spark as rmq

    spark = rmq.session().getOrCreate()
    frame = spark.read.format("rmqstore").option("topic", "orders").load("/data/broker-a/store")
    narrow = rmq.scan(spark, "/data/broker-a/store", columns=["queueId", "queueOffset"])

Where the session has the package's jar, as those of `session` have, Spark's own virtual machine
reads, and only the columns and rows that a query needs. Elsewhere the Python source reads, which
gets neither columns nor conditions from Spark: there the options, or the arguments of `scan`, leave
out what a query does not need.

Importing this package needs no pyspark; the calls do, and raise MissingExtraError without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rmqstore.errors import ArgumentError
from rmqstore.spark.jvm import jar_path
from rmqstore.spark.session import java_home, missing_spark, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["jar_path", "java_home", "register", "scan", "session"]

Place = str | int | datetime | Mapping[str, Mapping[int | str, int]]
"""Where a read starts or ends: "earliest", "latest", a store timestamp in milliseconds or as a
datetime, or queue offsets by topic and queue id (-2 earliest, -1 latest)."""


def register(spark: SparkSession) -> None:
    """Make the format "rmqstore" known to *spark*.

    Spark finds the format by itself where the package is installed for its own Python; this is for
    all other places. Raises MissingExtraError without pyspark.
    """
    try:
        from rmqstore.spark.source import RmqStoreDataSource
    except ImportError as error:
        raise missing_spark() from error
    spark.dataSource.register(RmqStoreDataSource)


def scan(
    spark: SparkSession,
    path: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    topic: str | Sequence[str] | None = None,
    start: Place | None = None,
    end: Place | None = None,
    **options: str | int | bool,
) -> DataFrame:
    """Return the messages of the stores at *path* as a DataFrame.

    *path* is a store, a bare commit log directory, a glob or several of them. Only *columns* are
    read and sent; None means all but the raw record. *topic* names one or several topics.
    *start* and *end* bound the read, see `Place`; a start is inclusive, an end is not. *options*
    are further options of the format, named as in `spark.read`.

    Raises ArgumentError for something that is not a path. Spark validates options when it loads the
    source.
    """
    reader = spark.read.format("rmqstore")
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if topic is not None:
        reader = reader.option("topic", topic if isinstance(topic, str) else ",".join(topic))
    for side, place in (("starting", start), ("ending", end)):
        if place is not None:
            reader = reader.option(*_option_of(side, place))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(path if isinstance(path, str) else list(path))


def _option_of(side: str, place: Place) -> tuple[str, str]:
    if isinstance(place, str):
        return f"{side}Offsets", place

    if isinstance(place, Mapping):
        by_topic = {
            topic: {str(queue): offset for queue, offset in queues.items()}
            for topic, queues in place.items()
        }
        return f"{side}Offsets", json.dumps(by_topic)

    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise ArgumentError(
                f"{place.isoformat()} has no time zone, and a store's times are UTC: give "
                "datetime(..., tzinfo=timezone.utc)"
            )
        return f"{side}Timestamp", str(round(place.timestamp() * 1000))

    if isinstance(place, int) and not isinstance(place, bool):
        return f"{side}Timestamp", str(place)

    raise ArgumentError(
        f"{'start' if side == 'starting' else 'end'} is {place!r}; give earliest, latest, "
        "milliseconds, a datetime or queue offsets by topic"
    )
