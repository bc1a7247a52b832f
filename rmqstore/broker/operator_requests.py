"""The rows of a broker's request table for operators: clients, progress of groups, files."""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.remoting.bodies.properties import settings_of
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.headers.administration import (
    CloneOffsetsRequestHeader,
    ConsumeStatsOfAllRequestHeader,
    CorrectionRequestHeader,
    GroupRequestHeader,
    QueueUnitsRequestHeader,
    ReadAheadRequestHeader,
    TimeSpanRequestHeader,
)
from rmqstore.remoting.headers.clients import (
    ConsumeDirectlyRequestHeader,
    ConsumerGroupRequestHeader,
    ConsumerRequestHeader,
    ConsumerStatusRequestHeader,
    GroupTopicRequestHeader,
    ProducerGroupRequestHeader,
)
from rmqstore.remoting.requests import Row, family
from rmqstore.remoting.rights import EVERY, Action, on_cluster, on_group, on_topic

__all__ = ["OPERATOR_FAMILIES"]

_GET, _SUB, _UPDATE = Action.GET, Action.SUB, Action.UPDATE
_SHOW_BROKER, _CHANGE_BROKER = (on_cluster(_GET),), (on_cluster(_UPDATE),)


def _compared_groups(header: CorrectionRequestHeader, body: object) -> Iterable[str]:
    return (header.compare_group, *(header.filter_groups or "").split(","))


OPERATOR_FAMILIES = (
    family(
        "client list",
        Row(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            ConsumerGroupRequestHeader,
            rights=(on_group(_GET, field="consumer_group"),),
        ),
        Row(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            ProducerGroupRequestHeader,
            rights=_SHOW_BROKER,
        ),
        Row(RequestCode.GET_ALL_PRODUCER_INFO, rights=_SHOW_BROKER),
        Row(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            GroupTopicRequestHeader,
            rights=(on_group(_GET), on_topic(_GET)),
        ),
    ),
    # Requests that consumers answer.
    family(
        "question",
        Row(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            ConsumerStatusRequestHeader,
            rights=(on_topic(_GET), on_group(_GET)),
        ),
        Row(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            ConsumerRequestHeader,
            rights=(on_group(_GET, field="consumer_group"),),
        ),
        Row(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeDirectlyRequestHeader,
            rights=(
                on_group(_SUB, field="consumer_group"),
                on_topic(_SUB, names=lambda header, body: (header.topic or EVERY,)),
            ),
        ),
    ),
    family(
        "progress",
        Row(
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            TimeSpanRequestHeader,
            rights=(on_topic(_GET), on_group(_GET)),
        ),
        Row(
            RequestCode.QUERY_CORRECTION_OFFSET,
            CorrectionRequestHeader,
            rights=(on_group(_GET, names=_compared_groups), on_topic(_GET)),
        ),
        Row(
            RequestCode.CLONE_GROUP_OFFSET,
            CloneOffsetsRequestHeader,
            rights=(
                on_group(_UPDATE),
                on_topic(_UPDATE, names=lambda header, body: (header.topic or EVERY,)),
            ),
        ),
        Row(
            RequestCode.GET_BROKER_CONSUME_STATS,
            ConsumeStatsOfAllRequestHeader,
            rights=_SHOW_BROKER,
        ),
        Row(
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            GroupRequestHeader,
            rights=(on_group(_GET),),
        ),
        Row(
            RequestCode.QUERY_CONSUME_QUEUE,
            QueueUnitsRequestHeader,
            rights=(on_topic(_GET), on_group(_GET)),
        ),
    ),
    family(
        "cleaning",
        *(
            Row(code, rights=_CHANGE_BROKER)
            for code in (
                RequestCode.TRIGGER_DELETE_FILES,
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
                RequestCode.CLEAN_UNUSED_TOPIC,
                RequestCode.DELETE_EXPIRED_COMMITLOG,
            )
        ),
    ),
    family(
        "cold data",
        Row(
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            body=settings_of,
            rights=_CHANGE_BROKER,
        ),
        Row(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, rights=_CHANGE_BROKER),
        Row(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, rights=_SHOW_BROKER),
        Row(
            RequestCode.SET_COMMITLOG_READ_MODE,
            ReadAheadRequestHeader,
            rights=_CHANGE_BROKER,
        ),
    ),
)
