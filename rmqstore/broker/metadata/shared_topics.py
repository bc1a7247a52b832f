"""The topics of a broker."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import LargeTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.metadata import TopicConfig, TopicTable

__all__ = ["SharedTopics"]


class SharedTopics(LargeTable):
    """topics.json: `known` has the topics by name."""

    name = "topic"
    kinds = ("topic",)
    version_name = "topics"
    file_type = TopicTable
    code = RequestCode.GET_ALL_TOPIC_CONFIG

    def whole(self) -> TopicTable:
        return TopicTable(dict(self.known), self._version, self._others)

    def take_whole(self, table: TopicTable) -> None:
        self.known: dict[str, TopicConfig] = dict(table.topics)
        self._version, self._others = table.data_version, table.others
        self.is_replaced = True

    def set(self, topic: TopicConfig) -> int:
        """Add or replace a topic; return the number of the change."""
        return self._change(self.name, topic.name, topic)

    def remove(self, name: str) -> int:
        """Remove a topic; return the number of the change."""
        return self._change(self.name, name, None)

    def value_of(self, entry: Entry) -> Any:
        topic = self.known.get(entry.key)
        return topic and topic.members()

    def _entries_of(self, kind: str) -> dict[str, Any]:
        return self.known
