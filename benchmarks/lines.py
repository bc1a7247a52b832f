"""What benchmarks of several parts share: their options, lines of results, and tables."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

from benchmarks.bars import Bar
from benchmarks.limits import BUILD
from benchmarks.memory import back_memory
from benchmarks.results import Results

__all__ = [
    "OURS",
    "Figures",
    "Run",
    "empty_folder",
    "in_turn",
    "options",
    "page",
    "parsed",
    "results_of",
    "show",
    "table",
    "report",
]

OURS = "rmqstore"
ERROR_KEPT = 400

Figures = Mapping[str, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """The folder of the data, how often to measure, and where lines go."""

    directory: Path
    rounds: int
    out: TextIO
    report: Callable[[str], None]

    def write(self, kind: str, **members: Any) -> None:
        """Write one line of results."""
        self.out.write(json.dumps({"type": kind, **members}, ensure_ascii=False) + "\n")
        self.out.flush()

    def back_memory(self, size: int) -> None:
        """Touch and free as many bytes, and write how long each page took."""
        self.write("memory", page_ns=round(back_memory(size)))

    def clean(self, text: str) -> str:
        """Return *text* in one line, short, and without the place of the data."""
        return " ".join(text.split()).replace(str(self.directory), "DIR")[:ERROR_KEPT]

    def measure(self, number: int, peer: str, workload: str, job: Callable[[], Figures]) -> None:
        """Write the figures of *job*, or its error: one failure does not end the run."""
        line: dict[str, Any] = {"round": number, "peer": peer, "workload": workload}
        try:
            line["figures"] = {name: round(value, 4) for name, value in job().items()}
        except Exception as error:
            line["error"] = self.clean(f"{type(error).__name__}: {error}")
        self.write("run", **line)
        figures = line.get("figures", {})
        shown = " ".join(f"{name}={value:,}" for name, value in figures.items())
        self.report(f"{number} {workload} {peer}: {line.get('error') or shown}")

    def job(
        self, peer: str, workload: str, job: Callable[..., Figures], *arguments: object
    ) -> Callable[[int], None]:
        """Return what measures a job with these arguments, given the number of a round."""
        return lambda number: self.measure(number, peer, workload, lambda: job(*arguments))

    def take_turns(self, jobs: Sequence[Callable[[int], None]]) -> None:
        """Call all jobs with the number of each round; a round begins with another one."""
        for number in range(1, self.rounds + 1):
            for job in in_turn(jobs, number):
                job(number)


def in_turn(each: Sequence[T], number: int) -> list[T]:
    """Return all of them in the order of a round, each of which begins with another one."""
    turn = number % len(each) if each else 0
    return [*each[turn:], *each[:turn]]


@contextmanager
def empty_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder; remove it afterwards, and wait until the disk is at rest."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.sync()


def options(
    name: str, summary: str, parts: Sequence[str], *, rounds: int
) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark of several parts has."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.bench_{name}", description=summary.partition("\n")[0]
    )
    add = parser.add_argument
    add("--out", type=Path, default=BUILD / name, help="for results.jsonl and tables.md")
    add("--dir", type=Path, default=BUILD / f"{name}-data", help="where stores are written")
    add("--rounds", type=int, default=rounds, help=f"default {rounds}; medians are over rounds")
    add("--only", nargs="+", choices=parts, metavar="PART", help=f"of {', '.join(parts)}")
    add("--from", dest="source", type=Path, metavar="FILE", help="only the tables of a run")
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """Return what the command line says, its folders as absolute paths."""
    given = parser.parse_args(arguments)
    given.dir, given.out = given.dir.resolve(), given.out.resolve()
    return given


def results_of(
    given: argparse.Namespace, measure: Callable[[argparse.Namespace, Path], None]
) -> Results:
    """Return the results of the run that is named, else of a new one, which *measure* writes."""
    given.out.mkdir(parents=True, exist_ok=True)
    if given.source:
        return Results.load(given.source)
    lines = given.out / "results.jsonl"
    measure(given, lines)
    return Results.load(lines)


def show(results: Results, tables: str, out: Path) -> int:
    """Write tables.md to *out* and print it; returns 1 when something failed on the way."""
    (out / "tables.md").write_text(tables + "\n", encoding="utf-8")
    print(tables)
    return 1 if results.errors else 0


def report(text: str) -> None:
    """Tell how far a run is."""
    print(text, file=sys.stderr, flush=True)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, row in enumerate(lines):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"


def page(results: Results, tables: Iterable[Iterable[str]], bars: Iterable[Bar]) -> str:
    """Return a run in Markdown: the machine, the lines of *tables*, bars, and what is missing."""
    machine = (f"{name} {value}" for name, value in results.machine.items() if name != "type")
    lines = [", ".join(machine)]
    head = ("bar", "value", "wanted", "verdict", "ours; theirs")
    for each in (*tables, table(head, map(_row, bars))):
        lines += ["", *each]
    lines += results.memory()
    lines += [f"left out: {peer}: {reason}" for peer, reason in results.skipped.items()]
    lines += [f"FAILED {peer} {what}: {why}" for peer, what, why in results.errors]
    return "\n".join(lines)


def _row(bar: Bar) -> tuple[str, ...]:
    value = "" if bar.value is None else f"{bar.value:.3g} {bar.unit}"
    return (bar.name, value, bar.wanted, str(bar.verdict), bar.detail)
