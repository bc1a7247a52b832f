"""The calls of a broker to controllers: which leader, what is asked, what answers mean."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rmqstore.broker.membership.controller_calls import (
    Call,
    ControllerCalls,
    Displaced,
    Outcome,
    SetAnswer,
    notified,
)
from rmqstore.broker.membership.orders import Decision
from rmqstore.errors import InvalidFieldError, RemotingFrameError
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import (
    ControllerHeartbeatRequestHeader,
    ControllerHeartbeatResponseHeader,
    GetControllerMetadataResponseHeader,
)
from rmqstore.replication.group.sync_state_set import Proposal
from tests.support.java_rules import JavaRules

ONE, TWO, THREE = "10.0.0.1:9878", "10.0.0.2:9878", "10.0.0.3:9878"
OWN = "10.0.1.1:10911"
BEAT = RequestCode.BROKER_HEARTBEAT
REGISTER = RequestCode.CONTROLLER_REGISTER_BROKER
ELECT = RequestCode.CONTROLLER_ELECT_MASTER
POLL = RequestCode.CONTROLLER_GET_REPLICA_INFO
SEARCH = RequestCode.CONTROLLER_GET_METADATA_INFO
ALTER = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET

HEADER = partial(ControllerHeartbeatRequestHeader, epoch=1, max_offset=100)
JOINS_2 = Proposal(1, frozenset((1, 2)), 1, joined=frozenset((2,)), left=frozenset())
UNCHANGED = Proposal(2, frozenset((1,)), 1, joined=frozenset(), left=frozenset())


def calls_of(*controllers: str, **options: Any) -> ControllerCalls:
    fields = {"broker_id": 1, "address": OWN, "life": 7} | options
    return ControllerCalls(
        cluster="c", broker_name="b", controllers=controllers or (ONE,), **fields
    )


def codes(calls: list[Call]) -> list[tuple[str, int]]:
    return [(each.address, each.request.code) for each in calls]


def beat_answer(call: Call, *, leads: bool = True, master: int | None = 1, **fields: Any) -> Frame:
    """Return the answer of a controller of this library."""
    header = ControllerHeartbeatResponseHeader(
        controller_node="n",
        controller_ms=fields.pop("controller_ms", 5),
        is_leader=leads,
        lease_ms=fields.pop("lease_ms", 0),
        master_broker_id=master if leads else None,
        master_address=fields.pop("address", OWN if master == 1 else "10.0.1.9:1"),
        master_epoch=fields.pop("epoch", 3),
        sync_state_set_epoch=4,
        wants_report=fields.pop("wants_report", False),
        report_in_ms=fields.pop("report_in_ms", -1),
    )
    members = frozenset(fields.pop("members", (1, 2)))
    assert not fields
    body = SyncStateSetBody(members, 4).encode() if leads else b""
    return call.request.respond(ResponseCode.SUCCESS, fields=header.to_fields(), body=body)


def led_by(machine: ControllerCalls, address: str, **fields: Any) -> Any:
    """Beat, and let the controller at *address* answer as leader; return what it says."""
    (call,) = (each for each in machine.beat(0, HEADER) if codes([each]) == [(address, BEAT)])
    return machine.answered(call, beat_answer(call, **fields))


def registered(machine: ControllerCalls) -> ControllerCalls:
    """Register at the leader."""
    (call,) = (each for each in machine.due(0) if each.request.code == REGISTER)
    fields = {"clusterName": "c", "brokerName": "b"}
    body = SyncStateSetBody(frozenset(), 0).encode()
    machine.answered(call, call.request.respond(ResponseCode.SUCCESS, fields=fields, body=body))
    assert machine.is_registered
    return machine


def test_beat_that_an_election_waits_for_is_due_at_once_and_not_for_ever() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    registered(machine)
    assert machine.beat_in_ms is None
    for _ in range(3):
        led_by(machine, ONE, wants_report=True)
        assert machine.beat_in_ms == 0
    led_by(machine, ONE, wants_report=True)
    assert machine.beat_in_ms is None
    led_by(machine, ONE)
    led_by(machine, ONE, wants_report=True)
    assert machine.beat_in_ms == 0
    machine.beat(0, HEADER)
    assert machine.beat_in_ms is None


@pytest.mark.parametrize(("asked_ms", "pause_ms"), [(700, 700), (1, 5), (0, 5), (-1, None)])
def test_beat_that_an_election_needs_later_is_due_then(asked_ms: int, pause_ms: int | None) -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    registered(machine)
    for _ in range(10):
        led_by(machine, ONE, report_in_ms=asked_ms)
        assert machine.beat_in_ms == pause_ms
    machine.beat(0, HEADER)
    assert machine.beat_in_ms is None


class Java:
    """Controllers of RocketMQ at addresses, and a machine that calls them."""

    def __init__(self, *addresses: str, **options: Any) -> None:
        self.rules = {each: JavaRules() for each in addresses}
        for each in self.rules.values():
            each.addresses, each.next_id = {1: OWN, 2: "10.0.1.2:10911"}, 3
        self.machine = calls_of(*addresses, **options)
        self.silent: set[str] = set()
        self.now_ms = 0
        self.lead(addresses[0])

    def lead(self, address: str) -> None:
        for place, each in self.rules.items():
            each.leader, each.leads = address, place == address

    @property
    def first(self) -> JavaRules:
        return next(iter(self.rules.values()))

    def exchange(self, calls: list[Call]) -> list[Any]:
        """Have calls answered, and return what the answers say."""
        said = []
        for call in calls:
            answer = None
            if call.address not in self.silent:
                handler = self.rules[call.address].handlers()[call.request.code]
                answer = handler(None, call.request)
            if answer is None:
                said.append(self.machine.failed(call, was_sent=True))
            else:
                said.append(self.machine.answered(call, answer))
        return [each for each in said if each is not None]

    def beat(self) -> list[Any]:
        """Beat once, and go on with what becomes due; return what all answers say."""
        self.now_ms += 1000
        said = self.exchange(self.machine.beat(self.now_ms, HEADER, wall_ms=1_700_000_000_000))
        while calls := self.machine.due(self.now_ms, wall_ms=1_700_000_000_000):
            said += self.exchange(calls)
        return said

    def asked(self, address: str = "") -> list[int]:
        """Return what was asked since the last call."""
        rules = self.rules[address] if address else self.first
        found, rules.asked = rules.asked, []
        return found


# ---- the leader


def test_heartbeats_go_to_all_until_a_leader_answers_and_then_to_it() -> None:
    machine = calls_of(ONE, TWO)
    assert codes(machine.beat(0, HEADER)) == [(ONE, BEAT), (TWO, BEAT)]
    led_by(machine, TWO)
    assert machine.leader == TWO
    targets = [
        [each.address for each in machine.beat(0, HEADER) if each.request.code == BEAT]
        for _ in range(2)
    ]
    assert targets == [[TWO], [ONE, TWO]], "every fourth goes to all: they may lead next"


def test_a_follower_of_ours_is_no_leader() -> None:
    machine = calls_of(ONE)
    assert led_by(machine, ONE, leads=False) is None
    assert machine.leader is None


def test_a_leader_that_lies_silent_is_given_up_after_three_heartbeats() -> None:
    machine = calls_of(ONE, TWO)
    led_by(machine, ONE)
    for _ in range(3):
        assert machine.leader == ONE
        machine.beat(0, HEADER)
    assert machine.leader is None
    assert [each.address for each in machine.beat(0, HEADER)][:2] == [ONE, TWO]


def test_a_leader_that_no_longer_leads_is_given_up_at_once() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    (call,) = machine.due(0)
    machine.answered(call, call.request.respond(ResponseCode.CONTROLLER_NOT_LEADER))
    assert machine.leader is None


def test_heartbeats_return_the_clock_of_each_controller() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE, controller_ms=70)
    led_by(machine, ONE, controller_ms=60)
    fields = machine.beat(0, HEADER)[0].request.ext_fields
    assert (fields["controllerNode"], fields["controllerTimeMillis"]) == ("n", "70")
    assert (fields["brokerLife"], fields["heartbeatNumber"]) == ("7", "3")


def test_controllers_of_rocketmq_are_found_by_their_metadata() -> None:
    java = Java(ONE, TWO, THREE)
    java.lead(TWO)
    java.beat()
    assert java.machine.leader == TWO
    assert not java.machine.has_leases


def test_a_leader_of_rocketmq_that_was_replaced_is_left_for_the_one_that_more_name() -> None:
    java = Java(ONE, TWO, THREE, search_every=2)
    java.beat()
    assert java.machine.leader == ONE
    java.rules[TWO].leader = java.rules[THREE].leader = TWO
    java.rules[TWO].leads = True
    for _ in range(3):
        java.beat()
    assert java.machine.leader == TWO, "though the former one still leads, as it thinks"


def test_a_silent_leader_of_rocketmq_is_replaced_once_another_is_named() -> None:
    java = Java(ONE, TWO, THREE)
    java.beat()
    java.silent.add(ONE)
    for _ in range(3):
        java.beat()
    java.lead(THREE)
    java.beat()
    assert java.machine.leader == THREE


def test_a_leader_of_rocketmq_outside_of_the_list_gets_heartbeats_too() -> None:
    java = Java(ONE, TWO)
    java.machine.controllers = (ONE,)
    java.lead(TWO)
    java.beat()
    assert java.machine.leader == TWO
    java.beat()
    assert len(java.rules[TWO].beats) == 1


def searching(machine: ControllerCalls) -> list[Call]:
    """Beat until controllers are asked for the leader; return the last requests."""
    calls: list[Call] = []
    while not any(each.request.code == SEARCH for each in calls):
        calls = machine.beat(0, HEADER)
    return calls


def answers_search(
    machine: ControllerCalls, calls: list[Call], asked: str, named: str, *, leads: bool
) -> None:
    """Let the controller at *asked* name a leader."""
    (call,) = (each for each in calls if codes([each]) == [(asked, SEARCH)])
    header = GetControllerMetadataResponseHeader(leader_address=named, is_leader=leads)
    fields = header.to_fields()
    machine.answered(call, call.request.respond(ResponseCode.SUCCESS, fields=fields))


def test_a_leader_that_names_itself_by_another_address_is_used_where_it_answered() -> None:
    machine = calls_of(ONE, TWO)
    calls = searching(machine)
    answers_search(machine, calls, TWO, THREE, leads=False)
    assert machine.leader == THREE
    answers_search(machine, calls, ONE, THREE, leads=True)
    assert machine.leader == ONE


def test_a_leader_that_answers_a_heartbeat_is_used_whatever_it_is_named() -> None:
    machine = calls_of(ONE, TWO)
    calls = searching(machine)
    (beat,) = (each for each in calls if codes([each]) == [(ONE, BEAT)])
    machine.answered(beat, beat_answer(beat))
    answers_search(machine, calls, TWO, THREE, leads=False)
    assert machine.leader == ONE


def test_a_leader_that_does_not_answer_where_it_is_named_is_told_with_who_named_it() -> None:
    machine = calls_of(ONE, TWO)
    calls = searching(machine)
    answers_search(machine, calls, TWO, THREE, leads=False)
    (register,) = (each for each in machine.due(0) if each.request.code == REGISTER)
    assert register.address == THREE
    machine.failed(register, was_sent=False)
    assert f"does not answer at {THREE}, as {TWO} names it" in machine.trouble


def test_a_controller_that_answers_nothing_of_use_is_not_followed() -> None:
    machine = calls_of(ONE)
    for _ in range(3):
        calls = machine.beat(0, HEADER)
    (search,) = (each for each in calls if each.request.code == SEARCH)
    assert machine.answered(search, search.request.respond(ResponseCode.SUCCESS)) is None
    assert machine.leader is None
    assert "isLeader" in machine.trouble


# ---- registration and elections


def test_a_broker_registers_before_it_asks_for_a_master() -> None:
    java = Java(ONE)
    said = java.beat()
    assert java.asked() == [BEAT, SEARCH, REGISTER, ELECT, POLL]
    assert [(each.epoch, each.master_id, each.members) for each in said] == [(1, 1, {1})] * 2
    java.beat()
    assert java.asked() == [BEAT, POLL], "a master polls with each heartbeat"


def test_the_time_of_requests_to_rocketmq_is_given() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE, master=None)
    (call,) = machine.due(0, wall_ms=1_700_000_000_000)
    assert call.request.ext_fields["invokeTime"] == "1700000000000"


def test_a_request_is_repeated_with_the_next_heartbeat_and_not_before() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    assert codes(machine.due(0)) == [(ONE, REGISTER)]
    assert machine.due(0) == []
    assert (ONE, REGISTER) in codes(machine.beat(0, HEADER))


def test_a_broker_that_the_controller_does_not_know_says_so_and_tries_again() -> None:
    java = Java(ONE)
    java.beat()
    java.first.addresses.clear()
    java.beat()
    java.beat()
    assert not java.machine.is_registered
    assert "hasn't been registered" in java.machine.trouble
    java.first.addresses[1] = OWN
    java.beat()
    assert java.machine.is_registered
    assert java.machine.trouble == ""


def test_a_group_without_a_master_has_the_broker_ask_for_an_election() -> None:
    java = Java(ONE)
    java.beat()
    java.first.dead.add(1)
    java.first.elect_as(None)
    java.asked()
    java.beat()
    java.beat()
    assert ELECT in java.asked()


def test_a_learner_polls_and_asks_for_no_election() -> None:
    java = Java(ONE, is_learner=True)
    java.beat()
    assert java.asked() == [BEAT, SEARCH, REGISTER, POLL]
    java.first.elect_as(2)
    (said,) = java.beat()
    assert said.master_id == 2


def test_the_master_that_is_still_there_is_an_answer_to_an_election() -> None:
    java = Java(ONE)
    java.first.elect_as(2)
    java.first.dead.add(2)  # So the registration names no master.
    java.beat()
    java.first.dead.clear()
    (said,) = java.beat()
    assert (said.epoch, said.master_id, said.set_epoch) == (1, 2, 1)


def test_a_slave_polls_seldom() -> None:
    java = Java(ONE, poll_every=4)
    java.first.elect_as(2)
    java.beat()
    java.asked()
    for _ in range(8):
        java.beat()
    assert java.asked().count(POLL) == 2


# ---- decisions and leases


def test_the_answer_to_a_heartbeat_is_a_decision_with_the_lease() -> None:
    machine = calls_of(ONE)
    call, *_ = machine.beat(500, HEADER)
    said = machine.answered(call, beat_answer(call, lease_ms=700))
    assert said == Decision(
        epoch=3,
        master_id=1,
        master_address=OWN,
        members=frozenset((1, 2)),
        set_epoch=4,
        lease_asked_ms=500,
    )
    assert led_by(machine, ONE).lease_asked_ms == -1, "no lease was granted"


def test_polls_of_a_leader_of_rocketmq_renew_the_lease_from_when_they_were_sent() -> None:
    java = Java(ONE)
    java.beat()
    (said,) = java.beat()
    assert said.lease_asked_ms == 2000


def test_the_answers_of_a_registration_or_an_election_renew_no_lease() -> None:
    java = Java(ONE)
    java.now_ms += 1000
    said = java.exchange(java.machine.beat(1000, HEADER))
    for _ in range(4):
        said += java.exchange(java.machine.due(1000))
    assert [each.lease_asked_ms for each in said] == [-1, 1000], "the election, then the poll"


def test_a_poll_renews_no_lease_before_the_controller_is_known_to_grant_none() -> None:
    java = Java(ONE, TWO)
    java.machine.controllers = (ONE,)
    java.lead(TWO)
    said = java.beat()
    assert {each.lease_asked_ms for each in said} == {-1}, "it answered no heartbeat yet"
    java.beat()
    assert [each.lease_asked_ms for each in java.beat()] == [3000]


@pytest.mark.parametrize(
    ("body", "error"), [(b"{", RemotingFrameError), (b"[]", RemotingFrameError)]
)
def test_a_notice_that_cannot_be_read_is_refused(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        notified(Frame.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, {}, body))
    with pytest.raises(InvalidFieldError):
        notified(Frame.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, {"masterEpoch": "x"}))


def test_a_notice_is_a_decision() -> None:
    rules = JavaRules()
    rules.addresses = {2: "10.0.1.2:10911"}
    rules.elect_as(2)
    said = notified(rules.notice())
    assert (said.epoch, said.master_id, said.members) == (1, 2, {2})
    assert said.lease_asked_ms == -1


# ---- proposals


def proposed(java: Java, proposal: Proposal, *, epoch: int = 1) -> Any:
    found = java.machine.propose(proposal, epoch, java.now_ms)
    if isinstance(found, SetAnswer):
        return found
    (said,) = java.exchange([found])
    return said


def test_a_set_that_the_controller_takes_is_the_answer() -> None:
    java = Java(ONE)
    java.beat()
    said = proposed(java, JOINS_2)
    assert said == SetAnswer(1, 1, Outcome.TAKEN, SyncStateSetBody(frozenset((1, 2)), 2))


def test_an_unchanged_set_is_never_sent_to_rocketmq_and_the_poll_comes_next() -> None:
    java = Java(ONE, poll_every=100)
    java.beat()
    java.asked()
    assert proposed(java, UNCHANGED) == SetAnswer(1, 2, Outcome.REFUSED)
    assert java.asked() == []
    java.beat()
    assert POLL in java.asked()


def test_an_unchanged_set_is_sent_to_a_leader_of_this_library() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    assert isinstance(machine.propose(UNCHANGED, 3, 0), Call)


def test_without_a_leader_nothing_is_sent_and_nothing_is_in_doubt() -> None:
    assert calls_of(ONE).propose(JOINS_2, 3, 0) == SetAnswer(3, 1, Outcome.REFUSED)


def test_an_answer_that_does_not_come_leaves_the_proposal_in_doubt() -> None:
    java = Java(ONE)
    java.beat()
    java.first.is_silent = True
    assert proposed(java, JOINS_2) == SetAnswer(1, 1, Outcome.LOST)
    assert java.first.members == {1, 2}, "it was taken"
    java.first.is_silent = False
    assert proposed(java, JOINS_2).outcome is Outcome.REFUSED, "the set does not differ any more"
    (said,) = java.beat()
    assert (said.members, said.set_epoch) == ({1, 2}, 2), "the poll ends the doubt"


def test_a_request_that_was_not_sent_leaves_no_doubt() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    call = machine.propose(JOINS_2, 3, 0)
    assert isinstance(call, Call)
    assert machine.failed(call, was_sent=False) == SetAnswer(3, 1, Outcome.REFUSED)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, Outcome.REFUSED),
        (ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, Outcome.REFUSED),
        (ResponseCode.CONTROLLER_INVALID_MASTER, Outcome.REFUSED),
        (ResponseCode.CONTROLLER_INVALID_REPLICAS, Outcome.REFUSED),
        (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, Outcome.REFUSED),
        (ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, Outcome.REFUSED),
        (ResponseCode.CONTROLLER_NOT_LEADER, Outcome.LOST),
        (ResponseCode.SYSTEM_ERROR, Outcome.LOST),
        (ResponseCode.SYSTEM_BUSY, Outcome.LOST),
        (4711, Outcome.LOST),
    ],
)
def test_the_code_of_an_answer_decides_about_a_proposal(code: int, outcome: Outcome) -> None:
    java = Java(ONE, poll_every=100)
    java.beat()
    call = java.machine.propose(JOINS_2, 1, 0)
    assert isinstance(call, Call)
    answer = call.request.respond(code, "no", fields={"newSyncStateSetEpoch": "0"})
    assert java.machine.answered(call, answer) == SetAnswer(1, 1, outcome)
    java.asked()
    java.beat()
    assert POLL in java.asked() or code == ResponseCode.CONTROLLER_NOT_LEADER


def test_a_fenced_set_of_ours_brings_the_set_that_is_unless_it_lacks_this_broker() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    for members, expected in ((frozenset((1, 3)), True), (frozenset((2,)), False)):
        call = machine.propose(JOINS_2, 3, 0)
        assert isinstance(call, Call)
        body = SyncStateSetBody(members, 9)
        code = ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        said = machine.answered(call, call.request.respond(code, "no", body=body.encode()))
        assert said == SetAnswer(3, 1, Outcome.REFUSED, body if expected else None)


def test_a_set_that_cannot_be_read_leaves_the_proposal_in_doubt() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    call = machine.propose(JOINS_2, 3, 0)
    assert isinstance(call, Call)
    for body in (b"", b"{", b'{"syncStateSet":7}'):
        answer = call.request.respond(ResponseCode.SUCCESS, body=body)
        assert machine.answered(call, answer) == SetAnswer(3, 1, Outcome.LOST)


# ---- two brokers with one identity, and one with two addresses


def test_a_later_process_with_this_identity_displaces_the_broker() -> None:
    machine = calls_of(ONE)
    call, *_ = machine.beat(0, HEADER)
    code = ResponseCode.CONTROLLER_INVALID_REQUEST
    answer = call.request.respond(code, "another process", fields={"brokerLife": "8"})
    assert machine.answered(call, answer) == Displaced("another process")


def test_a_refused_heartbeat_of_another_kind_is_trouble_alone() -> None:
    machine = calls_of(ONE)
    call, *_ = machine.beat(0, HEADER)
    answer = call.request.respond(ResponseCode.CONTROLLER_INVALID_REQUEST, "other cluster")
    assert machine.answered(call, answer) is None
    assert machine.trouble == "other cluster"


def test_a_master_that_is_known_elsewhere_registers_again() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    registered(machine)
    stale, *_ = machine.beat(0, HEADER)
    assert machine.answered(stale, beat_answer(stale, address="10.9.9.9:1")) is None
    assert codes(machine.due(0)) == [(ONE, REGISTER)]


def test_an_answer_from_before_the_registration_says_nothing_about_the_address() -> None:
    machine = calls_of(ONE)
    led_by(machine, ONE)
    early, *_ = machine.beat(0, HEADER)
    (call,) = (each for each in machine.beat(0, HEADER) if each.request.code == REGISTER)
    body = SyncStateSetBody(frozenset(), 0).encode()
    machine.answered(call, call.request.respond(ResponseCode.SUCCESS, fields={}, body=body))
    said = machine.answered(early, beat_answer(early, address="10.9.9.9:1"))
    assert isinstance(said, Decision)
    assert machine.is_registered


def test_two_brokers_with_one_identity_under_rocketmq_leave_one() -> None:
    java = Java(ONE)
    twin = calls_of(ONE, address="10.0.1.77:10911", life=9)
    machines = [java.machine, twin]
    displaced = []
    for _ in range(20):
        for machine in machines:
            java.machine = machine
            if any(isinstance(each, Displaced) for each in java.beat()):
                displaced.append(machine)
        machines = [each for each in machines if each not in displaced]
    assert len(displaced) == 1
    assert len(machines) == 1


def test_a_broker_that_moved_to_another_address_goes_on_as_master() -> None:
    java = Java(ONE)
    java.beat()
    java.machine = calls_of(ONE, address="10.0.1.77:10911", life=9)
    for _ in range(5):
        said = java.beat()
        assert not any(isinstance(each, Displaced) for each in said)
    assert java.first.addresses[1] == "10.0.1.77:10911"
    assert said[-1].master_address == "10.0.1.77:10911"
