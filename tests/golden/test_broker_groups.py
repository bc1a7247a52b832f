"""The groups, filters and light queues of real brokers, taken over by a broker of ours.

`expected.jsonl` has what the broker of Java answered after its own restart, `manifest.json` what
must follow for each message and each retry. The request mode POP of a group is kept and has no
effect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore._native.core import Record
from rmqstore.broker.node import Broker
from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from rmqstore.store.metadata import FilterTable
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TakenOver
from tests.reference import record as reference
from tests.support.loops import on_loop
from tests.support.sends import CALL_S, send_request
from tests.support.waiting import until

EXPRESSION = "n > 3 AND color = 'red'"
every_directory = pytest.mark.parametrize(
    ("release", "ending"), [(release, ending) for release in RELEASES for ending in ENDINGS]
)


class Heir:
    """A broker that has taken a directory over, and a client of it."""

    def __init__(self, taken: TakenOver, broker: Broker, client: RemotingClient) -> None:
        self.taken = taken
        self.broker = broker
        self._client = client

    async def ask(self, frame: Frame) -> Frame:
        return await self._client.call(self.broker.address, frame, timeout=CALL_S)

    async def pull(self, group: str, topic: str, queue: int = 0, **changes: Any) -> Frame:
        """Return the answer to a pull from the beginning of a queue."""
        values: dict[str, Any] = {
            "sys_flag": PullFlag.SUBSCRIPTION,
            "subscription": "*",
            "subscription_version": 0,
            "expression_type": "TAG",
        }
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue,
            queue_offset=0,
            max_messages=32,
            commit_offset=0,
            suspend_timeout_ms=0,
            **values | changes,
        )
        return await self.ask(Frame.request(RequestCode.PULL_MESSAGE, header.to_fields()))

    async def beat(self, group: str, subscription: SubscriptionData) -> None:
        """Have a consumer of a group online."""
        consumers = (ConsumerData(group=group, subscriptions=(subscription,)),)
        body = HeartbeatData(client_id="c1", consumers=consumers).encode()
        answer = await self.ask(Frame(RequestCode.HEART_BEAT, body=body))
        assert answer.code == ResponseCode.SUCCESS

    def stored(self, topic: str, queue: int) -> list[Record]:
        """Return the messages of a queue."""
        return list(self.broker.store.store.queue(topic, queue).records())


@asynccontextmanager
async def heir(
    root: Path, release: str, ending: str, prepare: Callable[[Path], None] = lambda _: None
) -> AsyncIterator[Heir]:
    """Take a directory over within the block, after *prepare* has changed its store."""
    taken = TakenOver(root, release, f"groups-{ending}")
    prepare(taken.directory / "store")
    async with Broker(taken.config) as broker, RemotingClient() as client:
        store = broker.store.store
        await until(lambda: store.dispatched_offset == store.end_offset, "all is dispatched")
        yield Heir(taken, broker, client)


def by_sql(*, is_own: bool) -> dict[str, Any]:
    """Return the fields of a pull by the expression."""
    flag = PullFlag.SUBSCRIPTION if is_own else PullFlag(0)
    return {"sys_flag": flag, "subscription": EXPRESSION, "expression_type": "SQL92"}


def records(answer: Frame) -> list[reference.Record]:
    found, at = [], 0
    while at < len(answer.body):
        found.append(reference.decode(answer.body, at))
        at += int.from_bytes(answer.body[at : at + 4], "big")
    return found


def keys(answer: Frame) -> list[str]:
    return [each.properties["KEYS"] for each in records(answer)]


# -- what the broker answers


@every_directory
@on_loop
async def test_broker_answers_as_the_java_broker(tmp_path: Path, release: str, ending: str) -> None:
    async with heir(tmp_path, release, ending) as ours:
        check_tables(ours)
        await check_offsets(ours)
        await check_expressions(ours)
        await check_permissions(ours)
        await check_light_queues(ours)
        [line] = ours.taken.expected("inner-batch")
        answer = await ours.pull("gbatch", "GroupsBatch")
        assert line["records"] == [
            {
                "queue_offset": int(each.properties["INNER_BASE"]),
                "sysflag": each.sys_flag,
                "inner_num": each.properties["INNER_NUM"],
                "size": len(each.body),
            }
            for each in records(answer)
        ]


def check_tables(ours: Heir) -> None:
    metadata = ours.broker.metadata
    [line] = ours.taken.expected("topics")
    topics = {name: metadata.topic(name) for name in line["table"]}
    assert {name: each and each.members() for name, each in topics.items()} == line["table"]
    [line] = ours.taken.expected("groups")
    groups = {name: metadata.group(name) for name in line["table"]}
    assert {name: each and each.members() for name, each in groups.items()} == line["table"]
    assert metadata.tables.forbidden == line["forbidden"]


async def check_offsets(ours: Heir) -> None:
    [line] = [each for each in ours.taken.expected("offsets") if each["when"] == "start"]
    found = ours.broker.metadata.offsets.table.snapshot().offsets
    text: Mapping[str, Mapping[str, int]] = {
        key: {str(queue): offset for queue, offset in offsets.items()}
        for key, offsets in found.items()
    }
    assert text == line["table"] | {"%LMQ%one@%LMQ%lg": {"0": 1}}
    for each in ours.taken.expected("query-offset"):
        fields = {
            "consumerGroup": each["group"],
            "topic": each["topic"],
            "queueId": str(each["queue"]),
        }
        answer = await ours.ask(Frame.request(RequestCode.QUERY_CONSUMER_OFFSET, fields))
        assert (answer.code, answer.ext_fields["offset"]) == (each["code"], each["offset"])


async def check_expressions(ours: Heir) -> None:
    [data] = ours.broker.metadata.filters.of_group("gsql")
    assert (data.expression, data.is_dead) == (EXPRESSION, True)
    lines = ours.taken.expected("sql-pull")
    assert len(lines) == 4
    for line in lines:
        fields = by_sql(is_own=line["own_subscription"])
        answer = await ours.pull(line["group"], "GroupsSql", line["queue"], **fields)
        assert (answer.code, keys(answer)) == (line["code"], line["keys"])


async def check_permissions(ours: Heir) -> None:
    for line in ours.taken.expected("pull-allowed"):
        answer = await ours.pull(line["group"], line["topic"])
        # A queue without a message does not exist here.
        remark = str(answer.remark).replace("NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE")
        assert (answer.code, remark) == (line["code"], line["remark"])
    [line] = ours.taken.expected("pull-registered")
    subscription = SubscriptionData(topic=line["topic"], version=1)
    await ours.beat(line["group"], subscription)
    answer = await ours.pull(line["group"], line["topic"], sys_flag=PullFlag(0))
    assert (answer.code, answer.remark) == (line["code"], line["remark"])


async def check_light_queues(ours: Heir) -> None:
    lines = ours.taken.expected("lmq")
    assert len(lines) == 2
    for line in lines:
        assert keys(await ours.pull("%LMQ%lg", line["topic"])) == line["keys"]

    properties = {"INNER_MULTI_DISPATCH": "%LMQ%two,%LMQ%new", "KEYS": "l9"}
    answer = await ours.ask(send_request("GroupsLmq", b"new", properties))
    assert answer.code == ResponseCode.SUCCESS
    store = ours.broker.store.store
    await until(lambda: store.dispatched_offset == store.end_offset, "it is dispatched")
    found = records(await ours.pull("%LMQ%lg", "%LMQ%two"))
    assert [each.properties["KEYS"] for each in found] == [*lines[1]["keys"], "l9"]
    assert found[-1].properties["INNER_MULTI_QUEUE_OFFSET"] == "3,0"


# -- what is under way


@every_directory
@on_loop
async def test_each_message_and_each_retry_is_where_its_group_gets_it(
    tmp_path: Path, release: str, ending: str
) -> None:
    async with heir(tmp_path, release, ending) as ours:
        offsets = ours.broker.metadata.offsets
        for each in ours.taken.messages:
            for groups, is_passed in (("goes_to", False), ("passed_by", True)):
                for group in each.get(groups, ()):
                    at = offsets.query(each["topic"], group, each["queue"]) or 0
                    assert (at > each["queue_offset"]) is is_passed, (each["key"], group)

        for each in ours.taken.retries:
            check_retry(ours, each)
        await check_waiting_retries(ours)


def check_retry(ours: Heir, retry: dict[str, Any]) -> None:
    group, key = retry["group"], retry["key"]
    if retry["what"] == "dead letter":
        [stored] = [
            each
            for each in ours.stored(f"%DLQ%{group}", 0)
            if each.queue_offset == retry["queue_offset"]
        ]
        assert stored.keys == [key]
    if retry["what"] == "record in the retry topic":
        topic = f"%RETRY%{group}"
        stored = ours.stored(topic, retry["queue"])[retry["queue_offset"]]
        assert (stored.keys, stored.reconsume_times) == ([key], retry["reconsume"])
        at = ours.broker.metadata.offsets.query(topic, group, retry["queue"]) or 0
        assert (at > retry["queue_offset"]) is (retry["must"] == "nothing-more"), key


async def check_waiting_retries(ours: Heir) -> None:
    """All retries are due by now: each is in the retry topic of its group once."""
    waited = [each for each in ours.taken.retries if each["what"] == "send-back in a delay level"]
    known = [each for each in ours.taken.retries if each["what"] == "record in the retry topic"]

    def copies(retry: dict[str, Any]) -> int:
        topic = ours.broker.metadata.topic(f"%RETRY%{retry['group']}")
        assert topic is not None
        queues = range(topic.read_queue_count)
        found = [
            each for queue in queues for each in ours.stored(f"%RETRY%{retry['group']}", queue)
        ]
        return sum(each.keys == [retry["key"]] for each in found)

    due = [each for each in waited if each["must"] != "nothing-more"]
    assert due
    for retry in due:
        await until(lambda retry=retry: copies(retry) > 0, f"{retry['key']} is delivered")  # type: ignore[misc]
        assert copies(retry) == 1
    for retry in waited:
        if retry["must"] == "nothing-more":
            before = sum(
                (each["key"], each["group"]) == (retry["key"], retry["group"]) for each in known
            )
            assert copies(retry) - before <= int(retry["may_repeat"]), retry["key"]


# -- bit maps


def outdate(store: Path) -> None:
    """Have a group known since before the messages came, whose bits none of them has."""
    file = store / "config" / FilterTable.FILE_NAME
    text = file.read_text().replace('"gsql"', '"other"').replace("[18,32,60]", "[1,2,3]")
    file.write_text(text.replace('"bornTime":1', '"bornTime":0,"x":1'))


@on_loop
async def test_bit_maps_of_a_java_broker_hide_no_message(tmp_path: Path) -> None:
    async with heir(tmp_path, "5.3.3", "clean", outdate) as ours:
        [data] = ours.broker.metadata.filters.of_group("other")
        assert (data.born_ms, data.bit_positions) == (0, (1, 2, 3))
        units = ours.broker.store.store._units("GroupsSql", 0, 0, 5)
        assert any(each[6] for each in units), "the messages have bit maps"
        subscription = SubscriptionData(
            topic="GroupsSql", expression=EXPRESSION, version=data.version, expression_type="SQL92"
        )
        await ours.beat("other", subscription)
        answer = await ours.pull("other", "GroupsSql", **by_sql(is_own=False))
        assert keys(answer) == ["s4", "s8"]
