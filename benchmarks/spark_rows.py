"""Rows into Spark: both readers of this source, the ceiling of the one in Python, Parquet of the
same rows, and tuples, in turn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rmqstore
from benchmarks.lines import OURS, Figures, Run, in_turn
from benchmarks.memory import back_memory
from benchmarks.spark_data import (
    BODY,
    TAGS,
    log_bytes,
    read_into_cache,
    write_parquet,
    write_store,
)
from benchmarks.spark_run import session, timed
from benchmarks.workloads import QUEUES, TOPIC
from rmqstore.spark import jar_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "CEILING",
    "CEILING_TCP",
    "COUNTS",
    "JVM",
    "NARROW",
    "OUTSIDE",
    "PARQUET",
    "SCANNER",
    "TCP",
    "TUPLES",
    "WrongRows",
    "measure",
]

CEILING, PARQUET, TUPLES, OUTSIDE = "ready-made batches", "parquet", "tuples", "decoder alone"
SCANNER = "outside Spark"
JVM = "rmqstore, JVM"
TCP = "rmqstore, TCP"
CEILING_TCP = "ready-made batches, TCP"

NARROW: Mapping[str, Sequence[str] | None] = {
    "all": None,
    "body": ("body",),
    "narrow-2": ("queueId", "storeTimestamp"),
    "narrow-5": ("topic", "queueId", "queueOffset", "storeTimestamp", "tags"),
}
"""Columns read, by the first part of a workload's name."""

NO_BODY = "no-body"
COUNTS: Mapping[str, Sequence[str]] = {
    "count-rows": (),
    "count-by-tag": ("topic", "queueId", "tags"),
}
"""Columns by which rows are counted, by workload."""

WARM_UPS = 4
CORES = 2
TOUCHED = 2 << 30
"""Bytes of memory that are touched and freed before a round: about what its largest way needs."""
SOCKETS = "spark.python.unix.domain.socket.enabled"


class WrongRows(Exception):
    """A way that did not give the rows of the store."""


@dataclass(frozen=True, slots=True)
class _Data:
    spark: SparkSession
    store: Path
    parquet: Path
    messages: int
    size: int

    def frame(self, peer: str, columns: Sequence[str] | None) -> DataFrame:
        """The rows by one of the ways; where columns have to be chosen at the source, they are."""
        read = self.spark.read
        if peer == JVM:
            frame = read.format("rmqstore").option("reader", "jvm").load(str(self.store))
            return frame.select(*columns) if columns else frame
        if peer == PARQUET:
            frame = read.parquet(str(self.parquet))
            return frame.select(*columns) if columns else frame
        source = {CEILING: "ready-made", CEILING_TCP: "ready-made", TUPLES: "tuples"}
        read = read.format(source.get(peer, "rmqstore")).option("path", str(self.store))
        if source.get(peer) == "ready-made":
            read = read.option("rows", str(self.messages))
        elif peer not in source:
            read = read.option("reader", "python")
        if columns:
            read = read.option("columns", ",".join(columns))
        return read.load()

    def noop(self, peer: str, columns: Sequence[str] | None) -> Figures:
        """Every column of every row reaches a sink that does nothing."""
        frame = self.frame(peer, columns)
        return timed(frame.write.format("noop").mode("overwrite").save, self.size)

    def agg(self, peer: str, columns: Sequence[str] | None) -> Figures:
        """Count and sum of the bodies' lengths; without bodies the greatest of each column."""
        from pyspark.sql import functions as F

        frame = self.frame(peer, columns)
        has_body = columns is None or "body" in columns
        asked: list[Column] = [F.count(F.lit(1))]
        asked += [F.sum(F.length("body"))] if has_body else [F.max(name) for name in columns or ()]
        answer: list[Any] = []
        figures = timed(lambda: answer.extend(frame.agg(*asked).collect()), self.size)
        wanted = (self.messages, self.messages * BODY)
        if tuple(answer[0])[: 1 + has_body] != wanted[: 1 + has_body]:
            raise WrongRows(f"{peer}: {answer[0]} instead of {wanted}")
        return figures

    def count(self, peer: str, groups: Sequence[str]) -> Figures:
        """How many rows there are, by the values of some columns."""
        frame = self.frame(peer, None).groupBy(*groups).count()
        answer: list[Any] = []
        figures = timed(lambda: answer.extend(frame.collect()), self.size)
        found = sum(row[-1] for row in answer)
        if found != self.messages:
            raise WrongRows(f"{peer}: {found} rows instead of {self.messages}")
        return figures

    def part(self, peer: str, condition: str, share: int) -> Figures:
        """Sum of the bodies' lengths where a condition holds, for one row of *share*."""
        frame = self.frame(peer, None).where(condition).selectExpr("sum(length(body))")
        answer: list[Any] = []
        figures = timed(lambda: answer.extend(frame.collect()), self.size)
        # Messages are a little uneven among queues and halves.
        found, wanted = answer[0][0] or 0, self.messages * BODY / share
        if not 0.9 * wanted < found < 1.1 * wanted:
            raise WrongRows(f"{peer}: {found} bytes where {condition} instead of {wanted:.0f}")
        return figures


def measure(run: Run, size: int) -> None:
    """Measure all ways over one store of about *size* bytes, then some once more by TCP."""
    store, parquet = run.directory / "rows", run.directory / "rows.parquet"
    run.report("writing the rows")
    messages = write_store(store, size, tags=TAGS)
    stored = log_bytes(store)

    with session(run.directory) as spark:
        _register(spark)
        write_parquet(spark, store, parquet)
        data = _Data(spark, store, parquet, messages, stored)
        no_body = [name for name in data.frame(OURS, None).columns if name != "body"]
        jobs = _jobs(data, no_body)
        _in_turn(run, jobs, store, parquet)

    with session(run.directory, {SOCKETS: "false"}) as spark:
        _register(spark)
        data = _Data(spark, store, parquet, messages, stored)
        jobs = {
            f"all-{name}": {
                peer: functools.partial(work, peer, None) for peer in (CEILING_TCP, TCP)
            }
            for name, work in (("noop", data.noop), ("agg", data.agg))
        }
        _in_turn(run, jobs, store, parquet)


Jobs = Mapping[str, Mapping[str, Callable[[], Figures]]]
"""By workload and peer."""


def _jobs(data: _Data, no_body: Sequence[str]) -> Jobs:
    jobs: dict[str, dict[str, Callable[[], Figures]]] = {}
    both = (OURS,) if jar_path() is None else (OURS, JVM)
    for name, columns in NARROW.items():
        for sink, work in (("noop", data.noop), ("agg", data.agg)):
            jobs[f"{name}-{sink}"] = {
                peer: functools.partial(work, peer, columns) for peer in (*both, CEILING, PARQUET)
            }
        jobs[f"{name}-noop"][OUTSIDE] = functools.partial(_outside, data, columns)
    jobs[f"{NO_BODY}-noop"] = {
        peer: functools.partial(data.noop, peer, no_body) for peer in (*both, CEILING, PARQUET)
    }
    jobs[f"{NO_BODY}-noop"][OUTSIDE] = functools.partial(_outside, data, no_body)
    jobs["all-noop"][TUPLES] = functools.partial(data.noop, TUPLES, None)
    for name, groups in COUNTS.items():
        jobs[name] = {
            peer: functools.partial(data.count, peer, groups) for peer in (*both[1:], PARQUET)
        }
    for workload, condition, share in (
        ("one-queue", "queueId = 1", QUEUES),
        ("one-tag", f"tags = '{TAGS[1]}'", len(TAGS)),
        ("late-half", f"storeTimestamp >= {_middle(data)}", 2),
    ):
        jobs[workload] = {
            peer: functools.partial(data.part, peer, condition, share) for peer in (*both, PARQUET)
        }
    return jobs


def _middle(data: _Data) -> str:
    """Return the store time of the message in the middle, as Spark's SQL has it."""
    with rmqstore.open(data.store, read_only=True) as store:
        queue = store.queue(TOPIC, 0)
        record = store.get(TOPIC, queue=0, offset=(queue.start + queue.end) // 2)
    assert record is not None
    return f"timestamp_millis({record.store_timestamp})"


def _in_turn(run: Run, jobs: Jobs, *places: Path) -> None:
    """Rounds that do not count, for the JVM's compilers; then each begins with another way."""
    for place in places:
        read_into_cache(place)
    for number in range(WARM_UPS):
        run.report(f"warming up, {number + 1} of {WARM_UPS}")
        for ways in jobs.values():
            for peer, job in ways.items():
                # Tuples take ten times as long as all others, and most of it in Python.
                if number == 0 or peer != TUPLES:
                    job()
    for number in range(1, run.rounds + 1):
        run.report(f"a page took {back_memory(TOUCHED):.0f} ns to touch")
        for workload, ways in jobs.items():
            for peer in in_turn(list(ways), number):
                run.measure(number, peer, workload, ways[peer])


def _outside(data: _Data, columns: Sequence[str] | None) -> Figures:
    """The batches that Spark would get, made in this process by a thread a core and dropped."""
    from rmqstore.spark.source import RmqStoreDataSource

    given = {"path": str(data.store)}
    source = RmqStoreDataSource({**given, "columns": ",".join(columns)} if columns else given)
    reader: Any = source.reader(source.schema())

    def count(part: Any) -> int:
        return sum(batch.num_rows for batch in reader.read(part))

    def read() -> None:
        with ThreadPoolExecutor(CORES) as threads:
            rows = sum(threads.map(count, reader.partitions()))
        if rows != data.messages:
            raise WrongRows(f"{rows} rows instead of {data.messages}")

    return timed(read, data.size)


def _register(spark: SparkSession) -> None:
    from benchmarks.spark_source import ReadyMadeSource, TuplesSource
    from rmqstore.spark import register

    register(spark)
    spark.dataSource.register(ReadyMadeSource)
    spark.dataSource.register(TuplesSource)
