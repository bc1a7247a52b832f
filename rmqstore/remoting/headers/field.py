"""Converts the extFields of a request or response to a frozen dataclass, and back.

    @header
    class QueryDataVersionRequestHeader(Header):
        broker_name: str = string("brokerName")
        broker_id: int = int64("brokerId")
        priority: int | None = int32("electionPriority", default=None)

    header = QueryDataVersionRequestHeader.from_fields(frame.ext_fields)
    Frame.request(code, header.to_fields())

A field has Java's name. A field without a default is required: `from_fields` raises
InvalidFieldError where it is missing. `to_fields` leaves out a None whose default is None.
Headers have no `__post_init__`. Unknown extFields are ignored; the frame still has them when it is
forwarded.

Java does not check: a wrong or missing value becomes null, and later a null pointer exception.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

from rmqstore._native.core import make_remoting_header
from rmqstore.errors import InvalidFieldError

__all__ = ["Header", "boolean", "header", "int32", "int64", "string"]

H = TypeVar("H", bound="Header")
_REQUIRED: Any = dataclasses.MISSING
_METADATA = "rmqstore.remoting"


class _Kind(NamedTuple):
    """A type of Java in its form on the wire."""

    article: str
    number: int
    """The size that `make_remoting_header` expects."""
    parse: Callable[[str], Any]
    """Returns the value of a text. Raises ValueError."""
    write: Callable[[Any], str]


class _Field(NamedTuple):
    attribute: str
    name: str
    kind: _Kind
    default: Any


def _parse_int32(text: str) -> int:
    value = _parse_integer(text)
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError
    return value


def _parse_int64(text: str) -> int:
    value = _parse_integer(text)
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise ValueError
    return value


def _parse_integer(text: str) -> int:
    # int() also accepts spaces, underscores and digits of other scripts.
    if not text.isascii() or len(text) > 20:
        raise ValueError
    if not text.isdigit() and not (text[:1] in ("-", "+") and text[1:].isdigit()):
        raise ValueError
    return int(text)


def _parse_boolean(text: str) -> bool:
    if text == "true":
        return True
    if text == "false":
        return False
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueError
    return lower == "true"


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


_STRING = _Kind("a text", 0, str, str)
_INT32 = _Kind("an integer of 32 bits", 32, _parse_int32, str)
_INT64 = _Kind("an integer of 64 bits", 64, _parse_int64, str)
_BOOLEAN = _Kind("true or false", 1, _parse_boolean, _write_boolean)


def string(name: str, *, default: Any = _REQUIRED) -> Any:
    """Return the definition of a `String` field that is called *name* in Java."""
    return _define(name, _STRING, default)


def int32(name: str, *, default: Any = _REQUIRED) -> Any:
    """Return the definition of an `int` or `Integer` field that is called *name* in Java."""
    return _define(name, _INT32, default)


def int64(name: str, *, default: Any = _REQUIRED) -> Any:
    """Return the definition of a `long` or `Long` field that is called *name* in Java."""
    return _define(name, _INT64, default)


def boolean(name: str, *, default: Any = _REQUIRED) -> Any:
    """Return the definition of a `boolean` or `Boolean` field that is called *name* in Java."""
    return _define(name, _BOOLEAN, default)


def _define(name: str, kind: _Kind, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={_METADATA: (name, kind)})


class Header:
    """The base class of all headers; see the module."""

    __slots__ = ()
    _fields: ClassVar[tuple[_Field, ...]] = ()
    _plan: ClassVar[tuple[tuple[str, str, int, bool, object], ...]] = ()
    """The same definitions for `make_remoting_header`."""
    _writers: ClassVar[tuple[tuple[str, str, Callable[[Any], str]], ...]] = ()
    """Attribute, name and text of each field, for `to_fields`."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """Return the header that *fields* hold. Raises InvalidFieldError, which names the first
        field that is missing or has a value of another type."""
        if type(fields) is dict:
            made = make_remoting_header(cls, fields, cls._plan)
            if made is not None:
                return made
        # Unusual values, and error messages.
        values = {}
        for attribute, name, kind, default in cls._fields:
            text = fields.get(name)
            if text is None or (not text and kind is not _STRING):
                if default is _REQUIRED:
                    raise InvalidFieldError(
                        f"field {name} is missing: send {kind.article}", field=name
                    )
                continue
            try:
                values[attribute] = kind.parse(text)
            except ValueError:
                raise InvalidFieldError(
                    f"field {name} is {text[:40]!r}: send {kind.article}", field=name
                ) from None
        return cls(**values)

    def to_fields(self) -> dict[str, str]:
        """Return the extFields of this header, in the order of its definition."""
        return {
            name: write(value)
            for attribute, name, write in self._writers
            if (value := getattr(self, attribute)) is not None
        }


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(string, int32, int64, boolean)
)
def header(cls: type[H]) -> type[H]:
    """Make *cls*, a subclass of `Header`, a frozen dataclass with keyword arguments."""
    made = dataclasses.dataclass(frozen=True, kw_only=True, slots=True)(cls)
    fields = []
    for each in dataclasses.fields(made):  # type: ignore[arg-type]
        name, kind = each.metadata[_METADATA]
        fields.append(_Field(each.name, name, kind, each.default))
    made._fields = tuple(fields)
    made._plan = tuple(
        (each.attribute, each.name, each.kind.number, each.default is _REQUIRED, each.default)
        for each in fields
    )
    made._writers = tuple((each.attribute, each.name, each.kind.write) for each in fields)
    return made
