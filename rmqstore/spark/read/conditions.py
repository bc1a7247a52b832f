"""Conditions of a query that narrow what is read, and sums that the core can make, out of those
that Spark pushes down.

A condition is a name and arguments, each a column or a literal, as org.rmqstore.spark.Conditions
writes them. Its effect is "exact" where no row that it excludes is read, "partly" where some are,
so that Spark has to evaluate it again, and "none".

A topic that a condition names is not read by its queues: these lack prepared and rolled back
messages, and the rows of a condition are those that Spark would leave of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple, cast

from rmqstore.spark.options import Options
from rmqstore.spark.schema import INSTANT, ddl, native_of

__all__ = [
    "EVERYTHING",
    "SAMPLE_NUMBERS",
    "Conditions",
    "Interval",
    "Sample",
    "Sums",
    "pushed",
    "sample_of",
    "sums_of",
]

Interval = tuple[int, int]
"""A first number and the one after the last."""

_EVER: Interval = (-(2**63), 2**63 - 1)
_NUMBER_MAX = 2**62
"""Larger ones are left to Spark: their neighbours, or their milliseconds, may not be an int64."""
_MENDED = "\ufffd"
"""Stands in a column for bytes that are not UTF-8, which the core compares as they are."""

_MIRRORED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NULLABLE = {"tags", "keys", "unique_key"}
_GROUPS = {"topic", "queue_id", "tags"}
"""The core's columns that it sums up by."""
_SUMMED = {"queue_offset", "physical_offset", "store_timestamp"}
"""Those whose least and greatest values it has."""


class Sample(NamedTuple):
    """A share of the messages: those whose number, which follows from seed and place, is in
    [*begin*, *end*) of `SAMPLE_NUMBERS`; csrc/columns/message_filter.h has the rule."""

    seed: int
    begin: int
    end: int


SAMPLE_NUMBERS = 2**53
_WHOLE = Sample(0, 0, SAMPLE_NUMBERS)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the messages of a read have in common; None is any value."""

    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    sys_flags: frozenset[int] | None = None
    queue_offsets: Interval = _EVER
    physical_offsets: Interval = _EVER
    store_ms: Interval = _EVER
    born_ms: Interval = _EVER
    sample: Sample = _WHOLE

    @property
    def by_topic(self) -> bool:
        """Whether the core has to look at topic and queue of each record."""
        return self.topics is not None or self.queues is not None or self.queue_offsets != _EVER

    @property
    def is_timed(self) -> bool:
        """Whether they bound the store timestamp."""
        return self.store_ms != _EVER

    @property
    def excludes_all(self) -> bool:
        """Whether no message can fit."""
        chosen = (self.topics, self.queues, self.tags, self.keys, self.sys_flags)
        share = (self.sample.begin, self.sample.end)
        bounds = (self.queue_offsets, self.physical_offsets, self.store_ms, self.born_ms, share)
        return any(each is not None and not each for each in chosen) or any(
            first >= stop for first, stop in bounds
        )


EVERYTHING = Conditions()


def pushed(given: Sequence[Mapping[str, Any]], options: Options) -> tuple[Conditions, list[str]]:
    """Return what *given* conditions, all of which hold, narrow, and the effect of each."""
    conditions = EVERYTHING
    effects = []
    for each in given:
        narrowed, effect = _narrowed(conditions, each, options)
        # A row for damage has no topic, and which of these rows there are depends on what is
        # read.
        effects.append("partly" if effect == "exact" and options.on_corrupt == "row" else effect)
        conditions = narrowed

    if conditions.tags is not None and options.tags is not None:
        conditions = replace(conditions, tags=conditions.tags & {*options.tags})
    chosen = {name for name in ("tags", "keys") if getattr(conditions, name) is not None}
    if chosen and options.on_corrupt != "row":
        for number, each in enumerate(given):
            if each["name"] == "IS_NOT_NULL" and _native(each["arguments"][0], options) in chosen:
                effects[number] = "exact"
    return conditions, effects


def sample_of(given: Mapping[str, Any], options: Options) -> Sample | None:
    """Return the sample of a share from `lower` to `upper`, None where Spark has to make it."""
    if given["withReplacement"] or options.on_corrupt == "row":
        return None  # a row for damage has no number
    begin, end = (
        min(max(ceil(share * SAMPLE_NUMBERS), 0), SAMPLE_NUMBERS)
        for share in (given["lower"], given["upper"])
    )
    return Sample(given["seed"], begin, end)


@dataclass(frozen=True, slots=True)
class Sums:
    """What a read sums up instead of giving rows: names of the core's, groups first."""

    groups: tuple[str, ...]
    values: tuple[str, ...]
    ddl: str
    """The columns of the result as Spark's language for schemas has them."""


def sums_of(given: Mapping[str, Any], options: Options) -> Sums | None:
    """Return the sums of an aggregation, None where the core does not make them."""
    if options.on_corrupt == "row":
        return None  # such rows count as well, and the core has none

    kafka = options.kafka_names
    groups = [None if name is None else native_of(name, kafka=kafka) for name in given["groups"]]
    values = [_sum(each, kafka=kafka) for each in given["functions"]]
    if not all(group in _GROUPS for group in groups) or None in values:
        return None

    fields = [ddl([name], kafka=kafka) for name in given["groups"]]
    fields += [
        f"`value{number}` {INSTANT if str(value).endswith('timestamp') else 'BIGINT'}"
        for number, value in enumerate(values)
    ]
    return Sums(tuple(map(str, groups)), tuple(map(str, values)), ", ".join(fields))


def _sum(function: Mapping[str, Any], *, kafka: bool) -> str | None:
    """Return the core's name for an aggregate function over messages, None where it has none."""
    name, column = function["name"], function.get("column")
    native = None if column is None else native_of(column, kafka=kafka)
    if name == "count" and ("column" not in function or (native and native not in _NULLABLE)):
        return "messages"
    if name in ("min", "max") and native in _SUMMED:
        return f"{name}_{native}"
    return None


def _narrowed(
    conditions: Conditions, given: Mapping[str, Any], options: Options
) -> tuple[Conditions, str]:
    nothing = conditions, "none"
    name, arguments = given["name"], list(given["arguments"])

    if len(arguments) == 2 and name in _MIRRORED and "column" not in arguments[0]:
        name, arguments = _MIRRORED[name], arguments[::-1]
    native = _native(arguments[0], options) if arguments else None
    if native is None:
        return nothing

    if name == "IS_NOT_NULL":
        return nothing if native in _NULLABLE else (conditions, "exact")
    if any("value" not in each for each in arguments[1:]) or len(arguments) < 2:
        return nothing

    values = [each["value"] for each in arguments[1:]]
    if name in ("=", "<=>", "IN") and native in _CHOSEN:
        field, fits = _CHOSEN[native]
        if not all(fits(value) for value in values):
            return nothing
        before = getattr(conditions, field)
        chosen = frozenset(values) if before is None else before & frozenset(values)
        choice: dict[str, Any] = {field: chosen}
        return replace(conditions, **choice), "exact"

    if name in _MIRRORED and native in _BOUNDED and _is_number(values[0]):
        field, unit, effect = _BOUNDED[native]
        first, stop = getattr(conditions, field)
        least, end = _interval(name, values[0], unit)
        bounds: dict[str, Any] = {field: (max(first, least), min(stop, end))}
        return replace(conditions, **bounds), effect
    return nothing


def _interval(name: str, value: int, unit: int) -> Interval:
    """Return the numbers n for which `n * unit` compares with *value* by the operator *name*."""
    at_least, after = -(-value // unit), value // unit + 1
    return {
        "=": (at_least, after),
        "<=>": (at_least, after),
        "<": (_EVER[0], at_least),
        "<=": (_EVER[0], after),
        ">": (after, _EVER[1]),
        ">=": (at_least, _EVER[1]),
    }[name]


def _native(argument: Mapping[str, Any], options: Options) -> str | None:
    name = argument.get("column")
    return None if name is None else native_of(name, kafka=options.kafka_names)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and _MENDED not in value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _NUMBER_MAX


def _is_queue(value: object) -> bool:
    # A negative id stands for all queues in a `QueueRange`; that of a record is for Spark to find.
    return _is_number(value) and cast(int, value) >= 0


def _is_int32(value: object) -> bool:
    return _is_number(value) and -(2**31) <= cast(int, value) < 2**31


_CHOSEN: dict[str, tuple[str, Callable[[object], bool]]] = {
    "topic": ("topics", _is_text),
    "queue_id": ("queues", _is_queue),
    "tags": ("tags", _is_text),
    "keys": ("keys", _is_text),
    "sys_flag": ("sys_flags", _is_int32),
}
"""By the core's column: the field that it narrows by equality, and which values can."""

_BOUNDED = {
    "queue_offset": ("queue_offsets", 1, "exact"),
    "physical_offset": ("physical_offsets", 1, "partly"),
    # Microseconds in Spark, milliseconds in a store.
    "store_timestamp": ("store_ms", 1000, "exact"),
    "born_timestamp": ("born_ms", 1000, "exact"),
}
"""By the core's column: the field that comparisons narrow, Spark's unit, and their effect."""
