"""What a configuration field is: its RocketMQ key, unit, limits, and how text becomes its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

__all__ = [
    "DELAY_LEVELS",
    "HOURS",
    "INT32_MAX",
    "INT64_MAX",
    "PATHS",
    "BrokerRole",
    "Codec",
    "FlushDiskType",
    "Option",
    "format_delay_levels",
    "option",
    "options_of",
    "parse_delay_levels",
]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

T = TypeVar("T")


class FlushDiskType(StrEnum):
    """Whether a put waits for the disk."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(StrEnum):
    """What a store is among its replicas."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True)
class Codec:
    """Reads a value from text or a TOML value, and writes it as a broker's file has it.

    *parse* raises ValueError saying what it expected.
    """

    parse: Callable[[object], object]
    format: Callable[[Any], str]
    accepts: Callable[[object], bool]
    """Whether a value has the field's type."""


@dataclass(frozen=True, slots=True)
class Option:
    """The RocketMQ side of one field."""

    key: str
    unit: str
    default: object
    low: float | None
    high: float | None
    note: str
    codec: Codec


def option(
    key: str,
    default: T,
    unit: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    note: str = "",
    codec: Codec | None = None,
) -> T:
    """Return a dataclass field that carries an `Option`; the codec follows the default's type.

    Numbers without limits may be 0 to Java's largest int.
    """
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if number:
        low = 0 if low is None else low
        high = INT32_MAX if high is None else high
    about = Option(key, unit, default, low, high, note, codec or _codec_for(type(default)))
    return field(default=default, metadata={"option": about})


def options_of(config_class: Any) -> Mapping[str, Option]:
    """Return the options of a configuration class by field name."""
    every: Sequence[Field[object]] = fields(config_class)
    return {each.name: each.metadata["option"] for each in every}


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
    """Returns the parts of separated text, or a TOML list as it is."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(separator) if part.strip()]
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _parse_paths(value: object) -> tuple[str, ...]:
    return tuple(_parse_text(part) for part in _parse_list(value, ","))


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
HOURS = Codec(
    _parse_hours, lambda hours: ";".join(f"{hour:02d}" for hour in hours), _is_tuple_of(int)
)
DELAY_LEVELS = Codec(_parse_delay_levels, format_delay_levels, _is_tuple_of(int))


def _codec_for(kind: type) -> Codec:
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
