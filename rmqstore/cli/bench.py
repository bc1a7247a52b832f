"""`bench`: the named workloads, equal for all compared stores.

Each prints one line of JSON; `rmqstore/measure/workloads.py` describes its members.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqstore.cli.errors import EXIT_CODES, ExitCode, command, opened, print_error
from rmqstore.cli.output import print_json
from rmqstore.config import FlushDiskType
from rmqstore.measure.workloads import (
    PULL,
    PutWorkload,
    measure_get,
    measure_openings,
    measure_put,
)

__all__ = ["app"]

app = typer.Typer(help="Measure a store; each command prints JSON.")

Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The store.")]
Messages = Annotated[int, typer.Option(min=1, help="Number of messages.")]
Body = Annotated[int, typer.Option(min=0, help="Bytes of a body.")]
Threads = Annotated[int, typer.Option(min=1, max=256)]
Topics = Annotated[int, typer.Option(min=1)]
Queues = Annotated[int, typer.Option(min=1, help="Queues of each topic.")]
Warmup = Annotated[
    int | None, typer.Option(min=0, help="Messages put before the measurement. Default: a fifth.")
]


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
        print_error(
            "--report compares with programs that are not part of the installed package; "
            "run it, or make bench, in a checkout of the sources"
        )
        return ExitCode.USAGE
    command = [sys.executable, "-m", "benchmarks.report", *arguments]
    return ExitCode.OK if subprocess.run(command, cwd=checkout).returncode == 0 else ExitCode.FAILED


class Flush(StrEnum):
    """When a put is acknowledged: immediately, or when it is on the disk."""

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
    """Put several messages with each call."""
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
    workload = PutWorkload(
        messages=messages,
        body_bytes=body,
        threads=threads,
        topics=topics,
        queues=queues,
        batch=batch,
        warmup=warmup,
    )

    with opened(directory, read_only=False, flush_disk_type=disk) as store:
        measured = measure_put(store, workload)

    name = "put" if batch == 1 else "put-many"
    settings = {"threads": threads, "flush": str(flush), "batch": batch}
    print_json({"bench": name, "messages": measured["messages"], **settings, **measured})
    return ExitCode.OK


@app.command(epilog=EXIT_CODES)
@command
def get(
    directory: Directory,
    decode: Annotated[
        bool, typer.Option("--decode", help="Decode body and properties of every message.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the last one counts.")] = 2,
) -> ExitCode:
    """Read every queue from its start, 32 messages a call; CRCs are always checked."""
    with opened(directory) as store:
        measured = measure_get(store, decode=decode, rounds=rounds)
    done = measured["messages"]
    print_json({"bench": "get", "messages": done, "pull": PULL, "decode": decode, **measured})
    return ExitCode.OK if done else ExitCode.FAULT


@app.command(epilog=EXIT_CODES)
@command
def recover(
    directory: Directory,
    rounds: Annotated[int, typer.Option(min=1, help="Openings of each kind.")] = 3,
) -> ExitCode:
    """Time the opening of a store after a clean stop, after a crash, and after a crash without
    checkpoint.

    The checkpoint is restored afterwards.
    """
    # No other process may have the store open, and leftovers of a crash must not be measured.
    with opened(directory, read_only=False):
        pass
    for measured in measure_openings(directory, rounds=rounds):
        print_json({"bench": "recover", **measured})
    return ExitCode.OK
