"""Which log an election chooses, and how many reports it needs."""

from __future__ import annotations

from itertools import combinations

import pytest

from rmqstore.replication.group.log_rank import LogRank, reports_needed


def test_the_last_epoch_decides_before_the_length() -> None:
    assert LogRank(3, 10) > LogRank(2, 5_000_000_000) > LogRank(2, 10) > LogRank(-1, 0)


@pytest.mark.parametrize(("voters", "copies"), [(1, 1), (3, 1), (3, 2), (3, 3), (5, 2), (5, 4)])
def test_every_choice_of_so_many_reports_has_a_holder_of_each_message(
    voters: int, copies: int
) -> None:
    needed = reports_needed(voters, copies=copies)
    for holders in combinations(range(voters), copies):
        assert all(set(holders) & set(asked) for asked in combinations(range(voters), needed))
    if needed > 1:
        too_few = combinations(range(voters), needed - 1)
        assert any(not set(range(copies)) & set(asked) for asked in too_few)


def test_one_report_is_needed_where_a_group_has_fewer_voters_than_copies() -> None:
    assert [reports_needed(each, copies=3) for each in (0, 1, 2, 3)] == [0, 1, 1, 1]
