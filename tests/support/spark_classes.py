"""The classes that Spark loads, archived as Java has them in memory.

A session that starts with the archive takes half the processor time. The archive belongs to this
Java and to this Spark; where it fits neither, Java leaves it out without a word.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "build" / "spark"
TIMEOUT_S = 600.0

# Sessions of tests live for seconds: compiling little takes half of their processor time away.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def set_options() -> None:
    """Let all Spark programs that this process starts begin fast.

    Spark's own scripts read the variables, in programs that the tests start as well.
    """
    archive = shlex.quote(str(FOLDER / "classes.jsa"))
    quick = f"{_QUICK} -Xlog:disable -XX:SharedArchiveFile={archive}"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quick)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _QUICK)


def archive() -> None:
    """Make the archive, once for each release of Spark, whatever number of processes asks."""
    made = FOLDER / "classes.jsa"
    done = FOLDER / f"{version('pyspark')}.done"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            new = made.with_suffix(".new")
            new.unlink(missing_ok=True)
            _run_and_archive(new)
            with suppress(FileNotFoundError):  # of a Java that cannot do it
                new.rename(made)
            done.touch()


def _run_and_archive(archive: Path) -> None:
    options = f"{_QUICK} -Xlog:disable -XX:ArchiveClassesAtExit={shlex.quote(str(archive))}"
    environment = os.environ | {
        "SPARK_SUBMIT_OPTS": options,
        "PYTHONPATH": str(REPOSITORY),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, "-m", "tests.support.spark_classes"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr


def _load_classes() -> None:
    """Do a little of what the tests do, in a session that archives its classes at its end."""
    import tempfile

    from pyspark import SparkContext
    from pyspark.sql import functions

    import rmqstore
    from rmqstore.spark import session

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with rmqstore.open(folder / "a.store") as store:
            for number in range(20):
                store.put("T", b"%d" % number, tags="t", keys=["k"])

        config = {
            "spark.driver.memory": "512m",
            "spark.local.dir": str(folder / "local"),
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        spark = session(master="local[2]", name="classes", config=config).getOrCreate()
        frame = spark.read.format("rmqstore").load(str(folder / "a.store"))
        grouped = frame.groupBy("topic", "queueId").agg(functions.count("*").alias("n"))
        assert grouped.orderBy("n").collect()[0]["n"] == 20
        frame.write.parquet(str(folder / "rows"))
        rows = spark.read.parquet(str(folder / "rows"))
        assert rows.join(grouped, ["topic", "queueId"]).where("n > 1").count() == 20
        frame.createOrReplaceTempView("messages")
        assert spark.sql("SELECT DISTINCT topic FROM messages").toPandas().shape == (1, 1)
        assert spark.createDataFrame([(1, "a")], ["n", "s"]).first()["n"] == 1
        spark.stop()

        # Java archives while it ends: it has done so once its process is gone.
        gateway = SparkContext._gateway
        process = gateway.proc
        gateway.shutdown()
        process.stdin.close()
        process.wait(TIMEOUT_S)


if __name__ == "__main__":
    _load_classes()
