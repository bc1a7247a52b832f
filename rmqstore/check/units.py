"""Which consume queue units a record calls for: the rule of the dispatcher, once more in Python.

A check must not call the code that it checks, so the rule is here beside the one of
`csrc/log/dispatch_record.c`, and nowhere else in Python: `rmqstore verify` and the Spark pipelines
both call `units_of`. Light queues are built only by stores that are set up for them; their units
are marked, and the caller decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rmqstore.message import SysFlag, TransactionType, tags_code
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = [
    "INNER_BATCH_MAX",
    "WITHOUT_UNIT",
    "StoredQueue",
    "Unit",
    "is_queue_offset_possible",
    "is_storable",
    "needs_properties",
    "tags_code_of",
    "units_of",
]

INNER_BATCH_MAX = 32767
"""The most messages that one record can hold, in an inner batch."""

WITHOUT_UNIT = (int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))
"""The transaction bits of records that no queue holds."""

_RECORD_SIZE_MIN = 91
_TOPIC_NAME_MAX = 255
_INT32, _INT64 = 2**31, 2**63
_UNKNOWN_DELAY_MS = 1000
_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_NO_LIGHT_QUEUES = ("%RETRY%", _SCHEDULE_TOPIC, "rmq_sys_")
_TRANSACTION = int(SysFlag.TRANSACTION_MASK)
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class StoredQueue(NamedTuple):
    """A queue of a store, and whether it takes inner batches."""

    topic: str
    queue_id: int
    is_batch: bool

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class Unit(NamedTuple):
    """A unit that a record calls for. The first three fields name its queue."""

    topic: str
    queue_id: int
    is_batch: bool
    queue_offset: int
    message_count: int
    """More than 1 for an inner batch."""

    physical_offset: int
    size: int
    tags_code: int
    is_light: bool
    """By INNER_MULTI_DISPATCH, beside the unit in the record's own queue."""

    @property
    def queue(self) -> StoredQueue:
        """The queue that the unit belongs to."""
        return StoredQueue(self.topic, self.queue_id, self.is_batch)


def units_of(
    topic: str,
    queue_id: int,
    *,
    queue_offset: int,
    physical_offset: int,
    size: int,
    tags_code: int,
    sys_flag: int,
    properties: Mapping[str, str],
) -> Iterator[Unit]:
    """Yield the units that a record calls for.

    *queue_offset* is the stored one. *properties* need hold only those whose names begin with
    INNER_; without any of these the unit is that of one message. A name that no folder can have,
    and a negative queue id, get no unit.

    INNER_MULTI_DISPATCH may name a queue twice, or name the record's own queue. A later unit of the
    same record is entered only at a higher queue offset, and a batch queue takes one unit a record.
    """
    if sys_flag & _TRANSACTION in WITHOUT_UNIT:
        return
    offset, count = queue_offset, 1
    base, messages = _int_of(properties.get("INNER_BASE")), _int_of(properties.get("INNER_NUM"))
    if 0 < messages <= INNER_BATCH_MAX and base >= 0:
        offset, count = base, messages
    stored = physical_offset, size, tags_code
    is_batch = bool(sys_flag & _INNER_BATCH)
    if queue_id >= 0 and is_storable(topic):
        yield Unit(topic, queue_id, is_batch, offset, count, *stored, False)

    names = properties.get("INNER_MULTI_DISPATCH")
    if not names or topic.startswith(_NO_LIGHT_QUEUES):
        return
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    last_offsets: dict[str, int] = {}
    """The highest queue offset that this record has entered, by the name of the queue."""
    if _light_id(topic, queue_id) == queue_id:
        last_offsets[topic] = _INT64 if is_batch else offset

    for name, text in zip(names.split(","), offsets, strict=False):
        light_id, light_offset = _light_id(name, queue_id), _int_of(text)
        if light_offset > last_offsets.get(name, -1) and light_id >= 0 and is_storable(name):
            last_offsets[name] = light_offset
            yield Unit(name, light_id, False, light_offset, 1, *stored, True)


def _light_id(name: str, queue_id: int) -> int:
    """The number of the queue that a record of queue number *queue_id* dispatches to by *name*."""
    return 0 if name.startswith(LIGHT_PREFIX) else queue_id


def tags_code_of(
    topic: str,
    tags: str | None,
    properties: Mapping[str, str],
    *,
    store_timestamp: int,
    delays_ms: Sequence[int],
) -> int:
    """Return what a record's unit holds of its tags: a hash, for a delayed message its due time.

    *properties* matter for delayed messages only. *delays_ms* are the store's delay levels.
    """
    level = 0
    if topic == _SCHEDULE_TOPIC:
        level = _int_of(properties.get("DELAY"))
    if level <= 0 or level >= _INT32:
        return tags_code(tags)
    if not delays_ms:
        return store_timestamp + _UNKNOWN_DELAY_MS
    return store_timestamp + delays_ms[min(level, len(delays_ms)) - 1]


def needs_properties(topic: str, properties_text: str) -> bool:
    """Return whether `units_of` and `tags_code_of` need a record's properties decoded."""
    return "INNER_" in properties_text or topic == _SCHEDULE_TOPIC


def is_queue_offset_possible(queue_offset: int, *, physical_offset: int, sys_flag: int) -> bool:
    """Return whether a record at *physical_offset* can have a queue offset.

    Each message of a queue took a record of the log, or its share of one that holds many. Records
    without a unit may have any.
    """
    if sys_flag & _TRANSACTION in WITHOUT_UNIT:
        return True
    share = INNER_BATCH_MAX if sys_flag & _INNER_BATCH else 1
    return 0 <= queue_offset // share <= physical_offset // _RECORD_SIZE_MIN


def is_storable(topic: str) -> bool:
    """Return whether a folder can have the name of *topic*."""
    if not topic or topic in (".", "..") or "/" in topic or "\0" in topic:
        return False
    return len(topic.encode("utf-8", "surrogateescape")) <= _TOPIC_NAME_MAX


def _int_of(text: str | None) -> int:
    """The number that *text* is, as the C core reads it; -1 for anything else."""
    if text is None or not _NUMBER.fullmatch(text):
        return -1
    value = int(text)
    return value if -_INT64 <= value < _INT64 else -1
