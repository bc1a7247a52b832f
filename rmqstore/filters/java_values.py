"""Numbers and truth values as Java reads them from a text, and their order."""

from __future__ import annotations

import math
import re

from rmqstore.filters.tree import Number, NumberKind

__all__ = ["compare_doubles", "compared", "double", "number", "truth", "whole"]

_LIMITS = {NumberKind.INTEGER: 2**31, NumberKind.LONG: 2**63}
_BLANKS = "".join(map(chr, range(0x21)))
"""What Java's String.trim removes."""
# No digit is tried twice: a text of a property may have 32 KiB of them.
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity"
    r"|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++[fFdD]?"
)
_DIGITS_MAX = 4000


def number(text: str, kind: NumberKind) -> int | float:
    """Return the number of a text. Raises ValueError where Java's valueOf refuses it."""
    return double(text) if kind is NumberKind.DOUBLE else whole(text, _LIMITS[kind])


def whole(text: str, limit: int) -> int:
    """Return the number of a text, from -*limit* to *limit* - 1. Raises ValueError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > _DIGITS_MAX:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    value = int(text)
    if not -limit <= value < limit:
        raise ValueError(f"{text[:40]!r} is not between {-limit} and {limit - 1}")
    return value


def double(text: str) -> float:
    """Return the floating point number of a text. Raises ValueError."""
    trimmed = text.strip(_BLANKS)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed if trimmed.endswith(("NaN", "Infinity")) else trimmed.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(trimmed):
        return _hexadecimal(trimmed)
    raise ValueError(f"{text[:40]!r} is not a number")


def _hexadecimal(text: str) -> float:
    digits, _, exponent = text.lower().rstrip("fd").partition("p")
    try:
        return float.fromhex(f"{digits}p{exponent}")
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def truth(text: str) -> bool:
    """Return whether a text is `true` in any case."""
    return text.lower() == "true"


def compared(left: Number, right: Number) -> int:
    """Return -1, 0 or 1 for numbers of any two kinds."""
    if NumberKind.DOUBLE in (left.kind, right.kind):
        return compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def compare_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1 as Java's Double.compare: NaN is the highest, and -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        lower, upper = math.copysign(1, left), math.copysign(1, right)
        return 0 if left != 0 else int(lower > upper) - int(lower < upper)
    return math.isnan(left) - math.isnan(right)
