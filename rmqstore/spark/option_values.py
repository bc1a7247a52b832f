"""How the text of an option of the format becomes its value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from rmqstore.config.options import Codec

__all__ = [
    "ASSIGNMENT",
    "COUNT",
    "EARLIEST",
    "FOLDERS",
    "LATEST",
    "NAMES",
    "PATH",
    "PATHS",
    "PATTERN",
    "TAGS",
    "TIME",
    "TIMES",
    "TOPICS",
    "ByQueue",
    "one_of",
    "position",
    "size",
]

EARLIEST, LATEST = -2, -1
"""Stand for the ends of a queue where queue offsets are named."""

ByQueue = dict[str, dict[int, int]]
"""Values by topic and queue id."""

_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_SIZE_MAX = 2**62
_CENTURY_S = 946_684_800, 4_102_444_800
"""From 2000 to 2100."""
_BY_QUEUE = 'JSON by topic and queue id such as {"orders": {"0": 17}}'


def one_of(*words: str) -> Codec:
    """Return the codec of a word among *words*, in upper or lower case."""

    def parse(value: object) -> str:
        word = str(value).strip().lower()
        if word not in words:
            raise ValueError(" or ".join(words))
        return word

    return Codec(parse, str)


def size(limit: int = _SIZE_MAX) -> Codec:
    """Return the codec of a number of bytes up to *limit*, with or without a unit."""
    up_to = "" if limit == _SIZE_MAX else f", up to {limit >> 20}m"

    def parse(value: object) -> int:
        match = _SIZE.fullmatch(str(value).strip())
        if match:
            power = " kmgt".index((match[2] or " ").lower())
            found = int(match[1]) << (10 * power)
            if 0 < found <= limit:
                return found
        raise ValueError(f"a size such as 1048576, 128m or 64MiB{up_to}")

    def format_size(value: int | None) -> str:
        if value is None:
            return "none"
        return str(value) if value % (1 << 20) else f"{value >> 20}m"

    return Codec(parse, format_size)


def position(*words: str) -> Codec:
    """Return the codec of queue offsets: one of *words* for all, or JSON by queue."""
    wanted = f"{', '.join(words)} or {_BY_QUEUE}"

    def parse(value: object) -> str | ByQueue:
        word = str(value).strip().lower()
        return word if word in words else _by_queue(value, EARLIEST, wanted)

    return Codec(parse, str)


def _by_queue(value: object, lowest: int, wanted: str) -> ByQueue:
    given = _json(value)
    if isinstance(given, dict) and all(
        isinstance(queues, dict)
        and all(queue.isdecimal() and _is_count(each, lowest) for queue, each in queues.items())
        for queues in given.values()
    ):
        return {
            topic: {int(queue): each for queue, each in queues.items()}
            for topic, queues in given.items()
        }
    raise ValueError(wanted)


def _parse_assignment(value: object) -> dict[str, tuple[int, ...]]:
    given = _json(value)
    if isinstance(given, dict) and all(
        isinstance(queues, list) and all(_is_count(queue, 0) for queue in queues)
        for queues in given.values()
    ):
        return {topic: tuple(dict.fromkeys(queues)) for topic, queues in given.items()}
    raise ValueError('JSON of queue ids by topic such as {"orders": [0, 1]}')


def _parse_count(value: object) -> int:
    text = str(value).strip()
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ValueError("a whole number above 0")


def _parse_paths(value: object) -> tuple[str, ...]:
    given = _json(value)
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return tuple(given)
    raise ValueError('a JSON list of paths such as ["/data/a", "/data/b"]')


def _list_of(wanted: str) -> Callable[[object], tuple[str, ...]]:
    def parse(value: object) -> tuple[str, ...]:
        items = [item.strip() for item in str(value).split(",")]
        if not all(items):
            raise ValueError(f"{wanted} separated by commas")
        return tuple(dict.fromkeys(items))

    return parse


def _parse_pattern(value: object) -> str:
    try:
        re.compile(str(value))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return str(value)


def _parse_tags(value: object) -> tuple[str, ...] | None:
    tags = [tag.strip() for tag in re.split(r"\|\||,", str(value))]
    if tags == ["*"]:
        return None
    if not all(tags) or "*" in tags:
        raise ValueError('tags such as "a || b", or "*" for all')
    return tuple(dict.fromkeys(tags))


def _parse_time(value: object) -> int:
    text = str(value).strip()
    if re.fullmatch(r"-?\d+", text) and abs(int(text)) < 2**63:
        _check_unit(int(text))
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("milliseconds since 1970 or a time such as 2025-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _parse_times(value: object) -> ByQueue:
    by_queue = _by_queue(value, 0, _BY_QUEUE)
    for queues in by_queue.values():
        for time_ms in queues.values():
            _check_unit(time_ms)
    return by_queue


def _check_unit(time_ms: int) -> None:
    """Raise ValueError for a number that is a time of this century in another unit only."""
    for unit, per_second in (("seconds", 1), ("microseconds", 10**6), ("nanoseconds", 10**9)):
        seconds = time_ms // per_second
        if _CENTURY_S[0] <= seconds < _CENTURY_S[1]:
            right = time_ms * 1000 // per_second
            raise ValueError(f"in milliseconds but, it seems, in {unit}: give {right}")


def _json(value: object) -> object:
    try:
        return cast(object, json.loads(str(value)))
    except ValueError:
        return None


def _is_count(value: object, lowest: int) -> bool:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return is_int and lowest <= cast(int, value) < 2**63


def _shown_as(default: str) -> Callable[[Any], str]:
    """The options of these codecs have one default, None or nothing."""
    return lambda value: default


PATH = Codec(lambda value: (str(value),) if value else (), _shown_as("none"))
PATHS = Codec(_parse_paths, _shown_as("none"))
FOLDERS = Codec(_list_of("folders"), _shown_as("none"))
TOPICS = Codec(_list_of("topics"), _shown_as("all"))
NAMES = Codec(_list_of("names"), _shown_as("all"))
PATTERN = Codec(_parse_pattern, _shown_as("all"))
ASSIGNMENT = Codec(_parse_assignment, _shown_as("all"))
TAGS = Codec(_parse_tags, _shown_as("*"))
COUNT = Codec(_parse_count, _shown_as("none"))
TIME = Codec(_parse_time, _shown_as("none"))
TIMES = Codec(_parse_times, _shown_as("none"))
