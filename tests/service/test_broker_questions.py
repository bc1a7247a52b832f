"""Lists of clients, and requests that a broker passes on to them (spec/broker.md 26, 27)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.handlers import questions
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName, encode_queue_table
from rmqstore.remoting.bodies.statistics import ResetOffsets
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import FRAME_SIZE_MAX, Frame
from rmqstore.store.metadata import TopicConfig
from tests.service.broker_clients import call, heartbeat
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.waiting import until

RUNNING = {"consumerGroup": "cg", "clientId": "c1", "jstackEnable": "true"}
STATUS = {"topic": "T", "group": "cg"}
RESET = {"topic": "T", "group": "cg", "timestamp": "-1", "isForce": "false"}

Answer = Callable[[Frame], Frame | None]


class Consumer:
    """A client of a broker that answers its questions with *answer*."""

    def __init__(self, answer: Answer = lambda request: None) -> None:
        self.questions: list[Frame] = []
        self._answer = answer
        codes = (
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
        )
        self.client = RemotingClient(handlers=dict.fromkeys(codes, self._take))

    def _take(self, connection: RemotingConnection, request: Frame) -> Frame | None:
        self.questions.append(request)
        return self._answer(request)

    async def join(self, broker: Broker, client_id: str, language: int = LanguageCode.JAVA) -> None:
        beat = heartbeat(client_id, "cg")
        beat.language = LanguageCode(language)
        assert (await call(self.client, broker, beat)).code == ResponseCode.SUCCESS


def json_answer(body: bytes) -> Answer:
    return lambda request: request.respond(ResponseCode.SUCCESS, body=body)


def progress(offset: int) -> Answer:
    table = encode_queue_table({QueueName("T", "broker-a", 0): offset})
    return json_answer(b'{"messageQueueTable":%b}' % table)


class Operated:
    """A broker with an operator at a connection of its own."""

    def __init__(self, broker: Broker, operator: RemotingClient) -> None:
        self.broker = broker
        self._operator = operator

    async def ask(self, code: int, fields: dict[str, str] | None = None) -> Frame:
        return await call(self._operator, self.broker, Frame.request(code, fields))

    async def json(self, code: int, fields: dict[str, str] | None = None) -> Any:
        answer = await self.ask(code, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return fastjson.loads(answer.body)


@asynccontextmanager
async def operated(root: Path, *consumers: Consumer, **changes: Any) -> AsyncIterator[Operated]:
    """A broker whose topic T has a queue, with consumers c1, c2, ... of the group cg."""
    async with Broker(broker_config(root, **changes)) as broker, RemotingClient() as operator:
        await broker.metadata.change_topic(TopicConfig("T", 1, 1))
        for number, consumer in enumerate(consumers, 1):
            await consumer.join(broker, f"c{number}")
        try:
            yield Operated(broker, operator)
        finally:
            for consumer in consumers:
                await consumer.client.close()


# -- lists


@on_loop
async def test_producers_are_listed_by_group_and_all_together(tmp_path: Path) -> None:
    producer = Consumer()
    async with operated(tmp_path, producer) as operated_broker:
        fields = {"producerGroup": "pg"}
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        [found] = (await operated_broker.json(code, fields))["connectionSet"]
        assert (found["clientId"], found["language"]) == ("c1", "JAVA")
        before_ms = operated_broker.broker.open.wall_ms() - 60_000
        groups = (await operated_broker.json(RequestCode.GET_ALL_PRODUCER_INFO))["data"]
        assert list(groups) == ["pg"]
        [member] = groups["pg"]
        assert member["clientId"] == "c1"
        assert member["remoteIP"] == f"/{found['clientAddr']}"
        assert member["lastUpdateTimestamp"] > before_ms

        answer = await operated_broker.ask(code, {"producerGroup": "nobody"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "the producer group[nobody] not exist"


@on_loop
async def test_subscription_of_a_group_is_shown_while_it_is_online(tmp_path: Path) -> None:
    async with operated(tmp_path, Consumer()) as operated_broker:
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        found = await operated_broker.json(code, STATUS)
        assert (found["group"], found["topic"]) == ("cg", "T")
        assert found["subscriptionData"]["subString"] == "*"
        assert await operated_broker.json(code, {"group": "other"}) == {"group": "other"}


# -- running information


@on_loop
async def test_running_information_comes_from_the_consumer(tmp_path: Path) -> None:
    consumer = Consumer(json_answer(b' {"jstack":"main"}'))
    async with operated(tmp_path, consumer) as operated_broker:
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        assert await operated_broker.json(code, RUNNING) == {"jstack": "main"}
        assert consumer.questions[0].ext_fields == RUNNING
        answer = await operated_broker.ask(code, RUNNING | {"clientId": "c2"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The Consumer <cg> <c2> not online"


@on_loop
async def test_refusal_of_a_consumer_is_passed_on(tmp_path: Path) -> None:
    consumer = Consumer(lambda request: request.respond(ResponseCode.SYSTEM_ERROR, "no such group"))
    async with operated(tmp_path, consumer) as operated_broker:
        answer = await operated_broker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no such group")


@on_loop
async def test_silent_consumer_costs_its_caller_the_time_and_nobody_else_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_ANSWER_S", 0.5)
    async with operated(tmp_path, Consumer()) as operated_broker:
        runtime = operated_broker.broker.open.runtime
        tasks = runtime.tasks("questions")
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        waiting = tasks.start(operated_broker.ask(code, RUNNING), name="question")
        await operated_broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert not waiting.done()
        answer = await waiting
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert "consumer <cg> <c1> Timeout" in (answer.remark or "")


@pytest.mark.parametrize("body", [b"", b"no JSON", b'{"jstack":"%b"}' % (b"x" * (13 << 20))])
@on_loop
async def test_answer_that_is_no_json_or_too_large_is_refused(tmp_path: Path, body: bytes) -> None:
    async with operated(tmp_path, Consumer(json_answer(body))) as operated_broker:
        answer = await operated_broker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"answers with {len(body)} bytes" in (answer.remark or "")


@on_loop
async def test_end_of_a_connection_ends_its_question(tmp_path: Path) -> None:
    consumer = Consumer()
    async with operated(tmp_path, consumer) as operated_broker:
        tasks = operated_broker.broker.open.runtime.tasks("questions")
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        waiting = tasks.start(operated_broker.ask(code, RUNNING), name="question")
        await until(lambda: consumer.questions, "the consumer is asked")
        await consumer.client.close()
        answer = await waiting
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "invoke consumer <cg> <c1> Exception" in (answer.remark or "")


@on_loop
async def test_frame_over_the_limit_ends_its_question(tmp_path: Path) -> None:
    async def answer_with_too_much(connection: RemotingConnection, request: Frame) -> None:
        transport = connection._transport
        assert transport is not None
        transport.write((FRAME_SIZE_MAX + 1).to_bytes(4, "big") + bytes(1000))

    consumer = Consumer()
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer.client = RemotingClient(handlers={code: answer_with_too_much})
    async with operated(tmp_path, consumer) as operated_broker:
        answer = await operated_broker.ask(code, RUNNING)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "invoke consumer <cg> <c1> Exception" in (answer.remark or "")


# -- consumption of one message


@on_loop
async def test_consumer_gets_the_message_that_an_operator_names(tmp_path: Path) -> None:
    consumer = Consumer(json_answer(b'{"consumeResult":"CR_SUCCESS"}'))
    async with operated(tmp_path, consumer) as operated_broker:
        sent = await call(consumer.client, operated_broker.broker, send_request("T", b"paid"))
        fields = {
            "consumerGroup": "cg",
            "clientId": "c1",
            "msgId": sent.ext_fields["msgId"],
            "topic": "T",
        }
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        assert await operated_broker.json(code, fields) == {"consumeResult": "CR_SUCCESS"}
        [question] = consumer.questions
        added = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
        assert question.ext_fields == fields | added
        assert b"paid" in question.body

        for changes, code_of_answer, remark in (
            ({"msgId": "7"}, ResponseCode.INVALID_PARAMETER, "msgId"),
            ({"msgId": "0" * 32}, ResponseCode.SUCCESS, ""),
            ({"msgId": "F" * 32}, ResponseCode.SYSTEM_ERROR, "can not find message"),
            ({"topic": "U"}, ResponseCode.INVALID_PARAMETER, "belongs to topic T"),
            ({"clientId": ""}, ResponseCode.SYSTEM_ERROR, "not online"),
        ):
            answer = await operated_broker.ask(code, fields | changes)
            assert answer.code == code_of_answer, changes
            assert remark in (answer.remark or "")


# -- progress that consumers have not committed yet


@on_loop
async def test_progress_is_that_of_the_members_that_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_PROGRESS_S", 0.5)
    members = (
        Consumer(progress(7)),
        Consumer(),
        Consumer(json_answer(b'{"messageQueueTable":{"x":1}}')),
        Consumer(progress(9)),
    )
    async with operated(tmp_path, *members) as operated_broker:
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        found = (await operated_broker.json(code, STATUS))["consumerTable"]
        queue = json.dumps({"brokerName": "broker-a", "queueId": 0, "topic": "T"})
        assert {name: [*each.values()] for name, each in found.items()} == {"c1": [7], "c4": [9]}
        assert json.loads(next(iter(found["c1"]))) == json.loads(queue)
        assert members[0].questions[0].ext_fields == STATUS

        one = await operated_broker.json(code, STATUS | {"clientAddr": "c4"})
        assert list(one["consumerTable"]) == ["c4"]
        assert len(members[0].questions) == 1

        for changes, remark in (
            ({"group": "other"}, "No Any Consumer online in the consumer group: [other]"),
            ({"clientAddr": "c9"}, "The Consumer <cg> <c9> not online"),
        ):
            answer = await operated_broker.ask(code, STATUS | changes)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


# -- resets that consumers carry out


@on_loop
async def test_consumers_get_the_offsets_of_a_reset(tmp_path: Path) -> None:
    java, cpp = Consumer(), Consumer()
    async with operated(tmp_path, java, resets_at_broker=False) as operated_broker:
        broker, code = operated_broker.broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        await cpp.join(broker, "c2", LanguageCode.CPP)
        for _ in range(3):
            await call(java.client, broker, send_request("T", b""))
        offsets = broker.metadata.offsets
        offsets.commit("T", "cg", 0, 1)

        for is_forced, target in ((False, 1), (True, 3)):
            fields = RESET | {"isForce": str(is_forced).lower()}
            expected = {QueueName("T", "broker-a", 0): target}
            answer = await operated_broker.ask(code, fields)
            assert ResetOffsets.decode(answer.body).offsets == expected
            await until(lambda: java.questions and cpp.questions, "both consumers get offsets")
            request, request_cpp = java.questions.pop(), cpp.questions.pop()
            assert request.is_one_way
            assert request.ext_fields["timestamp"] == "-1"
            assert ResetOffsets.decode(request.body).offsets == expected
            [entry] = json.loads(request_cpp.body)["offsetTable"]
            assert entry == {"brokerName": "broker-a", "offset": target, "queueId": 0, "topic": "T"}
        assert offsets.query("T", "cg", 0) == 1

        await java.client.close()
        await cpp.client.close()
        await until(lambda: not broker.open.clients.table, "no consumer is online")
        answer = await operated_broker.ask(code, RESET)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        broker.open.set_role(Role(name="slave", broker_id=1))
        answer = await operated_broker.ask(code, RESET)
        assert answer.remark == "Can not reset offset in slave broker"
