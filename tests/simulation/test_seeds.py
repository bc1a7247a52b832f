"""Whole groups by seed. A failure is one integer: `python -m rmqstore.sim SEED` tells its story."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

import pytest

from rmqstore import sim
from rmqstore.sim.sweep import Workers, cores
from tests.support.effort import is_long, rounds

SEEDS = rounds(200, 20_000)
AT_ONCE = 50
FAILED = (
    636,
    716,
    737,
    1033,
    1169,
    1171,
    40159,
    43468,
    60013,
    60798,
    61139,
    62315,
    62977,
    64510,
    67579,
    70165,
    71157,
    30010715,
    30010946,
    30021218,
    30021953,
    30051404,
    30061385,
)
"""Seeds that failed once."""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(cores()) as workers:
        yield workers


def check(outcomes: Iterable[sim.Outcome], *, replicas: int = 3) -> None:
    for outcome in outcomes:
        again = f"python -m rmqstore.sim {outcome.seed} --replicas {replicas}"
        assert outcome.is_sound, f"{again}: {outcome.violation}"


@pytest.mark.parametrize("first", range(1, SEEDS, AT_ONCE))
def test_kept_seeds_are_sound(first: int, workers: Workers) -> None:
    check(workers.run(range(first, first + AT_ONCE)))


def test_seeds_that_failed_once_are_sound(workers: Workers) -> None:
    check(workers.run(FAILED))


@pytest.mark.parametrize("replicas", [2, 4, 5])
def test_groups_of_other_sizes_are_sound(replicas: int, workers: Workers) -> None:
    seeds = range(1, rounds(15, 1000))
    check(workers.run(seeds, replicas=replicas), replicas=replicas)


@pytest.mark.skipif(not is_long(), reason="new seeds are for make soak and make sim")
def test_a_seed_nobody_has_run_is_sound() -> None:
    check([sim.run(secrets.randbelow(2**40))])
