"""Reading the members of JSON objects one by one; mistakes name their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

from rmqstore import arguments

__all__ = ["Members"]

T = TypeVar("T")


class Members:
    """The members of one JSON object, taken out one by one; mistakes name their place."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            found = arguments.shown(value)
            raise ValueError(f"{place or 'the file'} holds {found} instead of a JSON object")
        self._left: dict[str, Any] = dict(value)
        self._place = place

    def take(self, name: str, default: T) -> T:
        """Return a member of the type of *default*; absent and null mean *default*."""
        value = self._left.pop(name, None)
        if value is None:
            return default
        if type(value) is not type(default):
            kind = type(default).__name__
            raise ValueError(f"{self._name_of(name)} is {value!r}, where {kind} is expected")
        return value

    def child(self, name: str) -> Members:
        """Return the members of an object; absent means empty."""
        return Members(self.take(name, {}), self._name_of(name))

    def table(self, name: str) -> Iterator[tuple[str, Members]]:
        """Return the objects of an object, by key."""
        return self.child(name).objects()

    def objects(self) -> Iterator[tuple[str, Members]]:
        """Return all members left, which are objects, by key."""
        return ((key, Members(each, self._name_of(key))) for key, each in self._left.items())

    def table_of(self, default: T) -> dict[str, T]:
        """Return all members left, each of the type of *default*."""
        return {key: self.take(key, default) for key in list(self._left)}

    def int_table(self) -> dict[int, int]:
        """Return all members left: integers by keys that are integers."""
        left = self._left
        if all(map(_is_index, left)) and {*map(type, left.values())} <= {int}:
            # As nearly all tables are: a file may have a million offsets.
            return {int(key): value for key, value in left.items()}

        table: dict[int, int] = {}
        for key in list(left):
            if not re.fullmatch("-?[0-9]+", key):
                raise ValueError(f"{self._name_of(key)}: the key is not a whole number")
            table[int(key)] = self.take(key, 0)
        return table

    def rest(self) -> dict[str, Any]:
        """Return the members that were not taken."""
        return self._left

    def _name_of(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdecimal()
