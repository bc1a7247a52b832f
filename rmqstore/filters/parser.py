"""The grammar of an expression, that of RocketMQ's SelectorParser.

    or          and (OR and)*
    and         equality (AND equality)*
    equality    comparison ((= | <>) comparison | IS [NOT] NULL)*
    comparison  unary ((> | >= | < | <=) unary
                       | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text
                       | [NOT] BETWEEN unary AND unary
                       | [NOT] IN ( text (, text)* ))*
    unary       (+ | - | NOT) unary | primary
    primary     text | number | TRUE | FALSE | NULL | property | ( or )

What follows a whole expression is ignored, as in RocketMQ. An expression is limited in its length
and depth, because clients send it.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqstore.filters.java_values import compared
from rmqstore.filters.tokens import SqlError, Token, Tokens
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
    NumberKind,
    Property,
    is_boolean,
    number_of,
)

__all__ = ["DEPTH_MAX", "LENGTH_MAX", "parsed"]

LENGTH_MAX = 16_384
"""Characters of an expression."""
DEPTH_MAX = 64
"""Operators inside each other; terms joined with AND or OR are side by side."""
_INTEGER_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_DOUBLE_MIN, _DOUBLE_MAX = 5e-324, 1.7976931348623157e308
_ORDERS = (">", ">=", "<", "<=")
_AFFIXES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_OPERANDS = ("name", "text", "whole", "float", "TRUE", "FALSE", "NULL", "(")


def parsed(text: str) -> Node:
    """Return the tree of an expression, which is a truth value. Raises SqlError."""
    if len(text) > LENGTH_MAX:
        raise SqlError(f"the expression has more than {LENGTH_MAX} characters; it ends", LENGTH_MAX)
    return _Parser(text).whole()


class _Parser:
    """The state of one parse. Each method returns the node that begins at the next token."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0

    def whole(self) -> Node:
        at = self._tokens.next.at
        return _boolean(self._either(), at)

    def _either(self) -> Node:
        return self._joined("OR", self._both, AnyOf)

    def _both(self) -> Node:
        return self._joined("AND", self._equality, AllOf)

    def _joined(
        self,
        operator: str,
        operand: Callable[[], Node],
        kind: Callable[[tuple[Node, ...]], Node],
    ) -> Node:
        at = self._tokens.next.at
        first = operand()
        if self._tokens.next.kind != operator:
            return first
        terms = [_boolean(first, at)]
        while self._tokens.next.kind == operator:
            self._tokens.take()
            at = self._tokens.next.at
            terms.append(_boolean(operand(), at))
        return kind(tuple(terms))

    # -- chains of operators: each is one level deeper than the one before

    def _equality(self) -> Node:
        left, depth = self._comparison(), self._depth
        while self._tokens.next.kind in ("=", "<>", "IS"):
            operator = self._tokens.take()
            self._deeper(operator)
            if operator.kind == "IS":
                left = self._null(left)
                continue
            right = self._comparison()
            _refuse_null(left, operator)
            _refuse_null(right, operator)
            if _is_truth(left) and isinstance(right, Constant) and not is_boolean(right):
                raise SqlError("a truth value and another constant are compared", operator.at)
            equal = Compared("=", left, right)
            left = equal if operator.kind == "=" else Not(equal)
        self._depth = depth
        return left

    def _null(self, operand: Node) -> Node:
        is_negated = self._tokens.next.kind == "NOT"
        if is_negated:
            self._tokens.take()
        self._tokens.expect("NULL")
        found = Compared("=", operand, Constant(None))
        return Not(found) if is_negated else found

    def _comparison(self) -> Node:
        left, depth = self._unary(), self._depth
        while self._tokens.next.kind in (*_ORDERS, *_AFFIXES, "BETWEEN", "IN", "NOT"):
            operator = self._tokens.take()
            self._deeper(operator)
            if operator.kind in _ORDERS:
                left = _ordered(operator.kind, left, self._unary(), operator)
                continue
            is_negated = operator.kind == "NOT"
            if is_negated:
                operator = self._tokens.expect(*_AFFIXES, "BETWEEN", "IN")
            if operator.kind == "BETWEEN":
                left = self._between(left, operator, is_negated=is_negated)
            elif operator.kind == "IN":
                left = self._member(left, operator, is_negated=is_negated)
            else:
                left = Affix(operator.kind, left, self._text(), is_negated)
        self._depth = depth
        return left

    def _between(self, value: Node, operator: Token, *, is_negated: bool) -> Node:
        low = self._unary()
        self._tokens.expect("AND")
        high = self._unary()
        if is_negated:
            below = _ordered("<", value, low, operator)
            return AnyOf((below, _ordered(">", value, high, operator)))
        from_low = _ordered(">=", value, low, operator)
        to_high = _ordered("<=", value, high, operator)
        first, last = _constant(low), _constant(high)
        if first is not None and last is not None and compared(first, last) > 0:
            raise SqlError("the first value of BETWEEN is above the second", operator.at)
        return AllOf((from_low, to_high))

    def _member(self, operand: Node, operator: Token, *, is_negated: bool) -> Node:
        if not isinstance(operand, Property):
            raise SqlError("IN needs a property on its left side", operator.at)
        self._tokens.expect("(")
        texts = {self._text()}
        while self._tokens.expect(",", ")").kind == ",":
            texts.add(self._text())
        return Member(operand, frozenset(texts), is_negated)

    # -- operands

    def _unary(self) -> Node:
        operator = self._tokens.next
        if operator.kind not in ("+", "-", "NOT"):
            return self._primary()
        self._tokens.take()
        depth = self._depth
        self._deeper(operator)
        operand = self._unary()
        self._depth = depth
        if operator.kind == "NOT":
            return Not(_boolean(operand, operator.at))
        return operand if operator.kind == "+" else Negated(operand)

    def _primary(self) -> Node:
        token = self._tokens.expect(*_OPERANDS)
        match token.kind:
            case "text":
                return Constant(_unquoted(token))
            case "whole":
                return Constant(_whole(token))
            case "float":
                return Constant(_double(token))
            case "name":
                return Property(token.text)
            case "(":
                depth = self._depth
                self._deeper(token)
                inner = self._either()
                self._depth = depth
                self._tokens.expect(")")
                return inner
            case _:
                return Constant({"TRUE": True, "FALSE": False, "NULL": None}[token.kind])

    def _text(self) -> str:
        return _unquoted(self._tokens.expect("text"))

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SqlError(f"more than {DEPTH_MAX} operators are inside each other", token.at)


# -- what fits together


def _boolean(node: Node, at: int) -> Node:
    if is_boolean(node):
        return node
    if isinstance(node, Property):
        return Cast(node)
    raise SqlError("a truth value expected, not a number or a text", at)


def _ordered(operator: str, left: Node, right: Node, token: Token) -> Node:
    for each in (left, right):
        if is_boolean(each) or (isinstance(each, Constant) and number_of(each) is None):
            raise SqlError(f"{token.kind} compares numbers and properties only", token.at)
    return Compared(operator, left, right)


def _refuse_null(node: Node, operator: Token) -> None:
    if isinstance(node, Constant) and node.value is None:
        raise SqlError("NULL cannot be compared; write IS NULL", operator.at)


def _constant(node: Node) -> Number | None:
    """Returns the number of a constant; one with a sign is none."""
    return number_of(node) if isinstance(node, Constant) else None


def _is_truth(node: Node) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, bool)


# -- constants


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _whole(token: Token) -> Number:
    digits = token.text.rstrip("lL")
    # Longer ones are not converted: Python refuses very long texts of digits.
    value = int(digits) if len(digits) <= len(str(_LONG_MAX)) else _LONG_MAX + 1
    if value > _LONG_MAX:
        raise SqlError(
            f"{token.text[:40]} is above {_LONG_MAX}, the highest whole number", token.at
        )
    return Number(value, NumberKind.INTEGER if value <= _INTEGER_MAX else NumberKind.LONG)


def _double(token: Token) -> Number:
    value = float(token.text)
    if not _DOUBLE_MIN <= value <= _DOUBLE_MAX:
        raise SqlError(
            f"{token.text[:40]} is not between {_DOUBLE_MIN} and {_DOUBLE_MAX}; write 0 for zero",
            token.at,
        )
    return Number(value, NumberKind.DOUBLE)
