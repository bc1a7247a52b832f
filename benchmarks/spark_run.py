"""What the parts of bench_spark share: a session, and lines of results."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from benchmarks.limits import ROOT
from benchmarks.spark_watch import cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OURS", "Figures", "Run", "session", "timed"]

OURS = "rmqstore"
MASTER = "local[2]"
ERROR_KEPT = 400

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """Where the data lies, how often to measure, and where lines go."""

    directory: Path
    rounds: int
    out: TextIO
    tell: Callable[[str], None]

    def write(self, kind: str, **members: Any) -> None:
        """Write one line of results."""
        self.out.write(json.dumps({"type": kind, **members}, ensure_ascii=False) + "\n")
        self.out.flush()

    def measure(self, number: int, peer: str, workload: str, job: Callable[[], Figures]) -> None:
        """Write the figures of *job*, or its error: one failure does not end the run."""
        line: dict[str, Any] = {"round": number, "peer": peer, "workload": workload}
        try:
            line["figures"] = {name: round(value, 4) for name, value in job().items()}
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            line["error"] = text.replace(str(self.directory), "DIR")[:ERROR_KEPT]
        self.write("run", **line)
        figures = line.get("figures", {})
        shown = " ".join(f"{name}={value:,}" for name, value in figures.items())
        self.tell(f"{number} {workload} {peer}: {line.get('error') or shown}")


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
    cpu = cpu_seconds()
    began = time.perf_counter()
    action()
    seconds = time.perf_counter() - began
    return {
        "s": seconds,
        "MB_per_s": size / seconds / 1e6,
        "cpu_s": cpu_seconds() - cpu,
    }
