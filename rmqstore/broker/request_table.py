"""The request table of a broker: header, body, standing and ports of each request code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rmqstore.broker.refusals import CLIENT_SERVICES, COMMANDS
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.clients import CheckClientBody, HeartbeatData, LockBatchBody
from rmqstore.remoting.bodies.properties import settings_of
from rmqstore.remoting.bodies.values import list_of, object_of
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.headers.administration import (
    CommitOffsetRequestHeader,
    ConsumeStatsRequestHeader,
    CreateTopicRequestHeader,
    DeleteGroupRequestHeader,
    GroupForbiddenRequestHeader,
    GroupOffsetRequestHeader,
    GroupRequestHeader,
    OneTopicRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqstore.remoting.headers.clients import (
    ConsumerGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rmqstore.remoting.headers.pull import PullMessageRequestHeader
from rmqstore.remoting.headers.queries import (
    GetMaxOffsetRequestHeader,
    QueryMessageRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rmqstore.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rmqstore.remoting.requests import Row, Standing, table
from rmqstore.store.metadata import GroupConfig, RequestMode, TopicConfig
from rmqstore.store.metadata.members import Members

__all__ = ["ROWS", "TopicChange"]

TopicChange = tuple[TopicConfig, dict[str, str]]
"""A topic without attributes, and the changes of its attributes, whose keys have a sign."""


def _group(body: bytes) -> GroupConfig:
    return GroupConfig.of(Members(fastjson.loads(body), "group"))


def _mode(body: bytes) -> RequestMode:
    return RequestMode.of(Members(fastjson.loads(body), "mode"))


def _topics(body: bytes) -> list[TopicChange]:
    fields = object_of(fastjson.loads(body), "topicConfigList")
    topics = [
        TopicConfig.of(Members(each, "topicConfigList"))
        for each in list_of(fields.get("topicConfigList"), "topicConfigList")
    ]
    return [(replace(each, attributes={}), dict(each.attributes)) for each in topics]


def _refused(services: Mapping[int, str], section: str) -> Iterator[Row]:
    for code, service in services.items():
        yield Row(code, refusal=f'{service} (docs/operations.md, "{section}")')


_SERVING, _SHOWN = Standing.SERVING, Standing.SHOWN_AS_MASTER

ROWS = table(
    [
        # Producers.
        Row(RequestCode.SEND_MESSAGE, SendMessageRequestHeader, standing=_SERVING),
        Row(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, standing=_SERVING),
        Row(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2, standing=_SERVING),
        # Consumers. The fast port serves no pulls, as RocketMQ's.
        Row(
            RequestCode.PULL_MESSAGE,
            PullMessageRequestHeader,
            standing=_SERVING,
            is_on_fast_port=False,
        ),
        Row(
            RequestCode.LITE_PULL_MESSAGE,
            PullMessageRequestHeader,
            standing=_SERVING,
            is_on_fast_port=False,
        ),
        Row(RequestCode.QUERY_CONSUMER_OFFSET, GroupOffsetRequestHeader, standing=_SERVING),
        Row(RequestCode.UPDATE_CONSUMER_OFFSET, CommitOffsetRequestHeader, standing=_SERVING),
        Row(RequestCode.LOCK_BATCH_MQ, body=LockBatchBody.decode, standing=_SHOWN),
        Row(RequestCode.UNLOCK_BATCH_MQ, body=LockBatchBody.decode, standing=_SHOWN),
        # Both.
        Row(RequestCode.HEART_BEAT, body=HeartbeatData.decode, standing=_SERVING),
        Row(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader),
        Row(RequestCode.CHECK_CLIENT_CONFIG, body=CheckClientBody.decode),
        Row(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader, standing=_SERVING),
        # Lookups.
        Row(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader, standing=_SERVING),
        Row(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader, standing=_SERVING),
        Row(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader, standing=_SERVING),
        Row(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader, standing=_SERVING),
        Row(RequestCode.GET_MIN_OFFSET, QueueRequestHeader, standing=_SERVING),
        Row(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader, standing=_SERVING),
        # Operators: topics.
        Row(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader),
        Row(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=_topics),
        Row(RequestCode.DELETE_TOPIC_IN_BROKER, OneTopicRequestHeader),
        Row(RequestCode.GET_TOPIC_CONFIG, OneTopicRequestHeader),
        Row(RequestCode.GET_TOPIC_STATS_INFO, OneTopicRequestHeader),
        Row(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, OneTopicRequestHeader),
        Row(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
        # Operators: groups.
        Row(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=_group),
        Row(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupRequestHeader),
        Row(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequestHeader),
        Row(RequestCode.SET_MESSAGE_REQUEST_MODE, body=_mode),
        Row(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, GroupForbiddenRequestHeader),
        Row(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader),
        Row(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader),
        Row(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader),
        # Operators: the broker.
        Row(RequestCode.UPDATE_BROKER_CONFIG, body=settings_of),
        Row(RequestCode.GET_BROKER_CONFIG),
        Row(RequestCode.GET_BROKER_RUNTIME_INFO),
        Row(RequestCode.GET_BROKER_HA_STATUS),
        Row(RequestCode.GET_BROKER_EPOCH_CACHE),
        # Other replicas, and controllers.
        Row(RequestCode.EXCHANGE_BROKER_HA_INFO),
        Row(RequestCode.NOTIFY_BROKER_ROLE_CHANGED),
        Row(RequestCode.GET_ALL_TOPIC_CONFIG),
        Row(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        Row(RequestCode.GET_ALL_CONSUMER_OFFSET),
        Row(RequestCode.GET_ALL_DELAY_OFFSET),
        Row(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE),
        Row(RequestCode.GET_TIMER_CHECK_POINT),
        Row(RequestCode.GET_TIMER_METRICS),
        # What is missing.
        Row(RequestCode.CONSUMER_SEND_MSG_BACK),
        *_refused(CLIENT_SERVICES, "Clients of a broker"),
        *_refused(COMMANDS, "Commands that are not served"),
    ]
)
