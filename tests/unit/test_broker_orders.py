"""Orders for a broker: decisions that come late, twice and in any order, and orders that fail."""

from __future__ import annotations

import itertools

import pytest

from rmqstore.broker.membership.orders import Decision, Orders, RoleOrder
from rmqstore.broker.membership.roles import Role

LIFE = 7


def decision(epoch: int, master: int | None, *, members: str = "", **more: object) -> Decision:
    fields = {"members": frozenset(map(int, members)) or frozenset((master or 0,))}
    fields |= {"set_epoch": epoch, "master_address": f"10.0.0.{master}:10911"} | more
    return Decision(epoch=epoch, master_id=master, **fields)  # type: ignore[arg-type]


def taken(orders: Orders, *decisions: Decision, known: int = -1) -> RoleOrder | None:
    for each in decisions:
        orders.take(each, known_epoch=known)
    return orders.next(0)


def test_a_broker_without_a_role_takes_the_first_decision() -> None:
    orders = Orders(1, LIFE)
    assert taken(orders, decision(0, None)) is None
    order = taken(orders, decision(3, 2))
    assert order is not None
    assert (order.epoch, order.master_id, order.master_address) == (3, 2, "10.0.0.2:10911")
    assert not orders.is_own(order)


def test_decisions_in_any_order_end_with_the_last_epoch() -> None:
    decisions = [decision(3, 2), decision(4, 1), decision(5, 3), decision(5, 3), decision(6, None)]
    for arrived in itertools.permutations(decisions):
        orders = Orders(1, LIFE)
        order = taken(orders, *arrived)
        assert order is not None
        assert (order.epoch, order.master_id) == (5, 3)


def test_decisions_in_any_order_end_with_the_last_epoch_though_each_is_carried_out() -> None:
    for arrived in itertools.permutations([decision(3, 2), decision(4, 1), decision(5, 3)]):
        orders = Orders(1, LIFE)
        epochs = []
        for each in arrived:
            order = taken(orders, each)
            if order is not None:
                epochs.append(order.epoch)
                orders.done(order)
        assert epochs == sorted(set(epochs)), "epochs never go back"
        assert epochs[-1] == 5


def test_an_order_that_was_carried_out_is_not_due_again() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 1))
    assert order is not None
    orders.done(order)
    assert taken(orders, decision(3, 1), decision(3, 1, set_epoch=9, members="12")) is None


def test_an_order_that_failed_is_due_again_for_the_same_epoch_after_a_pause() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 2))
    assert order is not None
    pauses = []
    now_ms = 0
    for _ in range(10):
        orders.failed(order, now_ms, "full")
        assert taken(orders, decision(3, 2)) is None, "the pause is kept though it is said again"
        assert orders.retry_at_ms is not None
        pauses.append(orders.retry_at_ms - now_ms)
        now_ms = orders.retry_at_ms
        assert orders.next(now_ms) == order
    assert pauses == [500, 1000, 2000, 4000, *[8000] * 6]
    orders.done(order)
    assert orders.next(now_ms) is None


def test_a_later_order_ends_the_pause_of_one_that_failed() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 1))
    assert order is not None
    orders.failed(order, 0, "full")
    later = taken(orders, decision(4, 2))
    assert later is not None
    assert later.epoch == 4
    orders.failed(order, 0, "full")
    assert orders.next(0) == later, "the failure of the former order does not delay it"


def test_an_order_that_was_overtaken_while_it_was_carried_out_leaves_the_later_one_due() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 1))
    assert order is not None
    orders.take(decision(4, 2), known_epoch=3)
    orders.done(order)
    later = orders.next(0)
    assert later is not None
    assert later.epoch == 4


def test_the_newest_set_is_in_the_order_that_was_not_begun() -> None:
    orders = Orders(1, LIFE)
    late = decision(3, 1, set_epoch=4)
    order = taken(orders, late, decision(3, 1, set_epoch=7, members="12"), late)
    assert order is not None
    assert (order.set_epoch, order.members) == (7, {1, 2})


def test_a_role_that_ended_by_itself_is_ordered_again() -> None:
    orders = Orders(2, LIFE)
    order = taken(orders, decision(3, 1))
    assert order is not None
    orders.done(order)
    orders.ended(1000)
    assert orders.next(1000) is None
    assert orders.next(1500) == order
    orders.ended(1500)
    assert orders.next(1500) == order, "an end that is reported twice changes nothing"


def test_an_epoch_that_the_log_is_beyond_is_refused_and_never_carried_out() -> None:
    orders = Orders(1, LIFE)
    assert taken(orders, decision(3, 1), known=7) is None
    assert orders.refused_epoch == 3
    assert taken(orders, decision(3, 2), known=7) is None
    assert orders.refused_epoch == 3
    order = taken(orders, decision(8, 1), known=7)
    assert order is not None
    assert order.epoch == 8


def test_an_order_that_the_replica_refused_is_reported_and_not_repeated() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 1))
    assert order is not None
    orders.refused(order)
    assert orders.refused_epoch == 3
    assert taken(orders, decision(3, 1), known=3) is None
    other = taken(orders, decision(4, 2), known=3)
    assert other is not None
    orders.refused(other)
    assert orders.refused_epoch == 3, "a master that is another broker is none of its own"
    assert orders.next(0) is None


def test_a_late_decision_lowers_no_refused_epoch() -> None:
    orders = Orders(1, LIFE)
    taken(orders, decision(5, 1), decision(2, 1), known=7)
    assert orders.refused_epoch == 5


def test_two_masters_of_one_epoch_leave_the_first() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 2))
    assert order is not None
    orders.done(order)
    assert taken(orders, decision(3, 4), decision(3, 1)) is None


def test_a_master_at_another_address_is_followed_there() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 2))
    assert order is not None
    orders.done(order)
    moved = taken(orders, decision(3, 2, master_address="10.0.0.9:1"))
    assert moved is not None
    assert (moved.epoch, moved.master_address) == (3, "10.0.0.9:1")


def test_a_set_without_this_broker_makes_it_no_master() -> None:
    assert taken(Orders(1, LIFE), decision(3, 1, members="23")) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (decision(3, 1, set_epoch=6), True),
        (decision(3, 1, set_epoch=5), False),
        (decision(3, 2, set_epoch=6), False),
        (decision(4, 1, set_epoch=6), False),
        (decision(2, 1, set_epoch=6), False),
    ],
)
def test_only_a_newer_set_of_the_present_epoch_is_taken(given: Decision, expected: bool) -> None:
    assert Orders(1, LIFE).takes_set(given, role_epoch=3, set_epoch=5) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (decision(3, 1, lease_asked_ms=0), True),
        (decision(3, 1), False),
        (decision(3, 2, lease_asked_ms=9), False),
        (decision(4, 1, lease_asked_ms=9), False),
    ],
)
def test_only_an_answer_that_names_the_present_master_renews_its_lease(
    given: Decision, expected: bool
) -> None:
    assert Orders(1, LIFE).renews_lease(given, role_epoch=3) is expected
    assert not Orders(1, LIFE).renews_lease(given, role_epoch=-1)


def test_a_role_reads_as_a_line_of_a_log() -> None:
    assert str(Role()) == "none"
    master = Role(name="master", broker_id=2, epoch=3, members=frozenset({2, 1}), set_epoch=5)
    assert str(master) == "master with id 2, epoch 3, set [1, 2] of version 5"
    slave = Role(name="slave", broker_id=1, master_address=("10.0.0.2", 10911))
    assert str(slave) == "slave with id 1, master 10.0.0.2:10911"


def test_an_election_of_an_earlier_process_is_refused_until_the_log_knows_its_epoch() -> None:
    orders = Orders(1, LIFE)
    assert taken(orders, decision(3, 1, master_life=LIFE - 1), known=2) is None
    assert orders.refused_epoch == 3
    assert taken(orders, decision(3, 1), known=2) is None, "a notice of it without the process"
    order = taken(orders, decision(4, 1, master_life=LIFE), known=2)
    assert order is not None
    assert order.epoch == 4


def test_a_master_goes_on_in_its_epoch_once_the_controller_has_named_its_process() -> None:
    orders = Orders(1, LIFE)
    assert taken(orders, decision(3, 1, master_life=LIFE - 1), known=3) is None
    assert orders.refused_epoch == -1, "the files of the epoch say whether its master may go on"
    assert taken(orders, decision(3, 1, master_life=LIFE), known=3) is not None


def test_an_elected_broker_that_cannot_lead_refuses_the_epoch_after_a_time() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 1, master_life=LIFE))
    assert order is not None
    orders.failed(order, 0, "the disk is full")
    assert orders.refused_epoch == -1
    assert orders.trouble == "the disk is full"
    orders.failed(order, 500, "the disk is full")
    assert not orders.cannot_lead(500)
    orders.failed(order, 1500, "the disk is full")
    assert orders.refused_epoch == 3
    assert orders.next(100_000) is None
    assert orders.cannot_lead(1500)
    assert not orders.cannot_lead(11_500), "the disk may have room again"

    later = taken(orders, decision(5, 1), known=3)
    assert later is not None
    orders.done(later)
    assert orders.trouble == ""


def test_an_order_to_follow_is_repeated_whatever_fails() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 2))
    assert order is not None
    for now_ms in (0, 500, 5000, 50_000):
        orders.failed(order, now_ms, "the disk is full")
    assert orders.latest == order
    assert orders.refused_epoch == -1
    assert not orders.cannot_lead(50_000)


def test_under_a_controller_of_rocketmq_an_order_to_lead_is_repeated() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 1))
    assert order is not None
    for now_ms in (0, 500, 5000, 50_000):
        orders.failed(order, now_ms, "the disk is full")
    assert orders.refused_epoch == -1, "nobody would elect another"
    assert orders.latest == order


def test_an_order_that_is_given_up_stays_so_when_its_work_ends() -> None:
    orders = Orders(1, LIFE)
    order = taken(orders, decision(3, 1, master_life=LIFE))
    assert order is not None
    orders.give_up(order, 10_000, "no answer of the disk")
    orders.failed(order, 12_000, "it was interrupted")
    assert orders.trouble == "no answer of the disk"
    assert orders.next(100_000) is None


def test_the_process_of_another_master_is_of_no_concern() -> None:
    assert taken(Orders(1, LIFE), decision(3, 2, master_life=LIFE - 1), known=2) is not None


def test_an_order_to_follow_is_carried_out_again_where_the_way_to_the_master_has_changed() -> None:
    orders = Orders(2, 7)
    order = taken(orders, decision(5, 1))
    assert order is not None
    orders.again()
    assert orders.next(0) == order, "it is due already"
    orders.done(order)
    assert orders.next(0) is None
    orders.again()
    assert orders.next(0) == order
    orders.done(order)
    orders.ended(0)
    orders.again()
    assert orders.next(0) is None, "a role that ended waits for its pause"


def test_an_order_to_lead_is_not_carried_out_again() -> None:
    orders = Orders(2, 7)
    order = taken(orders, decision(5, 2, members="2"))
    assert order is not None
    orders.done(order)
    orders.again()
    assert orders.next(0) is None
