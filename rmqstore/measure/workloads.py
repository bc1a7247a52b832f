"""The workloads that measure a store, the same for every store it is compared with.

Each returns members of JSON. msgs_per_s is from the first call to the last return,
msgs_per_s_dispatched until queues and index are complete too, msgs_per_s_flushed until everything
is on the disk. Latencies are per call, in microseconds, exact percentiles.
"""

from __future__ import annotations

import random
import shutil
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rmqstore import store as store_module
from rmqstore.errors import CorruptionError
from rmqstore.measure.timing import Work, percentiles, rates, run_threads
from rmqstore.store import Queue, Store

__all__ = [
    "OPENINGS",
    "PULL",
    "Opening",
    "PutWorkload",
    "measure_get",
    "measure_openings",
    "measure_put",
]

PULL = 32
"""Messages that a get requests."""

Opening = Literal["clean", "crash", "crash-no-checkpoint"]
OPENINGS: tuple[Opening, ...] = ("clean", "crash", "crash-no-checkpoint")
"""The event before the opening of a store: a clean stop, a crash, a crash that lost the
checkpoint."""

_WARMUP_MIN = 1000
_DISPATCH_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class PutWorkload:
    """How messages are put: how many, by how many threads, how large, and to which queues."""

    messages: int
    body_bytes: int
    threads: int
    topics: int
    queues: int
    """Queues of each topic."""
    batch: int = 1
    """Messages of a call; 1 for single puts."""
    warmup: int | None = None
    """Messages put before the measured ones, None for a fifth of these."""

    @property
    def warmup_messages(self) -> int:
        """How many messages are put before the measured ones."""
        return max(_WARMUP_MIN, self.messages // 5) if self.warmup is None else self.warmup

    def calls(self, messages: int) -> int:
        """Return how many calls of each thread put *messages*; at least one."""
        return max(1, messages // self.batch // self.threads)


def measure_put(store: Store, workload: PutWorkload) -> dict[str, Any]:
    """Put the messages of *workload* into *store*, and return rates and latencies."""
    work = _putter(store, workload)
    warmup = workload.warmup_messages
    run_threads(workload.threads, workload.calls(warmup) if warmup else 0, work)
    store.wait_dispatched()

    start = store.end_offset
    began = time.perf_counter()
    calls = workload.calls(workload.messages)
    seconds, latencies = run_threads(workload.threads, calls, work)
    store.wait_dispatched(timeout=_DISPATCH_SECONDS_MAX)
    dispatched = time.perf_counter() - began
    store.flush()
    flushed = time.perf_counter() - began

    done = calls * workload.batch * workload.threads
    return {
        "messages": done,
        **rates(done, store.end_offset - start, seconds),
        "msgs_per_s_dispatched": round(done / dispatched),
        "msgs_per_s_flushed": round(done / flushed),
        **percentiles(latencies),
    }


def _putter(store: Store, workload: PutWorkload) -> Work:
    topics, queues, batch = workload.topics, workload.queues, workload.batch
    names = [f"bench{number}" for number in range(topics)]
    clock = time.perf_counter_ns

    def one(thread: int, calls: int, latencies: array[int]) -> None:
        payload = random.Random(thread).randbytes(workload.body_bytes)
        put = store.put
        for number in range(calls):
            topic = names[number % topics]
            queue = (number // topics + thread) % queues
            began = clock()
            put(topic, payload, queue=queue)
            latencies.append(clock() - began)

    def many(thread: int, calls: int, latencies: array[int]) -> None:
        payload = random.Random(thread).randbytes(workload.body_bytes)
        for number in range(calls):
            topic = names[number % topics]
            queue = (number // topics + thread) % queues
            messages = [payload] * batch
            began = clock()
            store.put_many(messages, topic=topic, queue=queue)
            latencies.append(clock() - began)

    return one if batch == 1 else many


def measure_get(store: Store, *, decode: bool, rounds: int) -> dict[str, Any]:
    """Read every queue of *store* from its start, PULL messages a call, *rounds* times; return
    rates and latencies of the last round.

    With *decode* body and properties of each message are decoded. CRCs are always checked. Raises
    CorruptionError where a queue has no message before its end.
    """
    queues = store.queues()
    for _ in range(rounds):
        latencies: array[int] = array("q")
        began = time.perf_counter()
        read = [_pull_all(queue, decode, latencies) for queue in queues]
        seconds = time.perf_counter() - began

    done, size = sum(each[0] for each in read), sum(each[1] for each in read)
    return {"messages": done, **rates(done, size, seconds), **percentiles([latencies])}


def _pull_all(queue: Queue, decode: bool, latencies: array[int]) -> tuple[int, int]:
    """Reads a queue; returns how many messages it has, and the size of their records in bytes."""
    store, offset, end = queue.store, queue.start, queue.end
    count = size = 0
    while offset < end:
        began = time.perf_counter_ns()
        found = store.get_many(queue.topic, queue=queue.number, offset=offset, max_count=PULL)
        if decode:
            for record in found.records:
                record.body, record.properties  # noqa: B018 - the work is to decode them
        latencies.append(time.perf_counter_ns() - began)

        if not found.records:
            raise CorruptionError(
                f"queue {queue.topic}/{queue.number} ends at {end}, and nothing can be read at "
                f"{offset}; see rmqstore verify {store.path}",
                kind="consume queue",
                suggested_command=f"rmqstore verify {store.path}",
            )
        count += len(found.records)
        size += sum(record.size for record in found.records)
        offset = found.next_offset
    return count, size


def measure_openings(directory: Path, *, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield how long *rounds* openings of the closed store in *directory* took, for each of
    OPENINGS; the checkpoint is restored at the end."""
    with _restored_checkpoint(directory) as saved:
        for kind in OPENINGS:
            took_ms, end_offset = [], 0
            for _ in range(rounds):
                _prepare_opening(directory, kind, saved)
                began = time.perf_counter()
                store = store_module.open(directory)
                took_ms.append(round((time.perf_counter() - began) * 1000, 2))
                end_offset = store.end_offset
                store.close()
            yield {"kind": kind, "log_bytes": end_offset, "load_ms": took_ms}


@contextmanager
def _restored_checkpoint(directory: Path) -> Iterator[Path]:
    saved = directory / "checkpoint.bench"
    shutil.copyfile(directory / "checkpoint", saved)
    try:
        yield saved
    finally:
        saved.replace(directory / "checkpoint")


def _prepare_opening(directory: Path, kind: Opening, saved: Path) -> None:
    abort, checkpoint = directory / "abort", directory / "checkpoint"
    shutil.copyfile(saved, checkpoint)
    abort.unlink(missing_ok=True)
    if kind != "clean":
        abort.touch()
    if kind == "crash-no-checkpoint":
        checkpoint.unlink()
