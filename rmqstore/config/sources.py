"""Collects settings from properties, TOML and the environment into values by field name.

Every mistake is collected too, so that a user sees all of them at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.config.known_keys import OTHER_ROCKETMQ_KEYS
from rmqstore.config.options import Option
from rmqstore.config.properties import parse_properties
from rmqstore.errors import ConfigError

__all__ = [
    "Settings",
    "from_environment",
    "from_properties",
    "from_toml",
    "nearest_key",
    "source_of",
]


@dataclass(slots=True)
class Settings:
    """Values by field name, and what was wrong with the others."""

    options: Mapping[str, Option]
    values: dict[str, object] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def take(self, name: str, value: object, *, written: str) -> None:
        """Convert *value* for field *name*; *written* is how the user called it."""
        try:
            self.values[name] = self.options[name].codec.parse(value)
        except ValueError as error:
            self.violations.append(f"{written}: {value!r} is not {error}")

    def unknown(self, written: str, candidates: Iterator[str] | list[str]) -> None:
        """Record a key nobody knows, with the nearest right one."""
        self.violations.append(f"{written}: unknown key; {nearest_key(written, list(candidates))}")


def nearest_key(written: str, candidates: list[str]) -> str:
    """Return advice for an unknown key: the nearest of *candidates*, or where keys are listed."""
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(written.lower(), by_lower, n=1)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return "the keys are RocketMQ's, or the field names of rmqstore.config.StoreConfig"


def source_of(path_or_text: str | os.PathLike[str], *, encoding: str) -> tuple[str, str]:
    """Return the text of a source and the name of its file ("" when it was text already).

    A str with a line break or `=` in it, or an empty one, is the text itself; anything else is a
    file. Raises ConfigError when the file cannot be read.
    """
    if isinstance(path_or_text, str) and (not path_or_text or set(path_or_text) & set("\n\r=")):
        return path_or_text, ""
    path = Path(path_or_text)
    try:
        return path.read_bytes().decode(encoding), str(path)
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror}; give a readable file"
        raise ConfigError([reason], source=str(path)) from error
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not {encoding}; save the file in that encoding"
        raise ConfigError([reason], source=str(path)) from error


def from_properties(text: str, options: Mapping[str, Option]) -> Settings:
    """Return the settings of a broker's file. Keys of other parts of RocketMQ are passed over."""
    settings = Settings(options)
    try:
        pairs = parse_properties(text)
    except ValueError as error:
        settings.violations.append(str(error))
        return settings
    names = _names_by_key(options)
    for key, value in pairs.items():
        if key in names:
            settings.take(names[key], value, written=key)
        elif key not in OTHER_ROCKETMQ_KEYS:
            settings.unknown(key, [*names, *OTHER_ROCKETMQ_KEYS])
    return settings


def from_toml(text: str, options: Mapping[str, Option]) -> Settings:
    """Return the settings of a TOML document with our names or RocketMQ's, flat or in tables.

    A key in a table is looked up with the names of its tables before it, joined by `_`, from the
    longest such name to the key alone.
    """
    import tomllib

    settings = Settings(options)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        settings.violations.append(f"no TOML: {error}")
        return settings
    names = _names_by_key(options)
    for path, value in _leaves(document, ()):
        spellings = ["_".join(path[start:]) for start in range(len(path))]
        name = next((names.get(s, s) for s in spellings if s in names or s in options), None)
        written = ".".join(path)
        if name is not None:
            settings.take(name, value, written=written)
        elif path[-1] not in OTHER_ROCKETMQ_KEYS:
            settings.unknown(written, [*options, *names])
    return settings


def from_environment(
    environment: Mapping[str, str], prefix: str, options: Mapping[str, Option]
) -> Settings:
    """Return the settings of variables named *prefix* and a field name in capitals, or a RocketMQ
    key."""
    settings = Settings(options)
    names = _names_by_key(options)
    for variable in sorted(environment):
        if not variable.startswith(prefix):
            continue
        written = variable.removeprefix(prefix)
        name = names.get(written, written.lower())
        if name in options:
            settings.take(name, environment[variable], written=variable)
        elif written not in OTHER_ROCKETMQ_KEYS:
            settings.unknown(variable, [f"{prefix}{each.upper()}" for each in options])
    return settings


def _names_by_key(options: Mapping[str, Option]) -> dict[str, str]:
    return {each.key: name for name, each in options.items()}


def _leaves(
    table: Mapping[str, object], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
