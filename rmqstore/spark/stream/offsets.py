"""How far a streaming query has come in its commit logs, and whether these still are what it read.

A checkpoint of Spark's keeps a position as JSON:

    {"version": 1,
     "commitLog": {"/data/a/store": {"physicalOffset": 7340288, "epoch": 3, "initialOffset": 0,
                                     "tailCrc": 2914736561, "startingUntil": 524288}},
     "starting": {"timestamp": 1735689600000}}

physicalOffset is the end of a record, of which the query has handed on all before; epoch is the
newest that begins below it, -1 where the store keeps none. initialOffset is where the query began
in this log: Spark does not keep the start of a query's first batch, and that batch may have to be
read again after the options, or the log, have moved on. tailCrc is the CRC-32 of the bytes just
before physicalOffset. Starting options choose messages below startingUntil, the end of the log when
the query began; they are kept in "starting" as long as they matter, for a later start of the query
may bring others, which are for new queries alone.

Nothing here reads a file, a clock or an option.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from rmqstore.epochs import EpochEntry, epoch_at
from rmqstore.errors import ArgumentError, OffsetOutOfRange

__all__ = [
    "VERSION",
    "Log",
    "LogPosition",
    "Position",
    "Verdict",
    "begin_of",
    "cut_error",
    "epoch_below",
    "expired_error",
    "verdict_on",
    "shares",
]

VERSION = 1

_CURE = "give the query a checkpointLocation of its own"

_FIELDS = {
    "physicalOffset": "physical_offset",
    "epoch": "epoch",
    "initialOffset": "initial_offset",
    "tailCrc": "tail_crc",
    "startingUntil": "starting_until",
}


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a query has come in one commit log; None is unknown."""

    physical_offset: int
    initial_offset: int
    epoch: int | None = None
    tail_crc: int | None = None
    starting_until: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """How far a query has come in all its logs, by the name of their store."""

    logs: Mapping[str, LogPosition]
    starting: Mapping[str, Any] = field(default_factory=dict)
    """Starting options that still choose messages, by their names in JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps; equal positions have equal texts."""
        logs = {}
        for name in sorted(self.logs):
            values = {key: getattr(self.logs[name], own) for key, own in _FIELDS.items()}
            logs[name] = {key: value for key, value in values.items() if value is not None}
        starting = {"starting": dict(self.starting)} if self.starting else {}
        return {"version": VERSION, "commitLog": logs, **starting}

    @classmethod
    def from_json(cls, given: object) -> Position:
        """Return what `to_json` made text of.

        Raises ArgumentError for anything else, naming what is wrong: a checkpoint may be that of
        another source.
        """
        if not isinstance(given, dict) or not isinstance(given.get("commitLog"), dict):
            raise ArgumentError(
                f"the query's checkpoint holds {given!r}, which is not an offset of this format; "
                f"{_CURE}"
            )

        if given.get("version") != VERSION:
            raise ArgumentError(
                f"the query's checkpoint has offsets of version {given.get('version')!r}, and this "
                f"release reads version {VERSION}; go on with the release that wrote it"
            )

        starting = given.get("starting", {})
        if not isinstance(starting, dict):
            raise ArgumentError(
                f'the query\'s checkpoint has "starting": {starting!r}, which is not an object; '
                f"{_CURE}"
            )

        return cls(
            {name: _log_position(name, each) for name, each in given["commitLog"].items()}, starting
        )

    def is_choosing(self) -> bool:
        """Whether the starting options choose among what follows this position."""
        return any(each.physical_offset < (each.starting_until or 0) for each in self.logs.values())


def _log_position(name: str, given: object) -> LogPosition:
    values: dict[str, int] = {}
    for key, own in _FIELDS.items():
        value = given.get(key) if isinstance(given, dict) else "none"
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and -1 <= cast(int, value) < 2**63:
            values[own] = cast(int, value)
        elif value is not None:
            raise ArgumentError(
                f"the query's checkpoint has {given!r} for {name}; {key} is a number from -1 on; "
                f"{_CURE}"
            )

    if values.get("physical_offset", -1) < 0:
        raise ArgumentError(
            f"the query's checkpoint has {given!r} for {name}, without a physicalOffset; {_CURE}"
        )

    return LogPosition(**{"initial_offset": values["physical_offset"], **values})


def begin_of(name: str, start: Position, end: Position) -> LogPosition:
    """Return where the batch from *start* to *end* begins in the log *name*.

    A query that is started again before its first batch was committed makes up its *start* again;
    then, and for a log that was found only during the batch, *end* has the start of the batch.
    """
    last = end.logs[name]
    first = start.logs.get(name)
    if first is not None and first.initial_offset == last.initial_offset:
        return first
    return LogPosition(last.initial_offset, last.initial_offset, starting_until=last.starting_until)


# ---- whether a log still holds what was read ----


class Log(Protocol):
    """The log of a position: its bounds, physical offsets, and its epochs, ascending."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def epochs(self) -> Sequence[EpochEntry]: ...


class Verdict(enum.Enum):
    """What became of the records around a position."""

    HOLDS = "reading goes on at the position"
    EXPIRED = "retention took records that were not read"
    CUT = "records that were read are no longer in the log"


def verdict_on(position: LogPosition, log: Log) -> tuple[Verdict, int]:
    """Return what became of *position*, and the physical offset where reading can continue
    (EXPIRED) or where the log parts from what was read (CUT, -1 where unknown).

    That the log did not change below the position without a trace in bounds or epochs is for the
    caller to find out, by the position's tail.
    """
    at = position.physical_offset
    if at < log.start:
        return Verdict.EXPIRED, log.start
    if at > log.end:
        return Verdict.CUT, log.end
    if position.epoch is not None and log.epochs:
        newer = [each.start_offset for each in log.epochs if each.epoch > position.epoch]
        if newer and newer[0] < at:
            return Verdict.CUT, newer[0]
        if log.start < at and epoch_below(log.epochs, at) < position.epoch:
            return Verdict.CUT, -1
    return Verdict.HOLDS, at


def epoch_below(epochs: Sequence[EpochEntry], offset: int) -> int:
    """Return the epoch of the byte before a physical offset, -1 where none is known."""
    entry = epoch_at(epochs, offset - 1)
    return -1 if entry is None else entry.epoch


def expired_error(name: str, position: LogPosition, log: Log) -> OffsetOutOfRange:
    """Return the error for a position below the log's start."""
    at = position.physical_offset
    return OffsetOutOfRange(
        f"{name}: the query goes on at physical offset {at}, but the log starts at {log.start}: "
        f"{log.start - at} bytes were deleted before they were read; with the option "
        "failOnDataLoss false it goes on without them",
        start=log.start,
        end=log.end,
        nearest=log.start,
    )


def cut_error(name: str, position: LogPosition, log: Log, parts_at: int) -> OffsetOutOfRange:
    """Return the error for a log that was truncated under a position.

    *parts_at* is -1 where unknown.
    """
    at = position.physical_offset
    if parts_at < 0:
        what = f"below it lie other records than it read (the log spans {log.start} to {log.end})"
    elif parts_at == log.end:
        what = f"the log ends at {log.end}"
    else:
        known = position.epoch not in (None, -1)
        epoch = f"an epoch newer than {position.epoch}" if known else "an epoch"
        what = f"{epoch} begins at {parts_at}"
    return OffsetOutOfRange(
        f"{name}: the query has read up to physical offset {at}, but {what}: the log was truncated "
        "under the query's checkpoint, and rows that it handed on are gone. Read a replica that "
        "has them, or start a query with another checkpointLocation",
        start=log.start,
        end=log.end,
        nearest=min(at, log.end) if parts_at < 0 else parts_at,
    )


# ---- limits over several logs ----


def shares(limit: int, available: Mapping[str, int]) -> dict[str, int]:
    """Divide *limit* among logs in proportion to what is *available* in each, in bytes.

    The shares sum up to the limit. What a log cannot use of its share is not given to others: the
    next batch sees it.
    """
    total = sum(available.values())
    if total == 0:
        return dict.fromkeys(available, 0)
    parts = {name: limit * size // total for name, size in available.items()}
    # What rounding left over goes to the fullest, so that a limit of one row moves one log on.
    fullest = max(sorted(available), key=lambda name: available[name])
    parts[fullest] += limit - sum(parts.values())
    return parts
