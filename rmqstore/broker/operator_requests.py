"""The rows of a broker's request table for operators who look at its clients."""

from __future__ import annotations

from rmqstore.remoting.codes import RequestCode
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

_GET, _SUB = Action.GET, Action.SUB
_SHOW_BROKER = (on_cluster(_GET),)

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
)
