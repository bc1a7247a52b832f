"""Nameservers beside simulated groups: what happens to them, and what must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmqstore import sim
from rmqstore.nameserver.members import Members
from rmqstore.nameserver.routes import RouteTable
from rmqstore.nameserver.server import Nameserver
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.sim.world import World
from tests.support.effort import rounds

SEEDS = 40
"""Each sabotage is found in so many; most of them in fewer."""


def world_with(count: int) -> World:
    """Return the first quiet world beside which there are so many nameservers."""
    for seed in range(1, 30):
        world = World(seed, faults=sim.Faults.none(), steps=20)
        if len(world.nameservers.nodes) == count:
            return world
    raise AssertionError(f"no world has {count} nameservers")


def test_routes_of_a_quiet_group_show_its_master_and_all_members() -> None:
    world = world_with(2)
    assert world.run().is_sound
    assert world.nameservers.checker.registrations > 0
    for node in world.nameservers.nodes:
        route = node.route("orders")
        assert route is not None
        addresses = dict(route.brokers[0].addresses)
        master = world.controller.view.master
        assert addresses.pop(0) == f"10.0.0.{master}:10911"
        assert addresses.keys() == world.replicas.keys() - {master}


def test_a_group_goes_the_same_way_without_nameservers(monkeypatch: pytest.MonkeyPatch) -> None:
    with_nodes = world_with(2)
    before = with_nodes.run()
    monkeypatch.setattr("rmqstore.sim.nameservers.NAMESERVERS", ())
    alone = sim.run(before.seed, faults=sim.Faults.none(), steps=20)
    assert before.events > alone.events
    assert (before.puts, before.acknowledged, before.confirmed, before.epochs) == (
        alone.puts,
        alone.acknowledged,
        alone.confirmed,
        alone.epochs,
    )


def test_what_nameservers_must_bear_happens_to_them() -> None:
    lives = refusals = 0
    for seed in range(1, rounds(8, 25)):
        world = World(seed)
        assert world.run().is_sound, seed
        lives += sum(each.life - 1 for each in world.nameservers.nodes)
        refusals += world.nameservers.checker.refusals
    assert lives > 0
    assert refusals > 0, "a registration that came late"


def _number_at_the_first_request(nameserver: Nameserver, connection: RemotingConnection) -> int:
    numbers: dict[int, int] = nameserver.__dict__.setdefault("numbers", {})
    if connection.number not in numbers:
        number = numbers[connection.number] = len(numbers) + 1
        connection.on_close(
            lambda _: nameserver.carry_out(nameserver.table.connection_closed(number))
        )
    return numbers[connection.number]


SABOTAGE: dict[str, tuple[type, str, Callable[..., object]]] = {
    "a late registration is taken": (RouteTable, "_refuse", lambda *_, **__: None),
    "the end of a connection removes nobody": (
        RouteTable,
        "connection_closed",
        lambda *_: (),
    ),
    "nobody expires": (Members, "expired", lambda *_: []),
    "a sign of life over a later connection counts for the earlier one": (
        Members,
        "seen",
        lambda _, member, *, connection, time_ms: setattr(member, "seen_ms", time_ms),
    ),
    "connections are numbered by their first requests": (
        Nameserver,
        "number_of",
        _number_at_the_first_request,
    ),
}


FIRST = {
    "a sign of life over a later connection counts for the earlier one": 260,
    "nobody expires": 36,
}
"""The first seed, where it is not 1."""


@pytest.mark.parametrize("what", sorted(SABOTAGE))
def test_sabotage_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = SABOTAGE[what]
    monkeypatch.setattr(owner, name, instead)
    first = FIRST.get(what, 1)
    seeds = range(first, first + SEEDS)
    violations = (sim.run(seed, hazards=sim.Hazards.none()).violation for seed in seeds)
    found = next(filter(None, violations), "")
    assert "nameserver" in found
