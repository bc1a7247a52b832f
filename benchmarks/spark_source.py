"""Two more sources of the rows of a store: what Spark can take at most, and rows as tuples.

`ready-made` sends batches that are there already, so that all it costs is Arrow's way to Spark: the
ceiling of every source that yields batches. `tuples` decodes as rmqstore does and yields rows of
Python, as sources without Arrow do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqstore.spark.source import RmqStoreDataSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReadyMadeSource", "TuplesSource"]

ROWS = "rows"
_made: dict[tuple[str, str], pa.RecordBatch] = {}
"""The first batch of a store, by path and schema. A worker serves many tasks and makes it once."""


class _Like(DataSource):
    """A source with the options and columns of rmqstore's."""

    def _source(self) -> RmqStoreDataSource:
        given = {name: value for name, value in self.options.items() if name.lower() != ROWS}
        return RmqStoreDataSource(given)

    def schema(self) -> StructType:
        return self._source().schema()


class ReadyMadeSource(_Like):
    """As many rows as the option `rows` says, in as many partitions as rmqstore would make."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def reader(self, schema: StructType) -> DataSourceReader:
        key = (self.options["path"], schema.json())
        return _ReadyMade(self._source().reader(schema), int(self.options[ROWS]), key)


class TuplesSource(_Like):
    """The rows of a store, one tuple each."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Tuples(self._source().reader(schema))


class _ReadyMade(DataSourceReader):
    def __init__(self, source: Any, rows: int, key: tuple[str, str]) -> None:
        self._source = source
        self._rows = rows
        self._key = key

    def partitions(self) -> list[InputPartition]:
        cut = list(self._source.partitions())
        share, more = divmod(self._rows, len(cut))
        counts = (share + (number < more) for number in range(len(cut)))
        return [InputPartition((cut[0].value, count)) for count in counts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, count = partition.value
        if self._key not in _made:
            _made[self._key] = next(iter(self._source.read(InputPartition(first))))
        made = _made[self._key]
        for _ in range(count // made.num_rows):
            yield made
        if count % made.num_rows:
            yield made.slice(0, count % made.num_rows)


class _Tuples(DataSourceReader):
    def __init__(self, source: Any) -> None:
        self._source = source

    def partitions(self) -> list[InputPartition]:
        return list(self._source.partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in self._source.read(partition):
            kept = [column.to_pylist(maps_as_pydicts="strict") for column in batch.columns]
            yield from zip(*kept, strict=True)
