"""Replication beside a bare loopback connection and a pair of the real Java store.

    python -m benchmarks.bench_replicate [--dir DIR] [--out DIR] [--rounds N] [--only PART...]
                                         [--peers PEER...] [--size 512m]
    python -m benchmarks.bench_replicate --from results.jsonl --out DIR

Writes results.jsonl and tables.md to --out, and prints the tables.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import limits, machine, replica_bars, replica_java, replica_pair, replica_slaves
from benchmarks.java import JavaFailed
from benchmarks.lines import OURS, Run, options, parsed, report, results_of, show
from benchmarks.spark_data import size_of

__all__ = ["main"]

PARTS = ("catch-up", "quorum", "reconnect", "slaves")
PEERS = (OURS, replica_java.NAME)


def main(arguments: list[str] | None = None) -> int:
    """Run as the command line says; returns 1 when something failed on the way."""
    given = _parse(arguments)
    results = results_of(given, _measure)
    return show(results, replica_bars.text(results), given.out)


def _measure(given: argparse.Namespace, lines: Path) -> None:
    parts = given.only or PARTS
    given.dir.mkdir(parents=True, exist_ok=True)
    with lines.open("w", encoding="utf-8") as out:
        run = Run(given.dir, given.rounds, out, report)
        run.write("machine", **machine.facts(given.dir))
        peers = _ready(run, given.peers)
        work: Mapping[str, Callable[[Run], None]] = {
            "catch-up": lambda run: replica_pair.measure_catch_up(run, peers, size_of(given.size)),
            "quorum": lambda run: replica_pair.measure_quorum(run, peers),
            "reconnect": lambda run: replica_pair.measure_reconnect(run, peers),
            "slaves": replica_slaves.measure_slaves,
        }
        for part in parts:
            # What a part has written is gone before the next one needs the disk.
            directory = given.dir / part
            began = time.monotonic()
            try:
                work[part](Run(directory, given.rounds, out, report))
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            report(f"{part}: {time.monotonic() - began:.0f} s")
        run.write("machine", load_after=machine.load())


def _ready(run: Run, peers: Sequence[str]) -> list[str]:
    """Build what has to be built; return who can run here."""
    limits.program("loopback")
    ready = [peer for peer in peers if peer != replica_java.NAME]
    if replica_java.NAME in peers:
        reason = replica_java.missing()
        if reason is None:
            try:
                replica_java.build()
            except (JavaFailed, OSError) as error:
                reason = str(error)
        if reason is None:
            ready.append(replica_java.NAME)
        else:
            report(f"java: left out: {reason}")
            run.write("skipped", peer=replica_java.NAME, reason=run.clean(reason))
    return ready


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = options("replicate", __doc__, PARTS, rounds=3)
    add = parser.add_argument
    add("--peers", nargs="+", choices=PEERS, default=PEERS, metavar="PEER", help="default all")
    add(
        "--size",
        default="512m",
        help="log of the catch-up part; bars are for 2g; default 512m",
    )
    return parsed(parser, arguments)


if __name__ == "__main__":
    sys.exit(main())
