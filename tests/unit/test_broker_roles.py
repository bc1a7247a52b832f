"""The role of a broker from one order to the next, and whether nameservers are to know it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.broker.membership.orders import RoleOrder
from rmqstore.broker.membership.roles import Role, role_by, role_during, role_with
from rmqstore.broker.registration import announced_id, announced_until_ms


def order(epoch: int, master_id: int, address: str = "") -> RoleOrder:
    return RoleOrder(
        epoch=epoch,
        master_id=master_id,
        master_address=address or f"10.0.0.{master_id}:10911",
        members=frozenset({master_id}),
        set_epoch=epoch,
    )


NONE = Role(broker_id=2)
MASTER = role_by(order(5, 2), 2)
SLAVE = role_by(order(5, 1), 2)


def test_a_broker_is_what_the_order_that_it_carried_out_says() -> None:
    assert (MASTER.name, MASTER.epoch, MASTER.registered_id) == ("master", 5, 0)
    assert MASTER.followed is None
    assert (SLAVE.name, SLAVE.epoch, SLAVE.registered_id) == ("slave", 5, 2)
    assert SLAVE.followed == (("10.0.0.1", 10911), 2, 5)
    assert NONE.followed is None


@pytest.mark.parametrize(
    ("role", "change", "is_kept"),
    [
        (MASTER, order(6, 2), True),
        (MASTER, order(6, 1), False),
        (SLAVE, order(6, 1), True),
        (SLAVE, order(6, 1, "10.0.0.9:10911"), False),
        (SLAVE, order(6, 3), False),
        (SLAVE, order(6, 2), False),
    ],
)
def test_a_broker_that_changes_its_role_has_none_meanwhile(
    role: Role, change: RoleOrder, is_kept: bool
) -> None:
    assert role_during(role, change) == (role if is_kept else NONE)


def test_a_set_takes_the_place_of_an_earlier_one_only() -> None:
    later = role_with(MASTER, {1, 2}, 6)
    assert (later.members, later.set_epoch) == ({1, 2}, 6)
    assert role_with(later, {2}, 6) is later
    assert role_with(later, {2}, 5) is later


@pytest.mark.parametrize(
    ("role", "lease_end_ms", "known_as"),
    [
        (NONE, None, None),
        (replace(NONE, is_searching=True), None, NONE.broker_id),
        (SLAVE, None, SLAVE.broker_id),
        (SLAVE, 50, SLAVE.broker_id),
        (MASTER, None, 0),
        (MASTER, 101, 0),
        (MASTER, 100, MASTER.broker_id),
        (MASTER, 0, MASTER.broker_id),
    ],
)
def test_nameservers_know_a_broker_with_a_role_and_as_master_one_with_its_lease(
    role: Role, lease_end_ms: int | None, known_as: int | None
) -> None:
    assert MASTER.broker_id != 0
    assert announced_id(role, lease_end_ms=lease_end_ms, now_ms=100) == known_as


@pytest.mark.parametrize(
    ("role", "leads", "lease_end_ms", "until_ms"),
    [
        (NONE, False, None, None),
        (SLAVE, False, None, None),
        (MASTER, True, 100, 100),
        (MASTER, True, None, None),
        (MASTER, False, None, 0),
    ],
)
def test_a_master_whose_replica_has_ended_its_role_is_no_longer_announced_as_one(
    role: Role, leads: bool, lease_end_ms: int | None, until_ms: int | None
) -> None:
    assert announced_until_ms(role, leads=leads, lease_end_ms=lease_end_ms) == until_ms
