"""The tables of a broker in memory, changed in place; each change is noted for the slaves.

`keeper.py` loads and saves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rmqstore.broker.broadcast_offsets import group_of_progress
from rmqstore.broker.metadata.changes import ChangeLog, Entry
from rmqstore.broker.metadata.offsets import Offsets
from rmqstore.broker.metadata.shared_groups import SharedGroups
from rmqstore.broker.metadata.shared_modes import SharedModes
from rmqstore.broker.metadata.shared_table import SharedTable, Versions
from rmqstore.broker.metadata.shared_topics import SharedTopics
from rmqstore.store.metadata import (
    FORBIDDEN_READ,
    DataVersion,
    GroupConfig,
    GroupTable,
    RequestMode,
    RequestModes,
    TopicConfig,
    TopicTable,
)

__all__ = ["Tables"]


class Tables:
    """Topics, groups, offsets and request modes of one broker, and the tables of its services.

    A change returns its number in `log`. *urgent* changes of the log are those that a request waits
    for: all but offsets and progress.
    """

    def __init__(
        self,
        *,
        wall_ms: Callable[[], int],
        has_light_queues: bool = False,
        of_services: Sequence[SharedTable] = (),
    ) -> None:
        self._versions = Versions(wall_ms)
        self._topics = SharedTopics()
        self._groups = SharedGroups()
        self._modes = SharedModes()
        self.offsets = Offsets(has_light=has_light_queues)
        own = (self._topics, self._groups, self.offsets, self._modes)
        self.all: Sequence[SharedTable] = (*own, *of_services)
        """The tables, in the order in which a slave asks for them."""

        self._by_kind = {kind: table for table in self.all for kind in table.kinds}
        urgent = {kind for kind, table in self._by_kind.items() if table.is_urgent}
        self.log = ChangeLog(frozenset(urgent))
        for table in self.all:
            table.attach(self.log, self._versions)

    def __getitem__(self, name: str) -> SharedTable:
        """Return the table of a name."""
        return next(table for table in self.all if table.name == name)

    # -- topics, groups and modes of this moment

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics by name."""
        return self._topics.known

    @property
    def groups(self) -> Mapping[str, GroupConfig]:
        """The groups by name."""
        return self._groups.known

    @property
    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """Bits by group and topic."""
        return self._groups.forbidden

    @property
    def modes(self) -> Mapping[str, Mapping[str, RequestMode]]:
        """The request modes by topic and group."""
        return self._modes.known

    @property
    def topics_version(self) -> DataVersion:
        """The present version of the topics."""
        return self._topics.version

    @property
    def groups_version(self) -> DataVersion:
        """The present version of the groups."""
        return self._groups.version

    def topic_table(self) -> TopicTable:
        """Return the topics as topics.json holds them."""
        return self._topics.whole()

    def group_table(self) -> GroupTable:
        """Return the groups as subscriptionGroup.json holds them."""
        return self._groups.whole()

    def mode_table(self) -> RequestModes:
        """Return the request modes as messageRequestMode.json holds them."""
        return self._modes.whole()

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group may not read a topic."""
        return bool(self.forbidden.get(group, {}).get(topic, 0) & FORBIDDEN_READ)

    def add_system(
        self, topics: Mapping[str, TopicConfig], groups: Mapping[str, GroupConfig]
    ) -> None:
        """Add topics and groups that are not there yet. The versions stay."""
        self._topics.known = {**topics, **self._topics.known}
        self._groups.known = {**groups, **self._groups.known}

    # -- changes

    def lead(self, state_version: int) -> None:
        """Step all versions into *state_version*, the epoch of a new master; versions that are
        there already stay."""
        self._versions.state_version = state_version
        for table in self.all:
            table.lead()

    def set_topic(self, topic: TopicConfig) -> int:
        """Add or replace a topic."""
        return self._topics.set(topic)

    def remove_topic(self, name: str) -> int:
        """Remove a topic, and the offsets of all groups on it."""
        self.offsets.remove(lambda topic, _: topic == name)
        return self._topics.remove(name)

    def set_group(self, group: GroupConfig) -> int:
        """Add or replace a group."""
        return self._groups.set(group)

    def remove_group(self, name: str, *, with_offsets: bool) -> int:
        """Remove a group with its forbidden topics, and its offsets if *with_offsets*."""
        if with_offsets:
            self.offsets.remove(lambda _, group: group_of_progress(group) == name)
        return self._groups.remove(name)

    def forbid(self, group: str, topic: str, bits: int) -> int:
        """Set the forbidden bits of a group on a topic; 0 removes this topic and no other."""
        return self._groups.forbid(group, topic, bits)

    def set_mode(self, mode: RequestMode) -> int:
        """Add or replace the request mode of a group on a topic."""
        return self._modes.set(mode)

    # -- entries and versions, as they travel from a master to its slaves

    def versions(self) -> dict[str, DataVersion]:
        """Return the version of each table that has one."""
        return {each.version_name: each.version for each in self.all if each.version_name}

    def take_versions(self, versions: Mapping[str, DataVersion]) -> None:
        """Have the *versions* of a master whose entries are all here."""
        for table in self.all:
            if table.version_name:
                table.take_version(versions[table.version_name])

    def note_all(self) -> None:
        """Note the entries of the tables that no request returns whole as changed."""
        for table in self.all:
            table.note_all()

    def value_of(self, entry: Entry) -> Any:
        """Return the JSON value of an entry, None for one that is not there."""
        return self._by_kind[entry.table].value_of(entry)

    def take_entries(self, entries: Iterable[tuple[Entry, Any]]) -> frozenset[str]:
        """Set or, for None, remove entries; return the names of their tables. All or none: raises
        ValueError for a value that is not one of its table, and changes nothing then."""
        changes: dict[str, list[tuple[Entry, Any]]] = {}
        for entry, value in entries:
            table = self._by_kind.get(entry.table)
            if table is None:
                raise ValueError(f"there is no table {entry.table!r}")
            changes.setdefault(table.name, []).append((entry, table.read(entry, value)))
        for name, changed in changes.items():
            self[name].take(changed)
        return frozenset(changes)
