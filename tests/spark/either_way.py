"""Tests that read by Spark, once with the reader in the JVM and once with Python's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqstore.spark.jvm import jar_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["READERS", "read_by"]

READERS = ("jvm", "python") if jar_path() is not None else ("python",)


@contextmanager
def read_by(reader: str, spark: SparkSession) -> Iterator[SparkSession]:
    """Yield *spark*, whose batch queries are read by the reader of this name."""
    if len(READERS) == 1:
        yield spark
        return
    spark.conf.set("spark.datasource.rmqstore.reader", reader)
    yield spark
    spark.conf.unset("spark.datasource.rmqstore.reader")
