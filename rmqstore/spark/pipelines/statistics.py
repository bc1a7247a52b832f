"""How many messages there are, and of what size and age, by topic and queue.

Each task sums up in C what it walks over; only sums leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqstore.spark.options import Options
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.report import Damage, Report, bytes_text, time_text
from rmqstore.spark.read.partitions import Plan
from rmqstore.spark.read.ranges import Partition
from rmqstore.spark.read.reader import scan_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "SIZE_CLASSES",
    "Count",
    "QueueStatistics",
    "Statistics",
    "count",
    "statistics",
    "statistics_rows",
]

SIZE_CLASSES = 24
"""Classes of record sizes: number n holds sizes from 2**n to before 2**(n + 1), the last all
larger ones."""

SUMS = ("messages", "records", "bytes", "bodyBytes")
LEAST = ("minQueueOffset", "minStoreTimestamp", "minPhysicalOffset")
MOST = ("maxQueueOffset", "maxStoreTimestamp", "maxPhysicalOffset")
_BOUNDS = tuple(name for both in zip(LEAST, MOST, strict=True) for name in both)
# The columns up to sizes are those of SegmentScan.summary.
_KEY = ("topic", "queueId")
_DAMAGE = ("path", "start", "stop", "reason")
_PLACE = dict(zip(_DAMAGE, ("STRING", "BIGINT", "BIGINT", "STRING"), strict=True))
ROWS = work.Table(
    topic="STRING",
    queueId="INT",
    **dict.fromkeys((*SUMS, *_BOUNDS), "BIGINT"),
    sizes="ARRAY<BIGINT>",
    **_PLACE,
)
_COUNTS = work.Table(messages="BIGINT", records="BIGINT", bytes="BIGINT", **_PLACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """The messages of one queue, as far as they were read. Times are milliseconds."""

    topic: str
    queue_id: int
    messages: int
    records: int
    """Records of the log; one with an inner batch holds several messages."""

    bytes: int
    body_bytes: int
    min_queue_offset: int
    max_queue_offset: int
    min_store_timestamp: int
    max_store_timestamp: int
    min_physical_offset: int
    max_physical_offset: int
    sizes: tuple[int, ...]
    """Records by class of size: see SIZE_CLASSES."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "type": "queue",
            "topic": self.topic,
            "queueId": self.queue_id,
            "messages": self.messages,
            "records": self.records,
            "bytes": self.bytes,
            "bodyBytes": self.body_bytes,
            "minQueueOffset": self.min_queue_offset,
            "maxQueueOffset": self.max_queue_offset,
            "minStoreTimestamp": self.min_store_timestamp,
            "maxStoreTimestamp": self.max_store_timestamp,
            "minPhysicalOffset": self.min_physical_offset,
            "maxPhysicalOffset": self.max_physical_offset,
            "sizes": list(self.sizes),
        }


@dataclass(frozen=True, slots=True)
class Statistics(Report):
    """Sums by queue, ordered by topic and queue."""

    queues: tuple[QueueStatistics, ...]
    damage: tuple[Damage, ...]
    """What was passed over."""

    @property
    def messages(self) -> int:
        """Messages of all queues."""
        return sum(each.messages for each in self.queues)

    @property
    def bytes(self) -> int:
        """Bytes of their records."""
        return sum(each.bytes for each in self.queues)

    @property
    def is_sound(self) -> bool:
        """Whether nothing had to be passed over."""
        return not self.damage

    def lines(self) -> Iterator[str]:
        """Yield what was passed over, a line for each queue, and the sums."""
        yield from map(str, self.damage)
        for each in self.queues:
            yield (
                f"{each.topic}/{each.queue_id}: {each.messages} messages, "
                f"{bytes_text(each.bytes)}, queue offsets {each.min_queue_offset} to "
                f"{each.max_queue_offset}, stored from {time_text(each.min_store_timestamp)} to "
                f"{time_text(each.max_store_timestamp)}"
            )
        topics = len({each.topic for each in self.queues})
        yield (
            f"{self.messages} messages of {topics} topics in {len(self.queues)} queues, "
            f"{bytes_text(self.bytes)}"
        )

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each damage and queue, and a summary."""
        yield from (each.as_json() for each in self.damage)
        yield from (each.as_json() for each in self.queues)
        yield {
            "type": "summary",
            "sound": self.is_sound,
            "messages": self.messages,
            "records": sum(each.records for each in self.queues),
            "bytes": self.bytes,
            "queues": len(self.queues),
            "damage": len(self.damage),
        }


@dataclass(frozen=True, slots=True)
class Count(Report):
    """How many messages there are."""

    messages: int
    records: int
    bytes: int
    damage: tuple[Damage, ...]
    """What was passed over."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing had to be passed over."""
        return not self.damage

    def lines(self) -> Iterator[str]:
        """Yield what was passed over, and the number of messages."""
        yield from map(str, self.damage)
        yield f"{self.messages} messages in {self.records} records, {bytes_text(self.bytes)}"

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each damage, and a summary."""
        yield from (each.as_json() for each in self.damage)
        yield {
            "type": "summary",
            "sound": self.is_sound,
            "messages": self.messages,
            "records": self.records,
            "bytes": self.bytes,
            "damage": len(self.damage),
        }


def statistics(
    spark: SparkSession,
    path: str | Sequence[str],
    *,
    progress: work.Progress | None = None,
    **options: work.OptionValue,
) -> Statistics:
    """Return sums by topic and queue of the messages in the stores at *path*.

    *options* are those of the format that select records: topic, startingTimestamp and so on.
    Damage is skipped and reported; bytes that read as a record count as one, unless checkCrc is on.
    Raises NotFoundError where there is no log or files are missing in between, ArgumentError for a
    wrong option.
    """
    _, plan = work.planned(path, options)
    queues, damage = [], []
    for row in merged(work.collect(_frame(spark, plan, _sums_task, ROWS), progress)):
        *values, sizes, path_of_file, start, stop, reason = row
        if values[0] is None:
            damage.append(Damage(path_of_file, start, stop, reason))
        else:
            names = (each.name for each in fields(QueueStatistics))
            found = dict(zip(names, (*values, tuple(sizes)), strict=True))
            queues.append(QueueStatistics(**found))
    queues.sort(key=lambda each: (each.topic, each.queue_id))
    damage.sort(key=lambda each: (each.start, each.path))
    return Statistics(tuple(queues), tuple(damage))


def statistics_rows(
    spark: SparkSession, path: str | Sequence[str], **options: work.OptionValue
) -> DataFrame:
    """Return the statistics as a DataFrame that is not yet computed, with a row for each queue.

    What had to be passed over stands in rows without a topic: path, start, stop, reason.
    """
    from pyspark.sql import functions as f

    _, plan = work.planned(path, options)
    sizes = f.array(*(f.sum(f.col("sizes")[index]) for index in range(SIZE_CLASSES)))
    return (
        _frame(spark, plan, _sums_task, ROWS)
        .groupBy(*_KEY, *_DAMAGE)
        .agg(
            *(f.sum(name).alias(name) for name in SUMS),
            *(f.min(name).alias(name) for name in LEAST),
            *(f.max(name).alias(name) for name in MOST),
            sizes.alias("sizes"),
        )
    )


def count(
    spark: SparkSession,
    path: str | Sequence[str],
    *,
    progress: work.Progress | None = None,
    **options: work.OptionValue,
) -> Count:
    """Return the number of messages in the stores at *path*, without a body leaving the scanner.

    *options* and errors are those of `statistics`.
    """
    _, plan = work.planned(path, options)
    messages = records = size = 0
    damage = []
    for row in work.collect(_frame(spark, plan, _count_task, _COUNTS), progress):
        if row.path is None:
            messages += row.messages
            records += row.records
            size += row.bytes
        else:
            damage.append(Damage(row.path, row.start, row.stop, row.reason))
    damage.sort(key=lambda each: (each.start, each.path))
    return Count(messages, records, size, tuple(damage))


_Share = Sequence[Partition]
"""The partitions that one task reads, one after the other."""


def _frame(
    spark: SparkSession,
    plan: Plan,
    task: Callable[[Options, _Share], Iterator[pa.RecordBatch]],
    table: work.Table,
) -> DataFrame:
    count = work.parallelism(spark, work.size_of(plan.partitions))
    shares = work.shares(plan.partitions, count)
    return work.distribute(spark, shares, partial(task, plan.options), table)


def _sums_task(options: Options, share: _Share) -> Iterator[pa.RecordBatch]:
    yield ROWS.batch(merged(row for each in share for row in sums_of(options, each)))


def _count_task(options: Options, share: _Share) -> Iterator[pa.RecordBatch]:
    sums = [0, 0, 0]
    rows: list[tuple[object, ...]] = []
    for topic, _, *columns in (row for each in share for row in sums_of(options, each)):
        if topic is None:
            rows.append((*(None,) * len(sums), *columns[-len(_DAMAGE) :]))
        else:
            sums = [a + b for a, b in zip(sums, columns, strict=False)]
    yield _COUNTS.batch([(*sums, None, None, None, None), *rows])


def merged(rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield *rows*, which have the columns of ROWS, with those of each queue as one.

    Rows about damage come first, unchanged.
    """
    by_queue: dict[tuple[str, int], Sequence[Any]] = {}
    for row in rows:
        key = row[0], row[1]
        if row[0] is None:
            yield row
        elif key in by_queue:
            by_queue[key] = _together(by_queue[key], row)
        else:
            by_queue[key] = row
    yield from by_queue.values()


def _together(a: Sequence[Any], b: Sequence[Any]) -> Sequence[Any]:
    sums_end = len(_KEY) + len(SUMS)
    bounds_end = sums_end + len(_BOUNDS)
    sums = (x + y for x, y in zip(a[len(_KEY) : sums_end], b[len(_KEY) : sums_end], strict=True))
    bounds = zip(a[sums_end:bounds_end], b[sums_end:bounds_end], strict=True)
    ends = ((max if number % 2 else min)(both) for number, both in enumerate(bounds))
    sizes = [x + y for x, y in zip(a[bounds_end], b[bounds_end], strict=True)]
    return (*a[: len(_KEY)], *sums, *ends, sizes, *a[bounds_end + 1 :])


def sums_of(options: Options, partition: Partition) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a partition: one for each queue and split, one for each damaged place."""
    for split in partition.splits:
        with closing(scan_of(split, options, None)) as scan:
            for each in work.walk(split, scan, options=options, summarize=True):
                assert isinstance(each, Damage)
                place = (each.path, each.start, each.stop, each.reason)
                yield (*(None,) * (len(ROWS.columns) - len(place)), *place)
            for row in scan.summary():
                topic = row[0].decode("utf-8", "replace")
                yield (topic, *row[1:-1], list(row[-1]), *(None,) * 4)
