"""The consumer offsets of a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rmqstore.broker.broadcast_offsets import group_of_progress
from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.folder import FolderLike
from rmqstore.store.metadata import (
    ConsumerOffsets,
    DataVersion,
    LightConsumerOffsets,
    OffsetTable,
    is_of_light_group,
    load_consumer_offsets,
    offsets_key,
)
from rmqstore.store.metadata.members import Members

__all__ = ["COMMITS_PER_VERSION", "Offsets"]

COMMITS_PER_VERSION = 500
"""Offset commits from one version of the offsets to the next."""

_SEPARATOR = "@"


class Offsets(SharedTable):
    """consumerOffset.json, or lmqConsumerOffset.json of a broker with light queues."""

    name = "offset"
    kinds = ("offset",)
    is_urgent = False
    version_name = "offsets"
    file_type = ConsumerOffsets
    code = RequestCode.GET_ALL_CONSUMER_OFFSET

    def __init__(self, *, has_light: bool = False) -> None:
        """*has_light*: light groups have one offset on a topic, whatever queue they name."""
        self._has_light = has_light
        self._set(LightConsumerOffsets() if has_light else ConsumerOffsets())
        self._pulled: dict[tuple[str, int], int] = {}
        self._resets: dict[tuple[str, int], int] = {}

    def _set(self, known: ConsumerOffsets) -> None:
        self.table = OffsetTable(known, commits_per_version=COMMITS_PER_VERSION)

    def load(self, root: FolderLike) -> None:
        self._set(load_consumer_offsets(root, has_light=self._has_light))

    def whole(self) -> ConsumerOffsets:
        return self.table.snapshot()

    def take_whole(self, table: ConsumerOffsets) -> None:
        self.table.replace(table)

    def of_master(self, table: ConsumerOffsets) -> ConsumerOffsets:
        light = {key: each for key, each in table.others.items() if key == "lmqOffsetTable"}
        return replace(table, others=light)

    def is_at(self, table: ConsumerOffsets) -> bool:
        return self.table.is_at(table)

    @property
    def version(self) -> DataVersion:
        return self.table.version

    def take_version(self, version: DataVersion) -> None:
        self.table.version = version

    def lead(self) -> None:
        self.table.lead(self._versions.state_version)

    def value_of(self, entry: Entry) -> Any:
        return dict(self.table.at(entry.key)) or None

    def read(self, entry: Entry, value: Any) -> Mapping[int, int] | None:
        return None if value is None else Members(value, f"offset {entry.key}").int_table()

    def take(self, changes: Sequence[tuple[Entry, Mapping[int, int] | None]]) -> None:
        for entry, offsets in changes:
            self.table.set_key(entry.key, offsets or {})

    # -- single groups

    def commit(self, topic: str, group: str, queue: int, offset: int) -> bool:
        """Set the next offset that a group consumes of a queue; return False, and set nothing,
        while the consumer of a reset queue has not received its new offset."""
        key = offsets_key(topic, group)
        queue = self._number(key, queue)
        if (key, queue) in self._resets:
            return False
        self.table.commit(key, queue, offset, now_ms=self._versions.now_ms())
        self._log.note(self.name, key)
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

    def topics_by_group(self) -> dict[str, list[str]]:
        """Return the topics that each group has offsets on, sorted."""
        found: dict[str, list[str]] = {}
        for topic, group in sorted(map(_split, self.table.keys())):
            found.setdefault(group, []).append(topic)
        return found

    def clone(self, topic: str, source: str, target: str) -> bool:
        """Give the group *target* exactly the offsets of *source* on a topic; return False, and
        set nothing, where *source* has none."""
        offsets = dict(self.table.of(topic, source))
        if offsets:
            self.remove(lambda known, group: (known, group) == (topic, target))
        for queue, offset in offsets.items():
            self.commit(topic, target, queue, offset)
        return bool(offsets)

    def committed(self) -> Iterable[tuple[str, Mapping[int, int]]]:
        """Yield the topic and the offsets by queue, for each topic and group with offsets."""
        for key in self.table.keys():
            yield _split(key)[0], self.table.at(key)

    def of_groups(self) -> Iterable[tuple[str, str, Mapping[int, int]]]:
        """Yield topic, group and offsets by queue, without the progress of single consumers."""
        for key in self.table.keys():
            topic, group = _split(key)
            if group and group == group_of_progress(group):
                yield topic, group, self.table.at(key)

    def remove(self, is_meant: Callable[[str, str], bool]) -> None:
        """Remove the offsets of every topic and group that *is_meant* returns True for."""
        keys = tuple(key for key in self.table.keys() if is_meant(*_split(key)))
        if keys:
            self.table.remove(keys, now_ms=self._versions.now_ms())
        for key in keys:
            self._log.note(self.name, key, is_removed=True)
        for noted in (self._pulled, self._resets):
            for key, queue in [each for each in noted if is_meant(*_split(each[0]))]:
                del noted[key, queue]


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group
