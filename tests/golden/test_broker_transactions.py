"""Transactions of a Java broker, which are under way when a broker of this library takes its
directory over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.remoting.bodies.clients import HeartbeatData
from rmqstore.remoting.bodies.messages import decode_messages
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TakenOver, copies
from tests.support.loops import ShiftedRuntime, on_loop
from tests.support.transactions import until_rounds
from tests.support.waiting import until


class Producer:
    """The producer of *group*, which answers questions by the key of the message."""

    def __init__(self, group: str, answers: dict[str, str]) -> None:
        self.asked: Counter[str] = Counter()
        self._group = group
        self._answers = answers
        handlers = {RequestCode.CHECK_TRANSACTION_STATE: self._answer}
        self.client = RemotingClient(handlers=handlers)

    async def _answer(self, connection: RemotingConnection, request: Frame) -> None:
        header = CheckTransactionStateRequestHeader.from_fields(request.ext_fields)
        [message] = decode_messages(request.body)
        [key] = message.keys
        self.asked[key] += 1
        answer = self._answers.get(key) or self._answers["others"]
        fields = EndTransactionRequestHeader(
            producer_group=self._group,
            queue_offset=header.queue_offset,
            physical_offset=header.physical_offset,
            decision=8 if answer == "commit" else 12,
            is_from_check=True,
        ).to_fields()
        frame = Frame.request(RequestCode.END_TRANSACTION, fields)
        connection.send(frame.with_opaque(0, is_one_way=True))

    async def beat(self, broker: Broker) -> None:
        """Send a heartbeat."""
        body = HeartbeatData(client_id=self._group, producers=(self._group,)).encode()
        answer = await self.client.call(broker.address, Frame(RequestCode.HEART_BEAT, body=body), 9)
        assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ENDINGS)
@on_loop
async def test_transactions_of_a_java_broker_are_ended_as_their_producers_say(
    tmp_path: Path, release: str, ending: str
) -> None:
    taken = TakenOver(tmp_path, release, f"transaction-{ending}")
    changes = {"transaction_check_interval_ms": 50}
    runtime = ShiftedRuntime(taken.ended_ms + 60_000)
    answers = taken.facts["answers_after_take_over"]
    async with (
        runtime.client,
        Broker(taken.config.replace(**changes), runtime=runtime) as broker,
        (x := Producer("pgx", answers["pgx"])).client,
        (y := Producer("pgy", answers["pgy"])).client,
    ):
        for producer in (x, y):
            await producer.beat(broker)
        asked_about = {
            each["key"]: each
            for each in taken.messages
            if each["must"] == "ask-producer-then-as-it-says"
        }
        wanted = answers["pgx"] | answers["pgy"]

        def added(message: dict[str, Any]) -> int:
            key = message["uniq_key"], message["topic"], message["queue"]
            return copies(broker)[key] - int(message["copies_before"])

        def is_due(message: dict[str, Any]) -> bool:
            is_asked = message["must"] == "ask-producer-then-as-it-says"
            is_commit = wanted.get(message["key"], "commit") == "commit"
            return message["must"] == "deliver" or (is_asked and is_commit)

        due = [each for each in taken.messages if is_due(each)]
        assert due
        await until(lambda: all(map(added, due)), "what is committed is delivered")
        await until(lambda: asked_about.keys() <= (x.asked + y.asked).keys(), "all are asked")
        await until_rounds(broker, 10)
        assert {each["key"]: added(each) for each in taken.messages} == {
            each["key"]: int(is_due(each)) for each in taken.messages
        }
        asked = x.asked + y.asked
        # RocketMQ had not noted its last rollbacks, and asked about them too.
        forgotten = {
            each["key"]
            for each in taken.messages
            if each["must"] == "never" and "asked" in each["java"]["now"]
        }
        assert asked_about.keys() <= asked.keys() <= asked_about.keys() | forgotten
        assert set(asked.values()) == {1}
    runtime.close()
