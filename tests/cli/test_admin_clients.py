"""`rmqstore admin` about clients, progress of groups and files, against a broker on the loopback
interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.message import Message
from rmqstore.net.addresses import format_address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.bodies.queue_name import QueueName, encode_queue_table
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import GroupConfig
from tests.cli.served_broker import Served
from tests.support.admin_command import admin as run

QUEUE = QueueName("orders", "broker-a", 1)
ANSWERS = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: b'{"jstack":"main at work","mqTable":{%b:%b}}'
    % (json.dumps(QUEUE.members()).encode(), b'{"cachedMsgCount":4,"commitOffset":2}'),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: b'{"messageQueueTable":%b}'
    % encode_queue_table({QUEUE: 7}),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: b'{"consumeResult":"CR_SUCCESS"}',
}


def _answer(connection: RemotingConnection, request: Frame) -> Frame:
    return request.respond(ResponseCode.SUCCESS, body=ANSWERS[RequestCode(request.code)])


class Consumer:
    """The client c1 of the group g, which answers questions, on a thread of its own."""

    def __init__(self, served: Served) -> None:
        self._thread = LoopThread("consumer", what="the thread of the consumer")
        self._served = served
        self._thread.run(self._start)

    async def _start(self) -> None:
        self._client = RemotingClient(handlers=dict.fromkeys(ANSWERS, _answer))
        consumer = ConsumerData(group="g", subscriptions=(SubscriptionData(topic="orders"),))
        data = HeartbeatData(client_id="c1", consumers=(consumer,), producers=("pg",))
        beat = Frame(RequestCode.HEART_BEAT, body=data.encode())
        answer_to_beat = await self._client.call(self._served.broker.address, beat, 60.0)
        assert answer_to_beat.code == ResponseCode.SUCCESS

    def close(self) -> None:
        """End the client."""
        self._thread.run(self._client.close)
        self._thread.stop()


@pytest.fixture
def consumer(served: Served) -> Iterator[Consumer]:
    """Return a consumer of the group g, which has consumed two of three messages."""
    served.put(Message("orders", b"m"))
    served.consume()
    made = Consumer(served)
    yield made
    made.close()


def rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]


def test_clients_are_listed(served: Served, consumer: Consumer) -> None:
    at = ("-n", served.namesrv)
    [found] = rows("producerConnection", *at, "-g", "pg", "-t", "orders")
    assert (found["clientId"], found["language"]) == ("c1", "PYTHON")
    [found] = rows("producer", *at, "-b", served.address)
    assert (found["group"], found["clientId"]) == ("pg", "c1")
    printed = run("consumerConnection", *at, "-g", "g")
    assert "c1" in printed
    assert "orders\t*" in printed
    [found] = rows("consumerConnection", *at, "-g", "g")
    assert found["messageModel"] == "CLUSTERING"
    assert "no producer" in run("producerConnection", *at, "-g", "x", "-t", "orders", code=1)
    assert "no route" in run("consumerConnection", *at, "-g", "x", code=1)


def test_consumers_report_their_state(served: Served, consumer: Consumer) -> None:
    at = ("-n", served.namesrv, "-g", "g")
    printed = run("consumerStatus", *at, "-s").splitlines()
    assert printed[1] == "c1\torders\tbroker-a\t1\t2\t4"
    assert printed[-1] == "main at work"
    [found] = rows("consumerStatus", *at, "-i", "c1", "-b", served.address)
    assert found["clientId"] == "c1"
    [found] = rows("getConsumerStatus", *at, "-t", "orders")
    assert found == {"clientId": "c1", "brokerName": "broker-a", "queueId": 1, "offset": 7}
    assert "not online" in run("consumerStatus", *at, "-i", "c9", code=4)


def test_consumer_consumes_a_message_at_once(served: Served, consumer: Consumer) -> None:
    [offset_id] = served.put(Message("orders", b"paid"))
    options = ("-n", served.namesrv, "-t", "orders", "-i", offset_id)
    [found] = rows("queryMsgById", *options, "-g", "g", "-d", "c1")
    assert found == {"offsetMsgId": offset_id, "consumeResult": "CR_SUCCESS"}
    assert "give both -g and -d" in run("queryMsgById", *options, "-g", "g", code=2)


def test_offsets_of_groups_are_shown_cloned_and_reset(served: Served, consumer: Consumer) -> None:
    at, offsets = ("-n", served.namesrv), served.broker.metadata.offsets
    lags = {
        (each["group"], each["queueId"]): each["diff"]
        for each in rows("brokerConsumeStats", *at, "-b", served.address)
    }
    assert lags["g", 1] == 1
    assert rows("brokerConsumeStats", *at, "-b", served.address, "-l", "2") == []
    run("cloneGroupOffset", *at, "-s", "g", "-d", "h")
    assert offsets.query("orders", "h", 1) == 2
    found = rows("resetOffsetByTime", *at, "-g", "g", "-t", "orders", "-s", "now")
    assert {each["queueId"]: each["offset"] for each in found}[1] == 3
    assert offsets.query("orders", "g", 1) == 3
    assert "give now" in run("resetOffsetByTime", *at, "-g", "g", "-t", "T", "-s", "x", code=2)


def test_units_of_a_queue_are_shown(served: Served, consumer: Consumer) -> None:
    options = ("-n", served.namesrv, "-t", "orders", "-q", "1", "-i", "1")
    lines = run("queryCq", *options, "-c", "1").splitlines()
    record = served.broker.store.store.queue("orders", 1).get(1)
    assert lines[1:] == [f"1\t{record.physical_offset}\t{record.size}\t0"]
    [found] = rows("queryCq", *options, "-g", "g")
    assert found["maxQueueIndex"] == 3
    assert found["subscriptionData"]["topic"] == "orders"


def test_list_of_groups_is_made(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    groups = [GroupConfig(name, retries_max=3) for name in ("a", "b")]
    file.write_text(json.dumps([each.members() for each in groups]))
    options = ("-b", served.address, "-f", str(file))
    assert run("updateSubGroupList", *options) == f"{served.address}: changed\n"
    assert served.broker.metadata.tables.groups["b"].retries_max == 3
    file.write_text("7")
    assert "no list of groups" in run("updateSubGroupList", *options, code=2)


@pytest.mark.parametrize(
    ("arguments", "remark"),
    [
        (("deleteExpiredCommitLog",), "0 log files are removed"),
        (("cleanExpiredCQ",), "removed with the log files"),
        (("cleanUnusedTopic",), "the queues of 0 topics are removed"),
        (("updateColdDataFlowCtrGroupConfig", "-g", "g", "-v", "100"), "has no effect"),
        (("removeColdDataFlowCtrGroupConfig", "-g", "g"), "has no effect"),
        (("setCommitLogReadAheadMode", "-m", "1"), "has no effect"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_files_are_cleaned_and_the_remark_is_shown(
    served: Served, arguments: tuple[str, ...], remark: str
) -> None:
    printed = run(*arguments, "-n", served.namesrv, "-c", "east")
    assert printed.startswith(f"{served.address}: changed, ")
    assert remark in printed


def test_flow_control_of_cold_data_is_shown(served: Served) -> None:
    found = rows("getColdDataFlowCtrInfo", "-b", served.address)
    assert {each["key"]: each["value"] for each in found}["configTable"] == "{}"
    assert {each["broker"] for each in found} == {format_address(served.broker.address)}
