"""Controllers and replicas by seed: elections lose no acknowledged message."""

from __future__ import annotations

import secrets

import pytest

from rmqstore.controller import elect
from rmqstore.sim.elections import run_elections
from tests.support.effort import rounds

SEEDS = rounds(60, 2000)
AT_ONCE = 20


@pytest.mark.parametrize("first", range(1, SEEDS, AT_ONCE))
def test_kept_seeds_are_sound(first: int) -> None:
    worlds = [run_elections(seed) for seed in range(first, first + AT_ONCE)]
    assert sum(each.elections for each in worlds) > AT_ONCE
    assert sum(len(each.acknowledged) for each in worlds) > 10 * AT_ONCE


def test_a_seed_nobody_has_run_is_sound() -> None:
    seed = secrets.randbelow(2**40)
    try:
        run_elections(seed)
    except AssertionError as error:
        pytest.fail(f"run_elections({seed}): {error}")


def test_one_seed_is_one_story() -> None:
    one, two = run_elections(7), run_elections(7)
    assert one.log.entries == two.log.entries
    assert one.acknowledged == two.acknowledged


def test_elections_that_ask_too_few_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elect, "reports_needed", lambda voters, *, copies: min(voters, 1))
    with pytest.raises(AssertionError, match="lacks"):
        _run_all(range(40, 440))


def _run_all(seeds: range) -> None:
    for seed in seeds:
        run_elections(seed)
