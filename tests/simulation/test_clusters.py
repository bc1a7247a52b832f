"""Whole clusters by seed: controllers, nameservers, brokers and clients.

A failure is one integer: `python -m rmqstore.sim SEED --cluster` shows what happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rmqstore import sim
from rmqstore.broker.metadata.spreading import Holders, Spread
from rmqstore.broker.nameserver_calls import NameserverCalls
from rmqstore.message import PutStatus
from rmqstore.nameserver.routes import RouteTable
from rmqstore.replication.group.quorum import Lease
from rmqstore.sim import brokers, registrar
from rmqstore.sim.sweep import Workers, cores
from tests.support.effort import rounds

SEEDS = rounds(80, 20_000)
AT_ONCE = 20
SABOTAGE_SEEDS = 60
"""Each sabotage is found in so many; most of them in fewer."""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(cores()) as workers:
        yield workers


@pytest.mark.parametrize("first", range(1, SEEDS, AT_ONCE))
def test_kept_clusters_are_sound(first: int, workers: Workers) -> None:
    for outcome in workers.run(range(first, first + AT_ONCE), cluster=True):
        again = f"python -m rmqstore.sim {outcome.seed} --cluster"
        assert outcome.is_sound, f"{again}: {outcome.violation}"


@pytest.mark.parametrize("replicas", [2, 5])
def test_clusters_of_other_sizes_are_sound(replicas: int, workers: Workers) -> None:
    for outcome in workers.run(range(1, rounds(6, 1000)), replicas=replicas, cluster=True):
        again = f"python -m rmqstore.sim {outcome.seed} --cluster --replicas {replicas}"
        assert outcome.is_sound, f"{again}: {outcome.violation}"


def test_clients_of_a_quiet_cluster_are_served_at_once() -> None:
    world = sim.Cluster(1, faults=sim.Faults.none(), steps=30)
    outcome = world.run()
    assert outcome.is_sound, outcome.violation
    assert outcome.epochs == 1
    checker = world.clients_checker
    assert checker.acknowledged > 30
    assert checker.reads > 30
    assert checker.changes > 5


def test_a_cluster_is_repeated_by_its_seed() -> None:
    one, other = sim.run(3, steps=20, cluster=True), sim.run(3, steps=20, cluster=True)
    assert one == other


def test_what_clients_must_bear_happens_to_them() -> None:
    """Masters change under them, messages are sent again, and topics are made meanwhile."""
    epochs = acknowledged = changes = again = 0
    for seed in range(1, 7):
        world = sim.Cluster(seed)
        outcome = world.run()
        epochs += outcome.epochs
        acknowledged += world.clients_checker.acknowledged
        changes += world.clients_checker.changes
        again += world.clients_checker.repeated
    assert epochs > 12
    assert acknowledged > 500
    assert changes > 20
    assert again > 0, "a message that was stored twice, since an answer was lost"


SABOTAGE: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "a change is acknowledged before the members have it": (
        "was acknowledged as on all members",
        [(Holders, "spread", lambda *_: Spread())],
    ),
    "a master stays registered when its lease has ended": (
        "as master of epoch",
        [(brokers, "lease_end_ms", lambda _: None), (registrar, "lease_end_ms", lambda _: None)],
    ),
    "a broker without a role stays registered": (
        "nameserver",
        [(NameserverCalls, "_leave", lambda _: iter(()))],
    ),
    "the registration of a former master takes the place of a later one": (
        "nameserver",
        [(RouteTable, "_refuse", lambda *_, **__: None)],
    ),
    "a send is acknowledged after the lease has ended": (
        "is acknowledged by",
        [
            (Lease, "is_held", lambda *_: True),
            (Lease, "end_ms", property(lambda _: None)),
        ],
    ),
    "a message that waits for copies in vain is acknowledged to its client": (
        "was acknowledged at offset",
        [(brokers.Broker, "answered", lambda self, put: self.store.answered(_taken(put)))],
    ),
}


def _taken(put: Any) -> Any:
    if put.record is not None:
        put.status = PutStatus.PUT_OK
    return put


@pytest.mark.parametrize("what", sorted(SABOTAGE))
def test_sabotage_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, changes = SABOTAGE[what]
    for owner, name, instead in changes:
        monkeypatch.setattr(owner, name, instead)
    runs = (sim.run(seed, cluster=True) for seed in range(1, SABOTAGE_SEEDS))
    found = next(filter(None, (each.violation for each in runs)), "")
    assert text in found
