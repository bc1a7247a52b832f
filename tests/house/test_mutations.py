"""The list of mutations is that of docs/defects.md, and each of them can still be made.

That each is found out is for `python -m tests.house.mutate`, which `make soak` runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import mutate, tree

ROWS = mutate.rows()
MUTATIONS = mutate.mutations()


def test_each_row_has_a_mutation_or_a_reason_why_there_is_none() -> None:
    covered = {mutate.row_of(each, ROWS) for each in MUTATIONS}
    assert [each.defect for each in ROWS if each not in covered] == []


def test_each_entry_is_a_mutation_or_a_reason() -> None:
    unclear = [each.row for each in MUTATIONS if bool(each.none) == bool(each.path)]
    assert unclear == []


def test_the_tests_of_mutations_are_in_the_tree() -> None:
    named = {test for each in (*ROWS, *MUTATIONS) for test in each.tests}
    for test in sorted(named):
        path, _, name = test.partition("[")[0].partition("::")
        assert f"def {name}(" in tree.text_of(path) if name else (tree.ROOT / path).is_file(), test


@pytest.mark.parametrize("path", sorted({each.path for each in MUTATIONS if each.path}))
def test_each_mutation_can_be_made(path: str, tmp_path: Path) -> None:
    assert mutate.without_effect(MUTATIONS, path, tmp_path) == []
