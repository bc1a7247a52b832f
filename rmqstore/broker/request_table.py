"""The request table of a broker: header, body, standing, rights and ports of each request code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rmqstore.broker.operations.topics import TopicChange
from rmqstore.broker.operator_requests import OPERATOR_FAMILIES
from rmqstore.broker.refusals import CLIENT_SERVICES, COMMANDS
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.assignments import AssignmentQuery
from rmqstore.remoting.bodies.clients import CheckClientBody, HeartbeatData, LockBatchBody
from rmqstore.remoting.bodies.pop import BatchAckBody
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
from rmqstore.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from rmqstore.remoting.headers.pull import PullMessageRequestHeader
from rmqstore.remoting.headers.queries import (
    GetMaxOffsetRequestHeader,
    QueryMessageRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rmqstore.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqstore.remoting.headers.statistics import BrokerStatsRequestHeader
from rmqstore.remoting.headers.transactions import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rmqstore.remoting.requests import Row, Standing, family, table
from rmqstore.remoting.rights import EVERY, Action, every, on_cluster, on_group, on_topic
from rmqstore.store.metadata import GroupConfig, RequestMode, TopicConfig
from rmqstore.store.metadata.members import Members

__all__ = ["ROWS"]


def _group(body: bytes) -> GroupConfig:
    return GroupConfig.of(Members(fastjson.loads(body), "group"))


def _groups(body: bytes) -> list[GroupConfig]:
    fields = object_of(fastjson.loads(body), "groupConfigList")
    groups = list_of(fields.get("groupConfigList"), "groupConfigList")
    return [GroupConfig.of(Members(each, "groupConfigList")) for each in groups]


def _mode(body: bytes) -> RequestMode:
    return RequestMode.of(Members(fastjson.loads(body), "mode"))


def _topics(body: bytes) -> list[TopicChange]:
    fields = object_of(fastjson.loads(body), "topicConfigList")
    topics = [
        TopicConfig.of(Members(each, "topicConfigList"))
        for each in list_of(fields.get("topicConfigList"), "topicConfigList")
    ]
    return [TopicChange(replace(each, attributes={}), each.attributes) for each in topics]


def _refused(services: Mapping[int, str], described: str) -> Iterator[Row]:
    for code, service in services.items():
        yield Row(code, refusal=f"{service} ({described})")


def _group_of(header: object, body: Any) -> Iterable[str]:
    return (body.group,)


def _topics_of_locks(header: object, body: LockBatchBody) -> Iterable[str]:
    return (each.topic for each in body.queues)


def _groups_heard(header: object, body: HeartbeatData) -> Iterable[str]:
    return (each.group for each in body.consumers)


def _topics_heard(header: object, body: HeartbeatData) -> Iterable[str]:
    return (each.topic for consumer in body.consumers for each in consumer.subscriptions)


def _topics_of_stats(header: ConsumeStatsRequestHeader, body: object) -> Iterable[str | None]:
    return (header.topic, *(header.topics or "").split(";"))


_SERVING = Standing.SERVING
_PUB, _SUB, _GET, _LIST = Action.PUB, Action.SUB, Action.GET, Action.LIST
_CREATE, _UPDATE, _DELETE = Action.CREATE, Action.UPDATE, Action.DELETE

_SEND = (on_topic(_PUB),)
_PULL = (on_topic(_SUB), on_group(_SUB, field="consumer_group"))
_LOCK = (on_group(_SUB, names=_group_of), on_topic(_SUB, names=_topics_of_locks))
_HEARTBEAT = (on_group(_SUB, names=_groups_heard), on_topic(_SUB, names=_topics_heard))
_SHOW_TOPIC = (on_topic(_GET),)
_SHOW_BROKER, _CHANGE_BROKER = (on_cluster(_GET),), (on_cluster(_UPDATE),)

ROWS = table(
    family(
        "send",
        Row(RequestCode.SEND_MESSAGE, SendMessageRequestHeader, standing=_SERVING, rights=_SEND),
        Row(
            RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, standing=_SERVING, rights=_SEND
        ),
        Row(
            RequestCode.SEND_BATCH_MESSAGE,
            SendMessageRequestHeaderV2,
            standing=_SERVING,
            rights=_SEND,
        ),
        Row(
            RequestCode.SEND_REPLY_MESSAGE,
            SendMessageRequestHeader,
            standing=_SERVING,
            rights=_SEND,
        ),
        Row(
            RequestCode.SEND_REPLY_MESSAGE_V2,
            SendMessageRequestHeaderV2,
            standing=_SERVING,
            rights=_SEND,
        ),
        Row(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackRequestHeader,
            # The handler refuses another than the master: some clients get no refusal.
            rights=(on_group(_SUB),),
        ),
        Row(
            RequestCode.RECALL_MESSAGE,
            RecallMessageRequestHeader,
            standing=_SERVING,
            rights=_SEND,
        ),
    ),
    family(
        "transaction",
        Row(
            RequestCode.END_TRANSACTION,
            EndTransactionRequestHeader,
            rights=(on_topic(_PUB, names=lambda header, body: (header.topic or EVERY,)),),
        ),
        Row(
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            ResumeCheckHalfMessageRequestHeader,
            rights=_CHANGE_BROKER,
        ),
    ),
    # The number of held pulls has limits of its own: see `Holds`.
    *(
        family(
            name,
            Row(
                code,
                PullMessageRequestHeader,
                standing=_SERVING,
                rights=_PULL,
                is_on_fast_port=False,  # As RocketMQ's.
            ),
        )
        for name, code in (
            ("pull", RequestCode.PULL_MESSAGE),
            ("lite pull", RequestCode.LITE_PULL_MESSAGE),
        )
    ),
    # The number of held pops has limits of its own: see `Holds`.
    family(
        "pop",
        Row(
            RequestCode.POP_MESSAGE,
            PopMessageRequestHeader,
            standing=_SERVING,
            rights=_PULL,
            is_on_fast_port=False,  # As RocketMQ's.
        ),
        Row(
            RequestCode.ACK_MESSAGE,
            AckMessageRequestHeader,
            standing=_SERVING,
            rights=_PULL,
        ),
        Row(
            RequestCode.BATCH_ACK_MESSAGE,
            body=BatchAckBody.decode,
            standing=_SERVING,
            rights=(
                on_topic(_SUB, names=lambda header, body: (each.topic for each in body.acks)),
                on_group(_SUB, names=lambda header, body: (each.group for each in body.acks)),
            ),
        ),
        Row(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            ChangeInvisibleTimeRequestHeader,
            standing=_SERVING,
            rights=_PULL,
        ),
        Row(
            RequestCode.NOTIFICATION,
            NotificationRequestHeader,
            standing=_SERVING,
            rights=_PULL,
        ),
        Row(
            RequestCode.PEEK_MESSAGE,
            PeekMessageRequestHeader,
            standing=_SERVING,
            rights=_PULL,
        ),
        Row(
            RequestCode.POLLING_INFO,
            PollingInfoRequestHeader,
            standing=_SERVING,
            rights=(on_topic(_GET), on_group(_GET, field="consumer_group")),
        ),
    ),
    family(
        "offset",
        Row(
            RequestCode.QUERY_CONSUMER_OFFSET,
            GroupOffsetRequestHeader,
            standing=_SERVING,
            rights=(on_topic(_SUB, _GET), on_group(_SUB, _GET)),
        ),
        Row(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            CommitOffsetRequestHeader,
            standing=_SERVING,
            rights=(on_topic(_SUB, _UPDATE), on_group(_SUB, _UPDATE)),
        ),
        Row(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetRequestHeader,
            rights=(on_topic(_UPDATE), on_group(_UPDATE)),
        ),
    ),
    family(
        "lock",
        # The handlers refuse clients of a broker that routes do not show as the master. The
        # brokers of a group request locks of each other in any role.
        Row(RequestCode.LOCK_BATCH_MQ, body=LockBatchBody.decode, rights=_LOCK),
        Row(RequestCode.UNLOCK_BATCH_MQ, body=LockBatchBody.decode, rights=_LOCK),
    ),
    family(
        "client",
        Row(
            RequestCode.HEART_BEAT,
            body=HeartbeatData.decode,
            standing=_SERVING,
            rights=_HEARTBEAT,
        ),
        Row(
            RequestCode.UNREGISTER_CLIENT,
            UnregisterClientRequestHeader,
            rights=(on_group(_SUB, field="consumer_group"),),
        ),
        Row(
            RequestCode.CHECK_CLIENT_CONFIG,
            body=CheckClientBody.decode,
            rights=(
                on_group(_SUB, names=_group_of),
                on_topic(_SUB, names=lambda header, body: (body.subscription.topic,)),
            ),
        ),
        Row(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            ConsumerGroupRequestHeader,
            standing=_SERVING,
            rights=(on_group(_SUB, _GET, field="consumer_group"),),
        ),
    ),
    family(
        "assignment",
        Row(
            RequestCode.QUERY_ASSIGNMENT,
            body=AssignmentQuery.decode,
            standing=_SERVING,
            rights=(
                on_group(_SUB, names=_group_of),
                on_topic(_SUB, names=lambda header, body: (body.topic,)),
            ),
        ),
    ),
    family(
        "lookup",
        Row(
            RequestCode.QUERY_MESSAGE,
            QueryMessageRequestHeader,
            standing=_SERVING,
            rights=(on_topic(_SUB, _GET),),
        ),
        Row(
            RequestCode.VIEW_MESSAGE_BY_ID,
            ViewMessageRequestHeader,
            standing=_SERVING,
            rights=(on_topic(_GET, names=lambda header, body: (header.topic or EVERY,)),),
        ),
        Row(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffsetRequestHeader,
            standing=_SERVING,
            rights=_SHOW_TOPIC,
        ),
    ),
    family(
        "queue",
        *(
            Row(code, header, standing=_SERVING, rights=_SHOW_TOPIC)
            for code, header in (
                (RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader),
                (RequestCode.GET_MIN_OFFSET, QueueRequestHeader),
                (RequestCode.GET_EARLIEST_MSG_STORETIME, QueueRequestHeader),
            )
        ),
    ),
    family(
        "topic",
        Row(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            CreateTopicRequestHeader,
            rights=(on_topic(_CREATE),),
        ),
        Row(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            body=_topics,
            rights=(
                on_topic(_CREATE, names=lambda header, body: (each.topic.name for each in body)),
            ),
        ),
        Row(
            RequestCode.DELETE_TOPIC_IN_BROKER,
            OneTopicRequestHeader,
            rights=(on_topic(_DELETE),),
        ),
        Row(RequestCode.GET_TOPIC_CONFIG, OneTopicRequestHeader, rights=_SHOW_TOPIC),
        Row(RequestCode.GET_TOPIC_STATS_INFO, OneTopicRequestHeader, rights=_SHOW_TOPIC),
        Row(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, OneTopicRequestHeader, rights=_SHOW_TOPIC),
        Row(
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            rights=(on_topic(_LIST, names=every),),
        ),
    ),
    family(
        "group",
        Row(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=_group,
            rights=(on_group(_CREATE, names=lambda header, body: (body.name,)),),
        ),
        Row(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            body=_groups,
            rights=(on_group(_CREATE, names=lambda header, body: (each.name for each in body)),),
        ),
        Row(
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            DeleteGroupRequestHeader,
            rights=(on_group(_DELETE),),
        ),
        Row(
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            GroupRequestHeader,
            rights=(on_group(_GET),),
        ),
        Row(
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            body=_mode,
            rights=(on_group(_UPDATE, names=_group_of),),
        ),
        Row(
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            GroupForbiddenRequestHeader,
            rights=(on_topic(_UPDATE), on_group(_UPDATE)),
        ),
        Row(
            RequestCode.GET_CONSUME_STATS,
            ConsumeStatsRequestHeader,
            rights=(on_topic(_GET, names=_topics_of_stats), on_group(_GET)),
        ),
    ),
    family(
        "broker",
        Row(RequestCode.UPDATE_BROKER_CONFIG, body=settings_of, rights=_CHANGE_BROKER),
        Row(RequestCode.GET_BROKER_CONFIG, rights=_SHOW_BROKER),
        Row(RequestCode.GET_BROKER_RUNTIME_INFO, rights=_SHOW_BROKER),
        Row(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsRequestHeader, rights=_SHOW_BROKER),
    ),
    *OPERATOR_FAMILIES,
    # Requests of other replicas, of controllers, and of operators about replication.
    family(
        "replication",
        Row(RequestCode.EXCHANGE_BROKER_HA_INFO, rights=_CHANGE_BROKER),
        Row(RequestCode.GET_BROKER_HA_STATUS, rights=_SHOW_BROKER),
        Row(RequestCode.GET_BROKER_EPOCH_CACHE, rights=_SHOW_BROKER),
        Row(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, rights=_CHANGE_BROKER),
    ),
    # Requests of slaves.
    family(
        "metadata",
        Row(RequestCode.GET_ALL_TOPIC_CONFIG, rights=(on_topic(_GET, names=every),)),
        Row(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, rights=(on_group(_GET, names=every),)),
        *(
            Row(code, rights=_SHOW_BROKER)
            for code in (
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                RequestCode.GET_ALL_DELAY_OFFSET,
                RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
                RequestCode.GET_TIMER_CHECK_POINT,
                RequestCode.GET_TIMER_METRICS,
            )
        ),
    ),
    family(
        "refused",
        *_refused(CLIENT_SERVICES, 'docs/broker.md, "What is refused"'),
        *_refused(COMMANDS, 'docs/operations.md, "Commands that are not served"'),
    ),
)
