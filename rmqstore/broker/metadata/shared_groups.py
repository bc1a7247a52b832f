"""The consumer groups of a broker, and the topics that they may not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.metadata import DataVersion, GroupConfig, GroupTable
from rmqstore.store.metadata.members import Members

__all__ = ["SharedGroups"]

_GROUP, _FORBIDDEN = "group", "forbidden"


class SharedGroups(SharedTable):
    """subscriptionGroup.json: `known` has the groups by name, `forbidden` the bits by group and
    topic."""

    name = _GROUP
    kinds = (_GROUP, _FORBIDDEN)
    version_name = "groups"
    file_type = GroupTable
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    def __init__(self) -> None:
        self.take_whole(GroupTable())

    def whole(self) -> GroupTable:
        forbidden = {group: dict(topics) for group, topics in self.forbidden.items()}
        return GroupTable(dict(self.known), forbidden, self._version, self._others)

    def take_whole(self, table: GroupTable) -> None:
        self.known: dict[str, GroupConfig] = dict(table.groups)
        self.forbidden: dict[str, dict[str, int]] = {
            group: dict(topics) for group, topics in table.forbidden.items()
        }
        self._version = table.data_version
        self._others = table.others

    @property
    def version(self) -> DataVersion:
        return self._version

    def take_version(self, version: DataVersion) -> None:
        self._version = version

    def lead(self) -> None:
        if self._version.state_version != self._versions.state_version:
            self._version = self._versions.after(self._version)

    def set(self, group: GroupConfig) -> int:
        """Add or replace a group; return the number of the change."""
        self.known[group.name] = group
        self._version = self._versions.after(self._version)
        return self._log.note(_GROUP, group.name)

    def remove(self, name: str) -> int:
        """Remove a group with its forbidden topics; return the number of the change."""
        self.known.pop(name, None)
        self.forbidden.pop(name, None)
        self._version = self._versions.after(self._version)
        self._log.note(_FORBIDDEN, name, is_removed=True)
        return self._log.note(_GROUP, name, is_removed=True)

    def forbid(self, group: str, topic: str, bits: int) -> int:
        """Set the forbidden bits of a group on a topic; 0 removes this topic and no other."""
        topics = self.forbidden.setdefault(group, {})
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self.forbidden[group]
        self._version = self._versions.after(self._version)
        return self._log.note(_FORBIDDEN, group)

    def value_of(self, entry: Entry) -> Any:
        if entry.table == _FORBIDDEN:
            return self.forbidden.get(entry.key)
        group = self.known.get(entry.key)
        return group and group.members()

    def read(self, entry: Entry, value: Any) -> Any:
        if value is None:
            return None
        members = Members(value, f"{entry.table} {entry.key}")
        if entry.table == _FORBIDDEN:
            return members.table_of(0)
        return GroupConfig.of(members, entry.key)

    def take(self, changes: Sequence[tuple[Entry, Any]]) -> None:
        for entry, value in changes:
            target: dict[str, Any] = self.forbidden if entry.table == _FORBIDDEN else self.known
            if value is None:
                target.pop(entry.key, None)
            else:
                target[entry.key] = value
