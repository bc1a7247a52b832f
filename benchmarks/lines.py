"""What benchmarks of several parts share: lines of results as they are measured, and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

__all__ = ["OURS", "Figures", "Run", "table"]

OURS = "rmqstore"
ERROR_KEPT = 400

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """Where the data lies, how often to measure, and where lines go."""

    directory: Path
    rounds: int
    out: TextIO
    tell: Callable[[str], None]

    def write(self, kind: str, **members: Any) -> None:
        """Write one line of results."""
        self.out.write(json.dumps({"type": kind, **members}, ensure_ascii=False) + "\n")
        self.out.flush()

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
        self.tell(f"{number} {workload} {peer}: {line.get('error') or shown}")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, row in enumerate(lines):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"
