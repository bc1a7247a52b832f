"""Headers and bodies of POP: receipt handles, the texts about queues, acknowledgements of many."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import InvalidFieldError, RemotingFrameError
from rmqstore.remoting.bodies.pop import BatchAckBody, QueueAcks
from rmqstore.remoting.bodies.receipts import (
    PoppedQueue,
    ReceiptHandle,
    offsets_text,
    popped_queues,
    starts_text,
)
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.headers.pop import ChangeInvisibleTimeRequestHeader, PopMessageRequestHeader
from rmqstore.topic_names import RetryKind

HANDLE = "100 1700000000000 60000 3 1 broker-a 2 105"
BATCH = (
    b'{"acks":[{"b":"BQ==","c":"g","it":60000,"pt":1700000000000,"q":1,"r":"0","rq":2,"so":100,'
    b'"t":"T"}],"brokerName":"broker-a"}'
)


def test_receipt_handle_is_read_and_written_the_same() -> None:
    handle = ReceiptHandle.parse(HANDLE)
    assert (handle.start_offset, handle.queue, handle.offset) == (100, 2, 105)
    assert (handle.kind, handle.broker_name) == (RetryKind.V1, "broker-a")
    assert (handle.revive_queue, handle.revive_ms) == (3, 1700000060000)
    assert not handle.is_orderly
    assert str(handle) == HANDLE


def test_receipt_handle_of_a_whole_pop_has_no_offset() -> None:
    text = HANDLE.rpartition(" ")[0]
    assert ReceiptHandle.parse(text).offset is None
    assert str(ReceiptHandle.parse(text)) == text


def test_receipt_handle_of_a_proxy_has_the_physical_offset_too() -> None:
    handle = ReceiptHandle.parse(f"{HANDLE} 12345")
    assert (handle.offset, handle.physical_offset) == (105, 12345)
    assert str(handle) == f"{HANDLE} 12345"


def test_receipt_handle_of_revive_queue_999_is_orderly() -> None:
    assert ReceiptHandle.parse(HANDLE.replace(" 3 1 ", " 999 0 ")).is_orderly


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1 parts"),
        ("1 2 3", "3 parts"),
        (HANDLE + " 9 9", "10 parts"),
        (HANDLE + " x", "physical offset is 'x'"),
        (HANDLE.replace("100", "x"), "first offset is 'x'"),
        (HANDLE.replace("100", "-1"), "first offset is '-1'"),
        (HANDLE.replace("100", str(2**63)), "first offset is '9223372036854775808'"),
        (HANDLE.replace("100", "9" * 5000), "first offset is"),
        (HANDLE.replace("1700000000000", "\N{ARABIC-INDIC DIGIT ONE}"), "time of the pop is"),
        (HANDLE.replace("60000", "1_0"), "invisible time is '1_0'"),
        (HANDLE.replace(" 3 1 ", " 2147483648 1 "), "revive queue is '2147483648'"),
        (HANDLE.replace(" 3 1 ", " 3 3 "), "form of the topic is '3'"),
        (HANDLE.replace("broker-a 2", "broker-a "), "the queue is ''"),
    ],
)
def test_malformed_receipt_handle_is_refused_with_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(InvalidFieldError, match="receipt handle") as caught:
        ReceiptHandle.parse(text)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 300


def test_receipt_handle_cut_at_any_byte_is_refused_or_another_one() -> None:
    for end in range(len(HANDLE)):
        try:
            found = ReceiptHandle.parse(HANDLE[:end])
        except InvalidFieldError:
            continue
        assert found.offset != 105


@given(st.text(max_size=60) | st.lists(st.integers().map(str), max_size=10).map(" ".join))
def test_any_text_is_a_receipt_handle_or_refused(text: str) -> None:
    try:
        handle = ReceiptHandle.parse(text)
    except InvalidFieldError:
        return
    assert ReceiptHandle.parse(str(handle)) == handle


def test_texts_about_queues_name_form_queue_and_offsets() -> None:
    popped = [PoppedQueue("T", 2, 7, (7, 9)), PoppedQueue("%RETRY%g_T", 0, 1, (1,))]
    popped.append(PoppedQueue("%RETRY%g+T", 0, 3, (4,)))
    starts, offsets = starts_text(popped), offsets_text(popped)
    assert starts == "0 2 7;1 0 1;2 0 3"
    assert offsets == "0 2 7,9;1 0 1;2 0 4"
    assert list(popped_queues(offsets)) == [(0, 2, (7, 9)), (1, 0, (1,)), (2, 0, (4,))]
    assert list(popped_queues(None)) == []


@pytest.mark.parametrize("text", ["0 1", "0 1 x", "3 1 1", "0 1 1;", "0 1 1,"])
def test_malformed_text_about_queues_is_refused(text: str) -> None:
    with pytest.raises(InvalidFieldError):
        list(popped_queues(text))


def test_pop_without_a_time_of_birth_is_read() -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "8"}
    fields |= {"invisibleTime": "60000", "pollTime": "0", "initMode": "1"}
    found = PopMessageRequestHeader.from_fields(fields)
    assert (found.born_ms, found.is_orderly, found.expression) == (0, False, None)
    assert PopMessageRequestHeader.from_fields(fields | {"order": "true"}).is_orderly


def test_change_of_the_invisible_time_may_be_suspended() -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "extraInfo": HANDLE}
    fields |= {"offset": "105", "invisibleTime": "0"}
    assert not ChangeInvisibleTimeRequestHeader.from_fields(fields).is_suspended
    assert ChangeInvisibleTimeRequestHeader.from_fields(fields | {"suspend": "true"}).is_suspended


def test_acknowledgement_of_many_is_read_and_written_as_by_java() -> None:
    found = BatchAckBody.decode(BATCH)
    [acks] = found.acks
    assert (found.broker_name, acks.group, acks.topic, acks.queue) == ("broker-a", "g", "T", 1)
    assert (acks.offsets, acks.start_offset, acks.revive_queue) == ((100, 102), 100, 2)
    assert acks.kind is RetryKind.NONE
    assert found.encode() == BATCH


def test_long_names_of_an_acknowledgement_are_read() -> None:
    names = {"c": "consumerGroup", "t": "topic", "r": "retry", "so": "startOffset", "q": "queueId"}
    names |= {"rq": "reviveQueueId", "pt": "popTime", "it": "invisibleTime", "b": "bitSet"}
    body = BATCH
    for short, long in names.items():
        body = body.replace(f'"{short}":'.encode(), f'"{long}":'.encode())
    assert BatchAckBody.decode(body) == BatchAckBody.decode(BATCH)


def test_acknowledgement_without_messages_is_read() -> None:
    assert BatchAckBody.decode(b"").acks == ()
    assert BatchAckBody.decode(b"{}").acks == ()
    assert QueueAcks.of({"b": ""}).offsets == ()


@pytest.mark.parametrize(
    "value",
    [
        {"b": "?"},
        {"b": "A" * 100_000},
        {"r": "3"},
        {"r": "x"},
        {"so": 2**63},
        {"q": 2**31},
        {"t": 1},
    ],
)
def test_malformed_acknowledgement_of_many_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(RemotingFrameError):
        QueueAcks.of(value)
