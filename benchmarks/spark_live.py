"""How old the newest row is when it reaches the sink of a stream that follows a writer."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.limits import ROOT
from benchmarks.lines import OURS, Figures, Run
from benchmarks.spark_rows import WrongRows
from benchmarks.spark_run import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["WARM_UP_S", "measure"]

WARM_UP_S = 20.0
"""The first batches are planned and compiled; they are not counted."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A batch at the sink; times are milliseconds since the epoch."""

    rows: int
    next_offset: int
    newest_ms: int
    oldest_ms: int
    at_ms: float


@dataclass(slots=True)
class _Sink:
    arrivals: list[_Arrival] = field(default_factory=list)

    def take(self, batch: DataFrame, number: int) -> None:
        """Every row is looked at; what comes back is one."""
        from pyspark.sql import functions as F

        row = batch.agg(
            F.count(F.lit(1)),
            F.max("queueOffset"),
            F.max(F.unix_millis("storeTimestamp")),
            F.min(F.unix_millis("storeTimestamp")),
            F.sum(F.length("body")),
        ).collect()[0]
        if row[0]:
            at_ms = time.time() * 1000
            self.arrivals.append(_Arrival(row[0], row[1] + 1, row[2], row[3], at_ms))


def measure(run: Run, rate: int, seconds: float) -> None:
    """Measure a stream over a store that gets *rate* messages a second."""
    with session(run.directory) as spark:
        workload = f"stream at {rate:,}/s"
        run.measure(1, OURS, workload, lambda: _follow(spark, run.directory, rate, seconds))


def _follow(spark: SparkSession, directory: Path, rate: int, seconds: float) -> Figures:
    store, checkpoint = directory / "live", directory / "live.checkpoint"
    shutil.rmtree(store, ignore_errors=True)
    shutil.rmtree(checkpoint, ignore_errors=True)

    arguments = [sys.executable, "-m", "benchmarks.spark_feeder", str(store)]
    arguments += [str(rate), str(WARM_UP_S + seconds)]
    sink = _Sink()

    began_ms = time.time() * 1000
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as feeder:
        try:
            while not any((store / "commitlog").glob("*")) and feeder.poll() is None:
                time.sleep(0.01)

            stream = (
                spark.readStream.format("rmqstore")
                .option("startingOffsets", "earliest")
                .load(str(store))
            )
            query = (
                stream.writeStream.foreachBatch(sink.take)
                .option("checkpointLocation", str(checkpoint))
                .start()
            )

            answer, _ = feeder.communicate()
            ended_ms = time.time() * 1000
            query.processAllAvailable()
            query.stop()
        finally:
            feeder.kill()

    wrote = json.loads(answer)
    rows = sum(each.rows for each in sink.arrivals)
    if not rows == wrote["messages"] == sink.arrivals[-1].next_offset:
        raise WrongRows(f"{rows} rows of {wrote['messages']} messages")

    counted = [
        each for each in sink.arrivals if began_ms + WARM_UP_S * 1000 < each.at_ms < ended_ms
    ]

    return {**_ages(counted), "wrote_per_s": wrote["messages"] / wrote["seconds"],
            "writer_late_ms": wrote["late_ms"]}  # fmt: skip


def _ages(arrivals: list[_Arrival]) -> Figures:
    if len(arrivals) < 2:
        raise WrongRows("too few batches: stream for longer")
    newest = [each.at_ms - each.newest_ms for each in arrivals]
    oldest = [each.at_ms - each.oldest_ms for each in arrivals]
    # Just before a batch arrives, the newest row at the sink is that of the batch before.
    before = [after.at_ms - each.newest_ms for each, after in itertools.pairwise(arrivals)]
    figures = {"batches": float(len(arrivals))}
    for name, ages in (("newest", newest), ("oldest", oldest), ("before_next", before)):
        ordered = sorted(ages)
        figures[f"{name}_p50_ms"] = ordered[len(ordered) // 2]
        figures[f"{name}_p99_ms"] = ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
    return figures
