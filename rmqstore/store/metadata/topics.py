"""topics.json: the topics of a store or broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rmqstore import arguments
from rmqstore.data_version import DataVersion
from rmqstore.errors import UnsupportedStoreError
from rmqstore.permissions import PERM_READ_WRITE
from rmqstore.store.metadata.journaled import JournaledTable
from rmqstore.store.metadata.json_text import Printed, pretty
from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.version import version_of

__all__ = ["TopicConfig", "TopicTable", "batch_queue_count"]

_BATCH_QUEUES_MAX = 65_536
_DEPTH = 2
"""Of a topic in the file."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic. *others* keeps members this package has no use for, so that a save loses none."""

    name: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    perm: int = PERM_READ_WRITE
    """Bits of `rmqstore.permissions`."""
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    _printed: Printed | None = field(default=None, init=False, repr=False, compare=False)
    """Kept, because a table of 10,000 topics is written again when one of them changes."""

    def __post_init__(self) -> None:
        plain: dict[str, object] = {
            name: arguments.utf8(name, getattr(self, name)) for name in ("name", "filter_type")
        }

        for name in ("read_queue_count", "write_queue_count", "perm", "sys_flag"):
            plain[name] = arguments.integer(name, getattr(self, name))
        plain["order"] = arguments.boolean("order", self.order)

        attributes = arguments.mapping("attributes", self.attributes, "a mapping of str to str")
        plain["attributes"] = {
            arguments.utf8("a name in attributes", name): arguments.utf8(
                f"attributes[{name!r}]", value
            )
            for name, value in attributes.items()
        }

        arguments.mapping("others", self.others, "a mapping of str to JSON values")
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, members: Members, name: str = "") -> TopicConfig:
        """Return the topic of a JSON object; *name* replaces a missing topicName. Raises
        ValueError naming the member at fault."""
        return cls(
            name=members.take("topicName", name),
            read_queue_count=members.take("readQueueNums", 16),
            write_queue_count=members.take("writeQueueNums", 16),
            perm=members.take("perm", PERM_READ_WRITE),
            filter_type=members.take("topicFilterType", "SINGLE_TAG"),
            sys_flag=members.take("topicSysFlag", 0),
            order=members.take("order", False),
            attributes=members.take("attributes", {}),
            others=members.rest(),
        )

    def printed(self) -> Printed:
        """Return the text of the topic in its table."""
        if self._printed is None:
            text = Printed(pretty(self.members(), depth=_DEPTH))
            object.__setattr__(self, "_printed", text)
            return text
        return self._printed

    def members(self) -> dict[str, Any]:
        """Return the members of its JSON object, sorted by name."""
        members = {
            **self.others,
            "attributes": self.attributes,
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_count,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_count,
        }
        return dict(sorted(members.items()))


@dataclass(frozen=True, slots=True)
class TopicTable(JournaledTable):
    """config/topics.json: every topic by name."""

    FILE_NAME = "topics.json"
    JOURNAL_NAME = "topics.journal"

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)

    def with_topic(self, topic: TopicConfig, *, now_ms: int) -> Self:
        """Return the table with *topic*, in place of an older one of its name."""
        return replace(
            self,
            topics={**self.topics, topic.name: topic},
            data_version=self.data_version.next(now_ms=now_ms),
        )

    @classmethod
    def entry(cls, kind: str, key: str, value: Any) -> TopicConfig | None:
        if value is None:
            return None
        return TopicConfig.of(Members(value, f"{kind} {key}"), key)

    def with_entries(self, entries: Sequence[tuple[str, str, Any]], version: DataVersion) -> Self:
        topics = dict(self.topics)
        for _, name, topic in entries:
            if topic is None:
                topics.pop(name, None)
            else:
                topics[name] = topic
        return replace(self, topics=topics, data_version=version)

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        version = version_of(members)
        topics = {
            name: TopicConfig.of(each, name) for name, each in members.table("topicConfigTable")
        }
        return cls(topics, version, members.rest())

    def _printed_members(self) -> dict[str, Any]:
        return self._with_table({name: topic.printed() for name, topic in self.topics.items()})

    def _members(self) -> dict[str, Any]:
        return self._with_table({name: topic.members() for name, topic in self.topics.items()})

    def _with_table(self, table: Mapping[str, Any]) -> dict[str, Any]:
        version = self.data_version.to_json()
        return {**self.others, "dataVersion": version, "topicConfigTable": table}


def batch_queue_count(topic: TopicConfig) -> int:
    """Return how many queues for inner batches *topic* has, 0 unless its queue.type is BatchCQ.

    Raises UnsupportedStoreError for more than 65,536.
    """
    attributes = topic.attributes
    if "BatchCQ" not in (attributes.get("queue.type"), attributes.get("+queue.type")):
        return 0
    count = max(topic.write_queue_count, topic.read_queue_count)
    if count > _BATCH_QUEUES_MAX:
        raise UnsupportedStoreError(
            f"topic {topic.name} has {count} batch queues; the limit is {_BATCH_QUEUES_MAX}; "
            "change the number of its queues or delete it"
        )
    return count
