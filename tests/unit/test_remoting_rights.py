"""The rights that requests need: the words of rows, and what real requests need by them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from rmqstore.broker import request_table as broker_table
from rmqstore.controller import request_table as controller_table
from rmqstore.nameserver import request_table as nameserver_table
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.requests import Row
from rmqstore.remoting.rights import EVERY, Action, Need, Resource, needs

VALUES = {"a text": "T", "true or false": "false"}
BODIES: Mapping[int, object] = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "producerDataSet": [{"groupName": "P"}],
        "consumerDataSet": [
            {
                "groupName": "G",
                "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%G"}],
            }
        ],
    },
    RequestCode.CHECK_CLIENT_CONFIG: {
        "clientId": "c",
        "group": "G",
        "subscriptionData": {"topic": "T"},
    },
    RequestCode.LOCK_BATCH_MQ: {
        "clientId": "c",
        "consumerGroup": "G",
        "mqSet": [{"topic": each, "brokerName": "b", "queueId": 0} for each in ("T", "T", "U")],
    },
    RequestCode.UNLOCK_BATCH_MQ: {"clientId": "c", "consumerGroup": "G", "mqSet": []},
    RequestCode.QUERY_ASSIGNMENT: {
        "clientId": "c",
        "consumerGroup": "G",
        "messageModel": "CLUSTERING",
        "topic": "T",
    },
    RequestCode.BATCH_ACK_MESSAGE: {"acks": [{"c": "G", "t": "T"}, {"c": "G", "t": "U"}]},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {
        "topicConfigList": [{"topicName": "T"}, {"topicName": "U"}]
    },
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "G"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {
        "groupConfigList": [{"groupName": "G"}, {"groupName": "H"}]
    },
    RequestCode.SET_MESSAGE_REQUEST_MODE: {"topic": "T", "consumerGroup": "G", "mode": "PULL"},
}
SUB = frozenset({Action.SUB})
UPDATE = frozenset({Action.UPDATE})
GROUP = Need(Resource.GROUP, "G", SUB)


def topic(name: str, *actions: Action) -> Need:
    return Need(Resource.TOPIC, name, frozenset(actions))


def group(name: str, *actions: Action) -> Need:
    return Need(Resource.GROUP, name, frozenset(actions))


def needed(row: Row, fields: Mapping[str, str | None] | None = None) -> tuple[Need, ...]:
    """Return what a request needs that names T in every text but *fields*; None leaves one out."""
    header = None
    if row.header is not None:
        texts = {each.name: VALUES.get(each.kind.article, "0") for each in row.header._fields}
        given = texts | (fields or {})
        header = row.header.from_fields({k: v for k, v in given.items() if v is not None})
    value = BODIES.get(row.code)
    body: Any = b"" if value is None else json.dumps(value).encode()
    if row.body is not None:
        body = row.body(body)
    return needs(row.rights, header, body)


@pytest.mark.parametrize(
    "row",
    [
        row
        for rows in (broker_table.ROWS, controller_table.ROWS, nameserver_table.ROWS)
        for row in rows.values()
        if not row.refusal
    ],
    ids=lambda row: RequestCode(row.code).name,
)
def test_each_request_that_names_all_it_can_needs_a_right(row: Row) -> None:
    assert needed(row)


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (RequestCode.SEND_MESSAGE, {}, {topic("T", Action.PUB)}),
        (RequestCode.SEND_MESSAGE_V2, {"b": "U"}, {topic("U", Action.PUB)}),
        (RequestCode.SEND_BATCH_MESSAGE, {"b": "%RETRY%G"}, {GROUP}),
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "G"}, {GROUP, topic("T", Action.SUB)}),
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "G", "topic": "%RETRY%G"}, {GROUP}),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "G"},
            {group("G", Action.SUB, Action.UPDATE), topic("T", Action.SUB, Action.UPDATE)},
        ),
        (RequestCode.HEART_BEAT, {}, {GROUP, topic("T", Action.SUB)}),
        (RequestCode.CHECK_CLIENT_CONFIG, {}, {GROUP, topic("T", Action.SUB)}),
        (
            RequestCode.LOCK_BATCH_MQ,
            {},
            {GROUP, topic("T", Action.SUB), topic("U", Action.SUB)},
        ),
        (RequestCode.UNLOCK_BATCH_MQ, {}, {GROUP}),
        (RequestCode.UNREGISTER_CLIENT, {"consumerGroup": None}, set()),
        (RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "G"}, {GROUP}),
        (RequestCode.QUERY_MESSAGE, {}, {topic("T", Action.SUB, Action.GET)}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {}, {topic("T", Action.GET)}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"topic": None}, {topic(EVERY, Action.GET)}),
        (RequestCode.GET_MAX_OFFSET, {"topic": "%RETRY%G"}, {group("G", Action.GET)}),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            {},
            {topic("T", Action.CREATE), topic("U", Action.CREATE)},
        ),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {group("G", Action.CREATE)}),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {},
            {group("G", Action.CREATE), group("H", Action.CREATE)},
        ),
        (
            RequestCode.CLONE_GROUP_OFFSET,
            {"srcGroup": "G", "destGroup": "H", "topic": None},
            {group("H", Action.UPDATE), topic(EVERY, Action.UPDATE)},
        ),
        (
            RequestCode.QUERY_CORRECTION_OFFSET,
            {"compareGroup": "G", "filterGroups": "H,I"},
            {topic("T", Action.GET), *(group(each, Action.GET) for each in "GHI")},
        ),
        (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            {"consumerGroup": "G", "topic": None},
            {group("G", Action.SUB), topic(EVERY, Action.SUB)},
        ),
        (
            RequestCode.GET_CONSUME_STATS,
            {"consumerGroup": "G", "topic": None, "topicList": "T;U;"},
            {group("G", Action.GET), topic("T", Action.GET), topic("U", Action.GET)},
        ),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, {Need(Resource.CLUSTER, None, UPDATE)}),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}, {topic(EVERY, Action.GET)}),
    ],
)
def test_rights_of_requests_to_a_broker(
    code: int, fields: Mapping[str, str | None], expected: set[Need]
) -> None:
    found = needed(broker_table.ROWS[code], fields)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_route_of_a_topic_is_for_all_who_may_send_receive_or_look() -> None:
    row = nameserver_table.ROWS[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    assert needed(row) == (topic("T", Action.PUB, Action.SUB, Action.GET),)
    assert needed(row, {"topic": "%RETRY%G"}) == (group("G", Action.SUB, Action.GET),)


@pytest.mark.parametrize(
    "row",
    [
        nameserver_table.ROWS[RequestCode.REGISTER_BROKER],
        controller_table.ROWS[RequestCode.BROKER_HEARTBEAT],
        controller_table.ROWS[RequestCode.CONTROLLER_ELECT_MASTER],
    ],
)
def test_requests_of_brokers_need_a_right_on_the_cluster_that_they_name(row: Row) -> None:
    assert needed(row, {"clusterName": "C"}) == (Need(Resource.CLUSTER, "C", UPDATE),)
