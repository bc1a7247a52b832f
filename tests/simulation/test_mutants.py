"""Each deliberate fault of the list can still be made.

That the default seeds, or the tests that they name, find them is for
`python -m tests.simulation.mutants`, part of `make soak`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import mutate, tree
from tests.simulation.mutants.__main__ import LIST

MUTANTS = mutate.mutations(LIST)
PLACES = (
    "rmqstore/replication/",
    "rmqstore/controller/",
    "rmqstore/nameserver/",
    "rmqstore/broker/",
    "csrc/replica/",
    "rmqstore/epochs.py",
    "rmqstore/sim/",
)


def test_there_are_fifty_for_the_seeds_and_each_is_a_line_or_a_reason() -> None:
    assert sum(not each.none and not each.tests for each in MUTANTS) >= 50
    assert len({each.row for each in MUTANTS}) == len(MUTANTS)
    assert [each.row for each in MUTANTS if bool(each.none) == bool(each.path)] == []
    assert [each.path for each in MUTANTS if each.path and not each.path.startswith(PLACES)] == []


def test_the_tests_that_find_some_are_in_the_tree() -> None:
    for test in sorted({test for each in MUTANTS for test in each.tests}):
        path, _, name = test.partition("::")
        assert not name or f"def {name}(" in tree.text_of(path), test


@pytest.mark.parametrize("path", sorted({each.path for each in MUTANTS if each.path}))
def test_each_fault_can_be_made(path: str, tmp_path: Path) -> None:
    assert mutate.without_effect(MUTANTS, path, tmp_path) == []
