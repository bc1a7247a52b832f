"""A whole controller in virtual time: scans, planned reviews, connections and its configuration."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqstore.config import ControllerConfig
from rmqstore.controller.commands import AssignBrokerId, encode_command
from rmqstore.controller.group import Group
from rmqstore.controller.parts import Parts
from rmqstore.controller.server import Controller
from rmqstore.errors import DiskError
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ControllerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
)
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.controller_engine import Kept, SimEngine
from rmqstore.sim.decision_log import DecisionLog
from rmqstore.sim.network import Network
from rmqstore.sim.process import Process
from rmqstore.sim.runtime import VirtualRuntime
from rmqstore.sim.transport import SimClient, SimServer

PLACE = "10.0.0.9:9878"
FIRST, SECOND = 1, 2
"""The machines of two brokers, which are their ids too."""
SELDOM_MS = 3_600_000
SCAN_MS = 500
LEASE_MS = 3000


class World:
    """A controller on machine 9, which leads over a log without faults, and two brokers."""

    def __init__(self, **values: Any) -> None:
        self.timeline = Timeline()
        self._network = Network(self.timeline, Random(1))
        self._failures: list[dict[str, Any]] = []
        self.log = DecisionLog(self.timeline, Random(1), self._committed, loss_rate=1.0)
        self.log.is_kind = True
        self.controller: Controller
        self.clients: dict[int, SimClient] = {}
        self.brokers: dict[int, Process] = {}
        self.process, clock = self._process(9)
        self.engine = SimEngine(
            number=0,
            log=self.log,
            process=self.process,
            kept=Kept(),
            started=lambda: None,
            stuck=lambda: None,
        )
        settings = {"scan_brokers_interval_ms": SELDOM_MS, "scan_masters_interval_ms": SELDOM_MS}
        config = ControllerConfig(bind_address="10.0.0.9", listen_port=9878, **(settings | values))
        self.process.run(partial(self._make, config, clock))
        self.run(self.controller.start(), self.process)
        for number in (FIRST, SECOND):
            self.brokers[number], _ = self._process(number)
            self.brokers[number].run(partial(self._connect, number))
            place = f"10.0.0.{number}:10911"
            command = AssignBrokerId("g", "c", number, place, f"{place};1")
            self.log.append(encode_command(command))
        self.log.elect(0)
        self.pass_ms(10)
        self.process.run(lambda: self.engine.lead(self.log.term))

    def _make(self, config: ControllerConfig, clock: MachineClock) -> None:
        sockets = self.process.sockets
        runtime = VirtualRuntime(
            log=IdentityLog("rmqstore.test"), clock=clock, client=SimClient(sockets)
        )
        parts = Parts(
            server=partial(SimServer, sockets),
            client=partial(SimClient, sockets),
            engine=lambda config: self.engine,
            process_id=lambda: "process",
        )
        self.controller = Controller(config, runtime=runtime, parts=parts)

    def _connect(self, number: int) -> None:
        self.clients[number] = SimClient(self.brokers[number].sockets)

    def _process(self, number: int) -> tuple[Process, MachineClock]:
        clock = MachineClock(self.timeline, begin_ms=1000 * number)
        process = Process(
            number,
            timeline=self.timeline,
            network=self._network,
            clock=clock,
            failed=self._failures.append,
        )
        return process, clock

    def _committed(self, entry: bytes) -> None:
        self.timeline.after(0, lambda: self.process.run(self.engine.apply_next))

    def pass_ms(self, ms: int) -> None:
        self.timeline.run(self.timeline.now_us + ms * 1000)
        assert not self._failures, self._failures

    def run(self, work: Coroutine[Any, Any, Any], process: Process) -> Any:
        """Return the result of *work* in *process*."""
        tasks: list[asyncio.Task[Any]] = []
        process.run(lambda: tasks.append(process.loop.create_task(work)))
        for _ in range(5000):
            if tasks[0].done():
                return tasks[0].result()
            self.pass_ms(1)
        raise AssertionError("not done after 5 s")

    def call(self, number: int, code: int, fields: dict[str, str], body: bytes = b"") -> Frame:
        """Return the answer to a request of a broker."""
        request = Frame.request(code, fields, body)
        answer = self.run(self.clients[number].call(PLACE, request, 4.0), self.brokers[number])
        assert isinstance(answer, Frame)
        return answer

    def beat(self, broker_id: int, *, timeout_ms: int = SELDOM_MS, **fields: Any) -> None:
        """Send the heartbeat of a Java broker, or of one of this library if it has a *life*."""
        header = ControllerHeartbeatRequestHeader(
            cluster_name="c",
            broker_address=f"10.0.0.{broker_id}:10911",
            broker_name="g",
            broker_id=broker_id,
            epoch=0,
            max_offset=100,
            heartbeat_timeout_ms=timeout_ms,
            **fields,
        )
        answer = self.call(broker_id, RequestCode.BROKER_HEARTBEAT, header.to_fields())
        assert answer.code == ResponseCode.SUCCESS

    def elect(self, number: int) -> Frame:
        """Return the answer to a broker that asks for an election."""
        header = ElectMasterRequestHeader(cluster_name="c", broker_name="g", broker_id=number)
        return self.call(number, RequestCode.CONTROLLER_ELECT_MASTER, header.to_fields())

    def make_group(self, **fields: Any) -> None:
        """Make the first broker master, with both in the set."""
        for number in (FIRST, SECOND):
            self.beat(number, **fields)
        assert self.elect(FIRST).code == ResponseCode.SUCCESS
        header = AlterSyncStateSetRequestHeader(
            broker_name="g", master_broker_id=FIRST, master_epoch=1
        )
        body = SyncStateSetBody(frozenset((FIRST, SECOND)), 1).encode()
        altered = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        assert self.call(FIRST, altered, header.to_fields(), body).code == ResponseCode.SUCCESS

    @property
    def group(self) -> Group:
        """The state that the controller has."""
        found = self.controller.state.group("g")
        assert found is not None
        return found


@pytest.mark.parametrize("scan", ["scan_brokers_interval_ms", "scan_masters_interval_ms"])
def test_each_scan_finds_a_master_whose_heartbeats_have_ended(scan: str) -> None:
    world = World(**{scan: SCAN_MS})
    world.make_group()
    world.beat(FIRST, timeout_ms=2000)
    world.pass_ms(1900)
    assert not world.controller.status().waiting
    world.pass_ms(200 + SCAN_MS)
    assert "g" in world.controller.status().waiting, "it looks for another master"


def test_the_end_of_a_connection_counts_after_a_quiet_time_without_scans() -> None:
    """The pulse shows that the controller was not stopped meanwhile."""
    world = World()
    world.make_group()
    world.pass_ms(10_000)
    world.brokers[FIRST].end(loses_power=False)
    world.pass_ms(100)
    assert "g" in world.controller.status().waiting, "it looks for another master"


def test_a_controller_that_was_stopped_takes_no_end_of_a_connection_for_a_death() -> None:
    world = World()
    world.make_group()
    world.process.pause(10_000)
    world.pass_ms(5000)
    world.brokers[FIRST].end(loses_power=False)
    world.pass_ms(5100)
    assert not world.controller.status().waiting


def test_an_election_is_reviewed_when_the_lease_of_the_former_master_has_ended() -> None:
    """No scan, no heartbeat and no connection brings the review about."""
    world = World()
    world.make_group(life=1, in_sync=2, lease_ms=LEASE_MS)
    world.beat(FIRST, life=1, in_sync=2, lease_ms=LEASE_MS, number=2, role_epoch=1)
    world.pass_ms(10_000)
    world.beat(FIRST, life=1, in_sync=2, lease_ms=LEASE_MS, number=3, role_epoch=1)
    world.brokers[FIRST].end(loses_power=False)
    world.pass_ms(LEASE_MS - 500)
    assert "lease of the former master" in world.controller.status().waiting["g"].reason
    world.pass_ms(1500)
    assert "have yet to report" in world.controller.status().waiting["g"].reason


def test_a_change_that_cannot_be_saved_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(config_store_path=str(tmp_path / "changes"))
    body = b"enableElectUncleanMaster=true\n"
    leader = world.controller.leader
    assert leader is not None

    def fail(*_: object) -> None:
        raise DiskError(errno.ENOSPC, "no space")

    with monkeypatch.context() as disk:
        disk.setattr("rmqstore.store.server_files.replace_file", fail)
        answer = world.call(FIRST, RequestCode.UPDATE_CONTROLLER_CONFIG, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not world.controller.config.elect_unclean_master
    assert not leader.allows_unclean

    answer = world.call(FIRST, RequestCode.UPDATE_CONTROLLER_CONFIG, {}, body)
    assert answer.code == ResponseCode.SUCCESS
    assert world.controller.config.elect_unclean_master
    assert leader.allows_unclean, "the present term has the new setting"


def test_an_election_whose_outcome_is_unknown_is_no_success() -> None:
    world = World()
    world.beat(FIRST)
    world.log.is_kind = False
    answer = world.elect(FIRST)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "unknown" in (answer.remark or "")


def test_a_controller_whose_term_ended_decides_nothing() -> None:
    world = World()
    world.make_group()
    world.process.run(lambda: world.engine.resign(world.log.term))
    assert not world.controller.status().is_leader
    world.brokers[FIRST].end(loses_power=False)
    world.pass_ms(1000)
    assert world.group.master_id == FIRST
    assert world.elect(SECOND).code == ResponseCode.CONTROLLER_NOT_LEADER
