"""The steps of the demo, each with its proof."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Done", "Step", "Steps", "process_command"]

Done = Callable[[str, int, float, str, bool], None]
"""Receives a step's name, number of messages, seconds, proof, and whether the proof holds."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the table at the end."""

    what: str
    count: int
    seconds: float
    proof: str
    is_proven: bool


class Steps:
    """The steps done so far."""

    def __init__(self) -> None:
        self.all: list[Step] = []

    @property
    def is_proven(self) -> bool:
        """Whether every proof holds."""
        return all(step.is_proven for step in self.all)

    def done(self, what: str, count: int, seconds: float, proof: str, is_proven: bool) -> None:
        """Add a step and print its proof."""
        self.all.append(Step(what, count, seconds, proof, is_proven))
        print(f"{'ok' if is_proven else 'FAILED'}: {what}: {proof}", flush=True)


def process_command(name: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of the demo in a separate process."""
    return [sys.executable, "-m", f"rmqstore.cli.demo.{name}", *map(str, arguments)]
