"""The tables of a broker in memory, changed in place; each change is noted for the slaves.

Nothing here reads a clock or a file: `keeper.py` saves the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmqstore.broker.broadcast_offsets import group_of_progress
from rmqstore.broker.metadata.changes import ChangeLog, Entry
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.store.metadata import (
    FORBIDDEN_READ,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    GroupConfig,
    GroupTable,
    LightConsumerOffsets,
    OffsetTable,
    RequestMode,
    RequestModes,
    TimerProgress,
    TopicConfig,
    TopicTable,
    is_of_light_group,
    offsets_key,
)
from rmqstore.store.metadata.members import Members

__all__ = ["COMMITS_PER_VERSION", "DELAYS_PER_VERSION", "Offsets", "Tables"]

COMMITS_PER_VERSION = 500
"""Offset commits from one version of the offsets to the next."""
DELAYS_PER_VERSION = 200
"""Steps of delayed delivery from one version of their offsets to the next."""

_TOPIC, _GROUP, _FORBIDDEN, _MODE, _OFFSET, _DELAY = (
    "topic",
    "group",
    "forbidden",
    "mode",
    "offset",
    "delay",
)
_SEPARATOR = "@"
_LOG_OFFSET = "log"
"""Key of the delay offsets' place in the log, beside those of the levels."""
_TIMER = "timer"
"""Key of the progress of timer messages."""


class Offsets:
    """The consumer offsets of a broker."""

    def __init__(
        self,
        table: OffsetTable,
        log: ChangeLog,
        wall_ms: Callable[[], int],
        *,
        has_light: bool = False,
    ) -> None:
        """*has_light*: light groups have one offset on a topic, whatever queue they name."""
        self.table = table
        self._has_light = has_light
        self._log = log
        self._wall_ms = wall_ms
        self._pulled: dict[tuple[str, int], int] = {}
        self._resets: dict[tuple[str, int], int] = {}

    def commit(self, topic: str, group: str, queue: int, offset: int) -> bool:
        """Set the next offset that a group consumes of a queue; return False, and set nothing,
        while the consumer of a reset queue has not received its new offset."""
        key = offsets_key(topic, group)
        queue = self._number(key, queue)
        if (key, queue) in self._resets:
            return False
        self.table.commit(key, queue, offset, now_ms=self._wall_ms())
        self._log.note(_OFFSET, key)
        return True

    def reset(self, topic: str, group: str, queue: int, offset: int) -> None:
        """Set the next offset of a group. Commits of its consumer count after `take_reset`."""
        key = offsets_key(topic, group)
        place = key, self._number(key, queue)
        self._resets.pop(place, None)
        self.commit(topic, group, queue, offset)
        self._resets[place] = offset

    def take_reset(self, topic: str, group: str, queue: int) -> int | None:
        """Return the offset to send to the consumer of a reset queue, once; None otherwise."""
        if not self._resets:
            return None
        key = offsets_key(topic, group)
        return self._resets.pop((key, self._number(key, queue)), None)

    def query(self, topic: str, group: str, queue: int) -> int | None:
        """Return the next offset that a group consumes of a queue, None when there is none."""
        key = offsets_key(topic, group)
        return self.table.at(key).get(self._number(key, queue))

    def _number(self, key: str, queue: int) -> int:
        return 0 if self._has_light and is_of_light_group(key) else queue

    def pulled(self, topic: str, group: str, queue: int, offset: int) -> None:
        """Record the offset past the last message that a pull of a group returned."""
        self._pulled[offsets_key(topic, group), queue] = offset

    def last_pulled(self, topic: str, group: str, queue: int) -> int | None:
        """Return what `pulled` recorded last, since the start."""
        return self._pulled.get((offsets_key(topic, group), queue))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets on a topic, sorted."""
        return sorted(
            group
            for known, group in map(_split, self.table.keys())
            if known == topic and group and group == group_of_progress(group)
        )

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has offsets on, sorted."""
        return sorted(topic for topic, known in map(_split, self.table.keys()) if known == group)

    def committed(self) -> Iterable[tuple[str, Mapping[int, int]]]:
        """Yield the topic and the offsets by queue, for each topic and group with offsets."""
        for key in self.table.keys():
            yield _split(key)[0], self.table.at(key)

    def remove(self, is_meant: Callable[[str, str], bool]) -> None:
        """Remove the offsets of every topic and group that *is_meant* returns True for."""
        keys = tuple(key for key in self.table.keys() if is_meant(*_split(key)))
        if keys:
            self.table.remove(keys, now_ms=self._wall_ms())
        for key in keys:
            self._log.note(_OFFSET, key, is_removed=True)
        for noted in (self._pulled, self._resets):
            for key, queue in [each for each in noted if is_meant(*_split(each[0]))]:
                del noted[key, queue]


class Tables:
    """Topics, groups, offsets and request modes of one broker.

    *urgent* changes of the log are those that a request waits for: all but offsets.
    *flushed_offset* returns the end of the part of the commit log that is on the disk.
    """

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        delays: DelayOffsets,
        modes: RequestModes,
        wall_ms: Callable[[], int],
        flushed_offset: Callable[[], int],
    ) -> None:
        self.log = ChangeLog(frozenset({_TOPIC, _GROUP, _FORBIDDEN, _MODE}))
        self._wall_ms = wall_ms
        self._state_version = 0
        table = OffsetTable(offsets, commits_per_version=COMMITS_PER_VERSION)
        has_light = isinstance(offsets, LightConsumerOffsets)
        self.offsets = Offsets(table, self.log, wall_ms, has_light=has_light)
        self.take_topics(topics)
        self.take_groups(groups)
        self.delays = DelayProgress(delays, flushed_offset)
        self._delay_steps = 0
        self.take_modes(modes)

    # -- whole tables

    def topic_table(self) -> TopicTable:
        """Return the topics of this moment, as topics.json holds them."""
        return TopicTable(dict(self.topics), self.topics_version, self._topic_others)

    def group_table(self) -> GroupTable:
        """Return the groups of this moment, as subscriptionGroup.json holds them."""
        forbidden = {group: dict(topics) for group, topics in self.forbidden.items()}
        return GroupTable(dict(self.groups), forbidden, self.groups_version, self._group_others)

    def mode_table(self) -> RequestModes:
        """Return the request modes of this moment, as messageRequestMode.json holds them."""
        modes = {topic: dict(groups) for topic, groups in self.modes.items()}
        return RequestModes(modes, self._mode_others)

    def take_topics(self, table: TopicTable) -> None:
        """Have exactly the topics and the version of *table*."""
        self.topics: dict[str, TopicConfig] = dict(table.topics)
        self.topics_version = table.data_version
        self._topic_others = table.others

    def take_groups(self, table: GroupTable) -> None:
        """Have exactly the groups, the forbidden topics and the version of *table*."""
        self.groups: dict[str, GroupConfig] = dict(table.groups)
        self.forbidden: dict[str, dict[str, int]] = {
            group: dict(topics) for group, topics in table.forbidden.items()
        }
        self.groups_version = table.data_version
        self._group_others = table.others

    def take_modes(self, table: RequestModes) -> None:
        """Have exactly the request modes of *table*."""
        self.modes: dict[str, dict[str, RequestMode]] = {
            topic: dict(groups) for topic, groups in table.modes.items()
        }
        self._mode_others = table.others

    def add_system(
        self, topics: Mapping[str, TopicConfig], groups: Mapping[str, GroupConfig]
    ) -> None:
        """Add topics and groups that are not there yet. The versions stay."""
        self.topics = {**topics, **self.topics}
        self.groups = {**groups, **self.groups}

    def lead(self, state_version: int) -> None:
        """Step all versions into *state_version*, the epoch of a new master; versions that are
        there already stay."""
        self._state_version = state_version
        self.offsets.table.lead(state_version)
        self.delays.lead()
        if self.topics_version.state_version != state_version:
            self.topics_version = self._next(self.topics_version)
        if self.groups_version.state_version != state_version:
            self.groups_version = self._next(self.groups_version)

    # -- single changes, each of which returns its number in the log

    def set_topic(self, topic: TopicConfig) -> int:
        """Add or replace a topic."""
        self.topics[topic.name] = topic
        self.topics_version = self._next(self.topics_version)
        return self.log.note(_TOPIC, topic.name)

    def remove_topic(self, name: str) -> int:
        """Remove a topic, and the offsets of all groups on it."""
        self.topics.pop(name, None)
        self.topics_version = self._next(self.topics_version)
        self.offsets.remove(lambda topic, _: topic == name)
        return self.log.note(_TOPIC, name, is_removed=True)

    def set_group(self, group: GroupConfig) -> int:
        """Add or replace a group."""
        self.groups[group.name] = group
        self.groups_version = self._next(self.groups_version)
        return self.log.note(_GROUP, group.name)

    def remove_group(self, name: str, *, with_offsets: bool) -> int:
        """Remove a group with its forbidden topics, and its offsets if *with_offsets*."""
        self.groups.pop(name, None)
        self.forbidden.pop(name, None)
        self.groups_version = self._next(self.groups_version)
        if with_offsets:
            self.offsets.remove(lambda _, group: group_of_progress(group) == name)
        self.log.note(_FORBIDDEN, name, is_removed=True)
        return self.log.note(_GROUP, name, is_removed=True)

    def forbid(self, group: str, topic: str, bits: int) -> int:
        """Set the forbidden bits of a group on a topic; 0 removes this topic and no other."""
        topics = self.forbidden.setdefault(group, {})
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self.forbidden[group]
        self.groups_version = self._next(self.groups_version)
        return self.log.note(_FORBIDDEN, group)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group may not read a topic."""
        return bool(self.forbidden.get(group, {}).get(topic, 0) & FORBIDDEN_READ)

    def set_mode(self, mode: RequestMode) -> int:
        """Add or replace the request mode of a group on a topic."""
        self.modes.setdefault(mode.topic, {})[mode.group] = mode
        return self.log.note(_MODE, mode.topic)

    def set_delays(self, offsets: Mapping[int, int], log_offset: int) -> None:
        """Set the next offsets to deliver of delay levels. The deliveries of messages before them
        lie before *log_offset* in the commit log, those of all others at or after it."""
        known = self.delays.latest.offsets
        steps = sum(max(offset - known.get(level, 0), 0) for level, offset in offsets.items())
        self.delays.step(offsets, log_offset, self._version_after(steps))

        for level in offsets:
            self.log.note(_DELAY, str(level))
        self.log.note(_DELAY, _LOG_OFFSET)

    def set_timer(self, timer: TimerProgress) -> None:
        """Set the progress of timer messages, whose deliveries are safe."""
        self.delays.step_timer(timer, self._version_after(1))
        self.log.note(_DELAY, _TIMER)

    def _version_after(self, steps: int) -> DataVersion:
        """Returns the version of the delay offsets after further steps."""
        self._delay_steps += steps
        version = self.delays.latest.data_version
        if self._delay_steps < DELAYS_PER_VERSION:
            return version
        self._delay_steps = 0
        return self._next(version)

    def _next(self, version: DataVersion) -> DataVersion:
        return version.next(now_ms=self._wall_ms(), state_version=self._state_version)

    # -- entries and versions, as they travel from a master to its slaves

    def versions(self) -> dict[str, DataVersion]:
        """Return the version of each table that has one."""
        return {
            "topics": self.topics_version,
            "groups": self.groups_version,
            "offsets": self.offsets.table.version,
            "delays": self.delays.latest.data_version,
        }

    def take_versions(self, versions: Mapping[str, DataVersion]) -> None:
        """Have the *versions* of a master whose entries are all here."""
        self.topics_version = versions["topics"]
        self.groups_version = versions["groups"]
        self.delays.take_version(versions["delays"])
        self.offsets.table.version = versions["offsets"]

    def value_of(self, entry: Entry) -> Any:
        """Return the JSON value of an entry, None for one that is not there."""
        key = entry.key
        if entry.table == _TOPIC:
            topic = self.topics.get(key)
            return topic and topic.members()
        if entry.table == _GROUP:
            group = self.groups.get(key)
            return group and group.members()
        if entry.table == _FORBIDDEN:
            return self.forbidden.get(key)
        if entry.table == _MODE:
            modes = self.modes.get(key)
            return modes and {group: each.members() for group, each in modes.items()}
        if entry.table == _DELAY:
            delays = self.delays.latest
            if key == _TIMER:
                return delays.timer and list(delays.timer)
            return delays.log_offset if key == _LOG_OFFSET else delays.offsets.get(int(key))
        assert entry.table == _OFFSET, "every table has its values"
        return dict(self.offsets.table.at(key)) or None

    def take_entries(self, entries: Iterable[tuple[Entry, Any]]) -> frozenset[str]:
        """Set or, for None, remove entries; return the names of their tables. All or none: raises
        ValueError for a value that is not one of its table, and changes nothing then."""
        read = [(entry, _read(entry, value)) for entry, value in entries]
        delays = {entry.key: value for entry, value in read if entry.table == _DELAY}
        if delays:
            log_offset = delays.pop(_LOG_OFFSET, None)
            timer = delays.pop(_TIMER, None)
            self.delays.take({int(key): each for key, each in delays.items()}, log_offset, timer)
        for entry, value in read:
            if entry.table != _DELAY:
                self._take(entry, value)
        return frozenset(entry.table for entry, _ in read)

    def _take(self, entry: Entry, value: Any) -> None:
        if entry.table == _OFFSET:
            self.offsets.table.set_key(entry.key, value or {})
            return
        targets: dict[str, dict[str, Any]] = {
            _TOPIC: self.topics,
            _GROUP: self.groups,
            _FORBIDDEN: self.forbidden,
            _MODE: self.modes,
        }
        target = targets[entry.table]
        if value is None:
            target.pop(entry.key, None)
        else:
            target[entry.key] = value


def _read(entry: Entry, value: Any) -> Any:
    """Returns the value of an entry as the tables hold it. Raises ValueError."""
    if entry.table == _DELAY:
        if entry.key == _TIMER:
            return None if value is None else _progress(value)
        if entry.key != _LOG_OFFSET:
            int(entry.key)
        if value is not None and type(value) is not int:
            raise ValueError(f"delay level {entry.key} has the offset {value!r}")
        return value
    if value is None:
        return None
    members = Members(value, f"{entry.table} {entry.key}")
    if entry.table == _TOPIC:
        return TopicConfig.of(members, entry.key)
    if entry.table == _GROUP:
        return GroupConfig.of(members, entry.key)
    if entry.table == _FORBIDDEN:
        return members.table_of(0)
    if entry.table == _MODE:
        return {
            group: RequestMode.of(each, topic=entry.key, group=group)
            for group, each in members.objects()
        }
    if entry.table == _OFFSET:
        return members.int_table()
    raise ValueError(f"there is no table {entry.table!r}")


def _progress(value: Any) -> TimerProgress:
    if not isinstance(value, list) or [type(each) for each in value] != [int] * 3:
        raise ValueError(f"the progress of timer messages is {value!r}")
    return TimerProgress(*value)


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group
