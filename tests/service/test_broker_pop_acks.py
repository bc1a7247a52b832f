"""Acknowledgements of popped messages: what is stored of them, and what refuses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.broker.pop_records import PopAck, PopCheckPoint
from rmqstore.errors import PutError
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pop import ChangeInvisibleTimeResponseHeader
from tests.service.broker_clients import call
from tests.service.pop_clients import (
    REVIVE,
    WHEEL,
    PoppedMessage,
    Popper,
    changed_handle,
    filled,
    records_of,
)
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.waiting import until


async def two_popped(broker: Broker, client: RemotingClient) -> tuple[Popper, list[PoppedMessage]]:
    await filled(broker, client, b"0", b"1")
    popper = Popper(client, broker)
    return popper, await popper.pop()


@on_loop
async def test_acknowledgement_is_stored_with_the_place_and_time_of_its_pop(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        handle = messages[1].parsed
        assert (await popper.ack(messages[1].handle)).code == ResponseCode.SUCCESS
        _, ack = records_of(broker)
        assert ack == PopAck(
            topic="T",
            queue=0,
            group="pg",
            start_offset=0,
            offsets=(1,),
            pop_time_ms=handle.pop_time_ms,
            broker_name="broker-a",
        )
        await until(lambda: len(broker.store.store.queue(WHEEL, 0)) == 2, "both are dispatched")
        record = broker.store.store.get(WHEEL, queue=0, offset=1)
        assert record.properties["TIMER_DELIVER_MS"] == str(handle.revive_ms)
        assert (record.tags, record.unique_key) == ("ack", ack.unique_key)


@on_loop
async def test_handle_of_a_proxy_is_taken(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        handle = f"{messages[0].handle} 12345"
        assert (await popper.change(handle, 1000)).code == ResponseCode.SUCCESS
        assert (await popper.ack(handle)).code == ResponseCode.SUCCESS


@on_loop
async def test_acknowledgement_of_several_messages_is_one_record(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        assert (await popper.ack_all(messages)).code == ResponseCode.SUCCESS
        _, ack = records_of(broker)
        assert isinstance(ack, PopAck)
        assert (ack.offsets, ack.is_batch, ack.start_offset) == ((0, 1), True, 0)


@on_loop
async def test_acknowledgement_of_several_passes_over_what_is_unknown(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        answer = await popper.ack_all(messages, offsets=(0, 77))
        assert answer.code == ResponseCode.SUCCESS
        assert records_of(broker)[-1].offsets == (0,)
        answer = await popper.ack_all(messages, topic="none")
        assert answer.code == ResponseCode.SUCCESS
        assert len(records_of(broker)) == 2
        for body in (b"", b"{}", b'{"acks":[]}'):
            frame = Frame(RequestCode.BATCH_ACK_MESSAGE, body=body)
            assert (await call(client, broker, frame)).code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize("kind", ["one", "several", "change"])
@on_loop
async def test_acknowledgement_that_is_not_stored_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        append = broker.store.append

        async def fail(receipt: Any) -> None:
            raise PutError("no copy", status="FLUSH_SLAVE_TIMEOUT", receipt=receipt)

        def refuse(*_: Any) -> None:
            raise PutError("the disk is full", status="SERVICE_NOT_AVAILABLE")

        def unsafe(put: Any, durability: Any = None) -> Any:
            return fail(append(put, durability))

        for way, code in (
            (refuse, ResponseCode.SERVICE_NOT_AVAILABLE),
            (unsafe, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        ):
            monkeypatch.setattr(broker.store, "append", way)
            if kind == "one":
                answer = await popper.ack(messages[0].handle)
            elif kind == "several":
                answer = await popper.ack_all(messages)
            else:
                answer = await popper.change(messages[0].handle, 1000)
            assert answer.code == code
        monkeypatch.undo()


@on_loop
async def test_change_of_the_time_is_a_new_check_point_and_an_acknowledgement(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        answer = await popper.change(messages[1].handle, 90_000)
        assert answer.code == ResponseCode.SUCCESS
        header = ChangeInvisibleTimeResponseHeader.from_fields(answer.ext_fields)
        assert (header.invisible_ms, header.revive_queue) == (
            90_000,
            messages[1].parsed.revive_queue,
        )
        _, point, ack = records_of(broker)
        assert isinstance(point, PopCheckPoint)
        assert (point.start_offset, point.offsets, point.is_suspended) == (1, (1,), None)
        assert (point.pop_time_ms, point.invisible_ms) == (header.pop_time_ms, 90_000)
        assert (ack.offsets, ack.pop_time_ms) == ((1,), messages[1].parsed.pop_time_ms)

        again = changed_handle(messages[1], answer)
        assert (await popper.ack(again)).code == ResponseCode.SUCCESS
        assert records_of(broker)[-1].pop_time_ms == point.pop_time_ms


@on_loop
async def test_change_says_that_the_next_delivery_does_not_count(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        answer = await popper.change(messages[0].handle, 1000, is_suspended=True)
        assert answer.code == ResponseCode.SUCCESS
        point = records_of(broker)[1]
        assert isinstance(point, PopCheckPoint)
        assert point.is_suspended


@on_loop
async def test_message_that_is_to_come_at_once_is_due_at_once(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        assert (await popper.change(messages[0].handle, 0)).code == ResponseCode.SUCCESS
        [point] = [
            each
            for each in broker.store.store.scan_log()
            if each.topic == REVIVE and each.tags == "ck"
        ]
        assert PopCheckPoint.decode(point.body).invisible_ms == 0
        assert "REAL_TOPIC" not in point.properties


@on_loop
async def test_acknowledgements_late_twice_and_out_of_order_are_stored(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0")
        popper = Popper(client, broker)
        [message] = await popper.pop(invisible_ms=0)
        for _ in range(2):
            assert (await popper.ack(message.handle)).code == ResponseCode.SUCCESS
        assert [each.offsets for each in records_of(broker)] == [(0,)] * 3


WRONG = [
    (lambda text: "", {}, ResponseCode.INVALID_PARAMETER, "1 parts"),
    (lambda text: text.replace(" broker-a ", " broker-b "), {}, 29, "broker-b"),
    (lambda text: text.replace(" 60000 ", f" {2**62} "), {}, 29, "later than any"),
    (lambda text: text.replace(" 60000 ", f" {2**64} "), {}, 29, "invisible time"),
    (lambda text: text.replace(" 0 broker-a ", " 1 broker-a "), {"topic": "T"}, 29, "not of"),
    (lambda text: text[:-1] + "1", {"offset": 0}, 29, "is not of message 0"),
    (lambda text: text.replace(" 60000 0 ", " 60000 8 "), {}, 29, "revive queue 8"),
    (lambda text: text, {"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "none"),
    (lambda text: text, {"queue_id": 5}, ResponseCode.MESSAGE_ILLEGAL, "queueId[5]"),
    (lambda text: text, {"queue_id": -1}, ResponseCode.MESSAGE_ILLEGAL, "queueId[-1]"),
    (lambda text: text, {"offset": 77}, ResponseCode.NO_MESSAGE, "offset is illegal"),
    (lambda text: text, {"offset": -1}, ResponseCode.NO_MESSAGE, "offset is illegal"),
]


@pytest.mark.parametrize(("change", "fields", "code", "remark"), WRONG)
@on_loop
async def test_wrong_handle_is_refused_with_what_is_wrong(
    tmp_path: Path, change: Any, fields: dict[str, Any], code: int, remark: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        text = messages[0].handle
        parsed = messages[0].parsed
        named = {"topic": "T", "queue_id": parsed.queue, "offset": parsed.offset, **fields}
        for answer in (
            await popper.ack(text, **named, extra_info=change(text)),
            await popper.change(text, 1000, **named, extra_info=change(text)),
        ):
            assert answer.code == code, answer.remark
            assert remark in (answer.remark or "")
            assert "Exception" not in (answer.remark or "")
            assert ".java" not in (answer.remark or "")
        assert len(records_of(broker)) == 1


@on_loop
async def test_handle_cut_at_each_byte_acknowledges_nothing(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, *(b"%d" % number for number in range(12)))
        popper = Popper(client, broker)
        message = (await popper.pop())[11]
        for end in range(len(message.handle)):
            cut = message.handle[:end]
            if end == len(message.handle) - len(" 11"):
                continue  # The handle of the whole pop.
            answer = await popper.ack(message.handle, extra_info=cut)
            assert answer.code == ResponseCode.INVALID_PARAMETER, cut
        assert len(records_of(broker)) == 1


@on_loop
async def test_handles_of_another_broker_are_refused_in_an_acknowledgement_of_several(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        popper, messages = await two_popped(broker, client)
        other = PoppedMessage(
            messages[0].message, messages[0].handle.replace(" broker-a ", " broker-b ")
        )
        answer = await popper.ack_all([other])
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "broker-b" in (answer.remark or "")
