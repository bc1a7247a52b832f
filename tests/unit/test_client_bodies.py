"""Headers and bodies of clients: the recorded ones of Java are read, and written back the same."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.broker.clients import BROADCASTING
from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.assignments import AssignmentQuery
from rmqstore.remoting.bodies.batch import batch_properties
from rmqstore.remoting.bodies.clients import (
    ConsumerList,
    HeartbeatData,
    LockBatchBody,
    SubscriptionData,
)
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame, FrameDecoder
from rmqstore.remoting.headers.clients import (
    ConsumerGroupRequestHeader,
    HeartbeatResponseHeader,
    UnregisterClientRequestHeader,
)
from rmqstore.remoting.headers.field import Header
from rmqstore.remoting.headers.pull import PullMessageResponseHeader
from rmqstore.remoting.headers.queries import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rmqstore.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from tests.golden.remoting import SESSIONS, exchanges


def recorded(code: int) -> list[tuple[Frame, Frame | None]]:
    """Return the recorded exchanges of a request code, decoded."""
    found = []
    for session in SESSIONS:
        for each in exchanges(session):
            if each.code == code:
                [request] = FrameDecoder().feed(each.request)
                answer = FrameDecoder().feed(each.response)[0] if each.response else None
                found.append((request, answer))
    return found


REQUESTS: list[tuple[int, type[Header]]] = [
    (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2),
    (RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2),
    (RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader),
    (RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader),
    (RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader),
    (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader),
]
ANSWERS: list[tuple[int, type[Header]]] = [
    (RequestCode.SEND_MESSAGE_V2, SendMessageResponseHeader),
    (RequestCode.SEND_BATCH_MESSAGE, SendMessageResponseHeader),
    (RequestCode.PULL_MESSAGE, PullMessageResponseHeader),
    (RequestCode.LITE_PULL_MESSAGE, PullMessageResponseHeader),
    (RequestCode.QUERY_MESSAGE, QueryMessageResponseHeader),
    (RequestCode.HEART_BEAT, HeartbeatResponseHeader),
]


@pytest.mark.parametrize(("code", "header"), REQUESTS)
def test_recorded_requests_have_the_fields_of_their_header(code: int, header: type[Header]) -> None:
    requests = [request for request, _ in recorded(code)]
    assert requests
    for request in requests:
        # Lite pull consumers add the type of the request, which brokers do not look at.
        fields = {name: v for name, v in request.ext_fields.items() if v and name != "ReqT"}
        written = header.from_fields(request.ext_fields).to_fields()
        assert written.items() >= fields.items()


@pytest.mark.parametrize(("code", "header"), ANSWERS)
def test_recorded_answers_have_the_fields_of_their_header(code: int, header: type[Header]) -> None:
    answers = [answer for _, answer in recorded(code) if answer is not None and answer.code == 0]
    assert answers
    for answer in answers:
        assert header.from_fields(answer.ext_fields).to_fields() == answer.ext_fields


def test_recorded_heartbeats_are_read_and_written_the_same() -> None:
    bodies = [request.body for request, _ in recorded(RequestCode.HEART_BEAT)]
    assert any(HeartbeatData.decode(body).consumers for body in bodies)
    for body in bodies:
        told, written = fastjson.loads(body), HeartbeatData.decode(body).encode()
        assert fastjson.loads(written) == told
        assert HeartbeatData.decode(written) == HeartbeatData.decode(body)


def test_recorded_lists_of_consumers_and_locks_are_read() -> None:
    for _, answer in recorded(RequestCode.GET_CONSUMER_LIST_BY_GROUP):
        if answer is not None and answer.code == 0:
            assert fastjson.loads(ConsumerList.decode(answer.body).encode()) == fastjson.loads(
                answer.body
            )
    locks = [LockBatchBody.decode(each.body) for each, _ in recorded(RequestCode.LOCK_BATCH_MQ)]
    assert any(each.queues for each in locks)


@given(st.data())
def test_changed_question_for_assignments_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(
        b'{"clientId":"c","consumerGroup":"g","messageModel":"CLUSTERING","strategyName":"AVG",'
        b'"topic":"T"}'
    )
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[at] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    with contextlib.suppress(RemotingFrameError):
        found = AssignmentQuery.decode(bytes(body))
        assert "" not in (found.topic, found.group)


MALFORMED: list[tuple[Callable[[bytes], object], bytes]] = [
    (HeartbeatData.decode, b'{"consumerDataSet":{}}'),
    (HeartbeatData.decode, b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["x"]}]}]}'),
    (HeartbeatData.decode, b'{"clientID":7}'),
    (LockBatchBody.decode, b'{"mqSet":[{"queueId":"x"}]}'),
    (ConsumerList.decode, b'{"consumerIdList":[1]}'),
]


@pytest.mark.parametrize(("decode", "body"), MALFORMED)
def test_malformed_body_is_refused(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        decode(body)


def test_heartbeat_of_a_go_client_has_codes_as_text_and_a_model_in_mixed_case() -> None:
    subscription = b'{"topic":"T","subString":"a","tagsSet":["a"],"codeSet":["97"]}'
    data = b'{"groupName":"g","messageModel":"BroadCasting","subscriptionDataSet":[%s]}'
    body = b'{"clientID":"c","consumerDataSet":[%s]}' % (data % subscription)
    [consumer] = HeartbeatData.decode(body).consumers
    assert consumer.message_model == BROADCASTING
    assert consumer.subscriptions[0].codes == (97,)


def test_subscription_without_members_wants_everything() -> None:
    found = SubscriptionData.of({"topic": "T"})
    assert (found.expression, found.expression_type, found.version) == ("*", "TAG", 0)


def message(body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def test_properties_of_a_batch_are_found_and_every_cut_is_refused() -> None:
    whole = message(b"abc", b"k\x01v\x02") + message(b"", b"")
    assert list(batch_properties(whole)) == [b"k\x01v\x02", b""]
    first = len(message(b"abc", b"k\x01v\x02"))
    for end in range(1, len(whole)):
        if end != first:
            with pytest.raises(RemotingFrameError, match="the batch is malformed at byte"):
                list(batch_properties(whole[:end]))
