"""Half messages, committed messages and notes, as the records of a log hold them.

Nothing here reads a clock or the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rmqstore.message import SysFlag
from rmqstore.store.delay import REAL_TOPIC
from rmqstore.topic_names import GIVEN_UP_TOPIC

__all__ = [
    "CHECK_TIMES",
    "HALF_ORIGIN",
    "IMMUNITY",
    "NOTE_TAG",
    "PREPARED_AT",
    "PRODUCER_GROUP",
    "PROGRESS",
    "Half",
    "HalfRecord",
    "Key",
    "Progress",
    "ended_since",
    "offsets_of",
]

CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
"""Property of a half message: how often its producer was asked."""
PRODUCER_GROUP = "PGROUP"
"""Property of a half message: the group that is asked."""
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""Property of a half message: the time without questions, from its birth on."""
PREPARED_AT = "TRAN_PREPARED_QUEUE_OFFSET"
"""Property of a half message that RocketMQ put back without a question: the first record."""
HALF_ORIGIN = "HALF_ORIGIN"
"""Property of a half message that was put back: the offset of the record that its producer sent. It
is an addition of this library."""
PROGRESS = "HALF_PROGRESS"
"""Property of a note: "HALF-NOTE-LOG", see `Progress`. It is an addition of this library."""
NOTE_TAG = "d"


class HalfRecord(Protocol):
    """The part of a `Record` that shows a half message, or a committed one."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def queue_offset(self) -> int:
        """Its place in its queue."""

    @property
    def physical_offset(self) -> int:
        """Its place in the log."""

    @property
    def sys_flag(self) -> int:
        """`SysFlag` bits."""

    @property
    def prepared_transaction_offset(self) -> int:
        """The half message of a committed one."""

    @property
    def born_timestamp(self) -> int:
        """When the producer made it."""

    @property
    def store_timestamp(self) -> int:
        """When it was stored."""

    @property
    def unique_key(self) -> str | None:
        """Its unique key."""

    @property
    def properties(self) -> dict[str, str]:
        """All properties."""


class Key(NamedTuple):
    """What a half message, the records that put it back, and its committed record share."""

    unique_key: str
    topic: str
    """Where it belongs."""

    @classmethod
    def of(cls, record: HalfRecord) -> Key:
        """Return the key of a record."""
        return cls(record.unique_key or "", record.properties.get(REAL_TOPIC, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A half message: its last record."""

    offset: int
    physical_offset: int
    first: int
    """Offset of the record that the producer sent, as far as it is known."""
    key: Key
    group: str
    """The producer group."""
    born_ms: int
    stored_ms: int
    immunity_ms: int = 0
    times: int = 0
    """How often the producer was asked."""
    was_put_back: bool = False
    """Whether RocketMQ put it back, so that an earlier record may be the same message."""

    @classmethod
    def of(cls, record: HalfRecord) -> Half:
        """Return the half message of a record."""
        found = record.properties
        first = _number(found.get(HALF_ORIGIN, found.get(PREPARED_AT)), record.queue_offset)
        # RocketMQ also counts the rounds in which it does not ask.
        times = 0 if PREPARED_AT in found else _number(found.get(CHECK_TIMES), 0)
        return cls(
            offset=record.queue_offset,
            physical_offset=record.physical_offset,
            first=first,
            key=Key.of(record),
            group=found.get(PRODUCER_GROUP, ""),
            # The clock of the producer may be ahead.
            born_ms=min(record.born_timestamp, record.store_timestamp),
            stored_ms=record.store_timestamp,
            immunity_ms=_number(found.get(IMMUNITY), 0) * 1000,
            times=times,
            was_put_back=CHECK_TIMES in found and HALF_ORIGIN not in found,
        )


class Progress(NamedTuple):
    """How far transactions have come, by a note and what lies before it in the log."""

    half: int
    """Half messages before it are passed."""
    note: int
    """The first note that names half messages at or after that."""
    log_offset: int
    """Commits before it are noted."""

    @classmethod
    def parse(cls, text: str | None) -> Progress | None:
        """Return the progress that a property names, None for any other text."""
        numbers = [_number(each, -1) for each in (text or "").split("-")]
        return cls(*numbers) if len(numbers) == 3 and min(numbers) >= 0 else None

    def __str__(self) -> str:
        return "-".join(map(str, self))


def offsets_of(body: bytes) -> list[int]:
    """Return the half messages that a note names; anything else in its body is left out."""
    numbers = (_number(each, -1) for each in body.decode("ascii", "replace").split(","))
    return [each for each in numbers if each >= 0]


def ended_since(records: Iterable[HalfRecord], halves: Mapping[int, Half]) -> Sequence[int]:
    """Return, in the order of their ends, `Half.first` of the half messages that a part of the log
    shows as committed, or as given up. *halves* has them by the physical offsets of their records.

    The record of a committed message has its key too, as no client can choose the other fields of a
    record for an ordinary one.
    """
    by_key = {half.key: half for half in halves.values()}
    found = {}
    for record in records:
        if record.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
            half = halves.get(record.prepared_transaction_offset)
            if half is not None and half.key.unique_key == record.unique_key:
                found[half.first] = True
        elif record.topic == GIVEN_UP_TOPIC:
            half, given_up = by_key.get(Key.of(record)), Half.of(record)
            is_same = half is not None and half.times == given_up.times
            if half is not None and is_same and half.physical_offset < record.physical_offset:
                found[half.first] = True
    return list(found)


def _number(text: str | None, default: int) -> int:
    """Returns the number that a property has, *default* where it has none."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 18:
        return default
    return int(text)
