"""Pipelines over a store in the page cache, and a store that is larger than memory has room for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import rmqstore
from benchmarks.lines import OURS, Figures, Run
from benchmarks.processes import Peak, largest_python_KiB
from benchmarks.spark_data import (
    copy_log,
    forget,
    log_bytes,
    read_into_cache,
    write_store,
)
from benchmarks.spark_rows import OUTSIDE, WrongRows
from benchmarks.spark_run import session, timed
from benchmarks.workloads import TOPIC
from rmqstore.spark import pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BIG", "measure_big", "measure_pipelines"]

BIG = "big store"
POLL_S = 0.1


def measure_pipelines(run: Run, size: int) -> None:
    """Measure count, audit, statistics and compare over a store of about *size* bytes."""
    store, replica = run.directory / "replica-a", run.directory / "replica-b"
    run.report("writing two replicas")
    messages = write_store(store, size)
    copy_log(store, replica)
    stored = log_bytes(store)

    with session(run.directory) as spark:
        jobs = _pipelines(spark, store, replica, messages)
        read_into_cache(store / "commitlog")
        read_into_cache(replica / "commitlog")
        for job in jobs.values():
            job()
        for number in range(1, run.rounds + 1):
            for workload, job in jobs.items():
                run.measure(number, OURS, workload, lambda job=job: timed(job, stored))  # type: ignore[misc]
            run.measure(
                number, OUTSIDE, "audit", lambda: timed(lambda: _scan(store, messages), stored)
            )


def _pipelines(
    spark: SparkSession, store: Path, replica: Path, messages: int
) -> Mapping[str, Callable[[], None]]:
    path = str(store)

    def check(found: int, is_sound: bool) -> None:
        if found != messages or not is_sound:
            raise WrongRows(f"{found} of {messages} messages, sound: {is_sound}")

    def count() -> None:
        check(pipelines.count(spark, path).messages, True)

    def audit() -> None:
        answer = pipelines.audit(spark, path)
        check(answer.records, answer.is_sound)

    def statistics() -> None:
        answer = pipelines.statistics(spark, path)
        check(answer.messages, answer.is_sound)

    def compare() -> None:
        check(messages, pipelines.compare(spark, path, str(replica)).is_sound)

    return {"count": count, "audit": audit, "statistics": statistics, "compare": compare}


def _scan(store: Path, messages: int) -> None:
    with rmqstore.open(store, read_only=True) as opened:
        records, _ = opened.scan_log(check_crc=True).count()
    if records != messages:
        raise WrongRows(f"{records} of {messages} records")


def measure_big(run: Run, size: int) -> None:
    """Measure planning over a store of about *size* bytes, and the memory of its readers."""
    store = run.directory / "big"
    run.report("writing the big store")
    messages = write_store(store, size)
    stored = log_bytes(store)
    with session(run.directory) as spark:
        _plan(spark, store)  # processes that plan are there from now on
        for number in range(1, run.rounds + 1):
            forget(store)
            run.measure(number, OURS, "planning, cold", lambda: _plan(spark, store))
            run.measure(number, OURS, "planning", lambda: _plan(spark, store))
            run.measure(number, OURS, "planning, topic", lambda: _plan(spark, store, topic=TOPIC))
        run.measure(1, OURS, BIG, lambda: _read(spark, store, messages, stored))


def _plan(spark: SparkSession, store: Path, **options: str) -> Figures:
    began = time.perf_counter()
    frame = spark.read.format("rmqstore").options(reader="python", **options).load(str(store))
    partitions = frame._jdf.queryExecution().toRdd().getNumPartitions()
    return {"s": time.perf_counter() - began, "partitions": float(partitions)}


def _read(spark: SparkSession, store: Path, messages: int, size: int) -> Figures:
    from pyspark.sql import functions as F

    frame = spark.read.format("rmqstore").option("reader", "python").load(str(store))
    answer: list[int] = []

    def read() -> None:
        asked = frame.agg(F.count(F.lit(1)), F.sum(F.length("body")))
        answer.append(asked.collect()[0][0])

    with Peak(largest_python_KiB, poll_s=POLL_S) as peak:
        figures = timed(read, size)
    if answer != [messages]:
        raise WrongRows(f"{answer} instead of {messages}")
    return {**figures, "worker_MiB": peak.value / 2**10}
