"""What each command of mqadmin prints over a broker of ours beside one of Java, from
`table.toml`."""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.interop.mqadmin import HERE

__all__ = ["Command", "State", "commands", "left_out", "plain"]

_TABLE = HERE / "table.toml"


class State(enum.Enum):
    """How the outputs of a command compare."""

    SAME = "same"
    """Columns and values are equal, but for times."""
    COLUMNS = "columns"
    """The columns are equal; values are measurements, or belong to one kind of broker."""
    DIFFERS = "differs"
    """A line of our broker's output contains a text, for a reason."""
    REFUSED = "refused"
    """Our broker refuses the request with a remark that contains a text."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command, in the order of the table."""

    line: str
    """With names in braces that the test replaces."""
    state: State
    says: str
    """What the output of ours, or the refusal, contains."""
    why: str
    """Why it differs."""
    is_quick: bool
    """Whether the default run has the command."""
    defect_of_old: str
    """The defect that Java's broker of 5.3.3 shows in the output; it is not compared there."""

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.line.split()[0]

    def difference(self, ours: tuple[str, str], java: tuple[str, str]) -> str:
        """Return how the outputs (printed, errors) differ from the state; empty where they fit."""
        printed, errors = ours[0], _failures(ours[1])
        if self.state is State.REFUSED:
            return "" if self.says in errors else f"no refusal that says {self.says!r}: {ours}"
        if self.state is State.DIFFERS:
            return "" if self.says in printed + errors else f"{self.says!r} is not in {ours}"
        if errors:
            return f"fails: {errors[:2000]}"
        read = _columns if self.state is State.COLUMNS else plain
        mine, other = read(printed), read(java[0])
        if mine == other and mine:
            return ""
        return f"ours: {mine}\njava: {other}"


def _failures(errors: str) -> str:
    """Returns the exceptions of a standard error, without its log."""
    found = [line.strip() for line in errors.splitlines() if "Exception" in line]
    return "\n".join(line for line in found if " WARN " not in line)


def commands() -> list[Command]:
    """Return every command of the table."""
    return [
        Command(
            each["run"],
            State(each.get("state", "same")),
            each.get("says", ""),
            each.get("why", ""),
            each.get("quick", False),
            each.get("defect_of_old", ""),
        )
        for each in _read()["command"]
    ]


def left_out() -> Mapping[str, str]:
    """Return the commands that are not run, with the reasons."""
    found: Mapping[str, str] = _read()["not_run"]
    return found


def _read() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


_PLAIN = (
    (re.compile(r"\b127\.\d+\.\d+\.\d+:\d+"), "ADDRESS"),
    (re.compile(r"\b127\.\d+\.\d+\.\d+\b"), "HOST"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #,]\d\d:\d\d:\d\d(?:[:,.]\d+)?"), "TIME"),
    (re.compile(r"\b1[67]\d{11}\b"), "MS"),
    (re.compile(r"\b\d+\.\d\d?\b"), "NUMBER"),
    (re.compile(r"\bV5_\d_\d\b"), "VERSION"),
)


def plain(printed: str) -> list[str]:
    """Return the lines of an output without addresses and times, sorted: Java prints from hash
    tables."""
    for pattern, word in _PLAIN:
        printed = pattern.sub(word, printed)
    return sorted(" ".join(line.split()) for line in printed.splitlines() if line.strip())


def _columns(printed: str) -> list[str]:
    """Returns the words of an output that are not values."""
    words = re.findall(r"[A-Za-z][A-Za-z0-9_]{2,}", " ".join(plain(printed)))
    return sorted(set(words) - {"true", "false"})
