"""consumerFilter.json: the expressions of consumer groups, and since when they are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.table import Table

__all__ = ["FilterData", "FilterTable"]


@dataclass(frozen=True, slots=True)
class FilterData:
    """The expression of one group for one topic."""

    topic: str
    group: str
    expression: str
    expression_type: str = "SQL92"
    version: int = 0
    """Of the subscription: milliseconds since the epoch by the clock of the client."""
    born_ms: int = 0
    """When the expression was registered."""
    dead_ms: int = 0
    """When the last consumer of the group left; 0 while there are some."""
    bit_count: int = 0
    bit_positions: tuple[int, ...] = ()
    """The bits of the subscription in a bit map of *bit_count* bits."""
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_dead(self) -> bool:
        """Whether the group has had no consumer since *dead_ms*."""
        return self.dead_ms >= self.born_ms

    @classmethod
    def of(cls, members: Members, *, topic: str, group: str) -> FilterData:
        """Return the data of a JSON object; *topic* and *group* replace missing ones. Raises
        ValueError naming the member at fault."""
        members.take("dead", False)  # RocketMQ writes what follows from the times.
        bloom = members.child("bloomFilterData")
        positions: list[Any] = bloom.take("bitPos", [])
        if any(type(each) is not int for each in positions):
            raise ValueError(f"bitPos of {group} on {topic} holds a value that is not an integer")
        return cls(
            topic=members.take("topic", topic),
            group=members.take("consumerGroup", group),
            expression=members.take("expression", ""),
            expression_type=members.take("expressionType", ""),
            version=members.take("clientVersion", 0),
            born_ms=members.take("bornTime", 0),
            dead_ms=members.take("deadTime", 0),
            bit_count=bloom.take("bitNum", 0),
            bit_positions=tuple(positions),
            others=members.rest(),
        )

    def members(self) -> dict[str, Any]:
        """Return the members of its JSON object, sorted by name."""
        members = {
            **self.others,
            "bloomFilterData": {"bitNum": self.bit_count, "bitPos": list(self.bit_positions)},
            "bornTime": self.born_ms,
            "clientVersion": self.version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }
        return dict(sorted(members.items()))


@dataclass(frozen=True, slots=True)
class FilterTable(Table):
    """config/consumerFilter.json: expressions by topic and group. The file has no version, and
    each broker has its own: slaves do not copy it."""

    FILE_NAME: ClassVar[str] = "consumerFilter.json"

    filters: Mapping[str, Mapping[str, FilterData]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        filters = {
            topic: {
                group: FilterData.of(each, topic=topic, group=group)
                for group, each in of_topic.table("groupFilterData")
            }
            for topic, of_topic in members.table("filterDataByTopic")
        }
        return cls(filters, members.rest())

    def _members(self) -> dict[str, Any]:
        table = {
            topic: {
                "groupFilterData": {group: each.members() for group, each in groups.items()},
                "topic": topic,
            }
            for topic, groups in self.filters.items()
        }
        return {**self.others, "filterDataByTopic": table}
