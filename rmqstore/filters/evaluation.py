"""Expressions as functions of a message's properties.

A tree becomes closures, each of which returns True, False, or None for unknown. As in RocketMQ an
expression that cannot be evaluated, as one that orders a text and a number, selects no message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from rmqstore.filters.java_values import compare_doubles, compared, double, number, truth
from rmqstore.filters.parser import parsed
from rmqstore.filters.tree import (
    Affix,
    AllOf,
    AnyOf,
    Cast,
    Compared,
    Constant,
    Member,
    Negated,
    Node,
    Not,
    Number,
    Property,
    number_of,
)

__all__ = ["SQL92", "Selector", "selector_of"]

SQL92 = "SQL92"
"""RocketMQ's name for the type of these expressions."""

_Values = Sequence[str | None]
_Value = str | bool | Number | None
_Function = Callable[[_Values], _Value]
_Truth = Callable[[_Values], bool | None]

_SELECTORS_MAX = 1024
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_AFFIXES: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda value, text: text in value,
    "STARTSWITH": lambda value, text: value.startswith(text),
    "ENDSWITH": lambda value, text: value.endswith(text),
}
_MIRRORED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


class Selector:
    """Selects messages by their properties. Raises SqlError for a wrong expression."""

    __slots__ = ("_function", "cost", "expression", "names")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        tree = parsed(expression)
        compiler = _Compiler()
        self._function = compiler.truth(tree)
        self.names = tuple(compiler.names)
        """The properties that decide."""
        self.cost = compiler.count
        """Operators of the expression, which all may be needed for a message."""

    def selects(self, values: _Values) -> bool:
        """Return whether a message is selected whose properties *names* have these values, None for
        an absent one."""
        try:
            return self._function(values) is True
        except ValueError:
            return False

    def selects_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with *properties* is selected."""
        return self.selects(tuple(map(properties.get, self.names)))


@lru_cache(_SELECTORS_MAX)
def selector_of(expression: str) -> Selector:
    """Return the selector of an expression, the same one each time. Raises SqlError."""
    return Selector(expression)


class _Compiler:
    """Makes the functions of a tree."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        """The place of each property among the values."""
        self.count = 0
        """Functions made."""

    def _place(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def truth(self, node: Node) -> _Truth:
        """Return the function of a node that is a truth value."""
        self.count += 1
        match node:
            case AllOf(terms):
                return _all_of(tuple(map(self.truth, terms)))
            case AnyOf(terms):
                return _any_of(tuple(map(self.truth, terms)))
            case Not(operand):
                return _not(self.truth(operand))
            case Cast(Property(name)):
                return _cast(self._place(name))
            case Member(Property(name), texts, is_negated):
                return _member(self._place(name), texts, is_negated)
            case Affix(kind, operand, text, is_negated):
                return _affix(kind, self.value(operand), text, is_negated)
            case Compared("=", left, right):
                return self._equal(left, right)
            case Compared(kind, left, right):
                return self._ordered(kind, left, right)
            case Constant(bool() | None as constant):
                return lambda _: constant
        raise AssertionError(f"not a truth value: {node}")

    def value(self, node: Node) -> _Function:
        """Return the function of any node."""
        match node:
            case Constant(constant):
                return lambda _: constant
            case Property(name):
                return operator.itemgetter(self._place(name))
            case Negated(operand):
                negated = number_of(node)
                return _unknown(self.value(operand)) if negated is None else lambda _: negated
        return self.truth(node)

    def _equal(self, left: Node, right: Node) -> _Truth:
        if isinstance(left, Property):
            place, constant = self._place(left.name), number_of(right)
            if constant is not None:
                return _compare(place, "=", constant)
            if isinstance(right, Constant) and isinstance(right.value, str):
                return _is_text(place, right.value)
        return _equal(self.value(left), self.value(right))

    def _ordered(self, kind: str, left: Node, right: Node) -> _Truth:
        first, second = number_of(left), number_of(right)
        if isinstance(left, Property) and second is not None:
            return _compare(self._place(left.name), kind, second)
        if isinstance(right, Property) and first is not None:
            return _compare(self._place(right.name), _MIRRORED[kind], first)
        if isinstance(left, Property) and isinstance(right, Property):
            return _order(self._place(left.name), kind, self._place(right.name))
        if first is not None and second is not None:
            known = _ORDERS[kind](compared(first, second), 0)
            return lambda _: known
        return _never_known(self.value(left), self.value(right))


# -- truth values


def _all_of(terms: tuple[_Truth, ...]) -> _Truth:
    def function(values: _Values) -> bool | None:
        result: bool | None = True
        for term in terms:
            found = term(values)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return function


def _any_of(terms: tuple[_Truth, ...]) -> _Truth:
    def function(values: _Values) -> bool | None:
        result: bool | None = False
        for term in terms:
            found = term(values)
            if found is True:
                return True
            if found is None:
                result = None
        return result

    return function


def _not(operand: _Truth) -> _Truth:
    def function(values: _Values) -> bool | None:
        found = operand(values)
        return None if found is None else not found

    return function


def _cast(place: int) -> _Truth:
    return lambda values: None if values[place] is None else False


def _member(place: int, texts: frozenset[str], is_negated: bool) -> _Truth:
    def function(values: _Values) -> bool | None:
        text = values[place]
        return None if text is None else (text in texts) is not is_negated

    return function


def _affix(kind: str, operand: _Function, text: str, is_negated: bool) -> _Truth:
    has = _AFFIXES[kind]
    if not text:
        return lambda _: False

    def function(values: _Values) -> bool:
        found = operand(values)
        return isinstance(found, str) and has(found, text) is not is_negated

    return function


# -- comparisons


def _compare(place: int, kind: str, constant: Number) -> _Truth:
    """Compares a property with a number."""
    order, value, number_kind = _ORDERS[kind], constant.value, constant.kind
    if isinstance(value, float):

        def of_doubles(values: _Values) -> bool | None:
            text = values[place]
            return None if text is None else order(compare_doubles(double(text), value), 0)

        return of_doubles

    def of_whole(values: _Values) -> bool | None:
        text = values[place]
        return None if text is None else order(number(text, number_kind), value)

    return of_whole


def _is_text(place: int, text: str) -> _Truth:
    def function(values: _Values) -> bool | None:
        found = values[place]
        return None if found is None else found == text

    return function


def _order(left: int, kind: str, right: int) -> _Truth:
    """Compares two properties, which then have to be numbers."""
    order = _ORDERS[kind]

    def function(values: _Values) -> bool | None:
        first, second = values[left], values[right]
        if first is None or second is None:
            return None
        return order(compare_doubles(double(first), double(second)), 0)

    return function


def _equal(left: _Function, right: _Function) -> _Truth:
    def function(values: _Values) -> bool | None:
        first, second = left(values), right(values)
        if first is None:
            return True if second is None else None
        return second is not None and _are_equal(first, second)

    return function


def _are_equal(first: str | bool | Number, second: str | bool | Number) -> bool:
    if isinstance(first, str):
        if isinstance(second, str):
            return first == second
        if isinstance(second, bool):
            return truth(first) is second
        return _is_number(first, second)
    if isinstance(first, bool):
        if isinstance(second, str):
            # RocketMQ converts the wrong side, which fails.
            raise ValueError("a truth value is compared with a text")
        return first is second
    if isinstance(second, str):
        return _is_number(second, first)
    return not isinstance(second, bool) and compared(first, second) == 0


def _is_number(text: str, constant: Number) -> bool:
    return compared(Number(number(text, constant.kind), constant.kind), constant) == 0


# -- what is never known


def _unknown(operand: _Function) -> _Function:
    def function(values: _Values) -> None:
        operand(values)

    return function


def _never_known(left: _Function, right: _Function) -> _Truth:
    """Orders operands of which one is never a number."""

    def function(values: _Values) -> None:
        if left(values) is not None:
            right(values)

    return function
