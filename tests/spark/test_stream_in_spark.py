"""Streaming queries of a real Spark: until what is there is read, and killed over and over."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="streaming is Spark's: pip install rmqstore[spark]")

from pyspark.errors import StreamingQueryException

from rmqstore.spark.jvm import jar_path
from tests.spark.stream_query import follow
from tests.spark.streaming import messages, open_store
from tests.support.effort import rounds
from tests.support.spark_session import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = int(os.environ.get("RMQ_SEED", "20240229"))
KILLS = rounds(1, 30)
MESSAGES_MAX = 10_000_000
"""More than are written before the writer is killed."""
WAIT_SECONDS = 240


def _numbers(spark: SparkSession, sink: Path) -> list[int]:
    rows = spark.read.parquet(str(sink)).select("body").collect()
    return sorted(int(bytes(row.body).partition(b":")[0]) for row in rows)


def test_available_now_goes_on_from_its_checkpoint_with_either_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, sink, checkpoint = (str(tmp_path / name) for name in ("a.store", "sink", "checkpoint"))
    counts = []
    behind = []
    readers = ("python", "jvm", "python") if jar_path() is not None else ("python", "python")
    with open_store(tmp_path / "a.store") as store:
        for number, reader in enumerate(readers):
            first = 400 * number
            store.put_many(messages(400, first=first))
            store.wait_dispatched()
            store.flush()
            query = follow(spark, path, sink, checkpoint, ends=True, reader=reader)
            assert query.awaitTermination(WAIT_SECONDS)
            scan = query._jsq.explainInternal(False)
            assert ("(JVM)" in scan) == (reader == "jvm")
            progress = query.recentProgress
            counts.append([each.numInputRows for each in progress])
            if reader == "jvm":
                behind = [each.sources[0].metrics for each in progress if each.numInputRows]
            assert _numbers(spark, tmp_path / "sink") == list(range(first + 400))
    if "jvm" in readers:
        sums = [int(each["bytesBehindLatest"]) for each in behind]
        assert sums == sorted({*sums}, reverse=True)
        assert sums[-1] == 0 < sums[0]
    for batches in counts:
        # As many as the limit of bytes asks for.
        assert len([rows for rows in batches if rows]) >= 3
        assert sum(batches) == 400


@pytest.mark.skipif(jar_path() is None, reason="the jar was not built: needs a JDK and pyspark")
def test_a_running_stream_of_the_jvm_goes_on_after_expiry_and_ends_at_a_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[int] = []
    with open_store(tmp_path / "a.store") as store:
        store.put_many(messages(300))

        def sink(frame: DataFrame, _: int) -> None:
            if not found:
                store.expire_files(2)
            found.extend(int(bytes(row.body).partition(b":")[0]) for row in frame.collect())

        options = {"reader": "jvm", "startingOffsets": "earliest", "upTo": "max"}
        source = spark.readStream.format("rmqstore").options(**options, failOnDataLoss=False)
        writer = source.load(str(tmp_path / "a.store")).writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        kept = list(store.scan_log())
        assert sorted(found) == [int(each.body.partition(b":")[0]) for each in kept]
        assert 0 < len(found) < 300
        assert "(JVM)" in query._jsq.explainInternal(False)

        end, cut = store.end_offset, kept[-10].physical_offset
        store.truncate_to(cut)
        with pytest.raises(
            StreamingQueryException, match=f"offset {end}, but the log ends at {cut}"
        ):
            query.awaitTermination(WAIT_SECONDS)


@contextmanager
def _process(log: Path, module: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of the tests in a group of its own, which is killed at the end."""
    paths = filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH")))
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", f"tests.spark.{module}", *map(str, arguments)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
            assert process.poll() is None, f"{module} ended by itself: {log.read_text()}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _has_ended(process: subprocess.Popen[bytes], *, within: float) -> bool:
    """Tell whether a process ends within so many seconds."""
    ended = os.pidfd_open(process.pid)
    try:
        return bool(select.select([ended], [], [], within)[0])
    finally:
        os.close(ended)


def test_a_query_whose_driver_is_killed_loses_nothing_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    path, sink, checkpoint = (tmp_path / name for name in ("a.store", "sink", "checkpoint"))
    log = tmp_path / "log"
    open_store(path).close()

    def batches() -> int:
        return sum(each.name.isdecimal() for each in (checkpoint / "offsets").glob("*"))

    with _process(log, "stream_writer", path, MESSAGES_MAX, 100):
        for kill in range(KILLS):
            enough = batches() + rng.randint(1, 4)
            with _process(log, "stream_query", path, sink, checkpoint, tmp_path / str(kill)) as run:
                deadline = time.monotonic() + WAIT_SECONDS
                while batches() < enough and not _has_ended(run, within=0.01):
                    assert time.monotonic() < deadline, log.read_text()
                # Killed anywhere within a batch, unless it ends by itself.
                _has_ended(run, within=rng.uniform(0, 0.5))
    # The writer was killed, too; what it left is counted by opening the store again.
    with open_store(path) as store:
        written = sum(1 for _ in store.scan_log())
    places = (str(path), str(sink), str(checkpoint))
    query = follow(spark, *places, ends=True, batch_bytes=100 << 20)
    assert query.awaitTermination(WAIT_SECONDS)
    assert _numbers(spark, sink) == list(range(written))
