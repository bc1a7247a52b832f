"""Runs the workloads on a store that is nothing but a log of bodies: append, make durable, read."""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.peers import Figures, Job, WrongAnswer
from benchmarks.workloads import BODIES, LATENCIES, Kind, Workload, bodies
from rmqstore.measure.timing import percentiles

__all__ = ["Log", "Open", "run", "supports"]

SUPPORTED = {
    "put-100",
    "put-1k",
    "put-4k",
    "put-many-100x100",
    "put-many-100x1k",
    "put-durable-1",
    "get-decoded-1k",
}


class Log(Protocol):
    """An open store. Bodies come back in the order they were appended."""

    def append(self, body: bytes) -> None: ...
    def append_many(self, bodies: Sequence[bytes]) -> None: ...
    def flush(self) -> None: ...
    def read(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


Open = Callable[[Path, bool], Log]
"""Opens the log in a directory; durable says whether every append is on the disk on return."""


def supports(workload: Workload) -> bool:
    """Return whether a log of bodies can do that."""
    return workload.name in SUPPORTED


def run(job: Job, open_log: Open, *, slowness: int = 1) -> Figures:
    """Do the job with one message of *slowness*, at least a thousand."""
    count = max(job.count // slowness, min(job.count, BODIES))
    path = job.directory / "log"
    path.mkdir()
    log = open_log(path, job.workload.kind is Kind.DURABLE)
    try:
        if job.workload.kind is Kind.GET:
            _fill(log, job.workload, count)
            log.close()
            log = open_log(path, False)
            return _get(log, job.workload, count)
        return _put(log, job.workload, count)
    finally:
        log.close()


def _fill(log: Log, workload: Workload, count: int) -> None:
    payloads = bodies(workload.body)
    for first in range(0, count, BODIES):
        log.append_many(payloads[: count - first])


def _get(log: Log, workload: Workload, count: int) -> Figures:
    _check(log, workload, count)
    size = found = 0
    began = time.perf_counter()
    for body in log.read():
        size += len(body)
        found += 1
    seconds = time.perf_counter() - began
    if (found, size) != (count, count * workload.body):
        raise WrongAnswer(f"{found} bodies of {size} bytes came back")
    return {
        "messages": count,
        "msgs_per_s": round(count / seconds),
        "MB_per_s": round(size / seconds / 1e6, 1),
    }


def _put(log: Log, workload: Workload, count: int) -> Figures:
    payloads = bodies(workload.body)
    batches = [
        payloads[first : first + workload.batch] for first in range(0, BODIES, workload.batch)
    ]
    figures: Figures = {}
    stored = 0

    if workload.kind is Kind.PUT:
        append, append_many = log.append, log.append_many
        began = time.perf_counter()
        if workload.batch == 1:
            for body in itertools.islice(itertools.cycle(payloads), count):
                append(body)
        else:
            for batch in itertools.islice(itertools.cycle(batches), count // workload.batch):
                append_many(batch)
        seconds = time.perf_counter() - began
        stored = count // workload.batch * workload.batch
        log.flush()
        flushed = time.perf_counter() - began
        figures = {
            "msgs_per_s": round(stored / seconds),
            "msgs_per_s_dispatched": round(stored / seconds),
            "msgs_per_s_flushed": round(stored / flushed),
        }
        calls = max(1, stored // workload.batch // LATENCIES)
    else:
        calls = count

    figures |= {"messages": stored or count}

    seconds, latencies = _timed(log, batches, stored // workload.batch, calls)
    figures |= percentiles([latencies])
    figures.setdefault("msgs_per_s", round(calls / seconds))
    figures["MB_per_s"] = round(figures["msgs_per_s"] * workload.body / 1e6, 1)

    _check(log, workload, stored + calls * workload.batch)
    return figures


def _timed(
    log: Log, batches: Sequence[Sequence[bytes]], first: int, calls: int
) -> tuple[float, array[int]]:
    latencies: array[int] = array("q")
    clock = time.perf_counter_ns
    start = time.perf_counter()
    for number in range(first, first + calls):
        batch = batches[number % len(batches)]
        began = clock()
        if len(batch) == 1:
            log.append(batch[0])
        else:
            log.append_many(batch)
        latencies.append(clock() - began)
    return time.perf_counter() - start, latencies


def _check(log: Log, workload: Workload, count: int) -> None:
    """Every body comes back, in order."""
    found = 0
    for body, wanted in zip(log.read(), itertools.cycle(bodies(workload.body)), strict=False):
        if body != wanted:
            raise WrongAnswer(f"body {found} is not the one stored")
        found += 1
    if found != count:
        raise WrongAnswer(f"{found} of {count} bodies came back")
