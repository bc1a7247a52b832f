"""Pipelines over a store in the page cache, and a store that is larger than memory has room for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rmqstore
from benchmarks.lines import OURS, Figures, Run
from benchmarks.processes import Peak, largest_python_KiB, read_bytes, status_KiB
from benchmarks.spark_data import (
    BATCH,
    BODY,
    RARE,
    RARE_SHARE,
    copy_log,
    forget,
    log_bytes,
    read_into_cache,
    write_store,
)
from benchmarks.spark_rows import JVM, SCANNER, WrongRows
from benchmarks.spark_run import session, timed
from benchmarks.workloads import TOPIC
from rmqstore.spark import jar_path, pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BIG", "LATE", "RARE_TOPIC", "WHOLE", "measure_big", "measure_pipelines"]

BIG = "big store"
LATE = "last twentieth by time"
WHOLE, RARE_TOPIC = "whole log", "topic of 1 %"
POLL_S = 0.1
FILE_BYTES = 1 << 30
"""Of a file of the log."""
CLOCK_STEP_MS = 1000
"""No clock went back by more while the store was written."""


def measure_pipelines(run: Run, size: int) -> None:
    """Measure count, audit, statistics and compare over a store of about *size* bytes."""
    store, replica = run.directory / "replica-a", run.directory / "replica-b"
    run.report("writing two replicas")
    messages = write_store(store, size, has_rare=True)
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
                number, SCANNER, "audit", lambda: timed(lambda: _scan(store, messages), stored)
            )
            if jar_path() is None:
                continue
            run.measure(number, JVM, WHOLE, lambda: _topic(spark, store, None, messages, stored))
            run.measure(
                number, JVM, RARE_TOPIC, lambda: _topic(spark, store, RARE, messages, stored)
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


def _topic(
    spark: SparkSession, store: Path, topic: str | None, messages: int, size: int
) -> Figures:
    """Sum of the bodies' lengths of one topic, or of all."""
    from pyspark.sql import functions as F

    frame = spark.read.format("rmqstore").option("reader", "jvm").load(str(store))
    chosen = frame if topic is None else frame.where(F.col("topic") == topic)
    wanted = messages if topic is None else -(-messages // RARE_SHARE)
    answer: list[int] = []
    figures = timed(
        lambda: answer.append(chosen.agg(F.sum(F.length("body"))).collect()[0][0]), size
    )
    if answer != [wanted * BODY]:
        raise WrongRows(f"{answer} instead of {wanted * BODY}")
    return figures


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
            if jar_path() is not None:
                run.measure(number, JVM, "planning", lambda: _plan(spark, store, reader="jvm"))
                run.measure(number, JVM, LATE, lambda: _read_late(spark, store, messages))
        run.measure(1, OURS, BIG, lambda: _read(spark, store, messages, stored, "python"))
        if jar_path() is not None:
            run.measure(1, JVM, BIG, lambda: _read(spark, store, messages, stored, "jvm"))


def _plan(spark: SparkSession, store: Path, *, reader: str = "python", **options: str) -> Figures:
    began = time.perf_counter()
    frame = spark.read.format("rmqstore").options(reader=reader, **options).load(str(store))
    partitions = frame._jdf.queryExecution().toRdd().getNumPartitions()
    return {"s": time.perf_counter() - began, "partitions": float(partitions)}


def _read_late(spark: SparkSession, store: Path, messages: int) -> Figures:
    """Count the last twentieth by time; how much of the log is read, and lies in the files that may
    hold it."""
    from pyspark.sql import functions as F

    with rmqstore.open(store, read_only=True) as opened:
        queue = opened.queue(TOPIC, 0)
        first = opened.get(TOPIC, queue=0, offset=queue.end - (queue.end - queue.start) // 20)
        assert first is not None
        # The clock may have stepped back between two records that are so far apart.
        before = queue.offset_at(first.store_timestamp - CLOCK_STEP_MS)
        early = opened.get(TOPIC, queue=0, offset=before)
        assert early is not None
        held = opened.end_offset - early.physical_offset // FILE_BYTES * FILE_BYTES
    frame = spark.read.format("rmqstore").load(str(store), maxClockStepMs=CLOCK_STEP_MS)
    late = frame.where(f"storeTimestamp >= timestamp_millis({first.store_timestamp})")
    answer: list[int] = []
    pid = _jvm(spark)
    read_before = read_bytes(pid)
    figures = timed(lambda: answer.append(late.agg(F.sum(F.length("body"))).collect()[0][0]), held)
    found, wanted = (answer[0] or 0) / BODY, messages / 20
    # All of a call have one time.
    if not 0.9 * wanted < found < 1.1 * wanted + 2 * BATCH:
        raise WrongRows(f"{found} messages instead of about {wanted}")
    read = read_bytes(pid) - read_before
    return {**figures, "MiB_read": read / 2**20, "MiB_held": held / 2**20}


def _jvm(spark: SparkSession) -> int:
    """Return the process in which driver and tasks of a local session run."""
    context: Any = spark.sparkContext
    return int(context._jvm.java.lang.ProcessHandle.current().pid())


def _read(spark: SparkSession, store: Path, messages: int, size: int, reader: str) -> Figures:
    from pyspark.sql import functions as F

    frame = spark.read.format("rmqstore").option("reader", reader).load(str(store))
    answer: list[int] = []

    def read() -> None:
        asked = frame.agg(F.count(F.lit(1)), F.sum(F.length("body")))
        answer.append(asked.collect()[0][0])

    pid = _jvm(spark)
    look = largest_python_KiB if reader == "python" else lambda: status_KiB(pid, "RssAnon") or 0
    before = 0 if reader == "python" else look()
    with Peak(look, poll_s=POLL_S) as peak:
        figures = timed(read, size)
    if answer != [messages]:
        raise WrongRows(f"{answer} instead of {messages}")
    name = "worker_MiB" if reader == "python" else "grown_MiB"
    return {**figures, name: (peak.value - before) / 2**10}
