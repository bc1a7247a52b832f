"""Whole groups by seed. A failure is one integer: `python -m rmqstore.sim SEED` tells its story."""

from __future__ import annotations

import secrets

import pytest

from rmqstore import sim
from tests.effort import rounds

SEEDS = rounds(700, 20_000)
AT_ONCE = 50


def check(seed: int, *, replicas: int = 3) -> None:
    outcome = sim.run(seed, replicas=replicas)
    again = f"python -m rmqstore.sim {seed} --replicas {replicas}"
    assert outcome.is_sound, f"{again}: {outcome.violation}"


@pytest.mark.parametrize("first", range(1, SEEDS, AT_ONCE))
def test_kept_seeds_are_sound(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        check(seed)


@pytest.mark.parametrize("replicas", [2, 4, 5])
def test_groups_of_other_sizes_are_sound(replicas: int) -> None:
    for seed in range(1, rounds(15, 1000)):
        check(seed, replicas=replicas)


def test_a_seed_nobody_has_run_is_sound() -> None:
    check(secrets.randbelow(2**40))
