"""Popped messages that are not acknowledged in time, and come again."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore._native.core import Record
from rmqstore.broker.node import Broker
from rmqstore.broker.pop_records import PopCheckPoint
from rmqstore.errors import NotWritable
from rmqstore.remoting.client import RemotingClient
from rmqstore.topic_names import REVIVE_GROUP
from tests.service.pop_clients import REVIVE, WHEEL, Popper, changed_handle, filled
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.loops import ShiftedRuntime
from tests.support.waiting import until

RETRY = "%RETRY%pg_T"
LATER_MS = 65_000
"""By then the invisible time of a pop is over, and its messages have come again."""


@asynccontextmanager
async def running(
    root: Path, ahead_ms: int = 0, **changes: Any
) -> AsyncIterator[tuple[Broker, Popper, ShiftedRuntime]]:
    """Run a broker with one revive queue, and a consumer of it."""
    runtime = ShiftedRuntime(now_ms() + ahead_ms)
    # The progress waits for the disk.
    quick = {"timer_precision_ms": 100, "flush_commit_log_thorough_interval_ms": 100}
    config = broker_config(root, revive_queue_count=1, **quick, **changes)
    async with runtime.client, Broker(config, runtime=runtime) as broker:
        async with RemotingClient() as client:
            yield broker, Popper(client, broker), runtime
    runtime.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def ahead(runtime: ShiftedRuntime, ahead_ms: int) -> None:
    """Set the clock ahead of the time of day, which records are stored with."""
    runtime.set_wall(now_ms() + ahead_ms)


def records(broker: Broker, topic: str = RETRY, queue: int = 0) -> list[Record]:
    """Return the messages of a queue."""
    return list(broker.store.store.queue(topic, queue).records())


async def passed(broker: Broker, count: int) -> None:
    """Return once the progress has passed all of so many records of the revive queue."""
    await until(
        lambda: len(broker.store.store.queue(REVIVE, 0)) == count, "the revive queue is filled"
    )
    offsets = broker.metadata.offsets
    await until(
        lambda: offsets.query(REVIVE, REVIVE_GROUP, 0) == count - 1, "the revive queue is passed"
    )


def metric(broker: Broker, name: str) -> int:
    [family] = [each for each in broker.open.families() if each.name == name]
    return sum(int(count) for _, count in family.samples)


@on_loop
async def test_message_without_acknowledgement_comes_again_when_its_time_is_over(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (broker, popper, runtime):
        await filled(broker, popper.client, b"0", b"1", b"2", KEYS="k")
        first = await popper.pop()
        await popper.ack(first[0].handle)
        await popper.ack_all(first[2:])
        ahead(runtime, 55_000)
        assert await popper.pop() == []
        ahead(runtime, LATER_MS)
        await passed(broker, 3)

        [again] = records(broker)
        assert (again.body, again.reconsume_times) == (b"1", 1)
        assert again.properties["KEYS"] == "k"
        assert again.properties["1ST_POP_TIME"] == str(first[1].parsed.pop_time_ms)
        assert again.properties["ORIGIN_GROUP"] == "pg"
        topic = broker.metadata.topic(RETRY)
        assert topic is not None
        assert (topic.read_queue_count, topic.write_queue_count, topic.perm) == (1, 1, 6)
        assert broker.metadata.offsets.query(RETRY, "pg", 0) == 0
        assert metric(broker, "rmqstore_revived_messages_total") == 1
        assert metric(broker, "rmqstore_revive_records") == 0
        [popped] = await popper.pop()
        assert (popped.body, popped.message.reconsume_times) == (b"1", 1)


@on_loop
async def test_message_comes_until_it_is_acknowledged(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, popper, runtime):
        await filled(broker, popper.client, b"0")
        [message] = await popper.pop()
        first_ms = message.parsed.pop_time_ms
        for times in (1, 2):
            ahead(runtime, times * LATER_MS)
            await passed(broker, times)
            [message] = await popper.pop()
            assert message.message.reconsume_times == times
            assert message.message.properties["1ST_POP_TIME"] == str(first_ms)
        await popper.ack(message.handle)
        ahead(runtime, 3 * LATER_MS)
        await passed(broker, 4)
        assert await popper.pop() == []


@pytest.mark.parametrize("is_suspended", [False, True])
@on_loop
async def test_changed_time_counts(tmp_path: Path, is_suspended: bool) -> None:
    """With a suspension the message was not consumed, and this is no retry."""
    async with running(tmp_path) as (broker, popper, runtime):
        await filled(broker, popper.client, b"0")
        [message] = await popper.pop()
        answer = await popper.change(message.handle, 100_000, is_suspended=is_suspended)
        ahead(runtime, LATER_MS)
        await passed(broker, 2)
        assert await popper.pop() == []
        assert changed_handle(message, answer) != message.handle
        ahead(runtime, 105_000)
        await passed(broker, 3)
        [again] = await popper.pop()
        assert again.message.reconsume_times == (0 if is_suspended else 1)


@on_loop
async def test_retry_topic_has_the_form_of_the_settings(tmp_path: Path) -> None:
    async with running(tmp_path, pop_retries_v2=True) as (broker, popper, runtime):
        await filled(broker, popper.client, b"0")
        await popper.pop()
        ahead(runtime, LATER_MS)
        await passed(broker, 1)
        assert [each.body for each in records(broker, "%RETRY%pg+T")] == [b"0"]


@pytest.mark.parametrize("deleted", ["topic", "message"])
@on_loop
async def test_what_is_deleted_does_not_come_again(tmp_path: Path, deleted: str) -> None:
    async with running(tmp_path) as (broker, popper, runtime):
        await filled(broker, popper.client, b"0")
        await popper.pop()
        await broker.metadata.delete_topic("T")
        if deleted == "message":
            await filled(broker, popper.client, b"new", queue=1, queues=2)
        ahead(runtime, LATER_MS)
        await passed(broker, 1)
        assert records(broker) == []


@on_loop
async def test_revived_message_comes_no_second_time_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, popper, runtime):
        await filled(broker, popper.client, b"0")
        await popper.pop()
        ahead(runtime, LATER_MS)
        await until(lambda: len(records(broker)) == 1, "it comes again")
    async with running(tmp_path, 2 * LATER_MS) as (broker, _, _):
        await passed(broker, 1)
        assert len(records(broker)) == 1


@on_loop
async def test_acknowledgements_and_open_messages_survive_a_kill(tmp_path: Path) -> None:
    root, killed = tmp_path / "a", tmp_path / "killed"
    async with running(root) as (broker, popper, _):
        await filled(broker, popper.client, b"0", b"1")
        first, _ = await popper.pop()
        await popper.ack(first.handle)
        await until(lambda: len(records(broker, WHEEL)) == 2, "all dispatched")
        shutil.copytree(root, killed)
    async with running(killed, LATER_MS) as (broker, _, _):
        await passed(broker, 2)
        assert [each.body for each in records(broker)] == [b"1"]


@on_loop
async def test_failing_put_holds_messages_up_and_repeats_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as (broker, popper, runtime):
        await filled(broker, popper.client, b"0", b"1", b"2")
        await popper.pop()
        append, failures = broker.store.append, []

        def failing(put: Any, durability: Any = None) -> Any:
            is_retry = RETRY in put.args
            if is_retry and len(records(broker)) == 2 and len(failures) < 2:
                failures.append(put)
                raise NotWritable("full", status="SERVICE_NOT_AVAILABLE")
            return append(put, durability)

        monkeypatch.setattr(broker.store, "append", failing)
        ahead(runtime, LATER_MS)
        await passed(broker, 1)
        assert [each.body for each in records(broker)] == [b"0", b"1", b"2"]
    assert caplog.text.count("popped messages stand still: full") <= 1


@on_loop
async def test_check_point_of_another_broker_is_put_again(tmp_path: Path) -> None:
    """A stand-in of RocketMQ has such check points, and rewrites them where a fail-over may lose
    them."""
    async with running(tmp_path) as (broker, _, _):
        point = PopCheckPoint(
            topic="T",
            queue=0,
            group="pg",
            start_offset=7,
            offsets=(7, 8),
            pop_time_ms=now_ms() - 60_000,
            invisible_ms=55_000,
            broker_name="broker-b",
            times="1",
        )
        properties = {"TIMER_DELIVER_MS": str(point.due_ms)}
        broker.store.store.put(REVIVE, point.encode(), tags="ck", properties=properties)
        await passed(broker, 1)
        found = [PopCheckPoint.decode(each.body) for each in records(broker, WHEEL)]
        assert [each.offsets for each in found] == [(7,), (8,)]
        assert {(each.times, each.invisible_ms) for each in found} == {("2", 75_000)}
        assert metric(broker, "rmqstore_postponed_revivals_total") == 2


@on_loop
async def test_records_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, popper, runtime):
        store = broker.store.store
        store.put(REVIVE, b"x")
        store.put(REVIVE, b"{}", tags="other")
        store.put(REVIVE, b"{", tags="ck")
        store.put(REVIVE, b'{"t":"T"}', tags="ack")
        await filled(broker, popper.client, b"0")
        await popper.pop()
        ahead(runtime, LATER_MS)
        await passed(broker, 5)
        assert [each.body for each in records(broker)] == [b"0"]
        assert metric(broker, "rmqstore_skipped_revive_records_total") == 4
