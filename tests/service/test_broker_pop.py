"""Pops from a broker: what they hand out, what is remembered of it, and what refuses them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.broker.pop_records import PopCheckPoint
from rmqstore.errors import PutError
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.service.pop_clients import (
    WHEEL,
    Popper,
    filled,
    popped,
    records_of,
)
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.waiting import until


@on_loop
async def test_popped_messages_are_in_a_check_point_and_go_to_no_other_consumer(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0", b"1", b"2")
        first, second = Popper(client, broker), Popper(client, broker)
        answer = await first.ask(max_messages=2)
        messages = popped(answer)
        assert [each.body for each in messages] == [b"0", b"1"]
        assert (answer.remark, answer.ext_fields["restNum"]) == ("FOUND", "1")
        assert answer.ext_fields["startOffsetInfo"] == "0 0 0"
        assert answer.ext_fields["msgOffsetInfo"] == "0 0 0,1"

        [point] = records_of(broker)
        handle = messages[0].parsed
        assert point == PopCheckPoint(
            topic="T",
            queue=0,
            group="pg",
            start_offset=0,
            offsets=(0, 1),
            pop_time_ms=handle.pop_time_ms,
            invisible_ms=60_000,
            broker_name="broker-a",
        )
        assert broker.metadata.offsets.query("T", "pg", 0) == 2
        assert [each.body for each in await second.pop()] == [b"2"]
        assert await second.pop() == []
        assert [each.body for each in await Popper(client, broker, group="other").pop()] == [
            b"0",
            b"1",
            b"2",
        ]


@on_loop
async def test_check_point_waits_as_a_timer_message_with_the_properties_of_java(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0")
        [message] = await Popper(client, broker).pop()
        await until(lambda: len(broker.store.store.queue(WHEEL, 0)) == 1, "it is dispatched")
        record = broker.store.store.get(WHEEL, queue=0, offset=0)
        handle = message.parsed
        due_ms = handle.revive_ms - 1000
        assert list(record.properties.items()) == [
            ("REAL_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster"),
            ("TIMER_DELIVER_MS", str(due_ms)),
            ("UNIQ_KEY", f"T@0@0@pg@{handle.pop_time_ms}@broker-a@ck"),
            ("TAGS", "ck"),
            ("TIMER_OUT_MS", str((due_ms - 1) // 1000 * 1000)),
            ("REAL_QID", str(handle.revive_queue)),
        ]


@on_loop
async def test_pops_take_the_revive_queues_in_turn(tmp_path: Path) -> None:
    config = broker_config(tmp_path, revive_queue_count=3)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client, *(b"x" for _ in range(6)))
        popper = Popper(client, broker)
        handles = [(await popper.pop(max_messages=1))[0].parsed for _ in range(6)]
        assert [each.revive_queue for each in handles] == [0, 1, 2, 0, 1, 2]
        topic = broker.metadata.topic("rmq_sys_REVIVE_LOG_DefaultCluster")
        assert topic is not None
        assert topic.write_queue_count == 3


@on_loop
async def test_pop_of_any_queue_takes_from_all_and_that_of_one_from_it_alone(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        for queue in range(3):
            await filled(broker, client, b"a%d" % queue, b"b%d" % queue, queues=3, queue=queue)
        popper = Popper(client, broker)
        assert [each.body for each in await popper.pop(queue_id=1)] == [b"a1", b"b1"]
        found = await popper.pop()
        assert sorted(each.body for each in found) == [b"a0", b"a2", b"b0", b"b2"]
        for each in found:
            assert each.parsed.queue == each.message.queue_id
            assert each.parsed.offset == each.message.queue_offset


@on_loop
async def test_message_is_handed_out_only_once_its_check_point_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0")
        popper = Popper(client, broker)

        def refuse(*_: Any) -> None:
            raise PutError("the disk is full", status="SERVICE_NOT_AVAILABLE")

        with monkeypatch.context() as full:
            full.setattr(broker.store, "append", refuse)
            answer = await popper.ask()
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "disk is full" in (answer.remark or "")
            assert answer.body == b""
        assert broker.metadata.offsets.query("T", "pg", 0) == 0
        assert [each.body for each in await popper.pop()] == [b"0"]


@on_loop
async def test_messages_of_a_check_point_that_may_be_lost_are_handed_out_again_and_come_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0", b"1")
        popper = Popper(client, broker)
        append = broker.store.append

        async def fail(receipt: Any) -> None:
            raise PutError("no copy", status="FLUSH_SLAVE_TIMEOUT", receipt=receipt)

        def stored_only(put: Any, durability: Any = None) -> Any:
            receipt = append(put, durability)
            return fail(receipt) if durability is None else receipt

        with monkeypatch.context() as alone:
            alone.setattr(broker.store, "append", stored_only)
            assert (await popper.ask()).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert broker.metadata.offsets.query("T", "pg", 0) == 0

        messages = await popper.pop()
        assert [each.body for each in messages] == [b"0", b"1"]
        lost, taken_back, point = records_of(broker)
        assert taken_back.offsets == lost.offsets == (0, 1)
        assert taken_back.pop_time_ms == lost.pop_time_ms < point.pop_time_ms


@pytest.mark.parametrize("moment", ["before", "after", "answered"])
@on_loop
async def test_no_message_is_lost_where_the_broker_is_killed_during_a_hand_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    root, killed = tmp_path / "a", tmp_path / "killed"
    async with Broker(broker_config(root)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0", b"1", b"2")
        append = broker.store.append

        def killed_at(put: Any, durability: Any = None) -> Any:
            if moment == "before":
                shutil.copytree(root, killed)
            receipt = append(put, durability)
            if moment == "after":
                shutil.copytree(root, killed)
            return receipt

        monkeypatch.setattr(broker.store, "append", killed_at)
        assert len(await Popper(client, broker).pop(max_messages=2)) == 2
        if moment == "answered":
            broker.metadata.offsets.commit("T", "other", 0, 0)
            await broker.metadata.change_topic(TopicConfig("U"))
            shutil.copytree(root, killed)

    async with Broker(broker_config(killed)) as broker, RemotingClient() as client:
        remembered = {each for point in records_of(broker) for each in point.offsets}
        found = await Popper(client, broker).pop()
        assert remembered | {each.parsed.offset for each in found} == {0, 1, 2}
        assert (remembered == {0, 1}) is (moment != "before")


@on_loop
async def test_two_pops_at_once_share_the_messages(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, *(b"%d" % number for number in range(40)))
        poppers = [Popper(client, broker) for _ in range(8)]
        answers = await asyncio.gather(
            *(each.pop(max_messages=5, poll_ms=20_000) for each in poppers)
        )
        bodies = [each.body for found in answers for each in found]
        assert sorted(bodies, key=int) == [b"%d" % number for number in range(40)]


@on_loop
async def test_group_begins_at_the_first_message_or_at_the_end_as_it_asks(tmp_path: Path) -> None:
    config = broker_config(tmp_path, pop_begins_at_zero=False)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client, b"0", b"1")
        from_end = Popper(client, broker, group="end")
        assert await from_end.pop(init_mode=1) == []
        await filled(broker, client, b"2")
        assert [each.body for each in await from_end.pop(init_mode=1)] == [b"2"]
        assert len(await Popper(client, broker, group="first").pop(init_mode=0)) == 3


@on_loop
async def test_new_group_begins_at_the_end_where_not_all_messages_are_recent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0", b"1")
        recent = Popper(client, broker, group="recent")
        assert len(await recent.pop(init_mode=1)) == 2
        monkeypatch.setattr(
            "rmqstore.broker.operations.queue_reads.QueueReads.is_whole_and_recent",
            lambda *_: False,
        )
        assert await Popper(client, broker, group="late").pop(init_mode=1) == []


@on_loop
async def test_pop_selects_by_tags_and_passes_what_its_group_does_not_want(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        for tag in ("a", "b", "a"):
            await filled(broker, client, tag.encode(), TAGS=tag)
        popper = Popper(client, broker)
        answer = await popper.ask(expression="a", expression_type="TAG")
        assert [each.body for each in popped(answer)] == [b"a", b"a"]
        assert answer.ext_fields["msgOffsetInfo"] == "0 0 0,2"
        assert records_of(broker)[0].offsets == (0, 2)
        await filled(broker, client, b"b", TAGS="b")
        assert await popper.pop(expression="a") == []
        assert broker.metadata.offsets.query("T", "pg", 0) == 4


@on_loop
async def test_pop_selects_by_an_expression(tmp_path: Path) -> None:
    async with (
        Broker(broker_config(tmp_path, sql_filters=True)) as broker,
        RemotingClient() as client,
    ):
        for number in range(300):
            await filled(broker, client, b"%d" % number, n=str(number))
        popper = Popper(client, broker)
        found = await popper.pop(expression="n > 296", expression_type="SQL92")
        assert [each.body for each in found] == [b"297", b"298", b"299"]


@on_loop
async def test_reset_of_a_group_moves_its_next_pop(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0", b"1", b"2")
        popper = Popper(client, broker)
        assert len(await popper.pop()) == 3
        broker.metadata.offsets.reset("T", "pg", 0, 1)
        assert [each.body for each in await popper.pop()] == [b"1", b"2"]
        assert await popper.pop() == []


@on_loop
async def test_offset_that_the_queue_does_not_have_is_corrected(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0")
        popper = Popper(client, broker)
        broker.metadata.offsets.commit("T", "pg", 0, 100)
        await popper.pop()
        await filled(broker, client, b"1")
        assert b"1" in [each.body for each in await popper.pop()]


@on_loop
async def test_retry_of_either_form_names_the_topic_that_was_asked_for_and_its_handle(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, pop_retries_v2=True)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client, b"0")
        for topic, separator in (("%RETRY%pg_T", "_"), ("%RETRY%pg+T", "+")):
            await broker.metadata.change_topic(TopicConfig(topic, 1, 1))
            broker.store.store.put(
                topic, b"again " + separator.encode(), properties={"UNIQ_KEY": "k", "n": "1"}
            )
            await until(lambda name=topic: len(broker.store.store.queue(name, 0)) == 1, "it is in")
        popper = Popper(client, broker)
        found = {each.body: each for each in await popper.pop()}
        assert set(found) == {b"0", b"again _", b"again +"}
        for body, kind, text in ((b"again _", 1, "%RETRY%pg_T"), (b"again +", 2, "%RETRY%pg+T")):
            message = found[body].message
            assert (message.topic, message.properties["n"]) == ("T", "1")
            assert message.properties["POP_CK"] == found[body].handle
            assert found[body].parsed.kind == kind
            assert popper.real_topic(found[body].handle) == text
            assert (await popper.ack(found[body].handle)).code == ResponseCode.SUCCESS


@on_loop
async def test_retry_keeps_its_topic_where_the_broker_is_told_so(tmp_path: Path) -> None:
    config = broker_config(tmp_path, pop_returns_retry_topic=True)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client)
        await broker.metadata.change_topic(TopicConfig("%RETRY%pg_T", 1, 1))
        broker.store.store.put("%RETRY%pg_T", b"again")
        await until(lambda: len(broker.store.store.queue("%RETRY%pg_T", 0)) == 1, "it is in")
        answer = await Popper(client, broker).ask()
        assert answer.ext_fields["startOffsetInfo"] == "1 0 0"
        assert answer.body == broker.store.store.get("%RETRY%pg_T", offset=0).raw


REFUSED = [
    ({"max_messages": 33}, ResponseCode.INVALID_PARAMETER, "greater than 32"),
    ({"max_messages": 0}, ResponseCode.INVALID_PARAMETER, "below 1"),
    ({"invisible_ms": -1}, ResponseCode.INVALID_PARAMETER, "invisibleTime"),
    ({"invisible_ms": 2**62}, ResponseCode.INVALID_PARAMETER, "timerMaxDelaySec"),
    ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "none"),
    ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER, "queueId"),
    ({"born_ms": 1, "poll_ms": 1000}, ResponseCode.POLLING_TIMEOUT, "timeout too much"),
    ({"expression": "a ||", "expression_type": "SQL92"}, ResponseCode.SYSTEM_ERROR, "SQL92"),
]


@pytest.mark.parametrize(("changes", "code", "remark"), REFUSED)
@on_loop
async def test_pop_that_is_not_served_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], code: int, remark: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, b"0")
        answer = await Popper(client, broker).ask(**changes)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert records_of(broker) == []


@on_loop
async def test_pop_without_timers_or_group_or_permission_is_refused(tmp_path: Path) -> None:
    config = broker_config(tmp_path, timers=False, create_groups=False)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client, b"0")
        answer = await Popper(client, broker).ask()
        assert (answer.code, "timerWheelEnable" in (answer.remark or "")) == (1, True)
    async with (
        Broker(broker_config(tmp_path, create_groups=False)) as broker,
        RemotingClient() as client,
    ):
        popper = Popper(client, broker)
        assert (await popper.ask()).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        await broker.metadata.change_group(GroupConfig("pg", consume_enabled=False))
        assert (await popper.ask()).code == ResponseCode.NO_PERMISSION


@on_loop
async def test_messages_of_inner_batches_are_not_popped(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        topic = TopicConfig("T", 1, 1, attributes={"queue.type": "BatchCQ"})
        await broker.metadata.change_topic(topic)
        answer = await Popper(client, broker).ask()
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "BatchCQ" in (answer.remark or "")
