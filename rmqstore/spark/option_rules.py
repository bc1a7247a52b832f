"""What holds between options: which name is meant, which exclude each other, and which bounds are
in force."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rmqstore.errors import ArgumentError
from rmqstore.spark import schema
from rmqstore.spark.option_values import EARLIEST, LATEST, ByQueue

__all__ = ["settle", "spelled"]

_TRIGGER_LIMITS = ("maxBytesPerTrigger", "maxOffsetsPerTrigger")
_EXCLUSIVE = (
    ("topic", "subscribe", "subscribePattern", "assign"),
    ("tags", "subExpression"),
    _TRIGGER_LIMITS,
)
_KAFKA_CLIENT = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix", "nameserver")
"""How options of Kafka's source, and of RocketMQ's, begin that name a broker or its client."""
_WAITING = re.compile(r"min\w+pertrigger|maxtriggerdelay")
_REVERSE = {"min": "max", "max": "min", "starting": "ending", "ending": "starting"}
"""Beginnings of names that are alike and mean the reverse."""
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_BY_QUEUE = (
    ("startingOffsets", "starting_offsets", "ending_offsets"),
    ("startingOffsetsByTimestamp", "starting_ms_by_queue", "ending_ms_by_queue"),
)
"""Options for starts by queue, their fields, and those of the ends in the same unit."""
_BOUNDS = {
    "startingOffsets": "starting_offsets",
    "endingOffsets": "ending_offsets",
    "startingOffsetsByTimestamp": "starting_ms_by_queue",
    "endingOffsetsByTimestamp": "ending_ms_by_queue",
}


def spelled(options: Mapping[str, str], known: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return *options* by their names in *known*, and what is wrong with the others."""
    by_case = {name.lower(): name for name in known}
    given: dict[str, str] = {}
    wrong: list[str] = []
    for written, value in options.items():
        name = by_case.get(written.lower())
        if name is None:
            wrong.append(f"{written}: unknown option; {_advice(written, by_case)}")
        elif name in given and given[name] != value:
            wrong.append(f"{name}: given twice, as {given[name]!r} and {value!r}; give one of them")
        else:
            given[name] = value
    return given, wrong


def settle(values: dict[str, Any], given: Mapping[str, str], *, streaming: bool) -> list[str]:
    """Bring *values*, by field name, to those in force; return what is wrong between them.

    Options that are wrong on their own are absent from *values* and present in *given*.
    """
    wrong = [*_paths(values, given), *_exclusive(given), *_columns(values)]
    wrong += _bounds(values, given, streaming=streaming)
    return wrong or list(_queues_not_read(values))


def _paths(values: dict[str, Any], given: Mapping[str, str]) -> Iterator[str]:
    paths = tuple(dict.fromkeys(path for path in values.get("paths", ()) if path))
    values["paths"] = paths
    if not paths and "paths" not in given:
        yield "path: not given; give load(...) the directory of a store or its commit log"


def _exclusive(given: Mapping[str, str]) -> Iterator[str]:
    for names in _EXCLUSIVE:
        found = [name for name in names if name in given]
        if len(found) > 1:
            yield f"{' and '.join(found)} exclude each other; give one of them"


def _columns(values: dict[str, Any]) -> Iterator[str]:
    if values.get("columns") is not None:
        try:
            kafka = values.get("kafka_names", False)
            values["columns"] = schema.validated_names(values["columns"], kafka=kafka)
        except ArgumentError as error:
            yield f"columns: {error}"


def _bounds(values: dict[str, Any], given: Mapping[str, str], *, streaming: bool) -> Iterator[str]:
    if streaming:
        for name in _ENDS:
            if name in given:
                yield f"{name}: a streaming query has no end; leave it out"
        values.setdefault("starting_offsets", "latest")
    for name in () if streaming else _TRIGGER_LIMITS:
        if name in given:
            yield f"{name}: a batch query has no triggers; leave it out, or use readStream"
    for side, default in (("starting", "earliest"), ("ending", "latest")):
        if values.get(f"{side}_ms") is not None:
            values[f"{side}_ms_by_queue"] = None
        times = (values.get(f"{side}_ms"), values.get(f"{side}_ms_by_queue"))
        if any(each is not None for each in times):
            values[f"{side}_offsets"] = default

    if not streaming:
        yield from _refuse("startingOffsets", values.get("starting_offsets"), LATEST)
    yield from _refuse("endingOffsets", values.get("ending_offsets"), EARLIEST)
    yield from _starts_after_ends(values)


def _starts_after_ends(values: Mapping[str, Any]) -> Iterator[str]:
    first, last = values.get("starting_ms"), values.get("ending_ms")
    if first is not None and last is not None and first > last:
        yield f"startingTimestamp: {first} is after endingTimestamp {last}; give an earlier time"

    for name, starting, ending in _BY_QUEUE:
        starts, ends = (_by_queue_of(values.get(field)) for field in (starting, ending))
        is_time = starting == "starting_ms_by_queue"
        for topic, queue in sorted({*starts, *ends}):
            start = starts.get((topic, queue), first if is_time else None)
            end = ends.get((topic, queue), last if is_time else None)
            if start is not None and end is not None and 0 <= end < start:
                option = name if (topic, queue) in starts else "startingTimestamp"
                yield (
                    f"{option}: {start} is after the end of {topic}/{queue}, {end}; give an "
                    "earlier one"
                )


def _by_queue_of(bound: object) -> dict[tuple[str, int], int]:
    if not isinstance(bound, dict):
        return {}
    return {
        (topic, queue): value for topic, queues in bound.items() for queue, value in queues.items()
    }


def _refuse(name: str, offsets: str | ByQueue | None, refused: int) -> Iterator[str]:
    word, other = ("latest", "earliest") if refused == LATEST else ("earliest", "latest")
    if offsets == word:
        yield f"{name}: {word} is not for {_queries(refused)}; give {other}"
    elif isinstance(offsets, dict):
        for topic, queues in offsets.items():
            for queue, offset in queues.items():
                if offset == refused:
                    yield (
                        f"{name}: {offset} ({word}) for {topic}/{queue} is not for "
                        f"{_queries(refused)}; give {other} or an offset"
                    )


def _queries(refused: int) -> str:
    return "the start of a batch query" if refused == LATEST else "the end of a query"


def _queues_not_read(values: Mapping[str, Any]) -> Iterator[str]:
    """A bound for a queue that is not read would have no effect."""
    for name, field in _BOUNDS.items():
        by_queue = values.get(field)
        for topic, queues in by_queue.items() if isinstance(by_queue, dict) else ():
            for queue in queues:
                if not _is_chosen(values, topic, queue):
                    yield f"{name}: {topic}/{queue} is not read; leave it out, or choose its topic"


def _is_chosen(values: Mapping[str, Any], topic: str, queue: int) -> bool:
    if values.get("topics") is not None:
        return topic in values["topics"]
    if values.get("topic_pattern") is not None:
        return re.fullmatch(values["topic_pattern"], topic) is not None
    if values.get("assign") is not None:
        return queue in values["assign"].get(topic, ())
    return True


def _advice(name: str, by_case: Mapping[str, str]) -> str:
    if name.lower().startswith(_KAFKA_CLIENT):
        return (
            "a store is read from its files, without a broker or a client: give load(...) the "
            "store's directory; subscribe, assign and startingOffsets mean what they do for Kafka"
        )
    if _WAITING.fullmatch(name.lower()):
        return (
            "a batch begins as soon as there is something to read; for larger batches give "
            "trigger(processingTime=...) a longer time"
        )
    return _nearest(name, by_case)


def _nearest(name: str, by_case: Mapping[str, str]) -> str:
    reverse = tuple(other for word, other in _REVERSE.items() if name.lower().startswith(word))
    alike = [each for each in by_case if not (reverse and each.startswith(reverse))]
    close = difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.5)
    names = ", ".join(by_case.values())
    return f"did you mean {by_case[close[0]]}?" if close else f"the options are {names}"
