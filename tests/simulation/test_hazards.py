"""Hazards of groups under controllers, one kind at a time, by seed.

A failure is one integer: `python -m rmqstore.sim SEED --hazards NAME` tells its story.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from rmqstore import sim
from rmqstore.sim.calm import Calm
from rmqstore.sim.hazards import Hazards
from rmqstore.sim.host import Directory
from rmqstore.sim.replica import Replica
from tests.support.effort import rounds

SEEDS = rounds(6, 2000)
SOUND = [each for each in Hazards.names() if each != "last_file"]
"""A replica that begins at the last file of its master keeps complete ones out of the set."""
MEMORY = {
    "is_durable": False,
    "learners": 0,
    "lease_ms": 600,
    "replicas": 3,
}


def check(outcome: sim.Outcome, hazards: str) -> None:
    again = f"python -m rmqstore.sim {outcome.seed} --hazards {hazards}"
    assert outcome.is_sound, f"{again}: {outcome.violation}"


@pytest.mark.parametrize("hazard", SOUND)
def test_kept_seeds_are_sound(hazard: str) -> None:
    for seed in range(1, SEEDS):
        check(sim.run(seed, hazards=Hazards.named([hazard])), hazard)


def test_clusters_are_sound_where_machines_lose_power_under_memory_acknowledgements() -> None:
    for seed in range(1, rounds(4, 2000)):
        check(sim.run(seed, cluster=True, hazards=Hazards.named(["power"])), "power --cluster")


def test_hazards_of_a_seed_leave_the_other_draws_as_they_are() -> None:
    for seed in range(1, 20):
        with_them, without = sim.World(seed), sim.World(seed, hazards=Hazards.none())
        assert with_them.shape == without.shape
        if not with_them.hazards.loses_power:
            assert with_them.faults == without.faults


def test_a_world_whose_faults_are_given_has_no_hazards_unless_they_are_given() -> None:
    quiet = sim.Faults.none()
    assert sim.World(1, faults=quiet).hazards == Hazards.none()
    calm = Hazards.named(["calm"])
    shape = sim.Shape.drawn(Random(1), replicas=3).with_set()
    assert sim.World(1, faults=quiet, hazards=calm, shape=shape).hazards == calm


def test_what_hazards_name_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Directory] = []
    ends: list[bool] = []
    put_back, end = Replica.put_back, Calm.end

    def noted(replica: Replica, directory: Directory) -> None:
        copies.append(directory)
        put_back(replica, directory)

    def ended(calm: Calm) -> None:
        if not calm.is_over:
            ends.append(calm.has_checked)
        end(calm)

    monkeypatch.setattr(Replica, "put_back", noted)
    monkeypatch.setattr(Calm, "end", ended)
    for names in (["old_copy", "clean_restart"], ["full_master", "hidden_slave"]):
        for seed in range(1, 9):
            check(sim.run(seed, hazards=Hazards.named(names)), ",".join(names))
    assert len(copies) > 3
    assert sum(ends) > 3


def test_all_members_that_lose_their_memory_lose_messages_only_with_a_named_risk() -> None:
    """A blackout costs acknowledged messages, and each election that lacks them says so."""
    faults = replace(sim.Faults.none(), blackout=1, mean_gap_ms=2000)
    lost = 0
    for seed in range(34, 41):
        shape = replace(sim.Shape.drawn(Random(seed), replicas=3).with_set(), **MEMORY)
        world = sim.World(seed, faults=faults, shape=shape, hazards=Hazards.named(["power"]))
        check(world.run(), "power")
        lost += world.checker.has_lost
    assert lost > 0
