"""When a service starts and stops."""

from __future__ import annotations

import pytest

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.services.plan import PAUSE_MS, PAUSE_MS_MAX, Plan, Start, Stop

NONE = Role(broker_id=1)
LEADER = Role(name="master", broker_id=1, epoch=3)
SLAVE = Role(name="slave", broker_id=1, epoch=4, master_address=("10.0.0.2", 10911))


def leading_plan() -> Plan:
    return Plan({Standing.LEADING}, lambda role: role.epoch)


def running_plan() -> Plan:
    plan = leading_plan()
    plan.take(LEADER)
    step = plan.next(0)
    assert step == Start(LEADER)
    plan.begins(step)
    plan.done(step)
    return plan


def test_a_service_runs_in_its_standings_alone() -> None:
    plan = leading_plan()
    for role in (NONE, SLAVE):
        plan.take(role)
        assert plan.next(0) is None
        assert plan.is_begun
    plan.take(LEADER)
    assert plan.next(0) == Start(LEADER)
    assert not plan.is_begun


def test_the_end_of_the_standing_stops_it() -> None:
    plan = running_plan()
    assert (plan.next(0), plan.is_running, plan.is_stop_due) == (None, True, False)
    plan.take(NONE)
    assert (plan.next(0), plan.is_stop_due) == (Stop(), True)
    plan.begins(Stop())
    plan.done(Stop())
    assert (plan.next(0), plan.is_running, plan.is_stop_due) == (None, False, False)


def test_another_term_is_another_run() -> None:
    plan = running_plan()
    later = Role(name="master", broker_id=1, epoch=5)
    plan.take(later)
    assert plan.next(0) == Stop()
    plan.begins(Stop())
    plan.done(Stop())
    assert plan.next(0) == Start(later)


def test_a_change_within_the_term_is_none() -> None:
    plan = running_plan()
    plan.take(Role(name="master", broker_id=1, epoch=3, members=frozenset({1, 2})))
    assert plan.next(0) is None
    assert plan.is_begun


def test_a_failed_start_is_stopped_and_tried_again_after_a_pause() -> None:
    plan = leading_plan()
    plan.take(LEADER)
    plan.begins(Start(LEADER))
    plan.failed(Start(LEADER), 1000, "no room")
    assert (plan.trouble, plan.is_begun, plan.is_running) == ("no room", True, False)
    assert plan.next(1000) == Stop()
    plan.begins(Stop())
    plan.done(Stop())
    assert plan.next(1000 + PAUSE_MS - 1) is None
    assert plan.retry_ms == 1000 + PAUSE_MS
    assert plan.next(1000 + PAUSE_MS) == Start(LEADER)
    plan.begins(Start(LEADER))
    plan.done(Start(LEADER))
    assert (plan.trouble, plan.retry_ms, plan.is_running) == ("", None, True)


def test_pauses_grow_to_a_limit_and_another_role_begins_anew() -> None:
    plan, now_ms, pauses = leading_plan(), 0, list[int]()
    plan.take(LEADER)
    for _ in range(7):
        plan.begins(Start(LEADER))
        plan.failed(Start(LEADER), now_ms, "no room")
        plan.begins(Stop())
        plan.done(Stop())
        assert plan.retry_ms is not None
        pauses.append(plan.retry_ms - now_ms)
        now_ms = plan.retry_ms
    assert pauses == [1000, 2000, 4000, 8000, 16000, 30000, PAUSE_MS_MAX]
    later = Role(name="master", broker_id=1, epoch=5)
    plan.take(later)
    assert plan.next(now_ms - 1) == Start(later)


def test_a_failed_stop_is_tried_again_before_any_start() -> None:
    plan = running_plan()
    plan.take(NONE)
    plan.begins(Stop())
    plan.failed(Stop(), 0, "stuck")
    plan.take(NONE)
    assert plan.next(PAUSE_MS - 1) is None
    assert plan.next(PAUSE_MS) == Stop()
    assert plan.is_stop_due
    plan.begins(Stop())
    plan.done(Stop())
    assert (plan.trouble, plan.is_stop_due, plan.retry_ms) == ("", False, None)


@pytest.mark.parametrize("role", [NONE, SLAVE, None])
def test_a_start_of_an_ended_role_is_given_up(role: Role | None) -> None:
    plan = leading_plan()
    plan.take(LEADER)
    step = Start(LEADER)
    plan.begins(step)
    assert not plan.is_obsolete(step)
    plan.take(role)
    assert plan.is_obsolete(step)
    plan.failed(step, 0, "its role has ended")
    assert plan.next(0) == Stop()
