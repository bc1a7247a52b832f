"""Reads JSON as Java's fastjson writes it, and writes strict JSON.

Forms beyond JSON that fastjson 1.2.83 and fastjson2 write, and `loads` reads:

    {0:"a",1:"b"}                 keys without quotes: numbers, true, false, null, names
    {{"queueId":0}:5}, {[1]:5}    objects and arrays as keys
    {"$ref":"$.a.b[0]"}           an object that was written earlier; also "$", "@" and ".."
    'text', "\\x41"                single quotes, escapes of JavaScript
    1L 2S 3B 4F 5D, Set[1]        types of numbers and sets, commas after the last element

Keys of Python dicts are always strings: 0 becomes "0", and an object or array becomes its own
strict JSON text, which `loads` reads again. The last of several equal keys counts, as in Java.
Integers are exact. A value that a reference repeats is the same Python object. Half of a surrogate
pair becomes U+FFFD, so every text can be encoded.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from rmqstore.errors import RemotingFrameError

__all__ = ["DEPTH_MAX", "DIALECT_SIZE_MAX", "SIZE_MAX", "dumps", "loads"]

SIZE_MAX = 16 * 1024 * 1024
"""Bytes of the largest text: that of the largest frame."""
DIALECT_SIZE_MAX = 1024 * 1024
"""Characters of the largest text with forms beyond JSON and numeric keys: such text is read about
twenty times slower."""
DEPTH_MAX = 64
"""Levels of nested objects and arrays."""

_VALUES_MAX = 4_000_000
_REFERENCE = "$ref"
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_QUOTED = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)
_NUMBER_KEY = re.compile(r"([{,]\s*+)(-?\d++)\s*+:", re.ASCII)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is beyond the range of a double")
    return value


# Integers are limited by int itself, to 4300 digits.
_strict = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dumps(value: object) -> bytes:
    """Return *value* as strict JSON in UTF-8, keys in their order, without needless escapes.

    Raises ValueError for NaN, infinity, half a surrogate pair and circular references, TypeError
    for types that JSON does not have.
    """
    return _encode(value).encode()


def loads(
    data: bytes | str,
    *,
    size_max: int = SIZE_MAX,
    dialect_size_max: int = DIALECT_SIZE_MAX,
    depth_max: int = DEPTH_MAX,
) -> Any:  # Any, as in the standard library: the caller checks the shape.
    """Return the value of *data*: dict, list, str, int, float, bool or None.

    Raises RemotingFrameError for other text, for more than *size_max* bytes (*dialect_size_max* for
    text with forms beyond JSON and numeric keys) and for more than *depth_max* levels.
    """
    if len(data) > size_max:
        raise RemotingFrameError(f"JSON of {len(data)} bytes, the limit is {size_max}")
    try:
        text = data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise RemotingFrameError(f"JSON that is not UTF-8: {error}") from error

    if _REFERENCE not in text and not _HALF_PAIR.search(text):
        for form in (str, _with_quoted_numbers):
            try:
                value = _strict.decode(form(text))
            except (ValueError, RecursionError):
                continue  # Not strict JSON; the parser below raises the error.
            _check_depth(value, depth_max)
            return value
    if len(text) > dialect_size_max:
        raise RemotingFrameError(
            f"JSON of {len(text)} characters that is not strict, the limit is {dialect_size_max}; "
            "send strict JSON, or less at once"
        )
    return _Parser(text, depth_max).parse()


def _with_quoted_numbers(text: str) -> str:
    """Return *text* with quotes around numbers that are keys."""
    pieces = _QUOTED.split(text)
    # One substitution outside the texts; the texts are replaced by NUL meanwhile.
    between = "\0".join(pieces[::2])
    pieces[::2] = _NUMBER_KEY.sub(r'\1"\2":', between).split("\0")
    return "".join(pieces)


def _check_depth(value: object, depth_max: int) -> None:
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > depth_max:
            raise RemotingFrameError(f"JSON deeper than {depth_max} levels")
        level = [
            each
            for holder in level
            for each in (holder.values() if type(holder) is dict else holder)
            if type(each) is dict or type(each) is list
        ]


_SPACE = re.compile(r"[ \t\n\r\f\b\ufeff]*+")
_PLAIN_STRING = re.compile(r'"([^"\\]*+)"|' + r"'([^'\\]*+)'")
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"|' + r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_NUMBER = re.compile(r"([-+]?\d++)(\.\d*+)?([eE][-+]?\d++)?([LSBFD])?(?![\w.])", re.ASCII)
_WORD = re.compile(r"(?:[^\W\d]|\$)[\w$.-]*+")
_SET = re.compile(r"(?:Tree)?Set(?=\[)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([0-7])|(.))", re.DOTALL)
_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])|[\ud800-\udfff]")
_STEP = re.compile(r"\.((?:\\.|[^.\[\]\\])++)|\[(\d++)\]|\[(?:'([^']*+)'|\"([^\"]*+)\")\]")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "F": "\f", "r": "\r"}
_CONSTANTS = {"true": True, "false": False, "null": None, "undefined": None}


@dataclass(slots=True)
class _Open:
    """An object or array whose end has not been read."""

    holder: Any
    count: int
    """Number of values read before this one."""
    key: str | int | None = None
    """Key or index of the current value; None while a key is read."""
    height: int = 0
    """Nesting levels of its finished values."""


@dataclass(frozen=True, slots=True)
class _Finished:
    """An object or array that a reference may repeat; kept, so that its identity stays unique."""

    holder: Any
    count: int
    height: int


class _Parser:
    """Reads one text of the dialect, token by token."""

    def __init__(self, text: str, depth_max: int) -> None:
        self._text = text
        self._at = 0
        self._depth_max = depth_max
        self._open: list[_Open] = []
        self._finished: dict[int, _Finished] = {}
        self._count = 0
        """Values read so far; values that a reference repeats count again."""

    def parse(self) -> Any:
        value = self._value()
        self._skip()
        if self._at < len(self._text):
            self._fail("more text after the value")
        return value

    def _fail(self, fault: str) -> NoReturn:
        at = self._at
        raise RemotingFrameError(f"JSON at character {at}: {fault}: {self._text[at : at + 20]!r}")

    def _skip(self) -> str:
        """Return the next character that is not space, "" at the end."""
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._count += 1
        first = self._skip()
        if first in ('"', "'"):
            return self._string()
        if first == "{":
            return self._object()
        if found := _SET.match(self._text, self._at):
            self._at = found.end()
            first = "["
        if first == "[":
            return self._array()

        if found := _NUMBER.match(self._text, self._at):
            return self._number(found)
        if (found := _WORD.match(self._text, self._at)) and found.group() in _CONSTANTS:
            self._at = found.end()
            return _CONSTANTS[found.group()]
        self._fail("a value is expected")

    def _string(self) -> str:
        found = _PLAIN_STRING.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            return found[found.lastindex or 0]
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._fail("a text without its end")
        self._at = found.end()
        return _PAIR.sub(_paired, _ESCAPE.sub(_unescaped, found[found.lastindex or 0]))

    def _number(self, found: re.Match[str]) -> int | float:
        whole, fraction, exponent, kind = found.groups()
        try:
            if fraction is None and exponent is None and kind not in ("F", "D"):
                value: int | float = int(whole)
            else:
                value = _finite(f"{whole}{fraction or ''}{exponent or ''}")
        except ValueError as error:
            self._fail(str(error))
        self._at = found.end()
        return value

    def _object(self) -> Any:
        found: dict[str, Any] = {}
        entry = self._enter(found)
        while (first := self._skip()) != "}":
            if first == ",":
                self._at += 1
                continue
            entry.key = None
            entry.key = key = self._key(first)
            if self._skip() != ":":
                self._fail("':' is expected")
            self._at += 1
            found[key] = self._value()
            if self._skip() not in (",", "}"):
                self._fail("',' or '}' is expected")
        self._leave()
        if len(found) == 1 and isinstance(path := found.get(_REFERENCE), str):
            return self._referred(path)
        return found

    def _key(self, first: str) -> str:
        if first in ('"', "'"):
            return self._string()
        if first in ("{", "["):
            return dumps(self._value()).decode()
        if found := _NUMBER.match(self._text, self._at):
            self._at = found.end()
            return found.group().rstrip("LSBFD")
        if found := _WORD.match(self._text, self._at):
            self._at = found.end()
            return found.group()
        self._fail("a key is expected")

    def _array(self) -> list[Any]:
        found: list[Any] = []
        entry = self._enter(found)
        while (first := self._skip()) != "]":
            if first == ",":
                self._at += 1
                continue
            entry.key = len(found)
            found.append(None)
            found[-1] = self._value()
            if self._skip() not in (",", "]"):
                self._fail("',' or ']' is expected")
        self._leave()
        return found

    def _enter(self, holder: Any) -> _Open:
        if len(self._open) >= self._depth_max:
            self._fail(f"deeper than {self._depth_max} levels")
        if self._open and self._open[-1].key is not None:
            # Stored before its end is read, so that paths can lead through it.
            self._open[-1].holder[self._open[-1].key] = holder
        self._at += 1
        self._open.append(_Open(holder, self._count))
        return self._open[-1]

    def _leave(self) -> None:
        self._at += 1
        entry = self._open.pop()
        finished = _Finished(entry.holder, self._count - entry.count, entry.height + 1)
        self._finished[id(entry.holder)] = finished
        self._raise_height(finished.height)

    def _raise_height(self, height: int) -> None:
        if self._open:
            self._open[-1].height = max(self._open[-1].height, height)

    def _referred(self, path: str) -> Any:
        # "$", ".." and "@" name unfinished objects, which would be circular.
        found: Any = self._follow(path) if path.startswith("$") else None
        finished = self._finished.get(id(found))
        if finished is None:
            self._fail(f"reference {path[:80]!r} names no object that ends before it")
        self._count += finished.count
        if self._count > _VALUES_MAX:
            self._fail(f"references repeat more than {_VALUES_MAX} values")
        if len(self._open) + finished.height > self._depth_max:
            self._fail(f"with reference {path[:80]!r} deeper than {self._depth_max} levels")
        self._raise_height(finished.height)
        return found

    def _follow(self, path: str) -> Any:
        """Return the value at *path*, None where *path* leads to no value."""
        value: Any = self._open[0].holder if self._open else None
        at = 1
        while at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                return None
            at = step.end()
            name = re.sub(r"\\(.)", r"\1", step[step.lastindex or 0])
            try:
                value = value[int(name) if step[2] and isinstance(value, list) else name]
            except (LookupError, TypeError):
                return None
        return value


def _unescaped(found: re.Match[str]) -> str:
    code, byte, digit, other = found.groups()
    if other is not None:
        return _ESCAPED.get(other, other)
    return chr(int(code or byte or digit, 16))


def _paired(found: re.Match[str]) -> str:
    high, low = found.groups()
    if high is None:
        return "\N{REPLACEMENT CHARACTER}"
    return chr(0x10000 + (ord(high) - 0xD800 << 10) + ord(low) - 0xDC00)
