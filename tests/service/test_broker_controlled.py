"""Brokers under our controller: ids, roles, a fail-over, restarts, faults of the controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqstore.admin.controller import ControllerAdmin
from rmqstore.admin.top import observe
from rmqstore.broker.metadata import shared
from rmqstore.broker.metadata.following import Follower
from rmqstore.broker.node import Broker
from rmqstore.config import BrokerRole, ControllerConfig, NameserverConfig
from rmqstore.controller.leader import Leader
from rmqstore.controller.liveness import Heartbeat, Liveness
from rmqstore.controller.server import Controller
from rmqstore.errors import (
    ConfigError,
    CorruptionError,
    NotWritable,
    RemotingError,
    StoreError,
)
from rmqstore.message import Durability
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.epochs import EpochCache
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.fastjson import dumps, loads
from rmqstore.remoting.frames import Frame
from rmqstore.replication.runtime.replica import Replica
from rmqstore.store.metadata import TopicConfig
from tests.support.broker_group import Group, bodies, controller_of, group_of, put, takes_puts
from tests.support.brokers import broker_config
from tests.support.hosts import Hosts
from tests.support.loops import on_loop
from tests.support.sends import send_request
from tests.support.waiting import WAIT_S, until

OUT_OF_REACH = "127.9.9.9"
"""A host of this machine at which no server of a test listens."""


@on_loop
async def test_a_lone_broker_gets_id_role_and_lease(tmp_path: Path) -> None:
    async with group_of(tmp_path, "a") as group:
        assert await group.master() == "a"
        broker = group.brokers["a"]
        assert (broker.role.broker_id, broker.role.registered_id) == (1, 0)
        assert broker.role.master_address == broker.address
        assert (tmp_path / "a" / "brokerIdentity").read_text() == "DefaultCluster#broker-a#1"
        await put(broker, "one")
        assert broker.open.membership is not None
        assert broker.open.membership.leader == group.controllers[0]
        async with ControllerAdmin(group.controllers[0]) as controller:
            (row,) = (await observe(None, controller, ["broker-a"])).rows
        assert (row.is_master, row.is_in_sync) == (True, True)
        assert row.lease_ms is not None
        assert 0 < row.lease_ms <= broker.config.controller_heartbeat_timeout_ms


@on_loop
async def test_slaves_join_and_take_over_when_the_master_is_killed(tmp_path: Path) -> None:
    quorum = {"in_sync_replicas": 2, "all_ack_in_sync_state_set": True, "min_in_sync_replicas": 2}
    async with group_of(tmp_path, "a", "b", "c", **quorum) as group:
        first = await group.master()
        epoch = group.brokers[first].role.epoch
        acknowledged = []
        for number in range(20):
            await put(group.brokers[first], f"{number}")
            acknowledged.append(f"{number}".encode())

        await group.kill(first)
        second = await group.master(after=epoch)
        assert bodies(group.brokers[second])[:20] == acknowledged
        for number in range(20, 30):
            await put(group.brokers[second], f"{number}")
            acknowledged.append(f"{number}".encode())

        returned = await group.start(first)
        await group.master(after=epoch)
        assert returned.role.name == "slave"
        assert returned.role.master_address == group.brokers[second].address
        end = group.brokers[second].store.store.end_offset
        assert returned.replica is not None
        await returned.replica.wait_caught_up(end)
        await until(lambda: bodies(returned) == acknowledged, "readers see all on the slave")
        with pytest.raises(NotWritable):
            await returned.store.put("orders", b"no", durability=Durability.MEMORY)


@on_loop
async def test_a_broker_sends_a_heartbeat_when_an_election_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Leader, "report_in_ms", lambda *_: 20)
    heard = []
    record = Liveness.record

    def hear(self: Liveness, beat: Heartbeat, connection: Hashable, now_ms: int) -> bool:
        heard.append(beat.number)
        return record(self, beat, connection, now_ms)

    monkeypatch.setattr(Liveness, "record", hear)
    options = {"heartbeat_interval_ms": 60_000, "controller_heartbeat_timeout_ms": 200_000}
    async with group_of(tmp_path, "a", **options):
        await until(lambda: len(heard) > 20, "heartbeats long before the next one is due by time")


@on_loop
async def test_two_copies_survive_when_the_only_controller_stops_with_the_master(
    tmp_path: Path,
) -> None:
    controller = controller_of(tmp_path / "controller")
    await controller.start()
    port = controller.address[1]
    group = Group(tmp_path, format_address(controller.address), in_sync_replicas=2)
    try:
        for name in "abc":
            await group.start(name)
        first = await group.master()
        epoch = group.brokers[first].role.epoch
        for number in range(10):
            await put(group.brokers[first], f"{number}")
        await controller.close()
        await group.kill(first)
        controller = controller_of(tmp_path / "controller", port)
        await controller.start()
        second = await group.master(after=epoch)
        assert len(bodies(group.brokers[second])) == 10
        await group.start(first)
        await group.master(after=epoch)
    finally:
        for name in list(group.brokers):
            await group.stop(name)
        await controller.close()


@on_loop
async def test_a_master_without_controllers_takes_no_puts_and_is_no_master_in_the_routes(
    tmp_path: Path,
) -> None:
    controller = controller_of(tmp_path / "controller")
    await controller.start()
    port = controller.address[1]
    async with Nameserver(NameserverConfig(bind_address="127.0.0.1", listen_port=0)) as names:

        def known() -> Mapping[int, str]:
            return names.table.member_group("DefaultCluster", "broker-a").addresses

        options = {"lease_ms": 700, "nameservers": (format_address(names.address),)}
        group = Group(tmp_path, format_address(controller.address), **options)
        try:
            broker = await group.start("a")
            await group.master()
            await until(lambda: 0 in known(), "the route shows the master")
            await controller.close()
            await until(lambda: not takes_puts(broker), "the lease ends")
            assert broker.role.name == "master"
            await until(lambda: set(known()) == {broker.role.broker_id}, "it is shown as a slave")
            assert broker.role.broker_id > 0
            assert (await lock_queue(broker)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            spread = await broker.metadata.change_topic(TopicConfig("late"))
            assert "holds no lease" in (spread.remark or "")
            controller = controller_of(tmp_path / "controller", port)
            await controller.start()
            await until(lambda: takes_puts(broker), "the lease is renewed")
            assert (await lock_queue(broker)).code == ResponseCode.SUCCESS
            assert (await broker.metadata.change_topic(TopicConfig("later"))).remark is None
            await until(lambda: set(known()) == {0}, "the route shows the master again")
        finally:
            await group.stop("a")
            await controller.close()


async def lock_queue(broker: Broker) -> Frame:
    """Return the answer of *broker* to the request of a consumer for a lock of a queue."""
    queue = {"topic": "orders", "brokerName": broker.config.name, "queueId": 0}
    body = {"consumerGroup": "g", "clientId": "c", "mqSet": [queue]}
    async with RemotingClient() as client:
        frame = Frame.request(RequestCode.LOCK_BATCH_MQ, body=dumps(body))
        return await client.call(broker.address, frame, WAIT_S)


@on_loop
async def test_a_slave_joins_the_set_once_it_holds_the_topics_of_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, is_cut = Follower._poll, True

    async def cut(self: Follower, changes_id: str, number: int) -> Frame:
        if is_cut:
            raise RemotingError("the way to the master's port for clients is cut")
        return await poll(self, changes_id, number)

    monkeypatch.setattr(Follower, "_poll", cut)
    async with group_of(tmp_path, "a", "b", all_ack_in_sync_state_set=True) as group:
        name = await group.master(members=1)
        master = group.brokers.pop(name)
        ((other, slave),) = group.brokers.items()
        group.brokers[name] = master
        spread = await master.metadata.change_topic(TopicConfig("T", 3, 3))
        assert spread.remark is None
        for number in range(10):
            await put(master, f"{number}")
            end = master.store.store.end_offset
            assert slave.replica is not None
            await slave.replica.wait_caught_up(end)
        assert master.role.members == {master.role.broker_id}

        is_cut = False
        await until(lambda: len(master.role.members) == 2, "the slave has joined")
        assert slave.metadata.topic("T") == TopicConfig("T", 3, 3)
        epoch = master.role.epoch
        await group.kill(name)
        assert await group.master(after=epoch) == other
        assert slave.metadata.topic("T") == TopicConfig("T", 3, 3)


@on_loop
async def test_brokers_wait_for_controllers_that_start_later(tmp_path: Path) -> None:
    controller = controller_of(tmp_path / "controller")
    await controller.start()
    port = controller.address[1]
    await controller.close()
    group = Group(tmp_path, "127.0.0.1:1", f"127.0.0.1:{port}")
    try:
        broker = await group.start("a")
        assert broker.role.name is None
        with pytest.raises(StoreError):
            await put(broker, "no")
        async with RemotingClient() as client:
            queue = {"topic": "orders", "queueId": "0"}
            asked = Frame.request(RequestCode.GET_MAX_OFFSET, queue)
            for request in (send_request("orders", b"no"), asked):
                refused = await client.call(broker.address, request, WAIT_S)
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        async with controller_of(tmp_path / "controller", port):
            await group.master()
            await put(broker, "one")
            await group.stop("a")
    finally:
        for name in list(group.brokers):
            await group.stop(name)


@on_loop
async def test_a_broker_keeps_its_id_and_gets_another_epoch_after_it_was_killed(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, "a") as group:
        epochs, lives = [], []
        after = 0
        for is_killed in (True, False, True):
            await group.master(after=after)
            broker = group.brokers["a"]
            await put(broker, "x")
            epochs.append(broker.role.epoch)
            after = epochs[-1] if is_killed else after
            lives.append((tmp_path / "a" / "brokerIdentity-life").read_text())
            assert broker.role.broker_id == 1
            await (group.kill("a") if is_killed else group.stop("a"))
            await group.start("a")
        await group.master(after=after)
        assert len(bodies(group.brokers["a"])) == 3
        assert epochs[0] < epochs[1] == epochs[2], "a clean end leaves the master its epoch"
        assert len(set(lives)) == 3


@on_loop
async def test_of_two_brokers_with_one_identity_the_first_gives_way(tmp_path: Path) -> None:
    async with group_of(tmp_path, "a") as group:
        await group.master()
        first = group.brokers["a"]
        await put(first, "one")
        (tmp_path / "b").mkdir()
        for name in ("brokerIdentity", "brokerIdentity-life"):
            (tmp_path / "b" / name).write_bytes((tmp_path / "a" / name).read_bytes())
        twin = await group.start("b")
        await until(lambda: first.role.name is None, "the first broker gives way")
        await until(lambda: not takes_puts(first), "it takes no more messages")
        await until(lambda: twin.role.broker_id == 1, "the second one has the id")


@on_loop
async def test_a_master_at_another_address_is_followed_there(tmp_path: Path) -> None:
    quorum = {"all_ack_in_sync_state_set": True}
    async with group_of(tmp_path, "a", "b", **quorum) as group:
        first = await group.master()
        (other,) = {"a", "b"} - {first}
        former = group.brokers[first].address
        await group.stop(first)
        await group.start(first)
        assert group.brokers[first].address != former
        master = group.brokers[await group.master()]
        assert {each.role.broker_id for each in group.brokers.values()} == {1, 2}
        slave = group.brokers[other if master is group.brokers[first] else first]
        await until(lambda: slave.role.master_address == master.address, "it follows there")
        await put(master, "one")


@on_loop
async def test_the_identity_of_another_group_or_a_damaged_one_stops_the_start(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path) as group:
        for text, error in (("c#other#3", ConfigError), ("DefaultCluster#bro", CorruptionError)):
            (tmp_path / "a").mkdir(exist_ok=True)
            (tmp_path / "a" / "brokerIdentity").write_text(text)
            with pytest.raises(error):
                await group.start("a")
            group.brokers.clear()


@on_loop
async def test_replicas_answer_about_replication(tmp_path: Path) -> None:
    async with group_of(tmp_path, "a", "b") as group:
        master = group.brokers[await group.master()]
        (slave,) = [each for each in group.brokers.values() if each is not master]
        await put(master, "one")
        assert slave.replica is not None
        await slave.replica.wait_caught_up(master.store.store.end_offset)

        async def ask(broker: Broker, code: int, **fields: str) -> Frame:
            return await slave.open.call(broker.address, Frame.request(code, fields), WAIT_S)

        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        answer = await ask(master, code)
        assert answer.ext_fields["masterHaAddress"] == format_address(
            master.open.ha_address or ("", 0)
        )
        assert "masterHaAddress" not in (await ask(slave, code)).ext_fields

        fields: Any = loads((await ask(master, RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (fields["master"], fields["inSyncSlaveNums"]) == (True, 1)
        fields = loads((await ask(slave, RequestCode.GET_BROKER_HA_STATUS)).body)
        assert fields["master"] is False
        assert fields["haClientRuntimeInfo"]["maxOffset"] == slave.store.store.end_offset

        answer = await ask(slave, RequestCode.GET_BROKER_EPOCH_CACHE)
        cache = EpochCache.decode(answer.body)
        assert cache.broker_id == slave.role.broker_id
        answer = await ask(master, RequestCode.GET_BROKER_EPOCH_CACHE)
        assert EpochCache.decode(answer.body).broker_id == 0
        assert [each.epoch for each in cache.entries] == [master.role.epoch]

        bad = Frame.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, {}, b"{")
        refused = await slave.open.call(master.address, bad, WAIT_S)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert master.role.name == "master"


@on_loop
async def test_a_message_that_makes_its_topic_is_a_success_once_the_members_have_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, is_cut = Follower._poll, False

    async def cut(self: Follower, changes_id: str, number: int) -> Frame:
        answer = await poll(self, changes_id, number)
        if is_cut:
            raise RemotingError("the way to the master's port for clients is cut")
        return answer

    monkeypatch.setattr(Follower, "_poll", cut)
    monkeypatch.setattr(shared, "_KEPT_MS", 300)
    async with group_of(tmp_path, "a", "b", all_ack_in_sync_state_set=True) as group:
        name = await group.master()
        master = group.brokers.pop(name)
        ((_, slave),) = group.brokers.items()
        async with RemotingClient() as client:

            async def code_of(topic: str) -> int:
                return (await client.call(master.address, send_request(topic, b"m"), WAIT_S)).code

            is_cut = True
            sends = [code_of("T") for _ in range(20)]
            assert set(await asyncio.gather(*sends)) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            assert slave.metadata.topic("T") is None
            await until_told(group, "no metadata from the master: the way to the master's port")
            assert len(master.role.members) == 2
            is_cut = False

            async def is_success() -> bool:
                return await code_of("T") == ResponseCode.SUCCESS

            await until(is_success, "the slave reports the topic")
            assert slave.metadata.topic("T") is not None
            assert await code_of("U") == ResponseCode.SUCCESS
            assert slave.metadata.topic("U") is not None
        group.brokers[name] = master


@on_loop
async def test_a_controller_that_names_itself_by_an_address_out_of_reach_is_used_where_it_answers(
    tmp_path: Path,
) -> None:
    hosts = Hosts()
    reached = hosts.host(10), hosts.ports(hosts.host(10))
    named = format_address((OUT_OF_REACH, reached[1]))
    config = ControllerConfig(
        bind_address=reached[0],
        peers=f"n0-{named}",
        self_id="n0",
        store_path=str(tmp_path / "controller"),
    )
    async with Controller(config), RemotingClient() as client:
        request = Frame.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        answer = await client.call(reached, request, WAIT_S)
        assert answer.ext_fields["controllerLeaderAddress"] == named
        group = Group(tmp_path, format_address(reached))
        try:
            broker = await group.start("a")
            assert await group.master() == "a"
            await put(broker, "one")
            assert broker.open.membership is not None
            assert broker.open.membership.leader == format_address(reached)
        finally:
            await group.stop("a")


async def until_told(group: Group, text: str) -> None:
    """Wait until the controller names *text* as what is wrong with the group."""
    async with ControllerAdmin(group.controllers[0]) as controller:

        async def is_told() -> bool:
            (found,) = await controller.sync_state_sets(["broker-a"])
            return text in found.wait_reason

        await until(is_told, f"the controller names {text}")


def nameserver() -> Nameserver:
    return Nameserver(NameserverConfig(bind_address="127.0.0.1", listen_port=0))


@on_loop
async def test_a_master_out_of_reach_at_its_address_for_clients_is_followed_at_its_ha_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with nameserver() as names:
        options: dict[str, Any] = {
            "host": OUT_OF_REACH,
            "ha_host_address": "127.0.0.1",
            "nameservers": (format_address(names.address),),
            "in_sync_replicas": 2,
        }
        async with group_of(tmp_path, "a", "b", **options) as group:
            name = await group.master()
            master = group.brokers.pop(name)
            ((other, slave),) = group.brokers.items()
            group.brokers[name] = master
            await put(master, "one")
            assert (await master.metadata.change_topic(TopicConfig("T", 3, 3))).remark is None
            assert slave.metadata.topic("T") == TopicConfig("T", 3, 3)
            assert f"{format_address(master.address)} does not answer" in caplog.text

            # As the next master, the other one has what was acknowledged, and is found in this way.
            epoch = master.role.epoch
            await group.kill(name)
            await group.master(after=epoch, members=1)
            await group.start(name)
            assert await group.master(after=epoch) == other
            await put(slave, "two")


@on_loop
async def test_a_master_that_is_out_of_reach_and_unknown_to_nameservers_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with group_of(tmp_path, "a", host=OUT_OF_REACH, ha_host_address="127.0.0.1") as group:
        master = group.brokers[await group.master()]
        slave = await group.start("b")
        warning = f"the master {format_address(master.address)} is not reached at its address"
        await until(lambda: warning in caplog.text, "a warning")
        await until_told(group, f"broker {slave.role.broker_id}: {warning}")
        assert slave.role.name is None
        assert master.role.members == {master.role.broker_id}


@on_loop
async def test_a_slave_with_a_fixed_role_takes_the_metadata_at_the_host_of_the_ha_address(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(nameserver())
        common: dict[str, Any] = {
            "nameservers": (format_address(names.address),),
            "ha_host_address": "127.0.0.1",
        }
        master = Broker(broker_config(tmp_path / "master", host=OUT_OF_REACH, **common))
        await stack.enter_async_context(master)
        await master.metadata.change_topic(TopicConfig("T", 3, 3))
        config = broker_config(
            tmp_path / "slave", broker_role=BrokerRole.SLAVE, broker_id=1, **common
        )
        slave = await stack.enter_async_context(Broker(config))
        await until(lambda: slave.metadata.topic("T") is not None, "the slave has the topic")
        assert slave.role.master_address == master.address


@on_loop
async def test_a_broker_that_is_yet_to_learn_that_its_role_has_ended_is_announced_as_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group_of(tmp_path, "a") as group:
        broker = group.brokers[await group.master()]
        announced = broker.open.announcement()
        assert announced is not None
        assert (announced.broker_id, broker.open.is_leading) == (0, True)
        # As while the log is synced at the end of a role.
        monkeypatch.setattr(Replica, "possible_members", frozenset())
        monkeypatch.setattr(Replica, "lease_end_ms", None)
        announced = broker.open.announcement()
        assert announced is not None
        assert (announced.broker_id, broker.open.is_leading) == (broker.role.broker_id, False)
        monkeypatch.undo()
