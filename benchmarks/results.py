"""The lines of a run, and medians over its rounds.

A file of results holds lines of JSON by `type`: `machine` once; `run` for each workload, peer and
round with its `figures` or an `error`; `skipped` for a peer that cannot run; `limit` for what the
programs in limits/ print, with their round; `memory` for pages that were touched and freed first.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers

__all__ = ["Results", "Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure over all rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """How far the extremes are apart, as a share of the median."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0


class Results:
    """All lines of one run of the report."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self.machine: Mapping[str, Any] = {}
        self.skipped: dict[str, str] = {}
        self.errors: list[tuple[str, str, str]] = []
        self.rounds = 0
        self.pages_ns: list[float] = []
        """How long touching a page took before each run that writes."""
        self._figures: dict[tuple[str, str, str], list[float]] = {}
        self._limits: dict[tuple[str, str, int, str], list[float]] = {}
        for line in lines:
            self.rounds = max(self.rounds, line.get("round", 0))
            getattr(self, f"_add_{line['type']}")(line)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Return what a file of results holds."""
        with path.open(encoding="utf-8") as file:
            return cls(json.loads(line) for line in file)

    def _add_machine(self, line: Mapping[str, Any]) -> None:
        self.machine = {**self.machine, **line}

    def _add_skipped(self, line: Mapping[str, Any]) -> None:
        self.skipped[line["peer"]] = line["reason"]

    def _add_run(self, line: Mapping[str, Any]) -> None:
        if "error" in line:
            self.errors.append((line["peer"], line["workload"], line["error"]))
        if "page_ns" in line:
            self.pages_ns.append(line["page_ns"])
        for name, value in line.get("figures", {}).items():
            key = (line["peer"], line["workload"], name)
            self._figures.setdefault(key, []).append(value)

    def _add_memory(self, line: Mapping[str, Any]) -> None:
        self.pages_ns.append(line["page_ns"])

    def _add_limit(self, line: Mapping[str, Any]) -> None:
        if "error" in line:
            self.errors.append(("limits", line["limit"], line["error"]))
            return
        place = (line["limit"], line["variant"], line["size"])
        self._limits.setdefault((*place, "ns"), []).extend(line["ns"])
        self._limits.setdefault((*place, "bytes_per_op"), []).append(line["bytes_per_op"])
        for name in ("p50_us", "p99_us", "max_us"):
            if name in line:
                self._limits.setdefault((*place, name), []).append(line[name])

    def figure(self, peer: str, workload: str, name: str) -> Sample | None:
        """Return one figure, None when it was not measured."""
        values = self._figures.get((peer, workload, name))
        return Sample(tuple(values)) if values else None

    def value(self, peer: str, workload: str, name: str) -> float | None:
        """Return the median of a figure, None when it was not measured."""
        sample = self.figure(peer, workload, name)
        return sample.median if sample else None

    def limit(
        self, limit: str, variant: str, size: int | None = 0, name: str = "ns"
    ) -> float | None:
        """Return the median of a limit; *size* None takes the only size there is."""
        if size is None:
            sizes = [key[2] for key in self._limits if key[:2] == (limit, variant)]
            size = sizes[0] if sizes else 0
        sample = self.limit_figure(limit, variant, size, name)
        return sample.median if sample else None

    def limit_figure(self, limit: str, variant: str, size: int, name: str = "ns") -> Sample | None:
        """Return one figure of a limit, None when it was not measured."""
        values = self._limits.get((limit, variant, size, name))
        return Sample(tuple(values)) if values else None

    def limits(self) -> list[tuple[str, str, int, float, float]]:
        """Return (limit, variant, size, ns, bytes) of every limit, in the order of the run."""
        found = []
        for limit, variant, size, name in self._limits:
            ns = self.limit(limit, variant, size)
            moved = self.limit(limit, variant, size, "bytes_per_op")
            if name == "ns" and ns:
                found.append((limit, variant, size, ns, moved or 0.0))
        return found

    def memory(self) -> list[str]:
        """Return a line that says how backed the memory was that was touched first, if it was."""
        if not self.pages_ns:
            return []
        median, worst = statistics.median(self.pages_ns), max(self.pages_ns)
        return [
            f"touching a page of memory before a run: median {median:.0f}, at most {worst:.0f} ns"
        ]

    def peers(self, workload: str) -> list[str]:
        """Return who has figures for a workload, this store first."""
        found = {key[0] for key in self._figures if key[1] == workload}
        return [name for name in peers.names() if name in found]

    def workloads(self) -> list[str]:
        """Return the names of the workloads that were measured, in the order of the run."""
        return list(dict.fromkeys(key[1] for key in self._figures))

    def measured(self) -> list[tuple[str, str]]:
        """Return (workload, peer) of everything measured, in the order of the run."""
        found = dict.fromkeys((key[1], key[0]) for key in self._figures)
        order = self.workloads()
        return sorted(found, key=lambda each: order.index(each[0]))

    def names(self, peer: str, workload: str) -> list[str]:
        """Return the names of the figures of one peer in a workload."""
        return [key[2] for key in self._figures if key[:2] == (peer, workload)]
