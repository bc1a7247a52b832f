"""`bench`: the named workloads, the same for every store they are compared with.

One line of JSON each: msgs_per_s is from the first call to the last return, msgs_per_s_dispatched
until queues and index are complete too, msgs_per_s_flushed until all is on the disk. Latencies are
per call, in microseconds, exact percentiles.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rmqstore import store as store_module
from rmqstore.cli.errors import EXIT_CODES, ExitCode, command, opened, tell
from rmqstore.cli.output import print_json
from rmqstore.cli.timing import Work, percentiles, rates, run_threads
from rmqstore.config import FlushDiskType
from rmqstore.errors import CorruptionError
from rmqstore.store import Store

__all__ = ["app"]

PULL = 32
"""Messages a get asks for."""

app = typer.Typer(help="Measure a store; each command prints JSON.")

Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The store.")]
Messages = Annotated[int, typer.Option(min=1, help="Messages in all.")]
Body = Annotated[int, typer.Option(min=0, help="Bytes of a body.")]
Threads = Annotated[int, typer.Option(min=1, max=256)]
Topics = Annotated[int, typer.Option(min=1)]
Queues = Annotated[int, typer.Option(min=1, help="Queues of each topic.")]
Warmup = Annotated[int | None, typer.Option(min=0, help="Messages before; default a fifth.")]


@app.callback(invoke_without_command=True)
@command
def bench(
    context: typer.Context,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="OUT_DIR",
            help="Run the whole comparison with this machine's limits and other stores, and write "
            "results.jsonl and report.html there. Needs a source checkout.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="With --report: where to write stores; 20 GB free."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="With --report.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --report: few messages, one round.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="With --report: a workload; may be repeated.")
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="With --report: a peer; may be repeated.")
    ] = None,
) -> ExitCode:
    """Measure a store; each command prints JSON."""
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    if report is None:
        print(context.get_help())
        return ExitCode.USAGE
    return _run_report(
        [
            *("--out", str(report.absolute())),
            *(("--dir", str(directory.absolute())) if directory else ()),
            *(("--rounds", str(rounds)) if rounds else ()),
            *(("--quick",) if quick else ()),
            *(("--only", *only) if only else ()),
            *(("--peers", *peer) if peer else ()),
        ]
    )


def _run_report(arguments: Sequence[str]) -> ExitCode:
    """Run benchmarks/report.py of the checkout this package is imported from."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "benchmarks" / "report.py").is_file():
        tell(
            "--report compares with programs that are not part of the installed package; "
            "run it, or make bench, in a checkout of the sources"
        )
        return ExitCode.USAGE
    command = [sys.executable, "-m", "benchmarks.report", *arguments]
    return ExitCode.OK if subprocess.run(command, cwd=checkout).returncode == 0 else ExitCode.FAILED


class Flush(StrEnum):
    """When a put is acknowledged: at once, or when it is on the disk."""

    ASYNC = "async"
    SYNC = "sync"


@app.command(epilog=EXIT_CODES)
@command
def put(
    directory: Directory,
    messages: Messages = 100_000,
    body: Body = 1024,
    threads: Threads = 1,
    flush: Flush = Flush.ASYNC,
    topics: Topics = 1,
    queues: Queues = 4,
    warmup: Warmup = None,
) -> ExitCode:
    """Put single messages."""
    return _measure_put(directory, messages, body, threads, flush, topics, queues, warmup, 1)


@app.command("put-many", epilog=EXIT_CODES)
@command
def put_many(
    directory: Directory,
    messages: Messages = 100_000,
    body: Body = 1024,
    threads: Threads = 1,
    flush: Flush = Flush.ASYNC,
    topics: Topics = 1,
    queues: Queues = 4,
    warmup: Warmup = None,
    batch: Annotated[int, typer.Option(min=1, help="Messages of a call.")] = 32,
) -> ExitCode:
    """Put many messages a call."""
    return _measure_put(directory, messages, body, threads, flush, topics, queues, warmup, batch)


def _measure_put(
    directory: Path,
    messages: int,
    body: int,
    threads: int,
    flush: Flush,
    topics: int,
    queues: int,
    warmup: int | None,
    batch: int,
) -> ExitCode:
    disk = FlushDiskType.SYNC_FLUSH if flush is Flush.SYNC else FlushDiskType.ASYNC_FLUSH
    calls = max(1, messages // batch // threads)
    warm = max(1000, messages // 5) if warmup is None else warmup
    with opened(directory, read_only=False, flush_disk_type=disk) as store:
        work = _putter(store, body, topics, queues, batch)
        run_threads(threads, max(1, warm // batch // threads) if warm else 0, work)
        store.wait_dispatched()
        start = store.end_offset
        began = time.perf_counter()
        seconds, latencies = run_threads(threads, calls, work)
        store.wait_dispatched(timeout=600)
        dispatched = time.perf_counter() - began
        store.flush()
        flushed = time.perf_counter() - began
        done = calls * batch * threads
        line: dict[str, Any] = {
            "bench": "put" if batch == 1 else "put-many",
            "messages": done,
            "threads": threads,
            "flush": str(flush),
            "batch": batch,
        }
        line |= rates(done, store.end_offset - start, seconds)
        line["msgs_per_s_dispatched"] = round(done / dispatched)
        line["msgs_per_s_flushed"] = round(done / flushed)
        print_json(line | percentiles(latencies))
    return ExitCode.OK


def _putter(store: Store, body: int, topics: int, queues: int, batch: int) -> Work:
    names = [f"bench{number}" for number in range(topics)]
    clock = time.perf_counter_ns

    def one(thread: int, calls: int, latencies: array[int]) -> None:
        payload = random.Random(thread).randbytes(body)
        put = store.put
        for number in range(calls):
            topic = names[number % topics]
            queue = (number // topics + thread) % queues
            began = clock()
            put(topic, payload, queue=queue)
            latencies.append(clock() - began)

    def many(thread: int, calls: int, latencies: array[int]) -> None:
        payload = random.Random(thread).randbytes(body)
        for number in range(calls):
            topic = names[number % topics]
            queue = (number // topics + thread) % queues
            messages = [payload] * batch
            began = clock()
            store.put_many(messages, topic=topic, queue=queue)
            latencies.append(clock() - began)

    return one if batch == 1 else many


@app.command(epilog=EXIT_CODES)
@command
def get(
    directory: Directory,
    decode: Annotated[
        bool, typer.Option("--decode", help="Look at body and properties of every message.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="The last round counts.")] = 2,
) -> ExitCode:
    """Read every queue from its start, 32 messages a call; CRCs are always checked."""
    with opened(directory) as store:
        queues = store.queues()
        for _ in range(rounds):
            latencies: array[int] = array("q")
            began = time.perf_counter()
            read = [
                _pull_all(store, queue.topic, queue.number, decode, latencies) for queue in queues
            ]
            seconds = time.perf_counter() - began
        done, size = sum(each[0] for each in read), sum(each[1] for each in read)
        line: dict[str, Any] = {"bench": "get", "messages": done, "pull": PULL, "decode": decode}
        print_json(line | rates(done, size, seconds) | percentiles([latencies]))
    return ExitCode.OK if done else ExitCode.FAULT


def _pull_all(
    store: Store, topic: str, number: int, decode: bool, latencies: array[int]
) -> tuple[int, int]:
    queue = store.queue(topic, number)
    offset, end = queue.start, queue.end
    count = size = 0
    while offset < end:
        began = time.perf_counter_ns()
        found = store.get_many(topic, queue=number, offset=offset, max_count=PULL)
        if decode:
            for record in found.records:
                record.body, record.properties  # noqa: B018 - the work is to decode them
        latencies.append(time.perf_counter_ns() - began)
        if not found.records:
            raise CorruptionError(f"nothing at {topic}/{number}, offset {offset}")
        count += len(found.records)
        size += sum(record.size for record in found.records)
        offset = found.next_offset
    return count, size


@app.command(epilog=EXIT_CODES)
@command
def recover(
    directory: Directory,
    rounds: Annotated[int, typer.Option(min=1, help="Openings of each kind.")] = 3,
) -> ExitCode:
    """Time opening a store: after a clean stop, after a crash, and after one without checkpoint.

    The checkpoint is put back afterwards.
    """
    # Nobody else may have it open, and what an earlier crash left must not be measured.
    with opened(directory, read_only=False):
        pass
    abort, checkpoint = directory / "abort", directory / "checkpoint"
    saved = directory / "checkpoint.bench"
    shutil.copyfile(checkpoint, saved)
    try:
        for kind in ("clean", "crash", "crash-no-checkpoint"):
            took = []
            end = 0
            for _ in range(rounds):
                shutil.copyfile(saved, checkpoint)
                abort.unlink(missing_ok=True)
                if kind != "clean":
                    abort.touch()
                if kind == "crash-no-checkpoint":
                    checkpoint.unlink()
                began = time.perf_counter()
                store = store_module.open(directory)
                took.append(round((time.perf_counter() - began) * 1000, 2))
                end = store.end_offset
                store.close()
            print_json({"bench": "recover", "kind": kind, "log_bytes": end, "load_ms": took})
    finally:
        saved.replace(checkpoint)
    return ExitCode.OK
