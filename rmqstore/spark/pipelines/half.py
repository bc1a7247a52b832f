"""What hangs: transactions without an end, and delayed messages past their time.

A broker keeps a message of a transaction as a half message in a topic of its own, and its end as an
operation that names the half message's queue offset. A half message that is checked again is
stored there again. Stores of old clients mark the records themselves: prepared, and later a commit
or rollback that names the prepared record's offset.

Source: TransactionalMessageServiceImpl, TransactionalMessageBridge, ScheduleMessageService of
RocketMQ 5.3.3.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.message import SysFlag, TransactionType
from rmqstore.spark import scan
from rmqstore.spark.options import Options
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.report import Report, time_text
from rmqstore.store.metadata import DelayOffsets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from rmqstore.spark.read.ranges import Partition

__all__ = [
    "DELAY_TOPIC",
    "HALF_TOPIC",
    "OPERATION_TOPIC",
    "DelayLevel",
    "Hanging",
    "OpenTransaction",
    "delays",
    "open_transactions",
    "transactions",
]

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OPERATION_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where a broker stores half messages whose checks had no answer."""

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"

OnCorrupt = Literal["fail", "skip"]

_LISTED_MAX = 1000
_MASK = int(SysFlag.TRANSACTION_MASK)
_FLAGGED = work.Table(
    kind="INT",
    topic="STRING",
    queueId="INT",
    physicalOffset="BIGINT",
    preparedOffset="BIGINT",
    storeTimestamp="BIGINT",
    uniqKey="STRING",
)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A message that was prepared and neither committed nor rolled back."""

    topic: str | None
    """The topic it is meant for; None if the message does not name it."""

    queue_id: int | None
    physical_offset: int
    """Of its newest copy."""

    store_timestamp: int
    """Of its first copy, ms."""

    unique_key: str | None
    checks: int
    """How often it was stored again because the broker checked its transaction."""

    is_given_up: bool
    """Whether the broker has stopped checking."""

    def __str__(self) -> str:
        given_up = ", given up" if self.is_given_up else ""
        return (
            f"open transaction at {self.physical_offset}: {self.topic}/{self.queue_id}, stored "
            f"{time_text(self.store_timestamp)}, {self.checks} checks, key {self.unique_key}"
            f"{given_up}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "type": "transaction",
            "topic": self.topic,
            "queueId": self.queue_id,
            "phyOffset": self.physical_offset,
            "storeTimestamp": self.store_timestamp,
            "uniqKey": self.unique_key,
            "checks": self.checks,
            "givenUp": self.is_given_up,
        }


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """The messages of one delay level."""

    level: int
    messages: int
    delivered_offset: int | None
    """Queue offset of the next message to deliver, None where config/delayOffset.json has none."""

    overdue: int
    """Messages that are past their time and not delivered."""

    oldest_due: int | None
    """When the first of these was due, ms."""

    def __str__(self) -> str:
        late = f", the first due {time_text(self.oldest_due)}" if self.overdue else ""
        return f"delay level {self.level}: {self.messages} messages, {self.overdue} overdue{late}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "type": "delayLevel",
            "level": self.level,
            "messages": self.messages,
            "deliveredOffset": self.delivered_offset,
            "overdue": self.overdue,
            "oldestDue": self.oldest_due,
        }


@dataclass(frozen=True, slots=True)
class Hanging(Report):
    """What waits for an end that may never come."""

    transactions: tuple[OpenTransaction, ...]
    """The oldest ones, up to a limit."""

    transaction_count: int
    delays: tuple[DelayLevel, ...]

    @property
    def overdue(self) -> int:
        """Delayed messages past their time."""
        return sum(each.overdue for each in self.delays)

    @property
    def is_sound(self) -> bool:
        """Whether nothing hangs."""
        return not self.transaction_count and not self.overdue

    def lines(self) -> Iterator[str]:
        """Yield what hangs, and the numbers."""
        yield from map(str, self.transactions)
        if self.transaction_count > len(self.transactions):
            yield f"and {self.transaction_count - len(self.transactions)} more open transactions"
        yield from map(str, self.delays)
        yield f"{self.transaction_count} open transactions, {self.overdue} overdue messages"

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each, and a summary."""
        yield from (each.as_json() for each in self.transactions)
        yield from (each.as_json() for each in self.delays)
        yield {
            "type": "summary",
            "sound": self.is_sound,
            "openTransactions": self.transaction_count,
            "overdue": self.overdue,
        }


def transactions(
    spark: SparkSession,
    path: str,
    *,
    now_ms: int,
    min_age_ms: int = 0,
    delay_offsets: Mapping[int, int] | None = None,
    on_corrupt: OnCorrupt = "fail",
    progress: work.Progress | None = None,
) -> Hanging:
    """Return the open transactions and overdue messages of the store at *path* at a time *now_ms*.

    Transactions begun within *min_age_ms* are left out: their producers may be at work. Delayed
    messages count as delivered below *delay_offsets*, by level from 1; None reads them from the
    store's config/delayOffset.json. *on_corrupt* is what damage does to the job. Raises
    NotFoundError where there is no log.
    """
    found = open_transactions(spark, path, on_corrupt=on_corrupt).where(
        f"storeTimestamp <= {now_ms - min_age_ms}"
    )

    oldest = found.orderBy("storeTimestamp", "physicalOffset").limit(_LISTED_MAX + 1)
    rows = work.collect(oldest, progress)
    total = len(rows) if len(rows) <= _LISTED_MAX else found.count()

    listed = tuple(
        OpenTransaction(
            row.topic,
            row.queueId,
            row.physicalOffset,
            row.storeTimestamp,
            row.uniqKey,
            row.checks,
            row.givenUp,
        )
        for row in rows[:_LISTED_MAX]
    )

    if delay_offsets is None:
        delay_offsets = DelayOffsets.load(path).offsets if os.path.isdir(path) else {}
    waiting = delays(spark, path, on_corrupt=on_corrupt)
    levels = tuple(_levels(waiting, now_ms, delay_offsets, progress))

    return Hanging(listed, total, levels)


def open_transactions(
    spark: SparkSession, path: str, *, on_corrupt: OnCorrupt = "fail"
) -> DataFrame:
    """Return the transactions without an end as a DataFrame.

    Its columns: topic, queueId, physicalOffset, storeTimestamp (ms), uniqKey, checks, givenUp.
    """
    marked = _flagged(spark, path, on_corrupt)
    is_prepared = f"kind = {int(TransactionType.PREPARED)}"
    ends = marked.where(f"NOT {is_prepared}").selectExpr("preparedOffset AS endedOffset").distinct()

    prepared = (
        marked.where(is_prepared)
        .join(ends, marked.physicalOffset == ends.endedOffset, "left_anti")
        .selectExpr(
            "topic",
            "queueId",
            "physicalOffset",
            "storeTimestamp",
            "uniqKey",
            "0L AS checks",
            "false AS givenUp",
        )
    )

    return _open_halves(spark, path, on_corrupt, ends).unionByName(prepared)


def _open_halves(
    spark: SparkSession, path: str, on_corrupt: OnCorrupt, ends: DataFrame
) -> DataFrame:
    def messages(topic: str, *columns: str) -> DataFrame:
        return _messages(spark, path, topic, columns, on_corrupt)

    columns = ["queueId", "queueOffset", "physicalOffset", "storeTimestamp", "uniqKey"]
    halves = messages(HALF_TOPIC, *columns, "properties").selectExpr(
        *columns[:3],
        "unix_millis(storeTimestamp) AS storeTimestamp",
        "uniqKey",
        "properties['REAL_TOPIC'] AS topic",
        "CAST(properties['REAL_QID'] AS INT) AS realQueueId",
    )
    # The body names the queue offsets of half messages, separated by commas.
    operations = (
        messages(OPERATION_TOPIC, "queueId", "body")
        .selectExpr("queueId", "explode(split(CAST(body AS STRING), ',')) AS named")
        .selectExpr("queueId", "try_cast(trim(named) AS BIGINT) AS queueOffset")
        .where("queueOffset IS NOT NULL")
        .distinct()
        .selectExpr("queueId", "queueOffset", "true AS isEnded")
    )
    given_up = (
        messages(GIVEN_UP_TOPIC, "uniqKey")
        .where("uniqKey IS NOT NULL")
        .distinct()
        .selectExpr("uniqKey", "true AS givenUp")
    )
    committed = ends.selectExpr("endedOffset AS physicalOffset", "true AS isCommitted")
    return (
        halves.join(operations, ["queueId", "queueOffset"], "left")
        .join(committed, "physicalOffset", "left")
        .selectExpr(
            "*",
            "coalesce(isEnded, isCommitted, false) AS hasEnd",
            "coalesce(uniqKey, concat('@', physicalOffset)) AS message",
        )
        .groupBy("queueId", "message")
        .agg(*_newest_copy())
        .where("NOT hasEnd")
        .join(given_up, "uniqKey", "left")
        .selectExpr(
            "topic",
            "realQueueId AS queueId",
            "physicalOffset",
            "storeTimestamp",
            "uniqKey",
            "checks",
            "coalesce(givenUp, false) AS givenUp",
        )
    )


def _messages(
    spark: SparkSession, path: str, topic: str, columns: Sequence[str], on_corrupt: OnCorrupt
) -> DataFrame:
    """The messages of a topic that need not be there, which a pattern puts up with."""
    settings = {"subscribePattern": topic, "onCorrupt": on_corrupt}
    return scan(spark, path, columns=columns, **settings)


def _newest_copy() -> list[Any]:
    from pyspark.sql import functions as f

    newest = (f.max_by(name, "queueOffset").alias(name) for name in ("topic", "realQueueId"))
    return [
        *newest,
        f.max("uniqKey").alias("uniqKey"),
        f.max("physicalOffset").alias("physicalOffset"),
        f.min("storeTimestamp").alias("storeTimestamp"),
        (f.count(f.lit(1)) - 1).alias("checks"),
        f.max("hasEnd").alias("hasEnd"),
    ]


def _flagged(spark: SparkSession, path: str, on_corrupt: OnCorrupt) -> DataFrame:
    """The records marked as part of a transaction: found in the tasks, for they are few."""
    _, plan = work.planned(path, {"onCorrupt": on_corrupt})
    count = work.parallelism(spark, work.size_of(plan.partitions))
    task = partial(_flagged_task, plan.options)
    return work.distribute(spark, plan.partitions, task, _FLAGGED, partitions=count)


def _flagged_task(options: Options, partition: Partition) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import compute as pc

    names = (
        "sysFlag",
        "topic",
        "queueId",
        "physicalOffset",
        "preparedTransactionOffset",
        "storeTimestamp",
        "uniqKey",
    )
    for batch in work.rows_of(partition, options, names):
        kind = pc.bit_wise_and(batch.column(0), pa.scalar(_MASK, pa.int32()))
        stored = batch.column(5).cast(pa.timestamp("ms", "UTC"), safe=False)
        batch = batch.set_column(0, "kind", kind).set_column(5, "storeTimestamp", stored)
        found = batch.filter(pc.not_equal(kind, 0))
        if found.num_rows:
            yield _FLAGGED.cast(found)


def delays(spark: SparkSession, path: str, *, on_corrupt: OnCorrupt = "fail") -> DataFrame:
    """Return the delayed messages: level, queueOffset, physicalOffset, due (ms), uniqKey.

    A message is due at the time in its queue entry; levels count from 1.
    """
    columns = ("queueId", "queueOffset", "physicalOffset", "tagsCode", "uniqKey")
    return _messages(spark, path, DELAY_TOPIC, columns, on_corrupt).selectExpr(
        "queueId + 1 AS level", "queueOffset", "physicalOffset", "tagsCode AS due", "uniqKey"
    )


def _levels(
    messages: DataFrame,
    now_ms: int,
    offsets: Mapping[int, int],
    progress: work.Progress | None,
) -> Iterator[DelayLevel]:
    from pyspark.sql import functions as f

    delivered = f.lit(0)
    for level, offset in offsets.items():
        delivered = f.when(f.col("level") == level, offset).otherwise(delivered)
    is_overdue = (f.col("due") < now_ms) & (f.col("queueOffset") >= delivered)
    sums = messages.groupBy("level").agg(
        f.count(f.lit(1)).alias("messages"),
        f.count_if(is_overdue).alias("overdue"),
        f.min(f.when(is_overdue, f.col("due"))).alias("oldest"),
    )
    for row in sorted(work.collect(sums, progress), key=lambda row: int(row.level)):
        yield DelayLevel(row.level, row.messages, offsets.get(row.level), row.overdue, row.oldest)
