"""consumerOffset.json and delayOffset.json: how far groups and delay levels have come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from rmqstore.data_version import DataVersion
from rmqstore.store.folder import FolderLike
from rmqstore.store.metadata.json_text import Printed, pretty
from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.table import Table
from rmqstore.store.metadata.version import version_of
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = [
    "ConsumerOffsets",
    "DelayOffsets",
    "PrintedOffsets",
    "TimerProgress",
    "LightConsumerOffsets",
    "is_of_light_group",
    "load_consumer_offsets",
    "offsets_key",
]

PrintedOffsets = dict[str, tuple[Mapping[int, int], Printed]]
"""By "topic@group", offsets that do not change any more, and their text in the file."""

_TOPIC_GROUP_SEPARATOR = "@"
_DEPTH = 2
"""Of the offsets of one group in the file."""
_LOG_OFFSET = "logOffset"
_TIMER = "timer"
_READ_TIME, _QUEUE_OFFSET = "readTime", "queueOffset"
_LIGHT_TABLE = "lmqOffsetTable"


def offsets_key(topic: str, group: str) -> str:
    """Return the key of a group's offsets on a topic, "topic@group"."""
    return topic + _TOPIC_GROUP_SEPARATOR + group


def is_of_light_group(key: str) -> bool:
    """Return whether the key "topic@group" is of a light group, which has one offset on a topic."""
    return key.rpartition(_TOPIC_GROUP_SEPARATOR)[2].startswith(LIGHT_PREFIX)


@dataclass(frozen=True, slots=True)
class ConsumerOffsets(Table):
    """config/consumerOffset.json: by "topic@group", the next offset to consume of each queue."""

    FILE_NAME = "consumerOffset.json"

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)
    printed: PrintedOffsets = field(default_factory=dict, repr=False, compare=False)
    """The texts of offsets that were printed before, for a table that is saved again and again."""

    def of(self, topic: str, group: str) -> Mapping[int, int]:
        """Return the offsets of one group on one topic by queue; empty when there are none."""
        return self.offsets.get(offsets_key(topic, group), {})

    def with_offset(self, topic: str, group: str, *, queue: int, offset: int, now_ms: int) -> Self:
        """Return the offsets with that of *group* on one queue of *topic*."""
        key = offsets_key(topic, group)
        return replace(
            self,
            offsets={**self.offsets, key: {**self.of(topic, group), queue: offset}},
            data_version=self.data_version.next(now_ms=now_ms),
        )

    @classmethod
    def of_any(cls, known: ConsumerOffsets) -> ConsumerOffsets:
        """Return *known* offsets of either file as those of this file."""
        return known

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        version = version_of(members)
        offsets = {key: each.int_table() for key, each in members.table("offsetTable")}
        return cls(offsets, version, members.rest())

    def _members(self) -> dict[str, Any]:
        return self._with_tables(self.offsets)

    def _printed_members(self) -> dict[str, Any]:
        found: PrintedOffsets = {}
        for key, offsets in self.offsets.items():
            known = self.printed.get(key)
            if known is None or known[0] is not offsets:
                known = offsets, Printed(pretty(offsets, depth=_DEPTH))
            found[key] = known
        self.printed.clear()
        self.printed.update(found)
        return self._with_tables({key: text for key, (_, text) in found.items()})

    def _with_tables(self, offsets: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the members, with offsets or their texts."""
        version = self.data_version.to_json()
        return {**self.others, "dataVersion": version, "offsetTable": offsets}


class TimerProgress(NamedTuple):
    """How far timer messages are delivered: those before the offset whose slot is before the time,
    by deliveries before *log_offset*. All other deliveries are at or after it."""

    read_ms: int
    """The time before which slots of the timer wheel are done."""
    queue_offset: int
    """An offset in the queue of timer messages; it says nothing of messages at or after it."""
    log_offset: int
    """A physical offset."""


@dataclass(frozen=True, slots=True)
class DelayOffsets(Table):
    """config/delayOffset.json: by delay level (from 1), the next offset to deliver.

    The members logOffset and timer are additions of this library, which RocketMQ ignores and
    drops.
    """

    FILE_NAME = "delayOffset.json"

    offsets: Mapping[int, int] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)
    log_offset: int | None = None
    """The physical offset that separates deliveries: those of messages before the offsets lie
    before it, all others at or after it. None where RocketMQ wrote the table."""
    timer: TimerProgress | None = None
    """Of timer messages; None where RocketMQ wrote the table."""

    @property
    def proven_at(self) -> int | None:
        """The physical offset before which all deliveries are that the table counts; None where
        RocketMQ wrote it."""
        timer_end = None if self.timer is None else self.timer.log_offset
        return max(
            (each for each in (self.log_offset, timer_end) if each is not None), default=None
        )

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        version = version_of(members)
        log_offset = members.take(_LOG_OFFSET, -1)
        timer = members.child(_TIMER)
        progress = TimerProgress(
            timer.take(_READ_TIME, -1),
            timer.take(_QUEUE_OFFSET, -1),
            timer.take(_LOG_OFFSET, -1),
        )
        return cls(
            members.child("offsetTable").int_table(),
            version,
            members.rest(),
            log_offset if log_offset >= 0 else None,
            progress if min(progress) >= 0 else None,
        )

    def _members(self) -> dict[str, Any]:
        version = self.data_version.to_json()
        members = {**self.others, "dataVersion": version, "offsetTable": self.offsets}
        if self.log_offset is not None:
            members[_LOG_OFFSET] = self.log_offset
        if self.timer is not None:
            read_ms, queue_offset, log_offset = self.timer
            members[_TIMER] = {
                _READ_TIME: read_ms,
                _QUEUE_OFFSET: queue_offset,
                _LOG_OFFSET: log_offset,
            }
        return members


@dataclass(frozen=True, slots=True)
class LightConsumerOffsets(ConsumerOffsets):
    """config/lmqConsumerOffset.json, which a broker with enableLmq has in place of the other file.

    Light groups have one offset on a topic, in a table of their own; here that of queue 0.
    """

    FILE_NAME = "lmqConsumerOffset.json"

    @classmethod
    def of_any(cls, known: ConsumerOffsets) -> ConsumerOffsets:
        if isinstance(known, cls):
            return known
        others = dict(known.others)
        table = others.pop(_LIGHT_TABLE, {})
        light = Members(table, _LIGHT_TABLE).table_of(0)
        offsets = {**known.offsets, **{key: {0: offset} for key, offset in light.items()}}
        return cls(offsets, known.data_version, others)

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        found = cls.of_any(ConsumerOffsets._from_members(members))
        return cls(found.offsets, found.data_version, found.others)

    def _with_tables(self, offsets: Mapping[str, Any]) -> dict[str, Any]:
        light = {key: each[0] for key, each in self.offsets.items() if _is_light(key, each)}
        rest = {key: each for key, each in offsets.items() if key not in light}
        return {
            **self.others,
            "dataVersion": self.data_version.to_json(),
            _LIGHT_TABLE: light,
            "offsetTable": rest,
        }


def _is_light(key: str, offsets: Mapping[int, int]) -> bool:
    return is_of_light_group(key) and offsets.keys() == {0}


def load_consumer_offsets(root: FolderLike, *, has_light: bool = False) -> ConsumerOffsets:
    """Return the offsets of the store at *root*, of the file that a broker with light queues
    writes, or of the other one. Where that file is missing, they are those of the remaining one: a
    broker whose enableLmq was changed goes on. Raises as `Table.load`."""
    own, former = (ConsumerOffsets, LightConsumerOffsets)
    if has_light:
        own, former = former, own
    found = own.load(root)
    if found != own():
        return found
    known = former.load(root)
    if has_light:
        return LightConsumerOffsets.of_any(known)
    return ConsumerOffsets.from_json(known.to_json())
