"""Pops in order: a queue is one consumer's until its messages are acknowledged, or come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.broker.operations.pop import PopOperation
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.headers.pop import ChangeInvisibleTimeResponseHeader
from tests.service.pop_clients import PoppedMessage, Popper, changed_handle, filled
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.waiting import until

A, B, C = b"a", b"b", b"c"


class Orderly(Popper):
    """A consumer that pops in order."""

    async def pop(self, **changes: Any) -> list[PoppedMessage]:
        return await super().pop(**{"is_orderly": True, **changes})

    async def counts(self, **changes: Any) -> str:
        answer = await self.ask(**{"is_orderly": True, **changes})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer.ext_fields["orderCountInfo"]

    def offset(self, queue: int = 0) -> int | None:
        found: int | None = self.broker.metadata.offsets.query(self.topic, self.group, queue)
        return found


@asynccontextmanager
async def consuming(root: Path, *bodies: bytes) -> AsyncIterator[Orderly]:
    """A consumer of a topic with one queue of messages."""
    async with Broker(broker_config(root)) as broker, RemotingClient() as client:
        await filled(broker, client, *bodies)
        yield Orderly(client, broker)


def bodies(messages: list[PoppedMessage]) -> list[bytes]:
    return [each.body for each in messages]


@on_loop
async def test_queue_goes_on_once_all_its_messages_are_acknowledged(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B, C) as consumer:
        first, second = await consumer.pop(max_messages=2)
        assert (first.body, second.body, first.parsed.revive_queue) == (A, B, 999)
        assert await consumer.pop() == []
        assert (await consumer.ack(second.handle)).code == ResponseCode.SUCCESS
        assert (consumer.offset(), await consumer.pop()) == (0, [])
        await consumer.ack(first.handle)
        assert consumer.offset() == 2
        assert bodies(await consumer.pop()) == [C]


@on_loop
async def test_messages_come_again_from_the_first_that_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    async with consuming(tmp_path, A, B, C) as consumer:
        first, second, _ = await consumer.pop(invisible_ms=300)
        await consumer.ack(first.handle)
        assert await consumer.pop() == []
        found = await consumer.pop(poll_ms=10_000)
        assert bodies(found) == [B, C]
        # The handles of the earlier pop are worth nothing now.
        await consumer.ack(second.handle)
        assert consumer.offset() == 1
        await consumer.ack_all(found)
        assert consumer.offset() == 3


@on_loop
async def test_answer_says_how_often_messages_were_popped_before(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        assert await consumer.counts(invisible_ms=0) == "0 0 0"
        assert await consumer.counts(invisible_ms=0) == "0 qo0%0 1;0 qo0%1 1;0 0 1"
        await filled(consumer.broker, consumer.client, C)
        found = await consumer.counts(invisible_ms=0)
        assert found == "0 qo0%0 2;0 qo0%1 2;0 0 0"


@on_loop
async def test_repeated_attempt_gets_the_same_messages(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        assert bodies(await consumer.pop(max_messages=1, attempt_id="x")) == [A]
        assert await consumer.pop(attempt_id="y") == []
        assert bodies(await consumer.pop(max_messages=1, attempt_id="x")) == [A]
        assert await consumer.counts(attempt_id="x") == "0 0 0"


@on_loop
async def test_message_may_come_again_earlier_or_later(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        first, second = await consumer.pop()
        answer = await consumer.change(second.handle, 200)
        header = ChangeInvisibleTimeResponseHeader.from_fields(answer.ext_fields)
        assert (header.pop_time_ms, header.revive_queue) == (first.parsed.pop_time_ms, 999)
        assert 200 <= header.invisible_ms < 60_000
        await consumer.ack(first.handle)
        assert bodies(await consumer.pop(poll_ms=10_000)) == [B]


@on_loop
async def test_changed_handle_acknowledges_its_message(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        [message] = await consumer.pop(max_messages=1)
        answer = await consumer.change(message.handle, 60_000)
        assert (await consumer.ack(changed_handle(message, answer))).code == ResponseCode.SUCCESS
        assert bodies(await consumer.pop()) == [B]


@on_loop
async def test_waiting_pop_gets_the_queue_when_it_is_free(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        [message] = await consumer.pop(max_messages=1)
        waiting = asyncio.ensure_future(consumer.pop(poll_ms=30_000))
        held = consumer.broker.open.services.all
        pops = next(each for each in held if each.name == "held pops")
        await until(lambda: len(pops.held) == 1, "the pop waits")
        await consumer.ack(message.handle)
        assert bodies(await asyncio.wait_for(waiting, 10)) == [B]


@on_loop
async def test_acknowledgement_of_an_unknown_pop_passes_no_message(tmp_path: Path) -> None:
    """RocketMQ moves the offset past every message before the acknowledged one."""
    async with consuming(tmp_path, A, B, C) as consumer:
        first, second, _ = await consumer.pop()
        # As after a change of the master to a broker without the state.
        consumer.broker.open.pop_orders.states.clear("T", "pg", 0)
        assert (await consumer.ack(second.handle)).code == ResponseCode.SUCCESS
        assert consumer.offset() == 0
        await consumer.ack(first.handle)
        assert consumer.offset() == 1
        assert bodies(await consumer.pop()) == [B, C]


@on_loop
async def test_acknowledgement_during_a_read_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        first, _ = await consumer.pop(invisible_ms=1)
        read, reads = PopOperation._read, []

        async def acknowledged_meanwhile(*arguments: Any) -> Any:
            found = await read(*arguments)
            if not reads:
                reads.append(await consumer.ack(first.handle))
            return found

        monkeypatch.setattr(PopOperation, "_read", acknowledged_meanwhile)
        assert bodies(await consumer.pop(poll_ms=10_000)) == [B]
        assert len(reads) == 1


@on_loop
async def test_message_that_the_pop_does_not_have_is_refused(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        [message] = await consumer.pop(max_messages=1)
        handle = message.handle.removesuffix(" 0") + " 1"
        answer = await consumer.ack(handle, offset=1)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "offset is illegal" in (answer.remark or "")
        assert (await consumer.change(handle, 10, offset=1)).code == ResponseCode.SUCCESS
        await consumer.ack(message.handle)
        again = await consumer.ack(message.handle)
        assert (again.code, consumer.offset()) == (ResponseCode.SUCCESS, 1)


@on_loop
async def test_reset_offset_frees_the_queue(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        await consumer.pop()
        consumer.broker.metadata.offsets.reset("T", "pg", 0, 1)
        assert bodies(await consumer.pop()) == [B]


@on_loop
async def test_acknowledgements_from_before_a_reset_change_nothing(tmp_path: Path) -> None:
    """RocketMQ's OffsetResetForPopIT."""
    async with consuming(tmp_path, A, B, C) as consumer:
        old = await consumer.pop()
        consumer.broker.metadata.offsets.reset("T", "pg", 0, 1)
        await consumer.ack(old[0].handle)
        assert consumer.offset() == 1
        new = await consumer.pop()
        assert bodies(new) == [B, C]
        await consumer.ack_all(old)
        assert (consumer.offset(), await consumer.pop()) == (1, [])
        await consumer.ack_all(new)
        assert consumer.offset() == 3


@on_loop
async def test_order_outlives_a_restart(tmp_path: Path) -> None:
    async with consuming(tmp_path, A, B) as consumer:
        [message] = await consumer.pop(max_messages=1)
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        consumer = Orderly(client, broker)
        assert await consumer.pop() == []
        await consumer.ack(message.handle)
        assert bodies(await consumer.pop()) == [B]


@on_loop
async def test_queues_are_popped_independently_and_retries_not_at_all(tmp_path: Path) -> None:
    async with consuming(tmp_path) as consumer:
        broker, client = consumer.broker, consumer.client
        await filled(broker, client, A, topic="U", queues=2, queue=0)
        await filled(broker, client, B, topic="U", queues=2, queue=1)
        await filled(broker, client, C, topic="%RETRY%pg_U")
        consumer.topic = "U"
        assert sorted(bodies(await consumer.pop())) == [A, B]
        assert await consumer.pop() == []


@pytest.mark.parametrize("text", ["x", "0 1 2 999 0 broker-a", "0 1 2 999 0 other 0 0"])
@on_loop
async def test_wrong_handle_is_refused(tmp_path: Path, text: str) -> None:
    async with consuming(tmp_path, A) as consumer:
        [message] = await consumer.pop()
        answer = await consumer.ack(message.handle, extra_info=text)
        assert answer.code == ResponseCode.INVALID_PARAMETER, answer.remark
