"""messageRequestMode.json: whether a group pulls or pops a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.table import Table

__all__ = ["RequestMode", "RequestModes"]


@dataclass(frozen=True, slots=True)
class RequestMode:
    """How one group gets the messages of one topic."""

    topic: str
    group: str
    mode: str = "PULL"
    """PULL or POP."""
    pop_share_queue_count: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Members, *, topic: str = "", group: str = "") -> RequestMode:
        """Return the mode of a JSON object; *topic* and *group* replace missing ones. Raises
        ValueError naming the member at fault."""
        return cls(
            members.take("topic", topic),
            members.take("consumerGroup", group),
            members.take("mode", "PULL"),
            members.take("popShareQueueNum", 0),
            members.rest(),
        )

    def members(self) -> dict[str, Any]:
        """Return the members of its JSON object, sorted by name."""
        members = {
            **self.others,
            "consumerGroup": self.group,
            "mode": self.mode,
            "popShareQueueNum": self.pop_share_queue_count,
            "topic": self.topic,
        }
        return dict(sorted(members.items()))


@dataclass(frozen=True, slots=True)
class RequestModes(Table):
    """config/messageRequestMode.json: modes by topic and group. The file has no version."""

    FILE_NAME: ClassVar[str] = "messageRequestMode.json"

    modes: Mapping[str, Mapping[str, RequestMode]] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        modes = {
            topic: {
                group: RequestMode.of(each, topic=topic, group=group)
                for group, each in groups.objects()
            }
            for topic, groups in members.table("messageRequestModeMap")
        }
        return cls(modes, members.rest())

    def _members(self) -> dict[str, Any]:
        table = {
            topic: {group: each.members() for group, each in groups.items()}
            for topic, groups in self.modes.items()
        }
        return {**self.others, "messageRequestModeMap": table}
