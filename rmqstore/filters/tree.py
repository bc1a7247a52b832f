"""What an expression says, as a tree.

Properties are texts. A comparison with a number reads the text as a number of the same kind, so the
tree keeps the kinds that Java has: a whole number is an Integer where it fits, otherwise a Long.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = [
    "Affix",
    "AllOf",
    "AnyOf",
    "Cast",
    "Compared",
    "Constant",
    "Member",
    "Negated",
    "Node",
    "Not",
    "Number",
    "NumberKind",
    "Property",
    "is_boolean",
    "number_of",
]


class NumberKind(Enum):
    """A type of numbers in Java."""

    INTEGER = auto()
    LONG = auto()
    DOUBLE = auto()


@dataclass(frozen=True, slots=True)
class Number:
    """A number and its kind."""

    value: int | float
    kind: NumberKind


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, a number, TRUE, FALSE, or NULL as None."""

    value: str | bool | Number | None


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property."""

    name: str


@dataclass(frozen=True, slots=True)
class Negated:
    """A number with the other sign; unknown for anything else."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a truth value."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Cast:
    """A property where a truth value is needed: no text is one, so it is not true."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison with one of the operators = > >= < <=."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    """Terms joined with AND."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Terms joined with OR."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """Whether a property is one of some texts, or with *is_negated* none of them."""

    operand: Property
    texts: frozenset[str]
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Affix:
    """CONTAINS, STARTSWITH or ENDSWITH a text, or with *is_negated* not; false for the empty
    text."""

    operator: str
    operand: Node
    text: str
    is_negated: bool


Node = (
    Constant
    | Property
    | Negated
    | Not
    | Cast
    | Compared
    | AllOf
    | AnyOf
    | Member
    | Affix
)  # fmt: skip


def is_boolean(node: Node) -> bool:
    """Return whether the value of *node* is always a truth value or unknown."""
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negated)


def number_of(node: Node) -> Number | None:
    """Return the number that *node* always is, None for any other node."""
    if isinstance(node, Constant):
        return node.value if isinstance(node.value, Number) else None
    if isinstance(node, Negated):
        found = number_of(node.operand)
        return None if found is None else Number(-found.value, found.kind)
    return None
