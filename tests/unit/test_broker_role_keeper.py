"""What a slave does with the HA address of its master that a nameserver names later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.broker.membership.orders import Decision
from rmqstore.broker.membership.role_keeper import RoleKeeper
from rmqstore.broker.membership.roles import Role
from rmqstore.net.addresses import parse_address
from rmqstore.replication.protocol.events import HaState
from tests.support.virtual import VirtualProcess

MASTER, OTHER = "198.51.100.1:10911", "198.51.100.2:10911"
WAY, NEW = "10.0.0.1:10912", "10.0.0.1:10999"


def slave_by(way: str, state: HaState) -> RoleKeeper:
    """Return the keeper of a slave that copies the log from *way*, in that state."""
    role = Role(name="slave", broker_id=2, epoch=5, master_address=parse_address(MASTER))
    host: Any = SimpleNamespace(runtime=VirtualProcess().runtime, role=role)
    status = SimpleNamespace(master=SimpleNamespace(state=state))
    replica: Any = SimpleNamespace(role="slave", epoch=5, status=lambda: status)
    keeper = RoleKeeper(host, replica, 2, life=7, on_change=lambda: None)
    keeper._orders.take(Decision(epoch=5, master_id=1, master_address=MASTER), known_epoch=5)
    order = keeper._orders.next(0)
    assert order is not None
    keeper._orders.done(order)
    keeper._way = way
    return keeper


@pytest.mark.parametrize(
    ("way", "state", "master", "ha_address", "is_again"),
    [
        (WAY, HaState.READY, MASTER, NEW, True),
        (WAY, HaState.READY, MASTER, WAY, False),
        (WAY, HaState.READY, OTHER, NEW, False),
        (WAY, HaState.TRANSFER, MASTER, NEW, False),
        ("", HaState.READY, MASTER, NEW, False),
    ],
)
def test_master_is_followed_at_its_new_ha_address_where_the_former_one_gives_nothing(
    way: str, state: HaState, master: str, ha_address: str, is_again: bool
) -> None:
    keeper = slave_by(way, state)
    keeper.learn_master(master, ha_address)
    assert (keeper._orders.next(0) is not None) is is_again
