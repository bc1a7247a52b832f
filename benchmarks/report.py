"""The whole comparison in one go: limits, this store and its peers, in turn, over several rounds.

    python -m benchmarks.report [--out DIR] [--dir DIR] [--rounds N] [--quick]
                                [--only NAME...] [--peers NAME...]
    python -m benchmarks.report --from results.jsonl --out DIR

Writes results.jsonl and report.html to --out, and prints the tables.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import page, peers, run
from benchmarks.limits import BUILD
from benchmarks.results import Results
from benchmarks.run import Plan
from benchmarks.workloads import BY_NAME

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run as the command line says; returns 1 when something failed on the way."""
    given = _parse(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    lines = given.out / "results.jsonl"

    if given.source:
        results = Results.load(given.source)
    else:
        plan = Plan(
            directory=given.dir,
            rounds=given.rounds or (1 if given.quick else 3),
            quick=given.quick,
            only=given.only,
            peers=given.peers,
        )
        if not plan.workloads():
            print(f"no workload is called {' or '.join(given.only)}; there are:", *BY_NAME)
            return 2
        with lines.open("w", encoding="utf-8") as out:
            run.measure(plan, out, lambda text: print(text, file=sys.stderr, flush=True))
        results = Results.load(lines)

    (given.out / "report.html").write_text(page.html(results), encoding="utf-8")
    print(page.text(results))
    print(f"\n{given.out / 'report.html'}")
    return 1 if results.errors else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--out", type=Path, default=BUILD / "report", help="for results.jsonl and report.html"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=BUILD / "data",
        help="where stores are written: on the disk to measure, with 20 GB free (3 with --quick)",
    )
    parser.add_argument("--rounds", type=int, help="default 3; 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="few messages: does it work?")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="workloads; put-* for several"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        default=[],
        metavar="NAME",
        choices=[run.LIMITS, *peers.names()],
        help=f"of {', '.join([run.LIMITS, *peers.names()])}",
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="only make the page of a run"
    )

    given = parser.parse_args(arguments)
    given.dir, given.out = given.dir.resolve(), given.out.resolve()
    return given


if __name__ == "__main__":
    sys.exit(main())
