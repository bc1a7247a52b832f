"""This store, through its public Python interface."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

import rmqstore
from benchmarks.peers import Figures, Job, WrongAnswer
from benchmarks.workloads import (
    BODIES,
    LATENCIES,
    PACED_WARM_UP,
    QUEUES,
    ROLL_FILE_SIZE,
    STORES,
    TAG,
    TOPIC,
    Kind,
    Workload,
    bodies,
    body_at,
)
from rmqstore import Message, Store
from rmqstore.config import FlushDiskType
from rmqstore.measure.timing import Work, percentiles, run_threads
from rmqstore.store import arrow

NAME = "rmqstore"
DISPATCH_TIMEOUT_S = 600
ROOT = Path(__file__).resolve().parents[2]
ARROW_COLUMNS: Mapping[str, Callable[[tuple[str, ...]], list[str]]] = {
    # What a query over messages looks at.
    "arrow-no-bodies": lambda known: [
        "queue_id",
        "queue_offset",
        "physical_offset",
        "size",
        "store_timestamp",
        "born_timestamp",
        "tags",
        "keys",
    ],
    "arrow-every-field": lambda known: [name for name in known if name not in ("body", "record")],
    "arrow-bodies": lambda known: ["queue_offset", "body"],
}


def missing() -> str | None:
    """Return why the store cannot run: never."""
    return None


def supports(workload: Workload) -> bool:
    """Return True: the workloads are this store's own."""
    return True


def run(job: Job) -> Figures:
    """Do the job."""
    return _RUNS[job.workload.kind](job)


def prepare(name: str, root: Path, *, quick: bool) -> None:
    """Write a prepared store and close it."""
    plan = STORES[name]
    count = plan.quick if quick else plan.messages
    messages = [
        Message(TOPIC, body, queue=number % QUEUES, tags=TAG)
        for number, body in enumerate(bodies(1024))
    ]
    with rmqstore.open(root, commit_log_file_size_bytes=plan.log_file_size) as store:
        for _ in range(count // BODIES):
            store.put_many(messages)
        store.wait_dispatched(timeout=DISPATCH_TIMEOUT_S)


# -- put


def _put(job: Job) -> Figures:
    workload = job.workload
    with rmqstore.open(job.directory / "store") as store:
        turn = BODIES if workload.batch == 1 else workload.batch
        calls = max(1, job.count // workload.threads // turn)
        work, timed = _putters(store, workload)
        run_threads(workload.threads, calls // 5 or 1, work)
        store.wait_dispatched(timeout=DISPATCH_TIMEOUT_S)
        figures = _throughput(store, workload, calls, calls * turn * workload.threads, work)
        _, latencies = run_threads(workload.threads, calls // LATENCIES or 1, timed)
        figures |= percentiles(latencies)
        _check(store, workload)
    return figures


def _throughput(store: Store, workload: Workload, calls: int, count: int, work: Work) -> Figures:
    start = store.end_offset
    began = time.perf_counter()
    seconds, _ = run_threads(workload.threads, calls, work)

    returned = store.end_offset - start
    store.wait_dispatched(timeout=DISPATCH_TIMEOUT_S)
    dispatched = time.perf_counter() - began
    store.flush()
    flushed = time.perf_counter() - began

    return {
        "messages": count,
        "msgs_per_s": round(count / seconds),
        "msgs_per_s_dispatched": round(count / dispatched),
        "msgs_per_s_flushed": round(count / flushed),
        "MB_per_s": round(count * workload.body / dispatched / 1e6, 1),
        "bytes_per_message": returned // count,
    }


def _putters(store: Store, workload: Workload) -> tuple[Work, Work]:
    """Returns what puts without a look at the clock, a thousand messages or one batch a call, and
    what times each call."""
    payloads = bodies(workload.body)
    plans = [
        [(body, (number + thread) % QUEUES) for number, body in enumerate(payloads)]
        for thread in range(QUEUES)
    ]
    batches = [
        list(payloads[first : first + workload.batch]) for first in range(0, BODIES, workload.batch)
    ]
    put, put_many, clock = store.put, store.put_many, time.perf_counter_ns

    def single(thread: int, calls: int, latencies: array[int]) -> None:
        plan = plans[thread % QUEUES]
        for _ in range(calls):
            for body, queue in plan:
                put(TOPIC, body, queue=queue, tags=TAG)

    def single_timed(thread: int, calls: int, latencies: array[int]) -> None:
        plan = plans[thread % QUEUES]
        for _ in range(calls):
            for body, queue in plan:
                began = clock()
                put(TOPIC, body, queue=queue, tags=TAG)
                latencies.append(clock() - began)

    def many(thread: int, calls: int, latencies: array[int]) -> None:
        for call, batch in zip(range(calls), itertools.cycle(batches), strict=False):
            put_many(batch, topic=TOPIC, queue=(call + thread) % QUEUES)

    def many_timed(thread: int, calls: int, latencies: array[int]) -> None:
        for call, batch in zip(range(calls), itertools.cycle(batches), strict=False):
            began = clock()
            put_many(batch, topic=TOPIC, queue=(call + thread) % QUEUES)
            latencies.append(clock() - began)

    return (many, many_timed) if workload.batch > 1 else (single, single_timed)


def _paced(job: Job) -> Figures:
    workload = job.workload
    plan = [(body, number % QUEUES) for number, body in enumerate(bodies(workload.body))]
    with rmqstore.open(job.directory / "store") as store:
        put, clock = store.put, time.perf_counter_ns

        def work(thread: int, calls: int, latencies: array[int]) -> None:
            start = clock()
            for number, (body, queue) in zip(range(calls), itertools.cycle(plan), strict=False):
                due = start + number * 1_000_000_000 // workload.rate
                while clock() < due:
                    pass
                put(TOPIC, body, queue=queue, tags=TAG)
                latencies.append(clock() - due)

        count = max(1, job.count // BODIES) * BODIES
        run_threads(1, max(1, count // PACED_WARM_UP // BODIES) * BODIES, work)
        store.wait_dispatched(timeout=DISPATCH_TIMEOUT_S)
        before = store.end_offset
        seconds, latencies = run_threads(1, count, work)
        figures = {
            "messages": count,
            "msgs_per_s": round(count / seconds),
            "MB_per_s": round(count * workload.body / seconds / 1e6, 1),
            "bytes_per_message": (store.end_offset - before) // count,
        }
        figures |= percentiles(latencies)
        store.wait_dispatched(timeout=DISPATCH_TIMEOUT_S)
        _check(store, workload)
    return figures


def _check(store: Store, workload: Workload) -> None:
    """Everything put is there, every body one that was put; in order where one thread put them one
    by one."""
    known = frozenset(bodies(workload.body))
    is_single = workload.threads == 1 and workload.batch == 1
    in_turn = is_single and workload.kind in (Kind.PUT, Kind.PACED)

    end = store.end_offset
    found = size = 0

    for queue in store.queues(TOPIC):
        for offset, record in enumerate(queue.records()):
            body = record.body
            if in_turn:
                wanted = body_at(workload.body, queue=queue.number, offset=offset)
                good = body == wanted
            else:
                good = body in known
            if not good:
                raise WrongAnswer(f"{queue!r} offset {offset} holds another body")
            found += 1
            size += record.size

    if not found or size > end:
        raise WrongAnswer(f"{found} messages of {size} bytes in a log of {end}")
    if found != sum(len(queue) for queue in store.queues(TOPIC)):
        raise WrongAnswer(f"{found} messages came back")


def _durable(job: Job) -> Figures:
    workload = job.workload
    calls = max(1, job.count // workload.threads // workload.batch)
    payloads = bodies(workload.body)
    with rmqstore.open(job.directory / "store", flush_disk_type=FlushDiskType.SYNC_FLUSH) as store:
        put, clock = store.put, time.perf_counter_ns
        put_async, wait, together = store.put_async, store.wait, range(workload.batch)

        def with_handles(thread: int, calls: int, latencies: array[int]) -> None:
            for number in range(calls):
                body = payloads[number % BODIES]
                began = clock()
                wait([put_async(TOPIC, body, queue=at % QUEUES, tags=TAG) for at in together])
                latencies.append(clock() - began)

        def one_by_one(thread: int, calls: int, latencies: array[int]) -> None:
            for number in range(calls):
                body = payloads[number % BODIES]
                queue = (number + thread) % QUEUES
                began = clock()
                put(TOPIC, body, queue=queue, tags=TAG)
                latencies.append(clock() - began)

        work = with_handles if workload.kind is Kind.HANDLES else one_by_one
        run_threads(workload.threads, max(1, calls // 10), work)
        before, spent = store.end_offset, time.process_time_ns()
        seconds, latencies = run_threads(workload.threads, calls, work)
        count = calls * workload.threads * workload.batch
        cpu_us = (time.process_time_ns() - spent) / 1000 / count
        if store.flushed_offset < store.end_offset:
            raise WrongAnswer("acknowledged, but not on the disk")
        figures = {
            "messages": count,
            "msgs_per_s": round(count / seconds),
            "MB_per_s": round(count * workload.body / seconds / 1e6, 1),
            "bytes_per_message": (store.end_offset - before) // count,
            "cpu_us": round(cpu_us, 2),
        }
        figures |= percentiles(latencies)
        _check(store, workload)
    return figures


def _roll_over(job: Job) -> Figures:
    with rmqstore.open(job.directory / "store", commit_log_file_size_bytes=ROLL_FILE_SIZE) as store:
        payloads = bodies(job.workload.body)
        work, _ = _putters(store, job.workload)
        figures = _throughput(
            store, job.workload, job.count // BODIES, job.count // BODIES * BODIES, work
        )
        put, clock = store.put, time.perf_counter_ns
        all_calls: array[int] = array("q")
        rolls: array[int] = array("q")
        file = store.end_offset // ROLL_FILE_SIZE
        for number in range(job.count // BODIES * BODIES):
            began = clock()
            receipt = put(TOPIC, payloads[number % BODIES], queue=number % QUEUES, tags=TAG)
            took = clock() - began
            all_calls.append(took)
            if receipt.physical_offset // ROLL_FILE_SIZE != file:
                file = receipt.physical_offset // ROLL_FILE_SIZE
                rolls.append(took)
        store.wait_dispatched(timeout=DISPATCH_TIMEOUT_S)
        figures |= percentiles([all_calls])
        figures |= {f"roll_{name}": value for name, value in percentiles([rolls]).items()}
        _check(store, job.workload)
    return figures


# -- read


def _prepared(job: Job) -> Path:
    assert job.store is not None
    return job.store


def _get(job: Job) -> Figures:
    with rmqstore.open(_prepared(job), read_only=True) as store:
        queues = store.queues(TOPIC)
        _check(store, job.workload)
        count = size = 0
        began = time.perf_counter()
        for queue in queues:
            for record in queue.records():
                size += len(record.body)
                count += 1
        bodies_only = time.perf_counter() - began
        tags = 0
        began = time.perf_counter()
        for queue in queues:
            for record in queue.records():
                tags += len(record.body) > 0 and record.properties["TAGS"] == TAG
        seconds = time.perf_counter() - began
    if size != count * job.workload.body or tags != count:
        raise WrongAnswer(f"{count} messages with {size} bytes and {tags} tags came back")
    return {
        "messages": count,
        "msgs_per_s": round(count / seconds),
        "bodies_per_s": round(count / bodies_only),
        "MB_per_s": round(size / seconds / 1e6, 1),
    }


def _arrow(job: Job) -> Figures:
    with rmqstore.open(_prepared(job), read_only=True) as store:
        columns = ARROW_COLUMNS[job.workload.name](arrow.column_names())
        expected = sum(len(queue) for queue in store.queues(TOPIC))
        seconds = []
        for _ in range(4):  # the first one faults the pages in
            rows = size = 0
            began = time.perf_counter()
            for batch in store.scan_arrow(columns=columns):
                rows += batch.num_rows
                size += batch.nbytes
            seconds.append(time.perf_counter() - began)
        if rows != expected:
            raise WrongAnswer(f"{rows} rows of {expected} messages")
        if "body" in columns and size < rows * job.workload.body:
            raise WrongAnswer(f"{size} bytes of columns")
    took = statistics.median(seconds[1:])
    return {
        "messages": rows,
        "columns": len(columns),
        "msgs_per_s": round(rows / took),
        "MB_per_s": round(size / took / 1e6, 1),
        "ns_per_message": round(took / rows * 1e9, 2),
    }


def _recover(job: Job) -> Figures:
    root = _prepared(job)
    with rmqstore.open(root) as store:
        expected = sum(len(queue) for queue in store.queues(TOPIC))

    checkpoint, saved = root / "checkpoint", job.directory / "checkpoint"
    shutil.copyfile(checkpoint, saved)
    figures: Figures = {}

    for kind in ("clean", "crash-with-checkpoint", "crash"):
        opened, complete = [], []
        for _ in range(3):
            shutil.copyfile(saved, checkpoint)
            if kind != "clean":
                (root / "abort").touch()
            if kind == "crash":
                checkpoint.unlink()

            began = time.perf_counter()
            store = rmqstore.open(root)
            opened.append((time.perf_counter() - began) * 1000)
            store.wait_dispatched(timeout=DISPATCH_TIMEOUT_S)
            complete.append((time.perf_counter() - began) * 1000)

            end, walked = store.end_offset, store.recovery.records
            found = sum(len(queue) for queue in store.queues(TOPIC))
            store.close()
            if found != expected or (kind == "crash" and walked != expected):
                raise WrongAnswer(f"{kind}: {found} of {expected} messages, {walked} walked")

        prefix = "" if kind == "crash" else f"{kind}_"
        figures[f"{prefix}open_ms"] = round(statistics.median(opened), 2)
        figures[f"{prefix}ms"] = round(statistics.median(complete), 2)

    return figures | {
        "messages": expected,
        "log_bytes": end,
        "MB_per_s": round(end / figures["ms"] / 1e3, 1),
    }


# -- what it costs to have it


def _private_bytes() -> dict[str, int]:
    found = {"private": 0, "anonymous": 0}
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name.startswith("Private_"):
            found["private"] += int(value.split()[0]) * 1024
        elif name == "Anonymous":
            found["anonymous"] = int(value.split()[0]) * 1024
    return found


def _memory(job: Job) -> Figures:
    root = _prepared(job)
    with rmqstore.open(root):
        pass  # what the first opening of a process costs once is not the store's

    before = _private_bytes()

    with rmqstore.open(root) as store:
        after = _private_bytes()
        files = len(store._files())
        # One message of every file: each is mapped then.
        for _, start, _ in store._files():
            store.record_at(start)
        mapped = _private_bytes()

    return {
        "files": files,
        "private_MiB": round((after["private"] - before["private"]) / 2**20, 2),
        "anonymous_MiB": round((after["anonymous"] - before["anonymous"]) / 2**20, 2),
        "all_mapped_private_MiB": round((mapped["private"] - before["private"]) / 2**20, 2),
        "process_private_MiB": round(after["private"] / 2**20, 2),
    }


def _import(job: Job) -> Figures:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
        return (time.perf_counter() - began) * 1000

    start("import rmqstore")
    rounds = [(start("pass"), start("import rmqstore")) for _ in range(job.count)]
    bare = statistics.median(each[0] for each in rounds)
    return {
        "ms": round(statistics.median(each[1] for each in rounds) - bare, 2),
        "bare_ms": round(bare, 2),
    }


_RUNS: Mapping[Kind, Callable[[Job], Figures]] = {
    Kind.PUT: _put,
    Kind.PACED: _paced,
    Kind.DURABLE: _durable,
    Kind.HANDLES: _durable,
    Kind.GET: _get,
    Kind.ARROW: _arrow,
    Kind.RECOVER: _recover,
    Kind.ROLL_OVER: _roll_over,
    Kind.MEMORY: _memory,
    Kind.IMPORT: _import,
}
