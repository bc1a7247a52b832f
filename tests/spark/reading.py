"""The source run as Spark runs it, without Spark: planned, pickled, read partition by partition."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rmqstore.spark.source import RmqStoreDataSource, RmqStoreReader

Row = dict[str, Any]


class Read:
    """A planned read of the stores at *path*, with *options* as in `spark.read`."""

    def __init__(
        self, path: str | Path, *, schema: StructType | None = None, **options: object
    ) -> None:
        answer = {"path": str(path)} | {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in options.items()
        }
        source = pickle.loads(pickle.dumps(RmqStoreDataSource(CaseInsensitiveDict(answer))))
        self.schema = schema or source.schema()
        reader = source.reader(schema=self.schema)
        self._pickled_reader = pickle.dumps(reader)
        self.partitions: list[InputPartition] = reader.partitions()
        # Spark makes one partition of none.
        self._pickled_partitions = [
            pickle.dumps(each) for each in self.partitions or [InputPartition(None)]
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all partitions, each checked as Spark checks the first."""
        expected = to_arrow_schema(self.schema, timezone="UTC")
        for pickled in self._pickled_partitions:
            reader: RmqStoreReader = pickle.loads(self._pickled_reader)
            for batch in reader.read(pickle.loads(pickled)):
                assert batch.schema.equals(expected)
                batch.validate(full=True)
                yield batch

    def rows(self) -> list[Row]:
        """Return all rows, maps as dicts."""
        return [row for batch in self.batches() for row in rows_of(batch)]


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch or table, maps as dicts."""
    return batch.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def read(path: str | Path, *, schema: StructType | None = None, **options: object) -> list[Row]:
    """Return the rows of a read of the stores at *path*."""
    return Read(path, schema=schema, **options).rows()


def in_log_order(rows: list[Row]) -> list[Row]:
    """Return rows sorted by the place of their message in the log."""
    return sorted(rows, key=lambda row: (row["physicalOffset"], row["queueOffset"]))
