"""The topics of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.metadata import DataVersion, TopicConfig, TopicTable
from rmqstore.store.metadata.members import Members

__all__ = ["SharedTopics"]


class SharedTopics(SharedTable):
    """topics.json: `known` has the topics by name."""

    name = "topic"
    kinds = ("topic",)
    version_name = "topics"
    file_type = TopicTable
    code = RequestCode.GET_ALL_TOPIC_CONFIG

    def __init__(self) -> None:
        self.take_whole(TopicTable())

    def whole(self) -> TopicTable:
        return TopicTable(dict(self.known), self._version, self._others)

    def take_whole(self, table: TopicTable) -> None:
        self.known: dict[str, TopicConfig] = dict(table.topics)
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

    def set(self, topic: TopicConfig) -> int:
        """Add or replace a topic; return the number of the change."""
        self.known[topic.name] = topic
        self._version = self._versions.after(self._version)
        return self._log.note(self.name, topic.name)

    def remove(self, name: str) -> int:
        """Remove a topic; return the number of the change."""
        self.known.pop(name, None)
        self._version = self._versions.after(self._version)
        return self._log.note(self.name, name, is_removed=True)

    def value_of(self, entry: Entry) -> Any:
        topic = self.known.get(entry.key)
        return topic and topic.members()

    def read(self, entry: Entry, value: Any) -> TopicConfig | None:
        if value is None:
            return None
        return TopicConfig.of(Members(value, f"topic {entry.key}"), entry.key)

    def take(self, changes: Sequence[tuple[Entry, TopicConfig | None]]) -> None:
        for entry, topic in changes:
            if topic is None:
                self.known.pop(entry.key, None)
            else:
                self.known[entry.key] = topic
