"""What each of RocketMQ's tests does over servers of ours and of Java, from `table.toml`."""

from __future__ import annotations

import enum
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.interop.upstream import HERE
from tests.interop.upstream.runner import Outcome

__all__ = ["Row", "Side", "State", "Table"]

_TABLE = HERE / "table.toml"


class Side(enum.Enum):
    """Whose servers a test runs against; the key of the state in the table."""

    OURS = "ours"
    JAVA = "java"


class State(enum.Enum):
    """What a test does."""

    PASSES = "passes"
    REFUSED = "refused"
    """It fails because the broker refuses a request, by the name that the failure contains."""
    IN_THE_JVM = "in the JVM"
    """It fails because it needs a broker in its own JVM."""
    FAILS = "fails"
    VARIES = "varies"
    IGNORED = "ignored"
    """RocketMQ's project does not run it either."""


_ENDS = {State.PASSES: "passed", State.IGNORED: "ignored"}


@dataclass(frozen=True, slots=True)
class Row:
    """A test class, or one of its methods that differs from the others."""

    states: Mapping[Side, State]
    says: str
    """What a failure over our servers contains; for a refusal the name of what is refused."""
    why: str
    """Why it does not pass over our servers, where *says* does not tell."""
    why_java: str
    """Why it does not pass over Java's servers."""
    proves_nothing: str
    """Why it passes over any servers."""
    is_quick: bool
    """Whether the default run has the class."""

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> Row:
        """Return the row with these keys; java defaults to passes."""
        known = {"ours", "java", "says", "why", "why_java", "proves_nothing", "quick", "methods"}
        assert keys.keys() <= known, f"unknown keys: {keys.keys() - known}"
        states = {Side.OURS: State(keys["ours"]), Side.JAVA: State(keys.get("java", "passes"))}
        return cls(
            states,
            keys.get("says", ""),
            keys.get("why", ""),
            keys.get("why_java", ""),
            keys.get("proves_nothing", ""),
            keys.get("quick", False),
        )

    def fits(self, outcome: Outcome, side: Side) -> bool:
        """Tell whether an outcome is the one of this row."""
        state = self.states[side]
        if state is State.VARIES:
            return outcome.ended != "ignored"
        if outcome.ended != _ENDS.get(state, "failed"):
            return False
        if state is State.IN_THE_JVM:
            return "IN THE JVM" in outcome.text
        return outcome.ended != "failed" or side is Side.JAVA or self.says in outcome.text


class Table:
    """The whole table."""

    def __init__(self) -> None:
        read = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
        self.elsewhere: dict[str, str] = read.pop("not_applicable")
        """Classes that start brokers themselves, which can therefore not be run over others."""
        self.classes = {name: Row.of(keys) for name, keys in read.items()}
        self.methods = {
            name: {
                method: Row.of({**keys, **own}) for method, own in keys.get("methods", {}).items()
            }
            for name, keys in read.items()
        }

    def quick(self) -> list[str]:
        """Return the classes of the default run."""
        return [name for name, row in self.classes.items() if row.is_quick]

    def rows(self) -> list[tuple[str, Row]]:
        """Return every row with the name of its class, or as CLASS#METHOD."""
        rows = list(self.classes.items())
        for name, methods in self.methods.items():
            rows += [(f"{name}#{method}", row) for method, row in methods.items()]
        return rows

    def named(self, text: str) -> str:
        """Return the class with that name, in full or without its package, and the method."""
        name, hash_sign, method = text.partition("#")
        found = [each for each in self.classes if f".{each}".endswith(f".{name}")]
        if len(found) != 1:
            raise ValueError(f"not the name of one class: {name}; found: {found}")
        return f"{found[0]}{hash_sign}{method}"

    def row(self, outcome: Outcome) -> Row:
        """Return the row of an outcome."""
        methods, method = self.methods[outcome.name], outcome.method
        for key in (method, _without_parameter(method)):
            if key in methods:
                return methods[key]
        return self.classes[outcome.name]

    def difference(self, outcome: Outcome, side: Side) -> str:
        """Return how an outcome differs from the table, or nothing."""
        row = self.row(outcome)
        if row.fits(outcome, side):
            return ""
        wanted = row.states[side].value
        if row.says and side is Side.OURS:
            wanted += f", saying {row.says!r}"
        return (
            f"{outcome.name}#{outcome.method} {outcome.ended}; the table: {wanted}; {outcome.text}"
        )

    def differences(
        self, outcomes: Iterable[Outcome], tests: Iterable[str], side: Side
    ) -> list[str]:
        """Return what differs after a run of classes, or of methods as CLASS#METHOD."""
        given = list(outcomes)
        lines = [line for each in given if (line := self.difference(each, side))]
        seen = {(each.name, each.method) for each in given}
        seen |= {(name, _without_parameter(method)) for name, method in seen}
        for test in tests:
            name, _, method = test.partition("#")
            # The row without a method is that of a class which takes too long.
            wanted = [method] if method else filter(None, self.methods[name])
            lines += [f"{name}#{each} did not run" for each in wanted if (name, each) not in seen]
            if name not in {each.name for each in given}:
                lines.append(f"{name} ran no method")
        return lines


def _without_parameter(method: str) -> str:
    """Returns the name of a method that runs with several parameters, as METHOD[0]."""
    return method.partition("[")[0]
