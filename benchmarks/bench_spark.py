"""The Spark source beside Parquet, tuples and the most that Arrow's way to Spark allows.

    python -m benchmarks.bench_spark [--dir DIR] [--out DIR] [--rounds N] [--only PART...]
                                     [--size 512m] [--scan 4g] [--big 4g] [--rate N] [--seconds N]
    python -m benchmarks.bench_spark --from results.jsonl --out DIR

Writes results.jsonl and tables.md to --out, and prints the tables. Needs the extra [spark].
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.lines import Run, options, parsed, report, results_of, show

__all__ = ["main"]

PARTS = ("rows", "pipelines", "big", "stream")


def main(arguments: list[str] | None = None) -> int:
    """Run as the command line says; returns 1 when something failed on the way."""
    given = _parse(arguments)
    results = results_of(given, _measure)
    from benchmarks.spark_bars import text

    return show(results, text(results), given.out)


def _measure(given: argparse.Namespace, lines: Path) -> None:
    from benchmarks import machine, spark_live, spark_rows, spark_stores
    from benchmarks.spark_data import size_of

    parts: Mapping[str, Callable[[Run], None]] = {
        "rows": lambda run: spark_rows.measure(run, size_of(given.size)),
        "pipelines": lambda run: spark_stores.measure_pipelines(run, size_of(given.scan)),
        "big": lambda run: spark_stores.measure_big(run, size_of(given.big)),
        "stream": lambda run: spark_live.measure(run, given.rate, given.seconds),
    }
    with lines.open("w", encoding="utf-8") as out:
        for part in given.only or PARTS:
            # What a part has written is gone before the next one needs the disk.
            directory = given.dir / part
            directory.mkdir(parents=True, exist_ok=True)
            run = Run(directory, given.rounds, out, report)
            began = time.monotonic()
            try:
                if part == (given.only or PARTS)[0]:
                    run.write("machine", **machine.facts(directory))
                parts[part](run)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            report(f"{part}: {time.monotonic() - began:.0f} s")
        Run(given.dir, 0, out, report).write("machine", load_after=machine.load())


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = options("spark", __doc__, PARTS, rounds=5)
    add = parser.add_argument
    add("--size", default="512m", help="log of the rows part; default 512m")
    add("--scan", default="4g", help="log of each replica of the pipelines part; default 4g")
    add("--big", default="4g", help="log of the big part; bars are for 20g; default 4g")
    add("--rate", type=int, default=50_000, help="messages a second of the stream part")
    add("--seconds", type=float, default=60.0, help="of the stream that count; default 60")
    return parsed(parser, arguments)


if __name__ == "__main__":
    sys.exit(main())
