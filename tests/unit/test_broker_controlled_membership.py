"""The link of a broker to its controllers, in virtual time: its id, heartbeats and what follows."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.broker.membership.controlled import ControlledMembership
from rmqstore.broker.membership.identity_files import IdentityFiles
from rmqstore.broker.parts import Parts
from rmqstore.config import BrokerConfig
from rmqstore.errors import DiskError
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import ControllerHeartbeatResponseHeader
from tests.support.java_rules import JavaRules
from tests.support.role_model import ModelClient, ModelHost, ModelReplica, Server
from tests.support.virtual import VirtualProcess

ONE, TWO = "10.0.0.1:9878", "10.0.0.2:9878"
BEAT = RequestCode.BROKER_HEARTBEAT


def served(rules: JavaRules) -> Server:
    """Return the controller that answers by *rules*."""
    handlers = rules.handlers()
    return lambda request: handlers[request.code](None, request)


class Controllers(JavaRules):
    """Controllers of this library with one state: the one at *leader* answers heartbeats as the
    leader."""

    def at(self, address: str) -> Server:
        """Return the controller at *address*."""
        others = served(self)

        def answer(request: Frame) -> Frame | None:
            if request.code != BEAT:
                return others(request)
            leads = address == self.leader
            header = ControllerHeartbeatResponseHeader(
                controller_node=address,
                controller_ms=1,
                is_leader=leads,
                master_broker_id=self.master if leads else None,
                master_address=self.addresses[1] if leads else None,
                master_epoch=self.epoch,
                sync_state_set_epoch=self.set_epoch,
            )
            body = SyncStateSetBody(self.members, self.set_epoch).encode() if leads else b""
            return request.respond(ResponseCode.SUCCESS, fields=header.to_fields(), body=body)

        return answer


class _Host(ModelHost):
    """The broker of a link."""

    parts = Parts(boot=lambda: "boot")
    address = "10.0.1.1", 10911
    metadata_trouble = ""
    replica: ModelReplica | None = None

    def __init__(self, process: VirtualProcess, root: Path, controllers: tuple[str, ...]) -> None:
        super().__init__(process.runtime)
        self.config = BrokerConfig(
            name="b", cluster_name="c", identity_path=str(root / "brokerIdentity")
        )
        self.controller_addresses = controllers
        self.store = SimpleNamespace(
            store=SimpleNamespace(recovery=SimpleNamespace(was_closed=True))
        )
        self.options: dict[str, Any] = {}

    async def open_replica(self, broker_id: int, **options: Any) -> ModelReplica:
        self.replica, self.options = ModelReplica(self.runtime), options
        return self.replica


class Broker:
    """A broker without an id, and its controllers by address."""

    def __init__(self, root: Path, controllers: dict[str, Server]) -> None:
        self.client = ModelClient(controllers)
        self.process = VirtualProcess(self.client)
        self.client.runtime = self.process.runtime
        self.host = _Host(self.process, root, tuple(controllers))
        host: Any = self.host
        self.link = ControlledMembership(host)
        self.process.run(self.link.start())


def test_a_call_without_an_answer_delays_no_heartbeat(tmp_path: Path) -> None:
    rules = JavaRules()
    rules.leader = TWO
    broker = Broker(tmp_path, {ONE: served(rules), TWO: served(rules)})
    broker.process.pass_time(2)
    broker.client.servers[ONE] = lambda request: None
    broker.host.config = broker.host.config.replace(heartbeat_timeout_ms=60_000)
    before = len(broker.client.times(TWO, BEAT))
    broker.process.pass_time(10)
    assert len(broker.client.times(TWO, BEAT)) - before >= 9


def test_the_next_leader_is_looked_for_after_three_heartbeats_without_an_answer(
    tmp_path: Path,
) -> None:
    controllers = Controllers()
    controllers.leader = ONE
    broker = Broker(tmp_path, {ONE: controllers.at(ONE), TWO: controllers.at(TWO)})
    broker.process.pass_time(6)
    assert broker.link.leader == ONE

    # One of four heartbeats goes to all controllers; the next leader has to be found sooner.
    beats = len(broker.client.times(TWO, BEAT))
    for _ in range(50):
        broker.process.pass_time(0.1)
        if len(broker.client.times(TWO, BEAT)) > beats:
            break
    broker.client.servers[ONE] = lambda request: None
    controllers.leader = TWO
    broker.process.pass_time(3.5)
    assert broker.link.leader == TWO


def test_an_id_is_not_used_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full, save = [True], IdentityFiles.save_identity

    def save_if_there_is_room(files: IdentityFiles, broker_id: int) -> None:
        if is_full:
            raise DiskError(errno.ENOSPC, "No space left on device")
        save(files, broker_id)

    monkeypatch.setattr(IdentityFiles, "save_identity", save_if_there_is_room)
    rules = JavaRules()
    rules.leader = ONE
    broker = Broker(tmp_path, {ONE: served(rules)})
    broker.process.pass_time(10)
    assert rules.addresses.keys() == {1}
    assert broker.host.replica is None
    assert rules.beats == []

    is_full.clear()
    broker.process.pass_time(3)
    assert broker.host.replica is not None
    assert (tmp_path / "brokerIdentity").read_text() == "c#b#1"


def test_an_application_whose_answer_was_lost_is_sent_again(tmp_path: Path) -> None:
    rules = JavaRules()
    rules.leader = ONE
    rules.silent_codes = {RequestCode.CONTROLLER_APPLY_BROKER_ID}
    broker = Broker(tmp_path, {ONE: served(rules)})
    broker.process.pass_time(10)
    assert (tmp_path / "brokerIdentity").read_text() == "c#b#1"
    assert rules.next_id == 2, "one id was given"


def test_a_role_that_ended_is_reported_by_the_replica(tmp_path: Path) -> None:
    rules = JavaRules()
    rules.leader = ONE
    broker = Broker(tmp_path, {ONE: served(rules)})
    broker.process.pass_time(3)
    replica = broker.host.replica
    assert replica is not None
    assert broker.host.role.name == "master"
    replica.role = None
    broker.process.loop.run(lambda: broker.host.options["on_change"](replica.status()))
    assert broker.host.role.name is None
