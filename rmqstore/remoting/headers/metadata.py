"""Headers of requests between brokers about topics, groups and offsets."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, header, int32, int64, string

__all__ = [
    "ChangesRequestHeader",
    "ChangesResponseHeader",
    "GetAllGroupsRequestHeader",
    "GetAllTopicsRequestHeader",
    "TotalGroupsResponseHeader",
    "TotalTopicsResponseHeader",
]


@header
class GetAllTopicsRequestHeader(Header):
    """GET_ALL_TOPIC_CONFIG (21), with the fields of 5.5.0 for one page."""

    topic_number: int = int32("topicSeq", default=0)
    topics_max: int | None = int32("maxTopicNum", default=None)
    data_version: str | None = string("dataVersion", default=None)


@header
class TotalTopicsResponseHeader(Header):
    """How many topics there are, from 5.5.0 on."""

    total: int | None = int32("totalTopicNum", default=None)


@header
class GetAllGroupsRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), with the fields of 5.5.0 for one page."""

    group_number: int = int32("groupSeq", default=0)
    groups_max: int | None = int32("maxGroupNum", default=None)
    data_version: str | None = string("dataVersion", default=None)


@header
class TotalGroupsResponseHeader(Header):
    """How many groups there are, from 5.5.0 on."""

    total: int | None = int32("totalGroupNum", default=None)


@header
class ChangesRequestHeader(GetAllTopicsRequestHeader):
    """GET_ALL_TOPIC_CONFIG of a slave of this library, which requests changes alone.

    A master of RocketMQ reads the fields of its own and answers with its topics.
    """

    changes_id: str = string("changesId")
    """The id of the numbers, empty at first."""
    since: int = int64("changesSince")
    """The slave holds all changes up to this one."""
    broker_id: int = int64("changesBrokerId")
    wait_ms: int = int32("changesWaitMillis")
    """How long the answer may be held while nothing changes."""


@header
class ChangesResponseHeader(Header):
    """The answer of a master of this library; without a body the slave takes whole tables."""

    changes_id: str | None = string("changesId", default=None)
    number: int = int64("changesNumber", default=0)
    """The answer, or the whole tables requested after it, hold all changes up to this one."""
