"""The Spark steps of `demo`: a query, a stream that follows a writer, a comparison of replicas."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rmqstore
from rmqstore import spark as rmqstore_spark
from rmqstore.cli.demo.steps import Done
from rmqstore.cli.demo.writer_process import MESSAGE, REPEATED
from rmqstore.cli.output import print_rows, progress
from rmqstore.errors import MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Done", "show"]

_FOLLOWED = "followed"
_RATE = 5_000
_LINES_A_LOOK = 20
_BATCHES_WANTED = 5
_FOLLOW_TIMEOUT_S = 180
_MONTHS_SHOWN = 3
_TURNED_BYTES = 3


def show(
    folder: Path, path: Path, topic: str, flown: Mapping[tuple[int, str], int], done: Done
) -> None:
    """Run all steps on the closed store at *path*, in *folder*; without Spark print the reason.

    *topic* holds the flights; *flown* is their number by month and origin.
    """
    try:
        with _session(folder) as spark:
            steps = _Steps(spark, folder, path, done)
            steps.query(topic, Counter(flown))
            steps.follow_a_writer()
            steps.compare_replicas()
    except MissingExtraError as error:
        print(f"6. to 8. Spark: skipped: {error}", flush=True)


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    builder = rmqstore_spark.session(
        master="local[2]",
        name="rmqstore demo",
        config={
            "spark.local.dir": str(folder / "spark"),
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
            "spark.ui.showConsoleProgress": "false",
        },
    )

    print("Spark is starting", flush=True)
    # PySpark warns about pandas 3.0 and later; this module does not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    # Workers import this package from the same place as this process.
    package = str(Path(rmqstore.__file__).parents[1])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (package, before)))

    started = builder.getOrCreate()
    try:
        yield started
    finally:
        started.stop()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@dataclass(frozen=True, slots=True)
class _Steps:
    spark: SparkSession
    folder: Path
    path: Path
    done: Done

    # ---- a query

    def query(self, topic: str, flown: Counter[tuple[int, str]]) -> None:
        print("6. Spark reads the store as a DataFrame", flush=True)
        began = time.monotonic()

        flights = (
            self.spark.read.format("rmqstore")
            .option("topic", topic)
            .option("columns", "queueId,tags")
            .load(str(self.path))
        )
        grouped = flights.groupBy("queueId", "tags").count().collect()

        seconds = time.monotonic() - began
        found = {(row.queueId + 1, row.tags): row["count"] for row in grouped}
        origins = sorted({origin for _, origin in found})

        print_rows(
            ("month", *origins),
            [
                (month, *(found.get((month, origin), 0) for origin in origins))
                for month in range(1, _MONTHS_SHOWN + 1)
            ],
        )

        proof = f"{len(found)} counts by month and origin are those of the source"
        self.done("query by Spark", sum(found.values()), seconds, proof, found == dict(flown))

    # ---- a stream

    def follow_a_writer(self) -> None:
        print("7. a streaming query follows a process that writes to the same store", flush=True)
        table = self.folder / "followed.parquet"
        began = time.monotonic()
        acknowledged, batches = self._follow(table)
        answer = self.spark.read.parquet(str(table)).selectExpr(
            "count(1)",
            "count(DISTINCT queueOffset)",
            "max(queueOffset)",
            f"count_if(body = repeat(format_string('{MESSAGE}', queueOffset), {REPEATED}))",
        )
        rows, different, last, right_bodies = answer.collect()[0]
        seconds = time.monotonic() - began
        right = 0 < rows == different == right_bodies == acknowledged == last + 1
        proof = f"all {acknowledged} acknowledged messages arrived once, in {batches} batches"
        self.done("follow a writer", rows, seconds, proof, right and batches >= _BATCHES_WANTED)

    def _follow(self, table: Path) -> tuple[int, int]:
        """Returns the number of messages that the writer reported as acknowledged, and the number
        of batches with messages."""
        followed = (
            self.spark.readStream.format("rmqstore")
            .option("topic", _FOLLOWED)
            .option("startingOffsets", "earliest")
            .option("columns", "queueOffset,body")
            .load(str(self.path))
        )
        with self._writer() as writer:
            assert writer.stdout is not None
            # The source warns of a topic that is absent: begin when it is there.
            writer.stdout.readline()
            query = (
                followed.writeStream.format("parquet")
                .option("path", str(table))
                .option("checkpointLocation", str(self.folder / "followed.checkpoint"))
                # Stop between triggers, when Spark does not call the source: stopped during a
                # call, Spark's worker prints a traceback.
                .trigger(processingTime="200 milliseconds")
                .start()
            )
            try:
                acknowledged = _write_until(
                    writer, lambda: _BATCHES_WANTED if not query.isActive else _batches(query)
                )
                query.processAllAvailable()
                return acknowledged, _batches(query)
            finally:
                query.stop()

    @contextmanager
    def _writer(self) -> Iterator[subprocess.Popen[bytes]]:
        """Yields a writer that prints how many of its messages are acknowledged; it is killed at
        the end of the block."""
        arguments = [
            sys.executable,
            "-m",
            "rmqstore.cli.demo.writer_process",
            str(self.path),
            _FOLLOWED,
            str(_RATE),
        ]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            try:
                yield writer
            finally:
                writer.kill()

    # ---- replicas

    def compare_replicas(self) -> None:
        from rmqstore.spark.pipelines import compare

        print(f"8. two copies of the store, one with {_TURNED_BYTES} bytes turned", flush=True)
        same, turned = self._copy("copy.store"), self._copy("turned.store")
        with rmqstore.open(self.path, read_only=True) as store:
            messages = sum(len(queue) for queue in store.queues())
            queue = store.queue(_FOLLOWED)
            record = queue.get(queue.start + len(queue) // 2)
        place = record.physical_offset + record.size // 2
        _turn(turned / "commitlog", place)
        began = time.monotonic()
        first = compare(self.spark, str(self.path), str(same))
        second = compare(self.spark, str(self.path), str(turned))
        seconds = time.monotonic() - began
        for difference in second.differences:
            print(difference)
        found = [(each.kind, each.first) for each in second.differences]
        right = first.is_sound and not first.differences and found == [("damage", place)]
        proof = (
            f"{(first.end - first.start) >> 20} MiB of one are the same; the other is damaged at "
            f"{place}, and nowhere else"
        )
        self.done("compare replicas", messages, seconds, proof, right)

    def _copy(self, name: str) -> Path:
        # Replicas are compared by their logs; index files take their full size at once.
        target = self.folder / name
        shutil.copytree(self.path, target, ignore=shutil.ignore_patterns("index"))
        return target


def _write_until(writer: subprocess.Popen[bytes], batches: Callable[[], int]) -> int:
    """Returns the number of messages that the writer reported as acknowledged. The writer is
    requested to end after enough batches."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    acknowledged, deadline = 0, time.monotonic() + _FOLLOW_TIMEOUT_S
    with progress("following", unit="batches") as report:
        for number, line in enumerate(writer.stdout):
            acknowledged = int(line)
            if number % _LINES_A_LOOK or writer.stdin.closed:
                continue
            arrived = batches()
            report(arrived, _BATCHES_WANTED)
            if arrived >= _BATCHES_WANTED or time.monotonic() > deadline:
                writer.stdin.close()
    return acknowledged


def _batches(query: StreamingQuery) -> int:
    """Returns the number of batches with messages."""
    return sum(each.numInputRows > 0 for each in query.recentProgress)


def _turn(log: Path, place: int) -> None:
    """Change bytes of a commit log from a physical offset on."""
    start, path = max((int(file.name), file) for file in log.iterdir() if int(file.name) <= place)
    with path.open("r+b") as file:
        file.seek(place - start)
        turned = bytes(byte ^ 0xFF for byte in file.read(_TURNED_BYTES))
        file.seek(place - start)
        file.write(turned)
