"""Measures everything once a round, in turn, and writes a line for each result.

Peers of one workload run one after another, each round beginning with another one; every run has
its own process and its own empty directory. What fails is a line as well, and the run goes on.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from benchmarks import java, java_broker, limits, machine, peers
from benchmarks.lines import empty_folder, in_turn
from benchmarks.memory import back_memory
from benchmarks.peers import Job, product
from benchmarks.workloads import WORKLOADS, Kind, Workload

__all__ = ["LIMITS", "Plan", "measure"]

LIMITS = "limits"
JAVA: Mapping[str, Callable[[Job], peers.Figures]] = {
    java.NAME: java.run,
    java_broker.NAME: java_broker.run,
}
"""The peers that are no modules run by `benchmarks.peers`: each starts a JVM itself."""
WRITING = (Kind.PUT, Kind.PACED, Kind.DURABLE, Kind.HANDLES, Kind.ROLL_OVER)
TIMES_BACKED = 2
"""A second pass, the warm-up, and what a peer writes besides its log."""
HEAD = 107
"""Bytes of a record that are not its body."""
RUN_TIMEOUT_S = 300
ERROR_KEPT = 400
READ_CHUNK = 16 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and where."""

    directory: Path
    """Written to and removed afterwards; 20 GB for all, 3 GB for a trial."""
    rounds: int
    quick: bool = False
    only: Sequence[str] = ()
    """Names or patterns of workloads; all when empty."""
    peers: Sequence[str] = ()
    """Names, LIMITS among them; all when empty."""

    def workloads(self) -> list[Workload]:
        """Return the workloads wanted."""
        return [
            each
            for each in WORKLOADS
            if not self.only or any(fnmatch.fnmatchcase(each.name, name) for name in self.only)
        ]

    def wants(self, peer: str) -> bool:
        """Return whether a peer takes part."""
        return not self.peers or peer in self.peers


class _Measurement:
    def __init__(self, plan: Plan, out: TextIO, report: Callable[[str], None]) -> None:
        self.plan = plan
        self.out = out
        self.report = report
        self.ready: list[str] = []

    def write(self, kind: str, **members: Any) -> None:
        self.out.write(json.dumps({"type": kind, **members}, ensure_ascii=False) + "\n")
        self.out.flush()

    def clean(self, text: str) -> str:
        """Text without the paths of this machine, and short."""
        for path, name in (
            (self.plan.directory, "DIR"),
            (limits.ROOT, "CHECKOUT"),
            (Path.home(), "~"),
        ):
            text = text.replace(str(path), name)
        return " ".join(text.split())[-ERROR_KEPT:]

    # -- before the first round

    def prepare(self) -> None:
        for name in peers.names():
            if not self.plan.wants(name):
                continue

            reason = peers.peer(name).missing()
            if not reason and name in JAVA:
                reason = self._build_java()
            if reason:
                self.report(f"{name}: skipped: {reason}")
                self.write("skipped", peer=name, reason=self.clean(reason))
            else:
                self.ready.append(name)

        if self.plan.wants(LIMITS):
            self.report("building the limits")
            limits.build()

        for name in dict.fromkeys(each.store for each in self.plan.workloads() if each.store):
            self.report(f"writing the store {name}")
            product.prepare(name, self.store(name), quick=self.plan.quick)
            if set(JAVA) & set(self.ready):
                shutil.copytree(self.store(name), self.store(f"{name}-java"))

        os.sync()

    def _build_java(self) -> str | None:
        self.report("building the Java store")
        try:
            java.build()
        except (java.JavaFailed, OSError) as error:
            return str(error)
        return None

    def store(self, name: str) -> Path:
        return self.plan.directory / "stores" / name

    # -- a round

    def round(self, number: int) -> None:
        self._limit(number, "python", lambda: limits.floor(1 if self.plan.quick else 3))
        last: Workload | None = None
        for workload in self.plan.workloads():
            if last is None or workload.kind is not last.kind:
                self._limits_of(number, workload)
            last = workload
            able = [name for name in self.ready if peers.peer(name).supports(workload)]
            for name in in_turn(able, number):
                self._run(number, name, workload)

    def _run(self, number: int, name: str, workload: Workload) -> None:
        store = None
        if workload.store:
            store = self.store(f"{workload.store}-java" if name in JAVA else workload.store)
            _read_into_cache(store)

        began = time.monotonic()
        line: dict[str, Any] = {"round": number, "peer": name, "workload": workload.name}

        with self._empty_directory() as directory:
            count = workload.count(quick=self.plan.quick)
            if workload.kind in WRITING:
                size = count * (workload.body + HEAD) * TIMES_BACKED
                line["page_ns"] = round(back_memory(size))
            try:
                if name in JAVA:
                    line["figures"] = JAVA[name](Job(workload, directory, count, store))
                else:
                    line["figures"] = _in_process(name, Job(workload, directory, count, store))
            except Exception as error:  # one peer's failure is a result, not the end of the run
                line["error"] = self.clean(f"{type(error).__name__}: {error}")

        line["seconds"] = round(time.monotonic() - began, 2)
        self.write("run", **line)
        self.report(
            f"{number} {workload.name} {name}: {line.get('error') or _short(line['figures'])}"
        )

    def _empty_directory(self) -> AbstractContextManager[Path]:
        return empty_folder(self.plan.directory / "one")

    # -- limits

    def _limits_of(self, number: int, workload: Workload) -> None:
        quick = self.plan.quick
        runs, megabytes = (1, 128) if quick else (3, 512)
        if workload.kind is Kind.PUT:
            with self._empty_directory() as directory:
                self._limit(
                    number, "append", lambda: limits.run("append", directory, runs, megabytes)
                )
            with self._empty_directory() as directory:
                self._limit(
                    number,
                    "memory",
                    lambda: limits.run("memory", directory / "file", 1, megabytes),
                )
        elif workload.kind in (Kind.DURABLE, Kind.HANDLES):
            with self._empty_directory() as directory:
                syncs = 200 if quick else 1000
                self._limit(
                    number, "disk", lambda: limits.run("disk", directory, 1, syncs, megabytes)
                )
        elif workload.kind in (Kind.GET, Kind.ARROW, Kind.RECOVER) and workload.store:
            files = sorted((self.store(workload.store) / "commitlog").iterdir())
            _read_into_cache(self.store(workload.store))
            self._limit(number, "scan", lambda: limits.run("scan", runs, *files))

    def _limit(self, number: int, name: str, work: Callable[[], list[limits.Line]]) -> None:
        if not self.plan.wants(LIMITS):
            return
        try:
            for line in work():
                self.write("limit", round=number, **line)
        except (limits.LimitError, OSError, subprocess.SubprocessError) as error:
            self.write("limit", round=number, limit=name, error=self.clean(str(error)))
            self.report(f"{number} limits {name}: {self.clean(str(error))}")
        else:
            self.report(f"{number} limits {name}")


def measure(plan: Plan, out: TextIO, report: Callable[[str], None]) -> None:
    """Measure as planned; lines go to *out*, a line about each step to *report*."""
    began = time.monotonic()
    plan.directory.mkdir(parents=True, exist_ok=True)
    measurement = _Measurement(plan, out, report)
    shutil.rmtree(plan.directory / "stores", ignore_errors=True)
    try:
        measurement.write("machine", **machine.facts(plan.directory))
        measurement.prepare()
        for number in range(1, plan.rounds + 1):
            measurement.round(number)
        measurement.write(
            "machine", load_after=machine.load(), took_s=round(time.monotonic() - began)
        )
    finally:
        shutil.rmtree(plan.directory / "stores", ignore_errors=True)


def _in_process(name: str, job: Job) -> peers.Figures:
    command = [
        *(sys.executable, "-m", "benchmarks.peers", name, job.workload.name),
        *("--dir", str(job.directory), "--count", str(job.count)),
        *(("--store", str(job.store)) if job.store else ()),
    ]
    answer = subprocess.run(
        command, cwd=limits.ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if answer.returncode:
        raise RuntimeError(answer.stderr.strip().rpartition("\n")[2] or f"exit {answer.returncode}")
    figures: peers.Figures = json.loads(answer.stdout)
    return figures


def _read_into_cache(store: Path) -> None:
    """Reading is measured from the page cache; recovery too, where all of the log fits in it."""
    buffer = bytearray(READ_CHUNK)
    for path in sorted(store.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def _short(figures: peers.Figures) -> str:
    shown = ("msgs_per_s", "msgs_per_s_dispatched", "p50_us", "p999_us", "ms", "private_MiB")
    return " ".join(f"{name}={figures[name]:,}" for name in shown if name in figures)
