"""Checks of the arguments of public calls.

Each function returns its argument in plain form: an exact int, str, float or tuple. A wrong type
raises ArgumentTypeError, a wrong value ArgumentError. Every message names the parameter, the value
found and what the call accepts.
"""

from __future__ import annotations

import operator
import os
import reprlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, TypeVar

from rmqstore.errors import ArgumentError, ArgumentTypeError, DiskError, StoreError

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "SECONDS_MAX",
    "absolute_path",
    "boolean",
    "buffer",
    "buffer_error",
    "function",
    "host",
    "instance",
    "integer",
    "items",
    "mapping",
    "member",
    "milliseconds",
    "path",
    "seconds",
    "shown",
    "text",
    "texts",
    "time_ms",
    "utf8",
    "utf8_error",
    "word",
]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
SECONDS_MAX = 1e9
"""Timeouts above this, such as infinity, are cut to it: about 31 years."""

_SHOWN_MAX = 80

K = TypeVar("K")
E = TypeVar("E", bound=Enum)
W = TypeVar("W", bound=StrEnum)


def shown(value: object, *, typed: bool = True) -> str:
    """Return a short text of *value*, with its type if *typed*, whatever its repr does."""
    kind = type(value).__name__
    if value is None:
        return "None"
    try:
        if isinstance(value, str | bytes | bytearray):
            shortened = repr(value[:_SHOWN_MAX])
        else:
            shortened = _shortener.repr(value)
    except Exception:
        return f"a value of type {kind}"
    if len(shortened) > _SHOWN_MAX:
        shortened = f"{shortened[:_SHOWN_MAX]}..."
    # A str may hold surrogates, which no terminal and no log file accepts.
    printable = shortened.encode("ascii", "backslashreplace").decode("ascii")
    return f"{printable} ({kind})" if typed else printable


_shortener = reprlib.Repr()
_shortener.maxstring = _shortener.maxlong = _shortener.maxother = _SHOWN_MAX


def _wrong_type(name: str, value: object, wanted: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{name} is {shown(value)}; give {wanted}")


def integer(
    name: str,
    value: object,
    *,
    low: int = INT64_MIN,
    high: int = INT64_MAX,
    error: type[StoreError] = ArgumentError,
) -> int:
    """Return a whole number between two limits, both of which belong to the range.

    An object with `__index__` is accepted, bool and float are not. A number outside of the range
    raises *error*.
    """
    number = value if type(value) is int else _index(name, value, low, high)
    if not low <= number <= high:
        raise error(f"{name} is {shown(number, typed=False)}; give {_range(low, high)}")
    return number


def _index(name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, bool):
        try:
            return int(operator.index(value))
        except Exception as error:
            raise _wrong_type(name, value, _range(low, high)) from error
    raise _wrong_type(name, value, _range(low, high))


def _range(low: int, high: int) -> str:
    if low == INT64_MIN and high == INT64_MAX:
        return "a whole number of 64 bits"
    return f"a whole number from {low} to {high}"


def text(name: str, value: object, *, wanted: str = "a str") -> str:
    """Return a text, which may be of a subclass of str."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise _wrong_type(name, value, wanted)


def utf8(name: str, value: object) -> str:
    """Return a text that UTF-8 encodes."""
    found = text(name, value)
    try:
        found.encode()
    except UnicodeEncodeError:
        raise utf8_error(name, found) from None
    return found


def texts(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of an iterable; a str stands for itself alone."""
    if isinstance(value, str):
        return (text(name, value),)
    wanted = "a str, or a list of str"
    found = tuple(items(name, value, wanted))
    return tuple(text(f"{name}[{i}]", each, wanted="a str") for i, each in enumerate(found))


def items(name: str, value: object, wanted: str) -> Iterable[Any]:
    """Return an iterable argument, which is not a text, bytes or a mapping."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        raise _wrong_type(name, value, wanted)
    if not isinstance(value, Iterable):
        raise _wrong_type(name, value, wanted)
    return value


def mapping(name: str, value: object, wanted: str) -> Mapping[Any, Any]:
    """Return a mapping."""
    if isinstance(value, Mapping):
        return value
    raise _wrong_type(name, value, wanted)


def time_ms(name: str, text: str) -> int:
    """Return the milliseconds since 1970 of a time given as such or as ISO 8601.

    A time without a zone is local.
    """
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ArgumentError(
            f"{name} is {shown(text)}; give a time such as 2024-05-31T17:00:00, with +02:00 or Z "
            "where it is not local, or milliseconds since 1970"
        ) from None


def boolean(name: str, value: object) -> bool:
    """Return True or False; numbers and texts are not converted."""
    if value is True or value is False:
        return value
    raise _wrong_type(name, value, "True or False")


def seconds(name: str, value: object) -> float:
    """Return a number of seconds, at most SECONDS_MAX. Refuses negative numbers and NaN."""
    wanted = "a number of seconds, 0 or more"
    if isinstance(value, bool | str | bytes | bytearray) or not hasattr(value, "__float__"):
        raise _wrong_type(name, value, wanted)
    try:
        number = float(value)
    except OverflowError:
        number = SECONDS_MAX if value > 0 else -1.0  # type: ignore[operator]
    except Exception as error:
        raise _wrong_type(name, value, wanted) from error
    if not number >= 0:
        raise ArgumentError(f"{name} is {shown(value)}; give {wanted}")
    return min(number, SECONDS_MAX)


def milliseconds(name: str, value: object) -> float:
    """Return a reading of a clock in milliseconds, whole or not. Refuses NaN and infinity."""
    wanted = "a number of milliseconds"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, value, wanted)
    if not abs(value) <= INT64_MAX:
        raise ArgumentError(f"{name} is {shown(value)}; give {wanted}")
    return value


def member(name: str, value: object, kind: type[E]) -> E:
    """Return a member of the enumeration *kind*; its values are not accepted in its place."""
    if isinstance(value, kind):
        return value
    example = next(iter(kind))
    raise _wrong_type(
        name, value, f"a member of {kind.__name__}, such as {kind.__name__}.{example.name}"
    )


def word(name: str, value: object, kind: type[W]) -> W:
    """Return a member of an enumeration of words, which may be given as text."""
    if isinstance(value, str):
        for each in kind:
            if each == value:
                return each
    wanted = " or ".join(f"{kind.__name__}.{each.name}" for each in kind)
    if isinstance(value, str):
        raise ArgumentError(f"{name} is {shown(value)}; give {wanted}")
    raise _wrong_type(name, value, wanted)


def instance(name: str, value: object, kind: type[K], *, wanted: str = "") -> K:
    """Return an object of the class *kind*."""
    if isinstance(value, kind):
        return value
    raise _wrong_type(name, value, wanted or f"a {kind.__name__}")


def function(name: str, value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise _wrong_type(name, value, "a function, or None")


def path(name: str, value: object) -> str:
    """Return a path as text.

    Refuses "", which would mean the working directory, and "~" at the beginning, which only shells
    expand.
    """
    wanted = "a path: a str, or an object with __fspath__"
    if isinstance(value, str):
        found = text(name, value)
    else:
        try:
            found = text(name, os.fsdecode(value))  # type: ignore[arg-type]
        except Exception as error:
            raise _wrong_type(name, value, wanted) from error

    if not found:
        raise ArgumentError(f'{name} is ""; give "." for the working directory')
    if found[0] == "~":
        raise ArgumentError(
            f'{name} is {shown(found)}; "~" is not expanded here, give os.path.expanduser(path), '
            f"or ./{found[:1]}... for a folder of that name"
        )

    try:
        encoded = os.fsencode(found)
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} is {shown(found)}; no file system name holds it") from error
    if b"\0" in encoded:
        raise ArgumentError(f"{name} is {shown(found)}; a path holds no zero byte")

    return found


def absolute_path(name: str, value: object) -> str:
    """Return the absolute form of a path. Raises DiskError without a working directory."""
    found = path(name, value)
    try:
        return os.path.abspath(found)
    except OSError as error:
        raise DiskError(error.errno or 0, f"{name} {found}: {error.strerror}") from error


def host(name: str, value: object) -> tuple[str, int]:
    """Return an address and a port; whether the text is an IP address is not checked here."""
    wanted = "a pair of an IP address and a port, such as ('127.0.0.1', 10911)"
    if not isinstance(value, tuple) or len(value) != 2:
        raise _wrong_type(name, value, wanted)
    address, port = value
    return text(name, address, wanted=wanted), integer(
        f"the port of {name}", port, low=0, high=65535
    )


def buffer(name: str, value: object) -> None:
    """Refuse what does not have the buffer protocol, or whose bytes are not side by side."""
    try:
        with memoryview(value) as view:  # type: ignore[arg-type]
            if not view.c_contiguous:
                raise BufferError("its bytes are not side by side")
    except (BufferError, TypeError, ValueError) as error:
        raise buffer_error(name, value, error) from None


def buffer_error(name: str, value: object, error: Exception) -> ArgumentError:
    """Return the exception for an object whose bytes cannot be had."""
    wanted = "bytes, or another object with the buffer protocol"
    if isinstance(error, TypeError):
        return _wrong_type(name, value, wanted)
    return ArgumentError(f"{name} is {shown(value)}: {error}; give {wanted}, contiguous and alive")


def utf8_error(name: str, value: str, *, error: type[StoreError] = ArgumentError) -> StoreError:
    """Return the exception for a text that UTF-8 cannot encode."""
    return error(f"{name} is {shown(value)}; it holds a surrogate, which UTF-8 cannot encode")
