"""Collects settings from properties, TOML and the environment into values by field name.

One reading fills every part of a configuration. All mistakes and all keys without an effect are
collected, so that a user sees them together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqstore.arguments import shown
from rmqstore.config.known_keys import KEYS_WITHOUT_EFFECT
from rmqstore.config.options import Option, options_of
from rmqstore.config.properties import format_properties, parse_properties, without_mark
from rmqstore.errors import ArgumentTypeError, ConfigError

__all__ = [
    "Settings",
    "build",
    "check_names",
    "from_environment",
    "from_properties",
    "from_toml",
    "source_of",
    "to_properties",
    "warn",
]


_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_XML_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(slots=True)
class Settings:
    """Values by field name, the mistakes in other values, and the keys that have no effect."""

    options: Mapping[str, Option]
    known: Collection[str] = ()
    """Keys of other parts of RocketMQ, which have no effect here either."""
    strict: bool = True
    """Whether every unknown key is a mistake. RocketMQ passes over unknown keys of its files."""
    values: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Keys that RocketMQ does not know either, in printable form."""

    def take(self, name: str, value: object, *, written: str) -> None:
        """Convert *value* for field *name*; *written* is the user's name of it."""
        try:
            self.values[name] = self.options[name].parse(value)
        except ValueError as error:
            self.violations.append(f"{written}: {error}")

    def pass_over(self, key: str, written: str, candidates: Collection[str]) -> None:
        """Record a key without a field: a key of RocketMQ without an effect, or an unknown key.

        An unknown key is a mistake if it is strict, or one letter away from a known key.
        """
        if key in KEYS_WITHOUT_EFFECT or key in self.known:
            self.without_effect.append(written)
            return
        every = [*candidates, *KEYS_WITHOUT_EFFECT, *self.known]
        meant = sorted({each for each in every if _is_one_letter_off(written, each)})
        if meant:
            self.violations.append(f"{written}: unknown key; did you mean {' or '.join(meant)}?")
        elif self.strict:
            self.violations.append(f"{written}: unknown key; {_nearest(written, every)}")
        else:
            self.unknown.append(written if written.isprintable() else ascii(written))

    def share(self, others: Mapping[str, Option]) -> None:
        """Treat the keys of *others* as used: another part reads them from the same file."""
        keys = {about.key for about in others.values()}
        self.without_effect = [each for each in self.without_effect if each not in keys]


def build(settings: Settings, parts: Sequence[type], *, source: str) -> list[Any]:
    """Return one configuration for each class of *parts*.

    Raises ConfigError that lists every violation in all classes.
    """
    violations = list(settings.violations)
    built = []
    for part in parts:
        names = options_of(part)
        try:
            own = {name: value for name, value in settings.values.items() if name in names}
            built.append(part(**own))
        except ConfigError as error:
            violations += error.violations
    if violations:
        raise ConfigError(violations, source=source)
    return built


def warn(settings: Settings, source: str, *, used: Mapping[str, Option]) -> None:
    """Log one warning about the keys that were set without an effect: keys without an option, keys
    of options that are not *used*, and keys that are unknown."""
    unused = [settings.options[name].key for name in settings.values if name not in used]
    parts = [
        f"{len(keys)} {'key' if len(keys) == 1 else 'keys'} of the configuration "
        f"{'has' if len(keys) == 1 else 'have'} no effect {where}: {', '.join(keys)}"
        for keys, where in (
            ([*settings.without_effect, *unused], "here"),
            (settings.unknown, "here or in RocketMQ"),
        )
        if keys
    ]
    if parts:
        import logging

        prefix = f"{source}: " if source else ""
        logging.getLogger("rmqstore").warning("%s%s", prefix, "; ".join(parts))


def to_properties(*parts: Any, without: Collection[str] = ()) -> str:
    """Return every setting of configurations as a RocketMQ broker's file, except the fields
    *without*."""
    pairs: dict[str, str] = {}
    for part in parts:
        for name, about in options_of(type(part)).items():
            if name in without:
                continue
            value = getattr(part, name)
            if value not in ("", ()) or value != about.default:
                pairs[about.key] = about.codec.format(value)
    return format_properties(pairs)


def check_names(changes: Mapping[str, object], options: Mapping[str, Option]) -> None:
    """Raise ConfigError for names in *changes* that are not fields, with the nearest field name."""
    unknown = [
        f"{name}: unknown field; {_nearest(name, list(options))}"
        for name in changes
        if name not in options
    ]
    if unknown:
        raise ConfigError(unknown)


def _nearest(written: str, candidates: Sequence[str]) -> str:
    """Returns a hint: the nearest of *candidates*, or the document that lists the keys."""
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(written.lower(), by_lower, n=1)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return "use a key or a field name of docs/configuration.md"


def _is_one_letter_off(written: str, key: str) -> bool:
    """Whether *written* is *key* with one letter more, less or replaced, with two neighbours
    exchanged, or in other letter case."""
    short, long = sorted((written.lower(), key.lower()), key=len)
    pairs = enumerate(zip(short, long, strict=False))
    at = next((index for index, (one, other) in pairs if one != other), len(short))
    short, long = short[at:], long[at:]
    is_exchanged = short[:2] == long[1::-1] and short[2:] == long[2:]
    return is_exchanged or long[1:] in (short, short[1:])


def source_of(path_or_text: str | os.PathLike[str], *, encoding: str) -> tuple[str, str]:
    """Return the text of a source and the name of its file ("" when the source is the text).

    A str that is empty or contains a line break or `=` is the text itself; anything else is a file.
    Raises ConfigError when the file cannot be read, is in UTF-16, or holds a NUL.
    """
    if not isinstance(path_or_text, str | os.PathLike):
        wanted = "a path, or a text with a line break or ="
        raise ArgumentTypeError(f"path_or_text is {shown(path_or_text)}; give {wanted}")
    if isinstance(path_or_text, str) and (not path_or_text or set(path_or_text) & set("\n\r=")):
        return path_or_text, ""
    path = Path(path_or_text)
    try:
        content = path.read_bytes()
        if content.startswith(_UTF_16_MARKS):
            reason = "the file is in UTF-16; save it in UTF-8 or ASCII"
            raise ConfigError([reason], source=str(path))
        text = content.decode(encoding)
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror}; give a readable file"
        raise ConfigError([reason], source=str(path)) from error
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not {encoding}; save the file in that encoding"
        raise ConfigError([reason], source=str(path)) from error
    if "\0" in text:
        # Some file systems return zeros for a file that was being written when the power failed.
        reason = (
            f"byte {text.index(chr(0))} is NUL, as in a file that a power loss damaged; save the "
            f"file in {encoding}, or restore the file from a copy"
        )
        raise ConfigError([reason], source=str(path))
    return text, str(path)


def from_properties(
    text: str, options: Mapping[str, Option], *, known: Collection[str] = (), strict: bool = False
) -> Settings:
    """Return the settings of a RocketMQ file; *known* are keys of other parts.

    With *strict* every unknown key is a mistake. A byte order mark is skipped. RocketMQ reads the
    lines of an XML comment as pairs; so known keys in it count, and its other words are not named.
    """
    settings = Settings(options, known, strict)
    text = without_mark(text)
    try:
        pairs = parse_properties(text)
        comments = "\n".join(_XML_COMMENT.findall(text))
        words = parse_properties(comments)
    except ValueError as error:
        settings.violations.append(str(error))
        return settings
    names = _names_by_key(options)
    for key, value in pairs.items():
        if key in names:
            settings.take(names[key], value, written=key)
        elif key not in words:
            settings.pass_over(key, key, names)
    return settings


def from_toml(text: str, options: Mapping[str, Option]) -> Settings:
    """Return the settings of a TOML document with our names or RocketMQ's, flat or in tables.

    A key in a table is looked up with the names of its tables as a prefix, joined by `_`: first
    the longest such name, last the key without a prefix.
    """
    import tomllib

    settings = Settings(options)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        settings.violations.append(f"not TOML: {error}; correct that line")
        return settings
    names = _names_by_key(options)
    for path, value in _leaves(document, ()):
        spellings = ["_".join(path[start:]) for start in range(len(path))]
        name = next((names.get(s, s) for s in spellings if s in names or s in options), None)
        written = ".".join(path)
        if name is not None:
            settings.take(name, value, written=written)
        else:
            settings.pass_over(path[-1], written, [*options, *names])
    return settings


def from_environment(
    environment: Mapping[str, str], prefix: str, options: Mapping[str, Option]
) -> Settings:
    """Return the settings of variables. A variable's name is *prefix* and a field name in capitals,
    or *prefix* and a RocketMQ key."""
    settings = Settings(options)
    names = _names_by_key(options)
    for variable in sorted(environment):
        if not variable.startswith(prefix):
            continue
        written = variable.removeprefix(prefix)
        name = names.get(written, written.lower())
        if name in options:
            settings.take(name, environment[variable], written=variable)
        else:
            fields = [f"{prefix}{each.upper()}" for each in options]
            settings.pass_over(written, variable, fields)
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
