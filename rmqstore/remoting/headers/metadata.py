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
    """The number of all topics; since 5.5.0."""

    total: int | None = int32("totalTopicNum", default=None)


@header
class GetAllGroupsRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), with the fields of 5.5.0 for one page."""

    group_number: int = int32("groupSeq", default=0)
    groups_max: int | None = int32("maxGroupNum", default=None)
    data_version: str | None = string("dataVersion", default=None)


@header
class TotalGroupsResponseHeader(Header):
    """The number of all groups; since 5.5.0."""

    total: int | None = int32("totalGroupNum", default=None)


@header
class ChangesRequestHeader(GetAllTopicsRequestHeader):
    """GET_ALL_TOPIC_CONFIG of a slave of this library, which requests only changes.

    A master of RocketMQ ignores the fields defined here and answers with its topics.
    """

    changes_id: str = string("changesId")
    """The id that the change numbers belong to; empty in the first request."""
    since: int = int64("changesSince")
    """The slave holds all changes up to this one."""
    broker_id: int = int64("changesBrokerId")
    wait_ms: int = int32("changesWaitMillis")
    """How long the master may delay the answer while nothing changes."""


@header
class ChangesResponseHeader(Header):
    """The answer of a master of this library; without a body the slave requests whole tables."""

    changes_id: str | None = string("changesId", default=None)
    number: int = int64("changesNumber", default=0)
    """The answer, or the whole tables requested after it, hold all changes up to this one."""
