"""Looks at messages to pop: notifications, peeks, and how many pops wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.broker.services.pops import Pops
from rmqstore.remoting.bodies.messages import decode_messages
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
)
from rmqstore.store.metadata import GroupConfig
from tests.service.broker_clients import call
from tests.service.pop_clients import Popper, filled
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.waiting import until

A, B = b"a", b"b"


class Looker(Popper):
    """A consumer that looks before it pops."""

    def notification(self, **changes: Any) -> Frame:
        values = {"queue_id": -1, "poll_ms": 0, **changes}
        header = NotificationRequestHeader(consumer_group="pg", topic="T", **values)
        return Frame.request(RequestCode.NOTIFICATION, header.to_fields())

    async def notified(self, **changes: Any) -> bool:
        answer = await call(self.client, self.broker, self.notification(**changes))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        header = NotificationResponseHeader.from_fields(answer.ext_fields)
        assert not header.is_full
        return header.has_messages

    async def peek(self, queue_id: int = -1, max_messages: int = 32) -> Frame:
        header = PeekMessageRequestHeader(
            consumer_group="pg", topic="T", queue_id=queue_id, max_messages=max_messages
        )
        return await call(
            self.client, self.broker, Frame.request(RequestCode.PEEK_MESSAGE, header.to_fields())
        )

    async def peeked(self, **changes: int) -> list[bytes]:
        answer = await self.peek(**changes)
        return [each.body for each in decode_messages(answer.body)]

    async def waiting(self, queue_id: int = -1) -> int:
        header = PollingInfoRequestHeader(consumer_group="pg", topic="T", queue_id=queue_id)
        frame = Frame.request(RequestCode.POLLING_INFO, header.to_fields())
        answer = await call(self.client, self.broker, frame)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return int(answer.ext_fields["pollingNum"])

    @property
    def pops(self) -> Pops:
        found = self.broker.open.services.all
        pops: Pops = next(each for each in found if each.name == "held pops")
        return pops


@asynccontextmanager
async def looking(root: Path, *bodies: bytes, **settings: Any) -> AsyncIterator[Looker]:
    async with Broker(broker_config(root, **settings)) as broker, RemotingClient() as client:
        await filled(broker, client, *bodies)
        yield Looker(client, broker)


@on_loop
async def test_notification_says_whether_there_is_a_message(tmp_path: Path) -> None:
    async with looking(tmp_path, A) as looker:
        assert await looker.notified()
        assert await looker.notified(queue_id=0)
        await looker.pop()
        assert not await looker.notified()
        await filled(looker.broker, looker.client, B, topic="%RETRY%pg_T")
        assert await looker.notified()


@on_loop
async def test_notification_waits_for_a_message(tmp_path: Path) -> None:
    async with looking(tmp_path) as looker:
        waiting = asyncio.ensure_future(looker.notified(poll_ms=30_000))
        await until(lambda: len(looker.pops.notices) == 1, "the notification waits")
        await filled(looker.broker, looker.client, A)
        assert await asyncio.wait_for(waiting, 10)
        await looker.pop()
        assert not await looker.notified(poll_ms=300)


@on_loop
async def test_message_wakes_one_notification_and_is_named_at_the_end_of_the_others(
    tmp_path: Path,
) -> None:
    async with looking(tmp_path) as looker:
        both = [asyncio.ensure_future(looker.notified(poll_ms=3000)) for _ in range(2)]
        await until(lambda: len(looker.pops.notices) == 2, "both wait")
        await filled(looker.broker, looker.client, A)
        await until(lambda: len(looker.pops.notices) < 2, "one is answered")
        assert len(looker.pops.notices) == 1
        assert await asyncio.gather(*both) == [True, True]


@on_loop
async def test_notification_of_an_orderly_consumer_waits_for_a_free_queue(tmp_path: Path) -> None:
    async with looking(tmp_path, A, B) as looker:
        [message] = await looker.pop(is_orderly=True, max_messages=1, attempt_id="x")
        assert not await looker.notified(is_orderly=True)
        assert await looker.notified(is_orderly=True, attempt_id="x")
        waiting = asyncio.ensure_future(looker.notified(is_orderly=True, poll_ms=30_000))
        await until(lambda: len(looker.pops.notices) == 1, "the notification waits")
        await looker.ack(message.handle)
        assert await asyncio.wait_for(waiting, 10)


@on_loop
async def test_notification_selects_by_its_expression(tmp_path: Path) -> None:
    async with looking(tmp_path) as looker:
        await filled(looker.broker, looker.client, A, TAGS="x")
        assert await looker.notified(expression="x || y", expression_type="TAG")
        assert not await looker.notified(expression="y", expression_type="TAG")


@on_loop
async def test_too_many_notifications_are_not_held(tmp_path: Path) -> None:
    async with looking(tmp_path, waiting_pops_max_each=1) as looker:
        held = asyncio.ensure_future(looker.notified(poll_ms=500))
        await until(lambda: len(looker.pops.notices) == 1, "the first one waits")
        request = looker.notification(poll_ms=30_000)
        answer = await call(looker.client, looker.broker, request)
        assert answer.ext_fields == {"hasMsg": "false", "pollingFull": "true"}
        assert not await held


@on_loop
async def test_peek_changes_nothing(tmp_path: Path) -> None:
    async with looking(tmp_path, A, B) as looker:
        for _ in range(2):
            assert await looker.peeked() == [A, B]
        answer = await looker.peek(max_messages=1)
        assert (answer.code, answer.ext_fields["restNum"]) == (ResponseCode.SUCCESS, "2")
        assert looker.broker.metadata.offsets.query("T", "pg", 0) is None
        await looker.pop()
        answer = await looker.peek()
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")


@on_loop
async def test_peek_sees_messages_that_are_consumed_again(tmp_path: Path) -> None:
    async with looking(tmp_path, A) as looker:
        await filled(looker.broker, looker.client, B, topic="%RETRY%pg_T")
        assert sorted(await looker.peeked()) == [A, B]
        assert len(await looker.peeked(max_messages=1)) == 1


@on_loop
async def test_waiting_pops_are_counted(tmp_path: Path) -> None:
    async with looking(tmp_path) as looker:
        assert await looker.waiting() == 0
        waiting = asyncio.ensure_future(looker.ask(poll_ms=30_000))
        await until(lambda: len(looker.pops.held) == 1, "the pop waits")
        assert (await looker.waiting(), await looker.waiting(0)) == (1, 0)
        await filled(looker.broker, looker.client, A)
        assert (await waiting).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "absent"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumer_group": "off"}, ResponseCode.NO_PERMISSION),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
    ],
)
@on_loop
async def test_look_that_is_not_allowed_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: int
) -> None:
    async with looking(tmp_path, A) as looker:
        await looker.broker.metadata.change_group(GroupConfig("off", consume_enabled=False))
        place = {"consumer_group": "pg", "topic": "T", "queue_id": -1, **changes}
        for request, header in (
            (RequestCode.NOTIFICATION, NotificationRequestHeader(**place, poll_ms=10)),
            (RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader(**place, max_messages=1)),
            (RequestCode.POLLING_INFO, PollingInfoRequestHeader(**place)),
        ):
            frame = Frame.request(request, header.to_fields())
            assert (await call(looker.client, looker.broker, frame)).code == code


@on_loop
async def test_records_of_pop_in_rocksdb_are_refused_by_name(tmp_path: Path) -> None:
    async with looking(tmp_path) as looker:
        answer = await call(looker.client, looker.broker, Frame(RequestCode.POP_ROLLBACK))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "RocksDB" in (answer.remark or "")
