"""What the parts of bench_spark share: a session, and how an action is timed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.limits import ROOT
from benchmarks.lines import Figures
from benchmarks.processes import cpu_seconds_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session", "timed"]

MASTER = "local[2]"


@contextmanager
def session(directory: Path, config: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Give a session of its own on two cores, with workers of its own."""
    from rmqstore.spark import session as builder

    # Workers import what is measured from this checkout.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )
    settings = {
        "spark.driver.memory": "4g",
        "spark.local.dir": str(directory / "spark"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "spark" / "warehouse"),
        **(config or {}),
    }
    started = builder(master=MASTER, name="bench_spark", config=settings).getOrCreate()
    try:
        yield started
    finally:
        started.stop()


def timed(action: Callable[[], object], size: int) -> Figures:
    """Return what *action* took, and the rate for *size* bytes of log."""
    cpu = cpu_seconds_below() + time.process_time()
    began = time.perf_counter()
    action()
    seconds = time.perf_counter() - began
    return {
        "s": seconds,
        "MB_per_s": size / seconds / 1e6,
        "cpu_s": cpu_seconds_below() + time.process_time() - cpu,
    }
