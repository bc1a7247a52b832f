"""What every benchmark needs: threads that begin at once, exact percentiles, rates."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Work", "percentiles", "rates", "run_threads"]

Work = Callable[[int, int, "array[int]"], None]
"""Called with the thread's number, how many calls to make, and where to add the nanoseconds that
each took."""


def run_threads(count: int, calls: int, work: Work) -> tuple[float, list[array[int]]]:
    """Run *work* in *count* threads at once; return the seconds from the common start to the last
    end, and the durations of each thread's calls in nanoseconds.

    The first exception of a thread is raised when all have ended.
    """
    latencies = [array("q") for _ in range(count)]
    if calls == 0:
        return 0.0, latencies
    if count == 1:
        began = time.perf_counter()
        work(0, calls, latencies[0])
        return time.perf_counter() - began, latencies
    failures: list[Exception] = []
    start = threading.Barrier(count + 1)

    def run(number: int) -> None:
        start.wait()
        try:
            work(number, calls, latencies[number])
        except Exception as error:  # handed to the caller below
            failures.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in running:
        thread.join()
    seconds = time.perf_counter() - began
    if failures:
        raise failures[0]
    return seconds, latencies


def rates(done: int, log_bytes: int, seconds: float) -> dict[str, Any]:
    """Return messages and bytes of the commit log for each second."""
    return {
        "bytes_per_message": log_bytes // done if done else 0,
        "seconds": round(seconds, 3),
        "msgs_per_s": round(done / seconds),
        "log_MB_per_s": round(log_bytes / seconds / 1e6, 2),
    }


def percentiles(parts: Sequence[array[int]]) -> dict[str, Any]:
    """Return how many calls there were, and the percentiles of their nanoseconds in
    microseconds."""
    ordered = sorted(duration for part in parts for duration in part)

    def at(quantile: float) -> float:
        if not ordered:
            return 0.0
        index = max(0, min(len(ordered), math.ceil(quantile * len(ordered))) - 1)
        return round(ordered[index] / 1000, 2)

    return {
        "calls": len(ordered),
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "p9999_us": at(0.9999),
        "max_us": at(1.0),
    }
