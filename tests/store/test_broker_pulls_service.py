"""The service of pulls: what a change of the role means for those that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.services.pulls import Pulls
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from rmqstore.remoting.requests import Call
from tests.support.broker_core import SLAVE, Core
from tests.support.model_peer import ModelPeer
from tests.support.virtual import VirtualProcess

HEADER = PullMessageRequestHeader(
    consumer_group="G",
    topic="T",
    queue_id=0,
    queue_offset=0,
    max_messages=32,
    sys_flag=PullFlag.SUBSCRIPTION | PullFlag.SUSPEND,
    commit_offset=0,
    suspend_timeout_ms=20_000,
    subscription="*",
    subscription_version=0,
)


class Stage:
    """A broker with a pull that waits, and the client that sent it."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.process = VirtualProcess()
        core.runtime, core.now_ms = self.process.runtime, self.process.now_ms
        self.peer = ModelPeer()
        self.process.loop.run(self._begin)
        self.process.run(self.service.start(core.role))
        pull: Any = self.service.handlers()[RequestCode.PULL_MESSAGE]
        request = Frame.request(RequestCode.PULL_MESSAGE, HEADER.to_fields())
        self.process.loop.run(lambda: pull(Call(self.peer, request, HEADER, b"")))
        assert len(self.service.held) == 1

    def _begin(self) -> None:
        self.service = Pulls(self.core, ClientTable())

    def take(self, role: Role) -> None:
        """End the run of the former role and begin that of *role*."""
        self.core.role = role
        self.process.run(self.service.stop())
        self.process.run(self.service.start(role))

    @property
    def answers(self) -> list[int]:
        return [each.code for each in self.peer.sent]


def test_a_held_pull_is_answered_at_once_when_its_broker_has_no_role(core: Core) -> None:
    stage = Stage(core)
    stage.take(Role(broker_id=1))
    assert stage.answers == [ResponseCode.SYSTEM_BUSY]
    stage.process.pass_time(30)
    assert len(stage.peer.sent) == 1


def test_a_held_pull_is_held_on_by_a_slave_that_serves_reads(core: Core) -> None:
    stage = Stage(core)
    stage.process.pass_time(10)
    stage.take(SLAVE)
    stage.process.pass_time(9.9)
    assert stage.answers == []
    stage.process.pass_time(0.2)
    assert stage.answers == [ResponseCode.PULL_NOT_FOUND]


def test_another_standing_or_epoch_is_another_run_and_another_set_is_none(core: Core) -> None:
    term, role = Stage(core).service.term, Role(name="master", broker_id=1, epoch=3)
    assert term(replace(role, members=frozenset({1, 2}), set_epoch=8)) == term(role)
    for other in (replace(role, epoch=4), replace(SLAVE, epoch=3)):
        assert term(other) != term(role)
