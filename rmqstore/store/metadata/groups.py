"""subscriptionGroup.json: the consumer groups of a broker, and what they may not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from rmqstore import arguments
from rmqstore.data_version import DataVersion
from rmqstore.store.metadata.journaled import JournaledTable
from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.version import version_of

__all__ = ["FORBIDDEN_READ", "GroupConfig", "GroupTable"]

FORBIDDEN_READ = 4
"""The bit of the forbidden table that keeps a group from reading a topic."""

_ATTRIBUTES: Mapping[str, str] = {
    "consumeEnable": "consume_enabled",
    "consumeFromMinEnable": "consume_from_min_enabled",
    "consumeBroadcastEnable": "broadcast_enabled",
    "consumeMessageOrderly": "is_orderly",
    "retryQueueNums": "retry_queue_count",
    "retryMaxTimes": "retries_max",
    "brokerId": "broker_id",
    "whichBrokerWhenConsumeSlowly": "slow_consumer_broker_id",
    "notifyConsumerIdsChangedEnable": "notices_enabled",
    "groupSysFlag": "sys_flag",
    "consumeTimeoutMinute": "consume_timeout_minutes",
}
"""Attribute of each plain member of the file."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One consumer group. *others* keeps members this package has no use for, so that a save loses
    none."""

    name: str
    consume_enabled: bool = True
    consume_from_min_enabled: bool = True
    broadcast_enabled: bool = True
    is_orderly: bool = False
    retry_queue_count: int = 1
    retries_max: int = 16
    broker_id: int = 0
    """The broker that pull answers suggest."""
    slow_consumer_broker_id: int = 1
    """The broker that pull answers suggest to a consumer with a large lag."""
    notices_enabled: bool = True
    sys_flag: int = 0
    consume_timeout_minutes: int = 15
    retry_policy: Mapping[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain: dict[str, object] = {"name": arguments.utf8("name", self.name)}
        for attribute in _ATTRIBUTES.values():
            value = getattr(self, attribute)
            is_boolean = isinstance(_DEFAULTS[attribute], bool)
            check = arguments.boolean if is_boolean else arguments.integer
            plain[attribute] = check(attribute, value)
        for attribute in ("retry_policy", "attributes", "others"):
            arguments.mapping(attribute, getattr(self, attribute), "a mapping of JSON values")
        for attribute, value in plain.items():
            object.__setattr__(self, attribute, value)

    @classmethod
    def of(cls, members: Members, name: str = "") -> GroupConfig:
        """Return the group of a JSON object; *name* replaces a missing groupName. Raises
        ValueError naming the member at fault."""
        plain = {
            attribute: members.take(key, _DEFAULTS[attribute])
            for key, attribute in _ATTRIBUTES.items()
        }
        return cls(
            members.take("groupName", name),
            **plain,
            retry_policy=members.take("groupRetryPolicy", {"type": "CUSTOMIZED"}),
            attributes=members.take("attributes", {}),
            others=members.rest(),
        )

    def members(self) -> dict[str, Any]:
        """Return the members of its JSON object, sorted by name."""
        members = {
            **self.others,
            **{key: getattr(self, attribute) for key, attribute in _ATTRIBUTES.items()},
            "attributes": self.attributes,
            "groupName": self.name,
            "groupRetryPolicy": self.retry_policy,
        }
        return dict(sorted(members.items()))


_DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for each in fields(GroupConfig) if each.default is not MISSING
}


@dataclass(frozen=True, slots=True)
class GroupTable(JournaledTable):
    """config/subscriptionGroup.json: every group by name, and the forbidden topics of groups."""

    FILE_NAME: ClassVar[str] = "subscriptionGroup.json"
    JOURNAL_NAME: ClassVar[str] = "subscriptionGroup.journal"
    FORBIDDEN: ClassVar[str] = "forbidden"
    """The kind of the entries of forbidden topics; all others are groups."""

    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    forbidden: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By group and topic, bits of what the group may not do; FORBIDDEN_READ is one."""
    data_version: DataVersion = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def entry(cls, kind: str, key: str, value: Any) -> GroupConfig | Mapping[str, int] | None:
        if value is None:
            return None
        members = Members(value, f"{kind} {key}")
        return members.table_of(0) if kind == cls.FORBIDDEN else GroupConfig.of(members, key)

    def with_entries(self, entries: Sequence[tuple[str, str, Any]], version: DataVersion) -> Self:
        groups, forbidden = dict(self.groups), dict(self.forbidden)
        for kind, name, value in entries:
            target: dict[str, Any] = forbidden if kind == self.FORBIDDEN else groups
            if value is None:
                target.pop(name, None)
            else:
                target[name] = value
        return replace(self, groups=groups, forbidden=forbidden, data_version=version)

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        version = version_of(members)
        groups = {
            name: GroupConfig.of(each, name)
            for name, each in members.table("subscriptionGroupTable")
        }
        forbidden = {name: each.table_of(0) for name, each in members.table("forbiddenTable")}
        return cls(groups, forbidden, version, members.rest())

    def _members(self) -> dict[str, Any]:
        return {
            **self.others,
            "dataVersion": self.data_version.to_json(),
            "forbiddenTable": self.forbidden,
            "subscriptionGroupTable": {name: each.members() for name, each in self.groups.items()},
        }
