"""The CRC of every record checked, at the speed of the scanner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqstore.spark.options import Options
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.report import Damage, Report, bytes_text, time_text
from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.partitions import Plan
from rmqstore.spark.read.ranges import Partition
from rmqstore.spark.read.reader import scan_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Audit", "PartitionAudit", "audit", "audit_rows"]

EVERYTHING: Mapping[str, work.OptionValue] = {"upTo": "max", "failOnDataLoss": False}
"""Options of a read that damage does not stop; missing files are reported as gaps."""

_ROWS = work.Table(
    kind="STRING",
    store="STRING",
    path="STRING",
    start="BIGINT",
    stop="BIGINT",
    reason="STRING",
    records="BIGINT",
    bytes="BIGINT",
    minStoreTimestamp="BIGINT",
    maxStoreTimestamp="BIGINT",
)


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """What one partition of the log holds."""

    store: str
    start: int
    stop: int
    records: int
    bytes: int
    """Of these records."""

    min_store_timestamp: int | None
    max_store_timestamp: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "type": "partition",
            "store": self.store,
            "start": self.start,
            "stop": self.stop,
            "records": self.records,
            "bytes": self.bytes,
            "minStoreTimestamp": self.min_store_timestamp,
            "maxStoreTimestamp": self.max_store_timestamp,
        }


@dataclass(frozen=True, slots=True)
class Audit(Report):
    """What an audit found."""

    partitions: tuple[PartitionAudit, ...]
    damage: tuple[Damage, ...]
    """By place. Notes, which are normal, are among them."""

    @property
    def records(self) -> int:
        """Records whose CRC holds."""
        return sum(each.records for each in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of these records."""
        return sum(each.bytes for each in self.partitions)

    @property
    def is_sound(self) -> bool:
        """Whether every byte of the log belongs to a whole record."""
        return all(each.is_normal for each in self.damage)

    def lines(self) -> Iterator[str]:
        """Yield the damage and a verdict."""
        yield from map(str, self.damage)
        count = sum(not each.is_normal for each in self.damage)
        verdict = f"{count} damaged places" if count else "sound"
        first = min((t for p in self.partitions if (t := p.min_store_timestamp)), default=None)
        last = max((t for p in self.partitions if (t := p.max_store_timestamp)), default=None)
        yield (
            f"{verdict}: {self.records} records of {bytes_text(self.bytes)} are whole, stored from "
            f"{time_text(first)} to {time_text(last)}"
        )

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each damage and partition, and a summary."""
        yield from (each.as_json() for each in self.damage)
        yield from (each.as_json() for each in self.partitions)
        yield {
            "type": "summary",
            "sound": self.is_sound,
            "records": self.records,
            "bytes": self.bytes,
            "damage": sum(not each.is_normal for each in self.damage),
            "notes": sum(each.is_normal for each in self.damage),
        }


def audit(
    spark: SparkSession,
    path: str | Sequence[str],
    *,
    progress: work.Progress | None = None,
    **options: work.OptionValue,
) -> Audit:
    """Return which bytes of the stores at *path* are not whole records.

    Everything is read, also what is not confirmed; damage never ends the audit. *options* are those
    of the format that bound a read or shape its partitions. Raises NotFoundError where there is no
    log, ArgumentError for a wrong option.
    """
    layouts, plan = work.planned(path, {**EVERYTHING, **options})
    return report_of(layouts, work.collect(_frame(spark, plan), progress))


def report_of(layouts: Iterable[Layout], rows: Iterable[Sequence[Any]]) -> Audit:
    """Return the audit of the *rows* of all partitions, and of the bytes between and after
    these."""
    damage = [each for layout in layouts for each in (*work.gaps(layout), *work.tail(layout))]
    partitions = []
    for kind, store, path, start, stop, reason, *sums in rows:
        if kind == "damage":
            damage.append(Damage(path, start, stop, reason))
        else:
            partitions.append(PartitionAudit(store, start, stop, *sums))
    damage.sort(key=lambda each: (each.start, each.path))
    return Audit(tuple(partitions), tuple(damage))


def audit_rows(
    spark: SparkSession, path: str | Sequence[str], **options: work.OptionValue
) -> DataFrame:
    """Return the audit as a DataFrame that is not yet computed.

    There is a row of kind "damage" for each range of bytes that are not a record, with its path and
    reason, and one of kind "partition" for each partition, with sums over its whole records.
    """
    _, plan = work.planned(path, {**EVERYTHING, **options})
    return _frame(spark, plan)


def _frame(spark: SparkSession, plan: Plan) -> DataFrame:
    count = work.parallelism(spark, work.size_of(plan.partitions))
    task = partial(_task, plan.options)
    return work.distribute(spark, plan.partitions, task, _ROWS, partitions=count)


def _task(options: Options, partition: Partition) -> Iterator[pa.RecordBatch]:
    yield _ROWS.batch(check(options, partition))


def check(options: Options, partition: Partition) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a partition: damage first, then its sums."""
    for split in partition.splits:
        with closing(scan_of(split, options, None, check_crc=True)) as scan:
            for each in work.walk(split, scan, options=options, summarize=True):
                assert isinstance(each, Damage)
                place = (each.path, each.start, each.stop, each.reason)
                yield ("damage", split.store, *place, None, None, None, None)
            sums = scan.summary()
            yield (
                "partition",
                split.store,
                split.file.path,
                split.start,
                split.stop,
                None,
                sum(records for _, _, _, records, *_ in sums),
                sum(size for _, _, _, _, size, *_ in sums),
                min((first for *_, first, _, _, _, _ in sums), default=None),
                max((last for *_, last, _, _, _ in sums), default=None),
            )
