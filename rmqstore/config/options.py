"""The scheme of an option: key, default, unit, limits, help, and the conversion from text."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar, cast

from rmqstore.arguments import shown

__all__ = [
    "DELAY_LEVELS",
    "HOURS",
    "INT32_MAX",
    "INT64_MAX",
    "PATHS",
    "WORDS",
    "BrokerRole",
    "Codec",
    "ConsumptionMode",
    "FlushDiskType",
    "MetricsExporter",
    "Option",
    "codec_for",
    "filled",
    "format_delay_levels",
    "option",
    "options_of",
    "parse_delay_levels",
    "same_option",
    "violations_of",
]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

T = TypeVar("T")


class FlushDiskType(StrEnum):
    """Whether a put waits for the disk."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(StrEnum):
    """The role of a store among its replicas."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class MetricsExporter(StrEnum):
    """The way in which a server exports its metrics."""

    DISABLE = "DISABLE"
    PROM = "PROM"
    OTLP_GRPC = "OTLP_GRPC"
    LOG = "LOG"


class ConsumptionMode(StrEnum):
    """The way in which consumers get messages of a topic."""

    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True)
class Codec:
    """Reads a value from text or a TOML value, and writes it in the form of a broker's file.

    *parse* raises ValueError with what it accepts, such as "a whole number".
    """

    parse: Callable[[object], object]
    format: Callable[[Any], str]
    accepts: Callable[[object], bool] = lambda value: True
    """Whether a value has the field's type."""
    violation: Callable[[Any], str] = lambda value: ""
    """What is wrong with a value of the field's type; empty for a correct value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One row of a table of options, declared by the field that holds its value."""

    key: str
    """The name in files and on the command line: RocketMQ's, or Spark's."""
    name: str
    """The name of the field."""
    default: object
    unit: str
    low: float | None
    high: float | None
    help: str
    """A noun phrase that describes the option, without unit and default."""
    effect: str
    """The place where it takes effect."""
    codec: Codec

    @property
    def default_text(self) -> str:
        """The default in the form of a file."""
        return self.codec.format(self.default)

    @property
    def help_text(self) -> str:
        """Help, key, default and unit, for a command line."""
        text = f"{self.help[0].upper()}{self.help[1:]}. File: {self.key}."
        if not self.default_text:
            return text
        unit = f" {self.unit}" if self.unit and self.default != 1 else ""
        return f"{text} Default: {self.default_text}{unit}."

    def parse(self, value: object) -> Any:
        """Return the value that text or a TOML value represents.

        Raises ValueError that names the value found and the accepted values.
        """
        try:
            return self.codec.parse(value)
        except ValueError as error:
            default = f", {self.default_text}" if self.default_text else ""
            raise ValueError(
                f"{shown(value, typed=False)} is not {error}; correct it, or leave it out for the "
                f"default{default}"
            ) from None


def option(
    key: str,
    default: T,
    unit: str = "",
    *,
    help: str,
    effect: str,
    low: float | None = None,
    high: float | None = None,
    codec: Codec | None = None,
) -> T:
    """Return a dataclass field that carries an `Option`; the codec follows the default's type.

    Numbers without limits may be 0 to Java's largest int.
    """
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if number:
        low = 0 if low is None else low
        high = INT32_MAX if high is None else high
    codec = codec or codec_for(type(default))
    return cast(T, _field(Option(key, "", default, unit, low, high, help, effect, codec)))


def same_option(config_class: Any, name: str) -> Any:
    """Return a dataclass field that carries the option *name* of *config_class*."""
    return _field(options_of(config_class)[name])


def filled(target: type[T], config: Any, changes: Mapping[str, object]) -> T:
    """Return a *target* whose fields have the values of *config* for the same keys.

    *changes*, by field name of *target*, override these values; None changes nothing.
    """
    by_key = {about.key: getattr(config, name) for name, about in options_of(type(config)).items()}
    values = {
        name: by_key[about.key] for name, about in options_of(target).items() if about.key in by_key
    }
    values.update({name: value for name, value in changes.items() if value is not None})
    return target(**values)


def _field(about: Option) -> Any:
    return field(default=about.default, metadata={"option": about})


def options_of(config_class: Any) -> Mapping[str, Option]:
    """Return the options of a configuration class by field name."""
    return _options_of(config_class)


@functools.cache
def _options_of(config_class: Any) -> Mapping[str, Option]:
    every: Sequence[Field[object]] = fields(config_class)
    return MappingProxyType(
        {
            each.name: dataclasses.replace(each.metadata["option"], name=each.name)
            for each in every
            if "option" in each.metadata
        }
    )


def violations_of(config: Any) -> list[str]:
    """Return the mistakes in single values of a configuration, each with its cure."""
    violations: list[str] = []
    for name, about in options_of(type(config)).items():
        violation = _violation(about, getattr(config, name))
        if violation:
            violations.append(f"{about.key} ({name}): {violation}")
    return violations


def _violation(about: Option, value: Any) -> str:
    if not about.codec.accepts(value):
        wanted = type(about.default).__name__
        return f"{shown(value)} has the wrong type; give a value of type {wanted}"
    wrong = about.codec.violation(value)
    if wrong:
        return wrong
    unit = f" {about.unit}" if about.unit else ""
    if about.low is not None and value < about.low:
        return f"{shown(value, typed=False)} is below the limit of {about.low}{unit}; raise it"
    if about.high is not None and value > about.high:
        return f"{shown(value, typed=False)} is above the limit of {about.high}{unit}; lower it"
    return ""


def _parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _parse_int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        return int(value)
    raise ValueError("a whole number")


def _parse_float(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return float(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("a number") from None


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    return value.strip()


def _parse_list(value: object, separator: str) -> list[object]:
    """Returns the parts of separated text, or a TOML list unchanged."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator) if part.strip()]
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _parse_paths(value: object) -> tuple[str, ...]:
    return tuple(_parse_text(part) for part in _parse_list(value, ","))


def _parse_words(value: object) -> tuple[str, ...]:
    return tuple(_parse_text(part) for part in _parse_list(value, ";"))


def _parse_hours(value: object) -> tuple[int, ...]:
    try:
        return tuple(_parse_int(part) for part in _parse_list(value, ";"))
    except ValueError:
        raise ValueError("hours of the day separated by ';', such as 04;16") from None


_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the milliseconds of each level of a messageDelayLevel text such as "1s 5s 10m 2h
    1d"."""
    levels = []
    for part in text.split():
        match = re.fullmatch(r"([0-9]+)([smhd])", part)
        if match is None:
            raise ValueError("durations with the unit s, m, h or d, separated by spaces")
        levels.append(int(match[1]) * _UNITS_MS[match[2]])
    return tuple(levels)


def format_delay_levels(levels_ms: Sequence[int]) -> str:
    """Return the messageDelayLevel text of *levels_ms*, each in its largest whole unit."""
    parts = []
    for level_ms in levels_ms:
        unit = next(
            (u for u, ms in _UNITS_MS.items() if level_ms >= ms and level_ms % ms == 0), "s"
        )
        parts.append(f"{level_ms // _UNITS_MS[unit]}{unit}")
    return " ".join(parts)


def _parse_delay_levels(value: object) -> tuple[int, ...]:
    return parse_delay_levels(" ".join(_parse_text(part) for part in _parse_list(value, " ")))


def _is_tuple_of(item: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and all(type(part) is item for part in value)


PATHS = Codec(_parse_paths, ",".join, _is_tuple_of(str))
WORDS = Codec(_parse_words, ";".join, _is_tuple_of(str))
HOURS = Codec(
    _parse_hours, lambda hours: ";".join(f"{hour:02d}" for hour in hours), _is_tuple_of(int)
)
DELAY_LEVELS = Codec(_parse_delay_levels, format_delay_levels, _is_tuple_of(int))


def codec_for(kind: type) -> Codec:
    """Return the codec of a plain type or an enumeration."""
    if issubclass(kind, bool):
        return Codec(_parse_bool, lambda value: "true" if value else "false", _is_exactly(bool))
    if issubclass(kind, StrEnum):
        return Codec(lambda value: _parse_enum(kind, value), str, _is_exactly(kind))
    if issubclass(kind, int):
        return Codec(_parse_int, str, _is_exactly(int))
    if issubclass(kind, float):
        return Codec(_parse_float, str, lambda value: type(value) in (int, float))
    assert issubclass(kind, str), f"no codec for {kind}"
    return Codec(_parse_text, str, _is_exactly(str))


def _is_exactly(kind: type) -> Callable[[object], bool]:
    return lambda value: type(value) is kind


def _parse_enum(kind: type[StrEnum], value: object) -> StrEnum:
    try:
        return kind(str(value).strip())
    except ValueError:
        raise ValueError(" or ".join(kind)) from None
