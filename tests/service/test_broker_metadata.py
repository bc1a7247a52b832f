"""The metadata of brokers: saved, spread to slaves by changes, taken over whole
(spec/acting-master.md 12, spec/changes-5.5.md 7)."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import rmqstore
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.change_body import ChangeBody
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.broker.metadata.following import Follower
from rmqstore.broker.metadata.spreading import Spread
from rmqstore.broker.metadata.tables import Tables
from rmqstore.broker.metadata.takeover import take_tables
from rmqstore.broker.node import Broker
from rmqstore.config import BrokerRole
from rmqstore.errors import RemotingFrameError, RequestRefused
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.folder import DiskFolder
from rmqstore.store.metadata import (
    ConsumerOffsets,
    GroupConfig,
    GroupTable,
    RequestMode,
    TopicConfig,
    TopicTable,
)
from rmqstore.store.metadata.orders import OrderState, OrderTable
from tests.service.remoting_peers import on_loop
from tests.support.brokers import SMALL_FILES, broker_config
from tests.support.waiting import until


def is_equal(one: Broker, other: Broker) -> bool:
    mine, its = one.metadata.tables, other.metadata.tables
    return (
        mine.topic_table() == its.topic_table()
        and mine.group_table() == its.group_table()
        and mine.mode_table() == its.mode_table()
        and mine.offsets.table.snapshot() == its.offsets.table.snapshot()
    )


@asynccontextmanager
async def master_and_slave(root: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(Broker(broker_config(root / "master")))
        config = broker_config(root / "slave", broker_role=BrokerRole.SLAVE, broker_id=1)
        slave = await stack.enter_async_context(Broker(config))
        slave.open.set_role(Role(name="slave", broker_id=1, master_address=master.address))
        yield master, slave


@on_loop
async def test_changes_are_in_the_files_when_they_are_answered(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        await broker.metadata.change_topic(TopicConfig("T", 3, 3))
        await broker.metadata.change_group(GroupConfig("g", retries_max=2))
        assert TopicTable.load(tmp_path).topics["T"] == TopicConfig("T", 3, 3)
        assert GroupTable.load(tmp_path).groups["g"].retries_max == 2
        await broker.metadata.delete_topic("T")
        assert "T" not in TopicTable.load(tmp_path).topics
        broker.metadata.offsets.commit("U", "g", 0, 9)
    assert ConsumerOffsets.load(tmp_path).of("U", "g") == {0: 9}
    async with Broker(broker_config(tmp_path)) as broker:
        assert broker.metadata.offsets.query("U", "g", 0) == 9


@on_loop
async def test_topics_and_groups_are_made_by_use(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        made = broker.metadata.topic_for_send("T", queues=4)
        assert made == TopicConfig("T", 4, 4)
        assert broker.metadata.topic_for_send("U", default_topic="none") is None
        group = await broker.metadata.group_for("g")
        assert group == GroupConfig("g")
        retry = await broker.metadata.retry_topic("g", order=True)
        assert retry == TopicConfig("%RETRY%g", 1, 1, order=True)
        assert await broker.metadata.group_for("g@h") is None
        with pytest.raises(RequestRefused, match="illegal characters"):
            broker.metadata.topic_for_send("a b")


@on_loop
async def test_slave_follows_every_change_of_its_master(tmp_path: Path) -> None:
    async with master_and_slave(tmp_path) as (master, slave):
        await until(lambda: is_equal(master, slave), "the slave has what the master has")
        await master.metadata.change_topic(TopicConfig("T", attributes={"message.type": "FIFO"}))
        await master.metadata.change_group(GroupConfig("g"))
        await master.metadata.set_mode(RequestMode("T", "g", "POP", 1))
        master.metadata.offsets.commit("T", "g", 0, 4)
        await until(lambda: is_equal(master, slave), "the slave has what the master has")
        await master.metadata.delete_topic("T")
        await until(lambda: is_equal(master, slave), "the slave has what the master has")
        assert slave.metadata.offsets.query("T", "g", 0) is None
        await until(
            lambda: "T" not in TopicTable.load(tmp_path / "slave").topics, "the change is on disk"
        )


def queue_folders(root: Path) -> set[str]:
    return {each.name for each in (root / "consumequeue").iterdir()}


@on_loop
async def test_deleted_topic_leaves_no_queue_and_its_numbers_go_on(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        for topic in ("T", "U"):
            await broker.metadata.change_topic(TopicConfig(topic))
            for number in range(3):
                await broker.store.put(topic, b"%d" % number)
        broker.store.store.wait_dispatched()
        await broker.metadata.delete_topic("T")
        assert queue_folders(tmp_path) == {"U"}
        await broker.metadata.change_topic(TopicConfig("T"))
        assert (await broker.store.put("T", b"new")).queue_offset == 3
        broker.store.store.wait_dispatched()
        assert [each.body for each in broker.store.store.queue("T", 0)] == [b"new"]
    async with Broker(broker_config(tmp_path)) as broker:
        assert (await broker.store.put("T", b"newer")).queue_offset == 4


@on_loop
async def test_topic_that_is_made_again_while_its_deletion_spreads_loses_no_message(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        await broker.metadata.change_topic(TopicConfig("T"))
        await broker.store.put("T", b"old")
        broker.open.set_role(Role(name="master", broker_id=0, members=frozenset({0, 2})))
        deletion = asyncio.create_task(broker.metadata.delete_topic("T"))
        await until(lambda: broker.metadata.topic("T") is None, "the deletion is in effect")
        broker.metadata.topic_for_send("T")
        assert (await broker.store.put("T", b"new")).queue_offset == 1
        await deletion
        broker.store.store.wait_dispatched()
        assert [each.body for each in broker.store.store.queue("T", 0)] == [b"new"]


@on_loop
async def test_slave_removes_the_queues_of_topics_that_its_master_deletes_and_no_others(
    tmp_path: Path,
) -> None:
    never_taken = "a topic that the master lost in a switch"
    with rmqstore.open(tmp_path / "slave", **SMALL_FILES) as store:
        for topic in ("T", "U", never_taken):
            store.put(topic, b"1")
    async with master_and_slave(tmp_path) as (master, slave):
        for topic in ("T", "U"):
            await master.metadata.change_topic(TopicConfig(topic))
        await until(lambda: is_equal(master, slave), "the slave has what the master has")
        rounds = slave.open._copies.rounds
        await master.metadata.change_group(GroupConfig("g"))
        await until(lambda: slave.open._copies.rounds > rounds, "the slave asks again")
        await master.metadata.delete_topic("T")
        left = {"U", never_taken}
        await until(
            lambda: queue_folders(tmp_path / "slave") == left, "the slave removes the queues"
        )


async def expired_master(root: Path) -> None:
    """Make a master whose log begins after the three messages of the topic T."""
    async with Broker(broker_config(root)) as broker:
        for topic in ("T", "U"):
            await broker.metadata.change_topic(TopicConfig(topic))
        for number in range(3):
            await broker.store.put("T", b"%d" % number)
        for _ in range(12):
            await broker.store.put("U", bytes(100_000))
        await broker.metadata.change_group(GroupConfig("g"))
        broker.metadata.offsets.commit("T", "g", 0, 2)
        broker.store.store.wait_dispatched()
        broker.store.store.expire_files(1)
        assert broker.store.store.start_offset == 1 << 20


@on_loop
async def test_slave_that_begins_after_all_messages_of_a_queue_continues_it_as_its_master(
    tmp_path: Path,
) -> None:
    await expired_master(tmp_path / "master")
    with rmqstore.open(tmp_path / "slave", **SMALL_FILES) as store:
        store._restart(1 << 20)
    async with master_and_slave(tmp_path) as (master, slave):
        await until(lambda: is_equal(master, slave), "the slave has the tables")
        await until(
            lambda: slave.store.store._next_offset("T", 0) == 3, "the slave continues the queue"
        )
    with rmqstore.open(tmp_path / "slave", **SMALL_FILES) as store:
        assert store.put("T", b"new").queue_offset == 3


@on_loop
async def test_new_master_continues_a_queue_after_what_its_groups_have_consumed(
    tmp_path: Path,
) -> None:
    """Its master was gone before it could be asked."""
    await expired_master(tmp_path)
    with rmqstore.open(tmp_path, **SMALL_FILES) as store:
        store._restart(2 << 20)
    async with Broker(broker_config(tmp_path)) as broker:
        assert (await broker.store.put("T", b"new")).queue_offset == 2


@on_loop
async def test_change_is_answered_when_the_members_of_the_set_hold_it(tmp_path: Path) -> None:
    async with master_and_slave(tmp_path) as (master, _):
        master.open.set_role(Role(name="master", broker_id=0, members=frozenset({0, 1})))
        spread: list[Spread] = []

        async def is_on_all() -> bool:
            # Before its first report nobody waits for the slave.
            spread[:] = [await master.metadata.change_topic(TopicConfig("T"))]
            return not spread[0].missing

        await until(is_on_all, "the slave reports")
        assert (spread[0].held, spread[0].members, spread[0].remark) == (2, 2, None)
        # Durable on the slave, too.
        assert TopicTable.load(tmp_path / "slave").topics["T"] == TopicConfig("T")


@on_loop
async def test_change_of_one_topic_among_many_reaches_a_slave_alone_and_in_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with master_and_slave(tmp_path) as (master, slave):
        master.open.set_role(Role(name="master", broker_id=0, members=frozenset({0, 1})))
        for number in range(300):
            master.metadata.tables.set_topic(TopicConfig(f"topic-{number}"))

        async def is_reported(queues: int) -> bool:
            topic = TopicConfig("T", queues, queues)
            return not (await master.metadata.change_topic(topic)).missing

        await until(lambda: is_reported(1), "the slave reports")
        answers: list[bytes] = []
        declared: list[str] = []
        take, declare = Follower._take_changes, slave.metadata._declare_queues

        async def noted(follower: Follower, body: bytes) -> None:
            answers.append(body)
            await take(follower, body)

        def note(topic: TopicConfig) -> None:
            declared.append(topic.name)
            declare(topic)

        monkeypatch.setattr(Follower, "_take_changes", noted)
        monkeypatch.setattr(slave.metadata, "_declare_queues", note)
        assert await is_reported(2)
        assert declared == ["T"]
        assert [ChangeBody.decode(each).changed_topics for each in answers] == [["T"]]
        assert len(answers[0]) < 1000


@on_loop
async def test_change_that_a_slave_took_and_could_not_save_is_saved_before_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with master_and_slave(tmp_path) as (master, _):
        master.open.set_role(Role(name="master", broker_id=0, members=frozenset({0, 1})))

        async def is_reported(topic: str) -> bool:
            return not (await master.metadata.change_topic(TopicConfig(topic))).missing

        await until(lambda: is_reported("T"), "the slave reports")
        append, refusals = DiskFolder.append, [errno.ENOSPC]

        def append_later(folder: DiskFolder, name: str, data: bytes) -> None:
            if folder.place("config") == str(tmp_path / "slave" / "config") and refusals:
                raise OSError(refusals.pop(), "no room")
            append(folder, name, data)

        monkeypatch.setattr(DiskFolder, "append", append_later)
        await until(lambda: is_reported("U"), "the slave reports")
        assert not refusals
        assert "U" in TopicTable.load(tmp_path / "slave").topics


@on_loop
async def test_change_names_the_members_that_do_not_report(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        broker.open.set_role(Role(name="master", broker_id=0, members=frozenset({0, 2, 5})))
        spread = await broker.metadata.change_group(GroupConfig("g"))
        assert spread.remark is not None
        assert spread.remark.startswith("stored on 1 of 3 members")
        assert "broker ids 2, 5" in spread.remark


@on_loop
async def test_slave_changes_no_topic_by_itself(tmp_path: Path) -> None:
    async with master_and_slave(tmp_path) as (_, slave):
        with pytest.raises(RequestRefused, match="from slave broker"):
            await slave.metadata.change_topic(TopicConfig("T"))
        assert slave.metadata.topic("T") is None


@on_loop
async def test_version_of_topics_has_the_epoch_of_the_master(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        broker.open.set_role(Role(name="master", broker_id=1, epoch=4, members=frozenset({1})))
        assert broker.metadata.tables.topics_version.state_version == 4
        before = broker.metadata.tables.topics_version
        broker.open.set_role(Role(name="master", broker_id=1, epoch=4, members=frozenset({1, 2})))
        assert broker.metadata.tables.topics_version == before


# -- whole tables of masters of RocketMQ


class JavaMaster:
    """Answers as 5.5.0 does, in pages of two topics."""

    def __init__(self, count: int) -> None:
        self.names = [f"T{number}" for number in range(count)]
        self.members: dict[str, object] = {}
        """What each topic has besides its name."""
        self.counter = 1
        self.pages = 0

    async def call(self, request: Frame) -> Frame:
        if request.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            return self.topics(request)
        bodies = {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: b'{"subscriptionGroupTable":{"g":{}}}',
            RequestCode.GET_ALL_CONSUMER_OFFSET: (
                b'{"dataVersion":{"counter":3},"groupTopicMap":{"g":["T0"]},'
                b'"offsetTable":{"T0@g":{0:10,1:20}},"pullOffsetTable":{}}'
            ),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: b'{"messageRequestModeMap":{}}',
        }
        if request.code in bodies:
            return request.respond(ResponseCode.SUCCESS, body=bodies[RequestCode(request.code)])
        return request.respond(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")

    def topics(self, request: Frame) -> Frame:
        self.pages += 1
        start = int(request.ext_fields["topicSeq"])
        known = request.ext_fields["dataVersion"]
        if self.pages == 2:
            self.counter += 1  # The table changes between two pages.
        if known and json.loads(known)["counter"] != self.counter:
            start = 0
        page = {name: {"topicName": name, **self.members} for name in self.names[start : start + 2]}
        body = json.dumps(
            {"dataVersion": {"counter": self.counter}, "topicConfigTable": page}
        ).encode()
        fields = {"totalTopicNum": str(len(self.names))}
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=body)


def tables() -> Tables:
    return Tables(wall_ms=lambda: 0, of_services=[DelayProgress(lambda: 0)])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_pages_of_5_5_0_are_taken_to_the_last_topic(count: int) -> None:
    master = JavaMaster(count)
    taken = asyncio.run(take_tables(master.call, tables().all, with_timer=True))
    assert sorted(taken.topics.topics) == master.names
    assert taken.topics.data_version.counter == master.counter
    assert taken.offsets.of("T0", "g") == {0: 10, 1: 20}
    assert taken.offsets.others == {}
    assert "delay" not in taken.by_name
    assert not taken.has_forbidden


def test_master_with_one_table_that_cannot_be_read_changes_nothing() -> None:
    master = JavaMaster(2)

    async def call(request: Frame) -> Frame:
        if request.code == RequestCode.GET_ALL_MESSAGE_REQUEST_MODE:
            return request.respond(ResponseCode.SUCCESS, body=b"{not json")
        return await master.call(request)

    with pytest.raises(RemotingFrameError, match=r"messageRequestMode\.json"):
        asyncio.run(take_tables(call, tables().all, with_timer=False))


class JavaHost:
    """A slave, as it follows a master that answers as RocketMQ's do."""

    def __init__(self, slave: Broker, master: JavaMaster) -> None:
        self.log = slave.log
        self._master = master
        self.pauses = 0

    async def call(self, frame: Frame, timeout_ms: int) -> Frame:
        return await self._master.call(frame)

    async def sleep(self, ms: int) -> None:
        self.pauses += 1
        await asyncio.sleep(0)


@on_loop
async def test_topic_with_more_queues_than_a_store_has_is_said_and_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    master = JavaMaster(1)
    kind = {"attributes": {"queue.type": "BatchCQ"}}
    master.members = {**kind, "readQueueNums": 4, "writeQueueNums": 70_000}
    async with Broker(broker_config(tmp_path)) as slave:
        host = JavaHost(slave, master)
        follower = Follower(host, slave.metadata, master="java", broker_id=1)
        following = asyncio.ensure_future(follower.run())
        await until(lambda: host.pauses >= 3 or following.done(), "three tries")
        assert not following.done()
        assert not follower.rounds
        assert "T0" not in slave.metadata.tables.topics
        assert "T0 has 70000 batch queues; the limit is 65536" in caplog.text

        master.members = {**kind, "readQueueNums": 4, "writeQueueNums": 4}
        await until(lambda: follower.rounds, "the tables are taken")
        assert slave.metadata.tables.topics["T0"].write_queue_count == 4
        following.cancel()
        await asyncio.wait([following])


@on_loop
async def test_orderly_pops_are_copied_and_kept(tmp_path: Path) -> None:
    def states(broker: Broker) -> OrderTable:
        return broker.open.pop_orders.states.whole()

    state = OrderState(popped_ms=7, invisible_ms=60_000, offsets=(3, 4), used_ms=7)
    async with master_and_slave(tmp_path) as (master, slave):
        orders = master.open.pop_orders.states
        orders.set("T", "g", 0, state)
        await until(lambda: states(slave) == states(master), "a slave that joins has it")
        orders.set("T", "g", 1, state)
        await until(lambda: states(slave) == states(master), "the slave has the change")
    for name in ("master", "slave"):
        assert OrderTable.load(tmp_path / name).states == {"T@g": {0: state, 1: state}}
