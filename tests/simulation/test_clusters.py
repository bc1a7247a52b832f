"""Whole clusters by seed: controllers, nameservers, brokers and clients.

A failure is one integer: `python -m rmqstore.sim SEED --cluster` shows what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest

from rmqstore import sim
from rmqstore.broker import announcer
from rmqstore.broker.handlers.pull import PullRequests
from rmqstore.broker.holds import Hold
from rmqstore.broker.metadata.shared import SharedTables
from rmqstore.broker.metadata.spreading import Holders, Spread
from rmqstore.broker.operations.send import SendOperation, Sent
from rmqstore.broker.operations.send_back import SendBackOperation
from rmqstore.broker.services.timers import TimerMessages
from rmqstore.broker.services.transaction_log import TransactionLog
from rmqstore.broker.timers import Deletions, Timers, Unit
from rmqstore.broker.transactions import Transactions
from rmqstore.errors import PutError
from rmqstore.nameserver.routes import RouteTable
from rmqstore.replication.group.quorum import Lease
from rmqstore.sim.replica import Replica
from rmqstore.sim.sweep import Workers, cores
from tests.support.effort import rounds

SEEDS = rounds(40, 20_000)
AT_ONCE = 10
FAILED = (
    *(25, 43, 55, 126, 132, 187, 221, 233, 345, 2116, 2960, 5045, 17066),
    *(31000139, 31020801, 31021150),
)
"""Seeds above those that failed once."""
SABOTAGE_SEEDS = 15
"""A sabotage is found in so many seeds from its first one on."""
_LOOK, _READABLE, _ENTER = PullRequests.look, Timers.readable, Timers.enter


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(cores()) as workers:
        yield workers


def check(outcomes: Iterable[sim.Outcome], *, replicas: int = 3) -> None:
    for outcome in outcomes:
        again = f"python -m rmqstore.sim {outcome.seed} --cluster --replicas {replicas}"
        assert outcome.is_sound, f"{again}: {outcome.violation}"


@pytest.mark.parametrize("first", range(1, SEEDS, AT_ONCE))
def test_kept_clusters_are_sound(first: int, workers: Workers) -> None:
    check(workers.run(range(first, first + AT_ONCE), cluster=True))


def test_clusters_that_failed_once_are_sound(workers: Workers) -> None:
    check(workers.run(FAILED, cluster=True))


@pytest.mark.parametrize("replicas", [2, 4])
def test_clusters_of_other_sizes_are_sound(replicas: int, workers: Workers) -> None:
    seeds = range(1, rounds(4, 1000))
    check(workers.run(seeds, replicas=replicas, cluster=True), replicas=replicas)


def test_clients_of_a_quiet_cluster_are_served_at_once() -> None:
    world = sim.Cluster(1, faults=sim.Faults.none(), steps=30)
    outcome = world.run()
    assert outcome.is_sound, outcome.violation
    assert outcome.epochs == 1
    checker = world.clients_checker
    assert checker.acknowledged > 30
    assert checker.reads > 30
    assert checker.changes > 5
    assert checker.failures > 0
    assert world.workload.timed.recalls > 0


def test_a_cluster_is_repeated_by_its_seed() -> None:
    assert sim.run(3, steps=15, cluster=True) == sim.run(3, steps=15, cluster=True)


def test_what_clients_must_bear_happens_to_them() -> None:
    """Masters change under them, messages are sent again, and topics are made meanwhile."""
    epochs = acknowledged = changes = again = woken = 0
    for seed in range(42, 47):
        world = sim.Cluster(seed)
        epochs += world.run().epochs
        acknowledged += world.clients_checker.acknowledged
        changes += world.clients_checker.changes
        again += world.clients_checker.repeated
        woken += world.workload.consumer.woken
    assert epochs > 12
    assert acknowledged > 150
    assert changes > 8
    assert again > 0, "a message that was stored twice, since an answer was lost"
    assert woken > 2, "pulls that waited long for a message, and got it"


@dataclass(frozen=True)
class Sabotage:
    """What is done, in place of what, and from which seed on, under which faults, it is looked for;
    None for those that the seed draws."""

    changes: tuple[tuple[type | Any, str, Any], ...]
    found: str
    first: int = 1
    faults: sim.Faults | None = None


def _acknowledge_anyway(
    operation: SendOperation, error: PutError, key: str | None = None, **others: Any
) -> Sent:
    if error.receipt is None:
        raise error
    return Sent(error.receipt, key, **others)  # type: ignore[arg-type]


def _look_past_the_confirmed(pulls: PullRequests, hold: Hold) -> bool:
    everything = property(lambda replica: replica.log.whole_end)
    with mock.patch.object(Replica, "visible_end", everything):
        return _LOOK(pulls, hold)


async def _forget(*_: object, **__: object) -> None:
    """Store nothing."""


def _readable_early(timers: Timers, now_ms: int) -> int:
    return _READABLE(timers, now_ms + 1000)


def _enter_but_one(timers: Timers, offset: int, **times: int) -> Unit | None:
    found = _ENTER(timers, offset, **times)
    return None if offset == 0 else found


SABOTAGE = {
    "a message that a consumer sends back is not stored": Sabotage(
        ((SendBackOperation, "_put", _forget),), "sent back, is not in"
    ),
    "a pull that waited gets what is not confirmed": Sabotage(
        ((PullRequests, "look", _look_past_the_confirmed),), "which was not confirmed"
    ),
    "a change is acknowledged before the members have it": Sabotage(
        ((Holders, "spread", lambda *_: Spread()),), "was acknowledged as on all members", 12
    ),
    "a message is acknowledged before the members have the topic that it made": Sabotage(
        ((SharedTables, "wait_of", lambda *_: None),), "was acknowledged as on all members", 41
    ),
    "a replica joins the set before it has the topics": Sabotage(
        ((Replica, "waits_for_admission", property(lambda _: False, lambda *_: None)),),
        "was acknowledged as on all members",
        42,
        faults=replace(sim.Faults.none(), one_way=4, crash=3, cut=3, mean_gap_ms=600),
    ),
    "a master stays registered when its lease has ended": Sabotage(
        ((announcer, "announced_id", lambda role, **_: role.registered_id if role.name else None),),
        "as master of epoch",
        faults=replace(sim.Faults.none(), isolation=1, mean_gap_ms=1500),
    ),
    "the registration of a former master takes the place of a later one": Sabotage(
        ((RouteTable, "_refuse", lambda *_, **__: None),), "nameserver", 32
    ),
    "a send is acknowledged after the lease has ended": Sabotage(
        ((Lease, "is_held", lambda *_: True), (Lease, "end_ms", property(lambda _: None))),
        "is acknowledged by",
    ),
    "a new master does not look for commits that no note names": Sabotage(
        ((TransactionLog, "_prove", lambda *_: None),), "was committed twice"
    ),
    "a transaction is ended as often as a client asks for it": Sabotage(
        ((Transactions, "undecided", lambda _, half: half),), "was committed twice"
    ),
    "a slot of timer messages is read before it is over": Sabotage(
        ((Timers, "readable", _readable_early),), "before its time"
    ),
    "a timer message does not enter the wheel": Sabotage(
        ((Timers, "enter", _enter_but_one),), "is not delivered"
    ),
    "a new master does not look for timer messages that are delivered": Sabotage(
        ((TimerMessages, "_find_made", lambda *_: None),), "was delivered twice"
    ),
    "a deletion of a timer message is ignored": Sabotage(
        ((Deletions, "holds", lambda *_: False),), "was recalled, and is delivered"
    ),
    "a message that waited for copies in vain is acknowledged to its client": Sabotage(
        ((SendOperation, "_unacknowledged", _acknowledge_anyway),), "was acknowledged at offset", 41
    ),
}


@pytest.mark.parametrize("what", sorted(SABOTAGE))
def test_sabotage_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage = SABOTAGE[what]
    for owner, name, instead in sabotage.changes:
        monkeypatch.setattr(owner, name, instead, raising=False)
    seeds = range(sabotage.first, sabotage.first + SABOTAGE_SEEDS)
    violations = (sim.run(seed, cluster=True, faults=sabotage.faults).violation for seed in seeds)
    assert sabotage.found in next(filter(None, violations), "")
