"""The configuration of topics, as brokers send it.

In JSON a topic is an object (org.apache.rocketmq.common.TopicConfig). A compressed registration
holds a text form with single spaces, in which topicSysFlag and order are lost:

    name readQueueNums writeQueueNums perm topicFilterType attributesJson

A table of topics is a TopicConfigSerializeWrapper, since 5.0 with the queue mappings of static
topics. The mappings are kept as parsed JSON: the nameserver forwards them unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.arguments import INT32_MAX, shown
from rmqstore.data_version import DataVersion
from rmqstore.errors import RemotingFrameError
from rmqstore.permissions import PERM_READ_WRITE
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.data_version import data_version_of
from rmqstore.remoting.bodies.values import boolean_at, integer_at, object_of, text_at

__all__ = ["TOPIC_UNIT", "TOPIC_UNIT_SUB", "TopicConfig", "TopicTable"]

TOPIC_UNIT, TOPIC_UNIT_SUB = 1, 2
"""Flags of a topic: it is in unit mode; consumers in unit mode subscribe to it."""

_QUEUES = 16
_FILTER = "SINGLE_TAG"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic of a broker."""

    name: str
    read_queues: int = _QUEUES
    write_queues: int = _QUEUES
    perm: int = PERM_READ_WRITE
    sys_flag: int = 0
    filter_type: str = _FILTER
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, name: str = "") -> TopicConfig:
        """Return the topic that parsed JSON holds; *name* replaces a missing topicName."""
        fields = object_of(value, "topicConfigTable")
        return cls(
            text_at(fields, "topicName", name),
            integer_at(fields, "readQueueNums", _QUEUES, high=INT32_MAX),
            integer_at(fields, "writeQueueNums", _QUEUES, high=INT32_MAX),
            integer_at(fields, "perm", PERM_READ_WRITE, high=INT32_MAX),
            integer_at(fields, "topicSysFlag", 0, high=INT32_MAX),
            text_at(fields, "topicFilterType", _FILTER),
            boolean_at(fields, "order"),
            object_of(fields.get("attributes"), "attributes"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the topic as the object that JSON holds."""
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @classmethod
    def from_text(cls, text: str) -> TopicConfig:
        """Return the topic of the text form. Raises RemotingFrameError for another text."""
        parts = text.split(" ", 5)
        numbers = dict(zip(("readQueues", "writeQueues", "perm"), parts[1:4], strict=False))
        try:
            read_queues, write_queues, perm = (
                integer_at(numbers, each, 0, high=INT32_MAX) for each in numbers
            )
            name, filter_type = parts[0], parts[4]
        except (IndexError, ValueError):
            raise RemotingFrameError(
                f"topic {shown(text)} is not of the form "
                "'name readQueues writeQueues perm filterType attributes'; send that form"
            ) from None
        attributes = fastjson.loads(parts[5]) if len(parts) > 5 else None
        return cls(
            name,
            read_queues,
            write_queues,
            perm,
            filter_type=filter_type,
            attributes=object_of(attributes, "attributes"),
        )

    def to_text(self) -> str:
        """Return the text form."""
        attributes = fastjson.dumps(dict(self.attributes)).decode()
        return (
            f"{self.name} {self.read_queues} {self.write_queues} {self.perm} {self.filter_type} "
            f"{attributes}"
        )


@dataclass(frozen=True, slots=True)
class TopicTable:
    """All topics of a broker, or the changed ones, with the version of the whole table."""

    version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    """By the name that the table uses for the topic."""
    mapping_version: DataVersion = field(default_factory=DataVersion)
    mappings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """TopicQueueMappingInfo of static topics, by topic."""

    @classmethod
    def of(cls, value: object) -> TopicTable:
        """Return the table that parsed JSON holds. Raises RemotingFrameError for another shape."""
        fields = object_of(value, "topicConfigSerializeWrapper")
        topics = object_of(fields.get("topicConfigTable"), "topicConfigTable")
        mappings = object_of(fields.get("topicQueueMappingInfoMap"), "topicQueueMappingInfoMap")
        return cls(
            data_version_of(fields.get("dataVersion")),
            {name: TopicConfig.of(topic, name) for name, topic in topics.items()},
            data_version_of(fields.get("mappingDataVersion")),
            {name: object_of(each, name) for name, each in mappings.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the table as the object that JSON holds."""
        return {
            "dataVersion": self.version.to_json(),
            "mappingDataVersion": self.mapping_version.to_json(),
            "topicConfigTable": {name: topic.to_json() for name, topic in self.topics.items()},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {name: dict(each) for name, each in self.mappings.items()},
        }
