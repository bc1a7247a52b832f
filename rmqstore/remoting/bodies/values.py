"""Values of parsed JSON bodies, checked where they are read.

fastjson reads a missing value as null and a number as text or the reverse; so do these functions.
A value of another shape raises RemotingFrameError with the name of the field.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from rmqstore.arguments import INT64_MAX, shown
from rmqstore.errors import RemotingFrameError

__all__ = [
    "boolean_at",
    "integer_at",
    "integer_of",
    "list_of",
    "object_of",
    "text_at",
    "texts_of",
]


def object_of(value: object, name: str) -> Mapping[str, Any]:
    """Return an object with its keys as text; None means an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemotingFrameError(f"{name}: {shown(value)} is not a JSON object; send an object")
    return value


def list_of(value: object, name: str) -> list[Any]:
    """Return an array; None means an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RemotingFrameError(f"{name}: {shown(value)} is not a JSON array; send an array")
    return value


def texts_of(value: object, name: str) -> tuple[str, ...]:
    """Return an array of texts; None means an empty one."""
    texts = list_of(value, name)
    for text in texts:
        if not isinstance(text, str):
            raise RemotingFrameError(f"{name}: {shown(text)} is not text; send an array of texts")
    return tuple(texts)


def integer_at(fields: Mapping[str, Any], key: str, default: int, *, high: int = INT64_MAX) -> int:
    """Return the integer at *key*, *default* where it is missing or null.

    *high* is the largest value of its type in Java, by default of a `long`.
    """
    value = fields.get(key)
    return default if value is None else integer_of(value, key, high=high)


def integer_of(value: object, key: str, *, high: int = INT64_MAX) -> int:
    """Return an integer, which may be given as text as fastjson accepts it; *key* names it."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = int(value)
    if type(value) is not int:
        raise RemotingFrameError(f"{key}: {shown(value)} is not an integer; send one")
    if not -high - 1 <= value <= high:
        raise RemotingFrameError(
            f"{key}: {shown(value)} has more than {high.bit_length() + 1} bits; send a smaller one"
        )
    return value


def text_at(fields: Mapping[str, Any], key: str, default: str = "") -> str:
    """Return the text at *key*, *default* where it is missing or null."""
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise RemotingFrameError(f"{key}: {shown(value)} is not text; send text")
    return value


def boolean_at(fields: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """Return the boolean at *key*, *default* where it is missing or null."""
    value = fields.get(key)
    if value is None:
        return default
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise RemotingFrameError(f"{key}: {shown(value)} is not a boolean; send true or false")
    return value
