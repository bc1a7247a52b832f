"""Values that callers pass by mistake or on purpose, and which of them a parameter may accept."""

from __future__ import annotations

import array
import datetime
import decimal
import fractions
import math
import os
from collections import UserDict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from rmqstore import Boundary, Durability, FlushDiskType, Message, PutStatus

Accepts = Callable[[Any], bool]
"""Whether a call may succeed with a value; otherwise it must raise an error that names the
parameter."""


class Index:
    def __init__(self, value: object) -> None:
        self.value = value

    def __index__(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class HasNoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class IsNoPath:
    def __fspath__(self) -> str:
        raise RuntimeError("no path")


class IsNotComparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


class Text(str):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Pairs(UserDict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


class Foreign(Enum):
    DISK = "disk"


def _released() -> memoryview:
    view = memoryview(b"released")
    view.release()
    return view


def _recursive() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _raising() -> Any:
    yield "a"
    raise RuntimeError("the iterable raised")


VALUES: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "7": lambda: 7,
    "2**15": lambda: 2**15,
    "2**31 - 1": lambda: 2**31 - 1,
    "2**31": lambda: 2**31,
    "-2**31 - 1": lambda: -(2**31) - 1,
    "2**63 - 1": lambda: 2**63 - 1,
    "2**63": lambda: 2**63,
    "-2**63": lambda: -(2**63),
    "-2**63 - 1": lambda: -(2**63) - 1,
    "2**64": lambda: 2**64,
    "10**5000": lambda: 10**5000,
    "-10**5000": lambda: -(10**5000),
    "0.0": lambda: 0.0,
    "1.7": lambda: 1.7,
    "-0.5": lambda: -0.5,
    "1e300": lambda: 1e300,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "1j": lambda: 1j,
    "Decimal": lambda: decimal.Decimal("1.5"),
    "Fraction": lambda: fractions.Fraction(10**400, 3),
    "Index(1)": lambda: Index(1),
    "Index(2**70)": lambda: Index(2**70),
    "Index('1')": lambda: Index("1"),
    "Index that raises": lambda: Index(KeyError("index")),
    "empty text": lambda: "",
    "'x'": lambda: "x",
    "'1'": lambda: "1",
    "'disk'": lambda: "disk",
    "'upper'": lambda: "upper",
    "'a b'": lambda: "a b",
    "'~/x'": lambda: "~/x",
    "'../x'": lambda: "../x",
    "long text": lambda: "x" * 100_000,
    "lone surrogate": lambda: "a\ud800b",
    "escaped byte": lambda: "a\udcffb",
    "zero byte": lambda: "a\0b",
    "separators": lambda: "a\1b\2c",
    "Text": lambda: Text("x"),
    "b''": lambda: b"",
    "b'x'": lambda: b"x",
    "long bytes": lambda: bytes(5 << 20),
    "bytearray": lambda: bytearray(b"x"),
    "strided": lambda: memoryview(b"abcd")[::2],
    "released": _released,
    "array": lambda: array.array("d", [1.5]),
    "[]": list,
    "['a']": lambda: ["a"],
    "['a', 1]": lambda: ["a", 1],
    "[None]": lambda: [None],
    "[b'a']": lambda: [b"a"],
    "recursive list": _recursive,
    "()": tuple,
    "('x', 1)": lambda: ("x", 1),
    "('127.0.0.1', 70000)": lambda: ("127.0.0.1", 70000),
    "(1, 2, 3)": lambda: (1, 2, 3),
    "range": lambda: range(3),
    "iterator that raises": _raising,
    "{}": dict,
    "{'a': 'b'}": lambda: {"a": "b"},
    "{'a': ''}": lambda: {"a": ""},
    "{'': 'b'}": lambda: {"": "b"},
    "{'a': 1}": lambda: {"a": 1},
    "{1: 'b'}": lambda: {1: "b"},
    "{None: None}": lambda: {None: None},
    "{'a': surrogate}": lambda: {"a": "\ud800"},
    "{'a': separator}": lambda: {"a": "\2"},
    "Pairs": lambda: Pairs({"a": "b"}),
    "set": lambda: {"a"},
    "object": object,
    "HasNoRepr": HasNoRepr,
    "IsNoPath": IsNoPath,
    "IsNotComparable": IsNotComparable,
    "a class": lambda: int,
    "a function": lambda: len,
    "an exception": lambda: ValueError("x"),
    "datetime": lambda: datetime.timedelta(seconds=1),
    "Durability.DISK": lambda: Durability.DISK,
    "Foreign.DISK": lambda: Foreign.DISK,
    "FlushDiskType": lambda: FlushDiskType.SYNC_FLUSH,
    "PutStatus": lambda: PutStatus.PUT_OK,
    "Boundary.UPPER": lambda: Boundary.UPPER,
    "Message": lambda: Message("t", b"x"),
    "[Message]": lambda: [Message("t", b"x")],
    "[Message, 5]": lambda: [Message("t", b"x"), 5],
}


def whole(low: int = -(2**63), high: int = 2**63 - 1) -> Accepts:
    def accepts(value: Any) -> bool:
        if isinstance(value, Index):
            value = value.value
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return is_number and low <= value <= high

    return accepts


def text(value: Any) -> bool:
    return isinstance(value, str)


def utf8_text(value: Any) -> bool:
    return isinstance(value, str) and "\ud800" not in value and "\udcff" not in value


def clean_text(value: Any) -> bool:
    """A text that a message can have as its topic."""
    return utf8_text(value) and value.isprintable()


def texts(value: Any) -> bool:
    return text(value) or (
        isinstance(value, list | tuple | set) and all(isinstance(each, str) for each in value)
    )


def boolean(value: Any) -> bool:
    return value is True or value is False


def seconds(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(
        value, int | float | decimal.Decimal | fractions.Fraction
    ):
        return False
    return value >= 0


def path(value: Any) -> bool:
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if not isinstance(value, str) or "\0" in value or "\ud800" in value:
        return False
    return value != "" and not value.startswith("~")


def durability(value: Any) -> bool:
    return isinstance(value, Durability)


def boundary(value: Any) -> bool:
    return isinstance(value, str) and value in tuple(Boundary)


def body(value: Any) -> bool:
    try:
        return memoryview(value).contiguous
    except (TypeError, ValueError):
        return False


def mapping_of_texts(value: Any) -> bool:
    return isinstance(value, Pairs) or (
        isinstance(value, dict)
        and all(
            each is None or (isinstance(key, str) and isinstance(each, str))
            for key, each in value.items()
        )
    )


def callable_(value: Any) -> bool:
    return callable(value)


def nothing(value: Any) -> bool:
    return False


def anything(value: Any) -> bool:
    return True


def optional(accepts: Accepts) -> Accepts:
    return lambda value: value is None or accepts(value)


def either(*choices: Accepts) -> Accepts:
    return lambda value: any(accepts(value) for accepts in choices)


def one_of(*words: Any) -> Accepts:
    return lambda value: isinstance(value, str) and value in words


def kind_of(*kinds: type) -> Accepts:
    return lambda value: isinstance(value, kinds)


OWN_ERRORS = frozenset(
    {
        "no repr",
        "no path",
        "not comparable",
        "neither true nor false",
        "no text",
        "no items",
        "the iterable raised",
    }
)
"""Texts of exceptions that the values above raise by themselves."""
