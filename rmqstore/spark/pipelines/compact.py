"""The newest message of each key, queue by queue, as a store or as Parquet.

A first scan brings keys and positions together; a second one fetches just the records that stay.
Bodies go from the scanner to the target and nowhere else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.errors import ArgumentError
from rmqstore.spark import schema
from rmqstore.spark.options import Options
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.export import PARTITIONED_BY, with_folders
from rmqstore.spark.pipelines.report import Report
from rmqstore.spark.read.ranges import Partition
from rmqstore.spark.read.reader import batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Compaction", "compact", "latest"]

Form = Literal["parquet", "rmqstore"]

_WITHOUT_KEY = ("keep", "drop")
_KEYS = work.Table(
    part="INT",
    topic="STRING",
    queueId="INT",
    key="STRING",
    queueOffset="BIGINT",
    physicalOffset="BIGINT",
)
_PLACE = ("physicalOffset", "queueOffset")
_KEY_COLUMNS = ("topic", "queueId", "keys", "queueOffset", "physicalOffset")


@dataclass(frozen=True, slots=True)
class Compaction(Report):
    """What was kept."""

    target: str
    rows: int
    """Messages written."""

    def lines(self) -> Iterator[str]:
        """Yield one line."""
        yield f"{self.rows} messages kept in {self.target}"

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the summary."""
        yield {"type": "summary", "target": self.target, "rows": self.rows}


def compact(
    spark: SparkSession,
    path: str | Sequence[str],
    target: str,
    *,
    form: Form = "rmqstore",
    without_key: Literal["keep", "drop"] = "keep",
    tombstones: bool = False,
    keep_timestamps: bool = True,
    progress: work.Progress | None = None,
    **options: work.OptionValue,
) -> Compaction:
    """Write the newest message of each key of each queue to *target* and return their number.

    *form* selects a store or Parquet in folders topicFolder=T/date=D for *target*. Messages keep
    their order. Those of a store get new queue offsets, and bodies that were compressed are stored
    plain; its store timestamps are the old ones unless *keep_timestamps* is off, which is needed
    where these do not ascend. The other arguments are those of `latest`. Spark refuses a target of
    Parquet that exists; a store that exists is appended to.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    if form not in ("parquet", "rmqstore"):
        raise ArgumentError(f"form is {form!r}; give parquet or rmqstore")
    if form == "rmqstore":
        options = {**options, "decompress": True}
    kept = latest(spark, path, without_key=without_key, tombstones=tombstones, **options)
    seen = Observation()
    kept = kept.observe(seen, f.count(f.lit(1)).alias("rows"))
    if form == "parquet":
        writer = with_folders(kept).write.partitionBy(*PARTITIONED_BY).format("parquet")
    else:
        columns = (*_STORED, "storeTimestamp") if keep_timestamps else _STORED
        writer = kept.select(*columns).write.mode("append").format("rmqstore")
    with work.leaving_no_empty_target(target):
        work.watched(spark, lambda: writer.save(target), progress)
    return Compaction(target, int(seen.get["rows"]))


_STORED = ("topic", "queueId", "tags", "keys", "properties", "bornTimestamp", "body")


def latest(
    spark: SparkSession,
    path: str | Sequence[str],
    *,
    without_key: Literal["keep", "drop"] = "keep",
    tombstones: bool = False,
    **options: work.OptionValue,
) -> DataFrame:
    """Return the newest message of each key of each topic and queue, in the order of the log.

    A message's key is its whole KEYS property, as RocketMQ's own compaction has it. Messages
    *without_key* are all kept or all left out. With *tombstones* a newest message with an empty
    body deletes its key. *options* are those of the format; damage fails the job unless onCorrupt
    is set. The columns are those of the format.
    """
    from pyspark.sql import functions as f

    if without_key not in _WITHOUT_KEY:
        raise ArgumentError(f"without_key is {without_key!r}; give keep or drop")
    _, plan = work.planned(path, options)
    parts = list(enumerate(plan.partitions))
    cut = work.parallelism(spark, work.size_of(plan.partitions))
    keys = work.distribute(spark, parts, partial(_keys_task, plan.options), _KEYS, partitions=cut)
    # A message without a key is the only one of its group.
    alone = f.when(f.col("key").isNull(), f.col("physicalOffset"))
    if without_key == "drop":
        keys = keys.where("key IS NOT NULL")
    newest = ("part", "physicalOffset", "queueOffset")
    kept = (
        keys.groupBy("topic", "queueId", "key", alone.alias("alone"))
        .agg(*(f.max_by(name, "queueOffset").alias(name) for name in newest))
        .select(*newest)
    )
    names = schema.columns_of(plan.options)
    fetched = (
        kept.repartitionById(max(len(parts), 1), f.col("part"))
        .sortWithinPartitions("physicalOffset", "queueOffset")
        .mapInArrow(partial(fetch, plan.options, plan.partitions), _struct(plan.options))
    )
    if tombstones:
        fetched = fetched.where("length(body) > 0")
    return fetched.select(*names)


def _struct(options: Options) -> StructType:
    """The columns of the format, and those by which messages are chosen."""
    names = tuple(dict.fromkeys((*schema.columns_of(options), *_PLACE)))
    return schema.struct(names, kafka=False)


def _keys_task(options: Options, task: tuple[int, Partition]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    number, partition = task
    for batch in work.rows_of(partition, options, _KEY_COLUMNS):
        part = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
        yield pa.RecordBatch.from_arrays([part, *batch.columns], schema=_KEYS.schema)


def fetch(
    options: Options, partitions: Sequence[Partition], positions: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages at *positions*: batches of part, physicalOffset and queueOffset.

    All are of one part, ascending by place.
    """
    import pyarrow as pa

    found = [batch for batch in positions if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    part = table.column("part")[0].as_py()
    places, offsets = (table.column(name).to_pylist() for name in _PLACE)
    # A record with an inner batch holds several messages, and not all of them may be wanted.
    kept = set(zip(places, offsets, strict=True))
    struct = _struct(options)
    arrow_schema = schema.arrow_schema(struct)
    at = array("q", dict.fromkeys(places))
    for batch in batches(partitions[part], options, struct.fieldNames(), arrow_schema, at=at):
        pairs = zip(*(batch.column(name).to_pylist() for name in _PLACE), strict=True)
        yield batch.filter(pa.array([pair in kept for pair in pairs], pa.bool_()))
