"""The data source as Spark sees it: options and schema in, readers and writers out.

Spark pickles the source for a planning process, makes a reader there, calls its `partitions`, and
pickles reader and partitions once more for the tasks. Both therefore hold paths and numbers only.

The reader has no `pushFilters`: PySpark 4.3 shares pushed filters between all scans of one
DataFrame, and rows would be missing. Options and the schema narrow a read instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqstore.spark.worker import plain_errors, settle

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceWriter

    from rmqstore.spark.options import Options
    from rmqstore.spark.read.ranges import Partition

__all__ = ["RmqStoreDataSource"]

# Each method imports what it needs: every session that looks up any format imports this module.


class RmqStoreDataSource(DataSource):
    """Messages of RocketMQ stores; docs/spark.md describes options and columns."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)` and for SQL's USING."""
        return "rmqstore"

    @plain_errors()
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        from rmqstore.spark import schema
        from rmqstore.spark.options import Options

        options = Options.parse_for_either(self.options)
        return schema.struct(schema.columns_of(options), options.kafka_names)

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of *schema*, all or some of the source's, in any order."""
        from rmqstore.spark.jvm import needs_jar
        from rmqstore.spark.options import Options

        options = Options.parse(self.options)
        if options.reader == "jvm":
            raise needs_jar()
        return RmqStoreReader(options, schema)

    @plain_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows the log."""
        from rmqstore.spark.jvm import needs_jar
        from rmqstore.spark.options import Options
        from rmqstore.spark.stream.stream import RmqStoreStreamReader

        if Options.parse(self.options, streaming=True).reader == "jvm":
            raise needs_jar()
        return RmqStoreStreamReader(self.options, schema)

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that makes a store of rows."""
        from rmqstore.spark.write.writer import RmqStoreWriter

        return RmqStoreWriter(self.options, schema, overwrite)


class RmqStoreReader(DataSourceReader):
    """A read of all that the options select, as the stores are when it is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        from rmqstore.spark.schema import check_user_schema

        check_user_schema(schema, options)
        self._options = options
        self._schema = schema

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        """Find the logs of the directories and cut them; ends are fixed here, for the whole
        query."""
        from rmqstore.spark.read.layout import layouts_of
        from rmqstore.spark.read.partitions import plan

        layouts = layouts_of(self._options, queues_of_remote=False)
        planned = plan(layouts, self._options)
        return [InputPartition(partition) for partition in planned.partitions]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one partition; of the None that Spark makes of no partitions, none."""
        from rmqstore.spark.read.reader import batches
        from rmqstore.spark.schema import arrow_schema

        settle()
        chosen: Partition | None = partition.value
        if chosen is not None:
            schema = arrow_schema(self._schema)
            with plain_errors():
                yield from batches(chosen, self._options, self._schema.fieldNames(), schema)
