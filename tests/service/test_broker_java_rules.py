"""Brokers under a controller that behaves as RocketMQ's: no lease, no answers to heartbeats but a
plain one, unchanged sets refused, no election of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmqstore.broker.membership import controlled
from rmqstore.broker.node import Broker
from rmqstore.message import Durability
from rmqstore.net.addresses import format_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.server import RemotingServer
from tests.support.broker_group import Group, bodies, put, takes_puts
from tests.support.java_rules import JavaRules
from tests.support.loops import on_loop
from tests.support.waiting import WAIT_S, until


@contextlib.asynccontextmanager
async def java_group(
    root: Path, *names: str, **options: object
) -> AsyncIterator[tuple[Group, JavaRules]]:
    """A scripted controller and brokers."""
    rules = JavaRules()
    server = RemotingServer(("127.0.0.1", 0), rules.handlers())
    server.start()
    rules.leader = format_address(server.address)
    group = Group(root, rules.leader, **options)
    try:
        for name in names:
            await group.start(name)
        yield group, rules
    finally:
        for name in list(group.brokers):
            await group.stop(name)
        await server.close()


async def notify(group: Group, rules: JavaRules) -> None:
    """Tell each broker about the last election."""
    async with RemotingClient() as client:
        for broker in group.brokers.values():
            await client.send_one_way(broker.address, rules.notice(), WAIT_S)


def by_id(group: Group, broker_id: int) -> Broker:
    (found,) = [each for each in group.brokers.values() if each.role.broker_id == broker_id]
    return found


@on_loop
async def test_brokers_get_ids_roles_and_a_full_set(tmp_path: Path) -> None:
    async with java_group(tmp_path, "a", "b", all_ack_in_sync_state_set=True) as (group, rules):
        master = group.brokers[await group.master()]
        assert rules.members == {1, 2}
        assert sorted(rules.addresses) == [1, 2]
        await put(master, "one")
        beat = rules.beats[-1]
        assert {"clusterName", "brokerName", "brokerId", "epoch", "maxOffset"} <= set(beat)
        assert beat["heartbeatTimeoutMills"] == "3000"


@on_loop
async def test_silent_controller_does_not_delay_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlled, "_CALL_S", 10 * WAIT_S)
    rules, deaf = JavaRules(), JavaRules()
    deaf.is_silent = True
    async with AsyncExitStack() as stack:
        places = []
        for each in (deaf, rules, rules):
            server = RemotingServer(("127.0.0.1", 0), each.handlers())
            server.start()
            stack.push_async_callback(server.close)
            places.append(format_address(server.address))
        rules.leader = places[1]
        group = Group(tmp_path, *places)
        await group.start("a")
        stack.push_async_callback(group.stop, "a")
        await until(lambda: 1 in rules.addresses, "the broker has an id")
        assert RequestCode.CONTROLLER_GET_METADATA_INFO in deaf.asked


@on_loop
async def test_the_lease_lasts_as_long_as_polls_are_answered(tmp_path: Path) -> None:
    async with java_group(tmp_path, "a", lease_ms=700) as (group, rules):
        await group.master()
        broker = group.brokers["a"]
        rules.is_silent = True
        await until(lambda: not takes_puts(broker), "the lease ends")
        rules.is_silent = False
        await until(lambda: takes_puts(broker), "the lease is renewed")


@on_loop
async def test_a_notice_changes_the_master_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    options = {"all_ack_in_sync_state_set": True, "min_in_sync_replicas": 2}
    async with java_group(tmp_path, "a", "b", **options) as (group, rules):
        former = group.brokers[await group.master()]
        for number in range(10):
            await put(former, f"{number}")
        (other,) = {1, 2} - {former.role.broker_id}
        rules.elect_as(other)
        await notify(group, rules)
        await group.master(after=1)
        master = by_id(group, other)
        assert master.role.epoch == 2
        assert len(bodies(master)) == 10
        assert former.role.name == "slave"
        await put(master, "10")


@on_loop
async def test_an_answer_that_is_lost_is_settled_by_the_poll(tmp_path: Path) -> None:
    async with java_group(tmp_path, "a", all_ack_in_sync_state_set=True) as (group, rules):
        master = group.brokers[await group.master()]
        rules.silent_codes.add(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
        await group.start("b")
        await group.master(members=2)
        assert rules.set_epoch == 2, "the set was taken once"
        await put(master, "one")


@on_loop
async def test_no_unchanged_set_is_proposed(tmp_path: Path) -> None:
    async with java_group(tmp_path, "a", "b") as (group, rules):
        # Either broker may be the first one that gets an id.
        alone = {group.brokers[await group.master()].role.broker_id}
        slave = next(name for name, each in group.brokers.items() if each.role.name == "slave")
        await group.kill(slave)
        await group.master(members=1)
        await group.start(slave)
        await group.master(members=2)
        assert [members for members, _ in rules.proposed][-2:] == [alone, {1, 2}]
        assert all(differs for _, differs in rules.proposed)


@on_loop
async def test_a_deposed_master_that_polls_becomes_a_slave(tmp_path: Path) -> None:
    async with java_group(tmp_path, "a", "b") as (group, rules):
        former = group.brokers[await group.master()]
        (other,) = {1, 2} - {former.role.broker_id}
        rules.elect_as(other)
        await group.master(after=1)
        assert former.role.name == "slave"
        assert by_id(group, other).role.name == "master"
        receipt = await by_id(group, other).store.put("orders", b"x", durability=Durability.MEMORY)
        assert receipt.queue_offset == 0


@on_loop
async def test_a_leader_of_rocketmq_that_names_itself_by_an_address_out_of_reach_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with java_group(tmp_path) as (group, rules):
        reached = rules.leader
        rules.leader = f"127.9.9.9:{reached.rpartition(':')[2]}"
        broker = await group.start("a")
        await group.master()
        await put(broker, "one")
        assert broker.open.membership is not None
        assert broker.open.membership.leader == reached

        # A follower names the leader: this address alone is known of it.
        rules.leads = False
        await until(lambda: "does not answer at 127.9.9.9" in caplog.text, "a warning")
        assert f"as {reached} names it" in caplog.text
