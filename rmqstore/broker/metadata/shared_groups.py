"""The consumer groups of a broker, and the topics that they may not read."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import LargeTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.metadata import GroupConfig, GroupTable

__all__ = ["SharedGroups"]

_GROUP, _FORBIDDEN = "group", GroupTable.FORBIDDEN


class SharedGroups(LargeTable):
    """subscriptionGroup.json: `known` has the groups by name, `forbidden` the bits by group and
    topic."""

    name = _GROUP
    kinds = (_GROUP, _FORBIDDEN)
    version_name = "groups"
    file_type = GroupTable
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    def whole(self) -> GroupTable:
        return GroupTable(dict(self.known), dict(self.forbidden), self._version, self._others)

    def take_whole(self, table: GroupTable) -> None:
        self.known: dict[str, GroupConfig] = dict(table.groups)
        self.forbidden: dict[str, dict[str, int]] = {
            group: dict(topics) for group, topics in table.forbidden.items()
        }
        self._version, self._others = table.data_version, table.others
        self.is_replaced = True

    def set(self, group: GroupConfig) -> int:
        """Add or replace a group; return the number of the change."""
        return self._change(_GROUP, group.name, group)

    def remove(self, name: str) -> int:
        """Remove a group with its forbidden topics; return the number of the change."""
        self._set(Entry(_FORBIDDEN, name), None)
        self._log.note(_FORBIDDEN, name, is_removed=True)
        return self._change(_GROUP, name, None)

    def forbid(self, group: str, topic: str, bits: int) -> int:
        """Set the forbidden bits of a group on a topic; 0 removes this topic and no other."""
        topics = {**self.forbidden.get(group, {}), topic: bits}
        if not bits:
            del topics[topic]
        number = self._change(_FORBIDDEN, group, topics)
        if not topics:
            del self.forbidden[group]
        return number

    def value_of(self, entry: Entry) -> Any:
        if entry.table == _FORBIDDEN:
            return self.forbidden.get(entry.key)
        group = self.known.get(entry.key)
        return group and group.members()

    def _entries_of(self, kind: str) -> dict[str, Any]:
        return self.forbidden if kind == _FORBIDDEN else self.known
