"""Decisions that no seed shows to be wrong where one line of them is changed.

The faults are those of `mutants/mutants.toml` that name these tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from rmqstore import sim
from rmqstore.controller.commands import AlterSet
from rmqstore.controller.group import BrokerRecord, Group
from rmqstore.controller.state import Verdict, alteration_fault
from rmqstore.sim.broker_host import BrokerHost
from rmqstore.store.metadata import GroupConfig

AT_ONCE_MS = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[sim.Cluster]:
    """A quiet cluster whose tables are equal."""
    world = sim.Cluster(1, faults=sim.Faults.none(), steps=5)
    outcome = world.run(stays_open=True)
    assert outcome.violation is None
    yield world
    world.close()


def begin(host: BrokerHost, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start *work* in the process of a broker."""
    tasks: list[asyncio.Task[Any]] = []
    loop = host.machine.loop
    host.machine.process.run(lambda: tasks.append(loop.create_task(work)))
    return tasks[0]


def master_of(cluster: sim.Cluster) -> BrokerHost:
    return cluster.brokers[cluster.controller.view.master]


def test_set_of_an_earlier_epoch_is_refused_although_its_version_is_the_present_one() -> None:
    brokers = MappingProxyType({each: BrokerRecord(f"h{each}", "") for each in (1, 2)})
    group = Group(
        "c",
        "g",
        brokers,
        next_broker_id=3,
        master_id=1,
        master_epoch=5,
        sync_state_set=frozenset({1}),
        set_epoch=7,
    )
    members = frozenset({1, 2})
    proposed = AlterSet("g", 1, 5, 7, members, accepts_same=True, terms=None)
    assert alteration_fault(group, proposed) is None
    fault = alteration_fault(group, replace(proposed, master_epoch=4))
    assert fault is not None
    assert fault.verdict is Verdict.FENCED_MASTER_EPOCH


def test_new_group_is_on_all_members_at_once_and_its_answer_waits_for_them(
    cluster: sim.Cluster,
) -> None:
    master, timeline = master_of(cluster), cluster.timeline
    made_ms = []
    for name in ("first", "second"):
        work, spent_us = begin(master, master.metadata.change_group(GroupConfig(name))), 0
        while not work.done():
            timeline.run(timeline.now_us + 1000)
            spent_us += 1000
        assert not work.result().missing
        assert all(name in each.metadata.tables.groups for each in cluster.brokers.values())
        made_ms.append(spent_us // 1000)
    # The slaves had just asked again when the second one was made.
    assert made_ms[1] < AT_ONCE_MS + 2 * cluster.shape.sync_ms


def test_reports_of_an_earlier_epoch_admit_no_slave_in_the_next_one(
    cluster: sim.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = master_of(cluster)
    admitted: list[Collection[int]] = []
    monkeypatch.setattr(master.broker.replica, "admit", admitted.append)
    metadata, role = master.metadata, master.role
    metadata.take_role(replace(role, epoch=role.epoch + 1))
    # A change, or a confirmation of the last one, admits the slaves that hold it.
    begin(master, metadata.confirm_topics())
    assert admitted == [frozenset()]


def test_a_broker_that_starts_on_a_full_disk_joins_its_group_once_there_is_room() -> None:
    world = sim.Cluster(1, faults=sim.Faults.none(), steps=5)
    assert world.run(stays_open=True).violation is None
    slave = next(each for each in world.replicas.values() if each.slave_node is not None)
    broker = world.brokers[slave.number]
    world.kill(slave, loses_power=False, away_ms=10)
    world.timeline.run(world.timeline.now_us + 10_000)
    slave.log.is_full = True
    world.timeline.run(world.timeline.now_us + 3_000_000)
    assert slave.is_up
    assert broker.role.name is None
    slave.log.is_full = False
    world.timeline.run(world.timeline.now_us + 5_000_000)
    assert broker.role.name == "slave"
    world.close()
