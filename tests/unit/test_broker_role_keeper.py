"""How the keeper of a broker's role carries out orders, in virtual time."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.broker.membership.controller_calls import Outcome, SetAnswer
from rmqstore.broker.membership.orders import Decision
from rmqstore.broker.membership.role_keeper import RoleKeeper
from rmqstore.broker.membership.roles import Role
from rmqstore.errors import DiskError
from rmqstore.net.addresses import parse_address
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.ha import ExchangeHaInfoHeader
from rmqstore.replication.protocol.events import HaState
from tests.support.role_model import ModelClient, ModelHost, ModelReplica
from tests.support.virtual import VirtualProcess

OWN, A, B = "10.0.0.2:10911", "10.0.0.1:10911", "10.0.0.3:10911"
OTHER, WAY, NEW = "198.51.100.2:10911", "10.0.0.1:10912", "10.0.0.1:10999"
HA = {A: "10.0.0.1:10912", B: "10.0.0.3:10912"}
LEADS = Decision(
    epoch=5, master_id=2, master_address=OWN, master_life=7, members=frozenset({2}), set_epoch=1
)
FOLLOWS_A = replace(LEADS, master_id=1, master_address=A, members=frozenset({1}))
FOLLOWS_B = replace(LEADS, epoch=6, master_id=3, master_address=B, members=frozenset({3}))


def master_at(address: str) -> Callable[[Frame], Frame]:
    """Return the master that serves its clients at *address*."""

    def answer(request: Frame) -> Frame:
        header = ExchangeHaInfoHeader(
            master_ha_address=HA[address], master_flush_offset=0, master_address=address
        )
        return request.respond(ResponseCode.SUCCESS, fields=header.to_fields())

    return answer


def not_master_yet(request: Frame) -> Frame:
    return request.respond(ResponseCode.SUCCESS, fields=ExchangeHaInfoHeader().to_fields())


class Broker:
    """Broker 2 in life 7, whose group has brokers at A and B too."""

    def __init__(self) -> None:
        self.client = ModelClient({A: master_at(A), B: master_at(B)})
        self.process = VirtualProcess(self.client)
        self.client.runtime = self.process.runtime
        self.host = ModelHost(self.process.runtime)
        self.replica = ModelReplica(self.process.runtime)
        self.changes = 0
        host: Any = self.host
        replica: Any = self.replica
        self.keeper = RoleKeeper(host, replica, 2, life=7, on_change=self._changed)
        self.process.loop.run(self.keeper.start)

    def _changed(self) -> None:
        self.changes += 1

    def take(self, decision: Decision) -> None:
        self.process.loop.run(lambda: self.keeper.take(decision))

    def has_taken(self, decision: Decision) -> Broker:
        """Take *decision* and carry its order out."""
        self.take(decision)
        self.process.pass_time(0.1)
        assert self.host.role.epoch == decision.epoch
        return self


def test_a_later_order_ends_the_one_that_is_being_carried_out() -> None:
    broker = Broker()
    broker.replica.is_stuck = True
    broker.take(LEADS)
    broker.process.pass_time(1)
    broker.replica.is_stuck = False
    broker.take(FOLLOWS_B)
    broker.process.pass_time(1)
    assert broker.replica.done == [("slave", 6, HA[B])]
    assert broker.host.role.name == "slave"


def test_a_role_that_ended_without_an_order_is_taken_again() -> None:
    broker = Broker().has_taken(FOLLOWS_A)
    broker.replica.role = None
    broker.process.loop.run(broker.keeper.check)
    assert broker.host.role.name is None
    broker.process.pass_time(1)
    assert broker.host.role.name == "slave"
    assert broker.replica.done == 2 * [("slave", 5, HA[A])]


def test_a_failed_order_is_carried_out_again_without_another_decision() -> None:
    broker = Broker()
    broker.replica.failures = [DiskError(errno.EIO, "failed") for _ in range(2)]
    broker.take(FOLLOWS_A)
    broker.process.pass_time(0.4)
    assert broker.replica.role is None
    assert "failed" in broker.keeper.trouble
    broker.process.pass_time(2)
    assert broker.replica.done == [("slave", 5, HA[A])]
    assert broker.keeper.trouble == ""


def test_a_broker_has_no_role_while_it_changes_to_follow() -> None:
    broker = Broker().has_taken(FOLLOWS_A)
    broker.client.servers[B] = not_master_yet
    broker.take(FOLLOWS_B)
    broker.process.pass_time(1)
    assert broker.host.role.name is None


def test_a_broker_has_no_role_while_it_changes_to_lead() -> None:
    broker = Broker().has_taken(FOLLOWS_A)
    broker.replica.is_stuck = True
    broker.take(replace(LEADS, epoch=6))
    broker.process.pass_time(1)
    assert broker.host.role.name is None


@pytest.mark.parametrize(
    ("former", "later"), [(FOLLOWS_A, replace(LEADS, epoch=6)), (LEADS, FOLLOWS_B)]
)
def test_the_replica_changes_once_the_services_of_the_former_role_have_stopped(
    former: Decision, later: Decision
) -> None:
    broker = Broker().has_taken(former)
    broker.host.stopping_s = 2.0
    done = list(broker.replica.done)

    broker.take(later)
    broker.process.pass_time(1.9)
    assert broker.replica.done == done

    broker.process.pass_time(0.2)
    assert broker.host.role.epoch == 6


def test_an_elected_broker_without_the_role_after_ten_seconds_refuses_the_epoch() -> None:
    broker = Broker()
    broker.replica.is_stuck = True
    broker.take(LEADS)
    broker.process.pass_time(9.9)
    assert broker.keeper.refused_epoch == -1
    broker.process.pass_time(0.2)
    assert broker.keeper.refused_epoch == 5
    assert broker.keeper.cannot_lead
    assert broker.keeper.trouble == "no role of master after 10 s"
    assert broker.changes, "the controllers get a report"


def test_news_does_not_put_the_refusal_of_an_epoch_off() -> None:
    broker = Broker()
    broker.replica.is_stuck = True
    broker.take(LEADS)
    broker.process.pass_time(9.5)
    broker.take(LEADS)
    broker.process.pass_time(0.6)
    assert broker.keeper.refused_epoch == 5


def test_a_former_master_takes_the_set_without_it_before_the_new_master_answers() -> None:
    broker = Broker().has_taken(LEADS)
    broker.client.servers[B] = not_master_yet
    broker.take(FOLLOWS_B)
    broker.process.pass_time(1)
    assert broker.replica.done == [("master", 5), ("set", [3], 1)]


def test_a_lease_that_comes_back_makes_a_registration_due() -> None:
    broker = Broker().has_taken(LEADS)
    for is_lost in (False, True):
        now_ms = broker.process.now_ms()
        broker.replica.lease_end_ms = now_ms - 1 if is_lost else now_ms + 1000
        broker.take(replace(LEADS, lease_asked_ms=now_ms))
        assert broker.host.registrations == int(is_lost)
        assert broker.replica.lease_end_ms == now_ms + 3000


def test_an_answer_to_a_proposal_of_another_epoch_is_not_taken() -> None:
    broker = Broker().has_taken(LEADS)
    for epoch in (4, 6, 5):
        answer = SetAnswer(epoch, 10 + epoch, Outcome.REFUSED)
        broker.process.loop.run(lambda answer=answer: broker.keeper.answer(answer))
    assert broker.replica.done == [("master", 5), ("refused", 15)]


def test_the_ha_address_is_asked_for_until_the_master_is_master() -> None:
    broker = Broker()
    broker.client.servers[A] = not_master_yet
    broker.take(FOLLOWS_A)
    broker.process.pass_time(5)
    broker.client.servers[A] = master_at(A)
    broker.process.pass_time(1.1)
    assert broker.replica.done == [("slave", 5, HA[A])]


def test_the_ha_address_of_the_nameservers_is_used_while_the_master_does_not_answer() -> None:
    broker = Broker()
    del broker.client.servers[A]
    broker.take(FOLLOWS_A)
    broker.process.pass_time(1)
    assert broker.host.role.is_searching, "it registers, so that nameservers answer"
    broker.process.loop.run(lambda: broker.keeper.learn_master(A, "10.9.9.9:10912"))
    broker.process.pass_time(1.5)
    assert broker.replica.done == [("slave", 5, "10.9.9.9:10912")]


# ---- an HA address that a nameserver names later


def slave_by(way: str, state: HaState) -> RoleKeeper:
    """Return the keeper of a slave that copies the log from *way*, in that state."""
    role = Role(name="slave", broker_id=2, epoch=5, master_address=parse_address(A))
    host: Any = SimpleNamespace(runtime=VirtualProcess().runtime, role=role)
    status = SimpleNamespace(master=SimpleNamespace(state=state))
    replica: Any = SimpleNamespace(role="slave", epoch=5, status=lambda: status)
    keeper = RoleKeeper(host, replica, 2, life=7, on_change=lambda: None)
    keeper._orders.take(Decision(epoch=5, master_id=1, master_address=A), known_epoch=5)
    order = keeper._orders.next(0)
    assert order is not None
    keeper._orders.done(order)
    keeper._way = way
    return keeper


@pytest.mark.parametrize(
    ("way", "state", "master", "ha_address", "is_again"),
    [
        (WAY, HaState.READY, A, NEW, True),
        (WAY, HaState.READY, A, WAY, False),
        (WAY, HaState.READY, OTHER, NEW, False),
        (WAY, HaState.TRANSFER, A, NEW, False),
        ("", HaState.READY, A, NEW, False),
    ],
)
def test_master_is_followed_at_its_new_ha_address_where_the_former_one_gives_nothing(
    way: str, state: HaState, master: str, ha_address: str, is_again: bool
) -> None:
    keeper = slave_by(way, state)
    keeper.learn_master(master, ha_address)
    assert (keeper._orders.next(0) is not None) is is_again
