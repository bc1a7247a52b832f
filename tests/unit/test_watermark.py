"""The confirm offset of a store through master, slave, cuts and expired files."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqstore import ArgumentError
from rmqstore.replication.watermark import Cut, Watermark
from tests.effort import rounds


def watermark(confirm_offset: int = 0, *, start: int = 0, end: int = 1000) -> Watermark:
    return Watermark(confirm_offset=confirm_offset, start_offset=start, end_offset=end)


@pytest.mark.parametrize(("stored", "taken"), [(-1, 100), (99, 100), (500, 500), (1001, 1000)])
def test_stored_offset_is_moved_inside_the_log(stored: int, taken: int) -> None:
    assert watermark(stored, start=100).confirm_offset == taken


def test_slave_takes_the_masters_offset_up_to_its_own_end() -> None:
    mark = watermark(100)
    assert mark.follow(2000, end_offset=700)
    assert mark.confirm_offset == 700


def test_lower_offset_of_a_new_master_changes_nothing() -> None:
    mark = watermark(400)
    assert not mark.follow(300, end_offset=1000)
    assert not mark.follow(-1, end_offset=1000)
    assert mark.confirm_offset == 400


def test_master_that_waits_for_somebody_silent_confirms_nothing() -> None:
    mark = watermark(400)
    assert not mark.lead(None, end_offset=1000)
    assert not mark.lead(399, end_offset=1000)
    assert mark.lead(1500, end_offset=1000)
    assert mark.confirm_offset == 1000


def test_cut_below_the_confirm_offset_says_what_was_lost() -> None:
    mark = watermark(400)
    assert mark.truncated(400) == Cut(400, 0)
    assert mark.truncated(150) == Cut(150, 250)


def test_expired_files_raise_it_to_the_first_byte() -> None:
    mark = watermark(400)
    assert not mark.trimmed(300)
    assert mark.trimmed(600)
    assert mark.confirm_offset == 600


def test_impossible_log_is_refused() -> None:
    with pytest.raises(ArgumentError, match="begin at 2 and end at 1"):
        watermark(start=2, end=1)


class Life(RuleBasedStateMachine):
    """It stays inside the log and goes back only with it."""

    @initialize(stored=st.integers(-10, 2000))
    def start(self, stored: int) -> None:
        self.start_offset, self.end_offset = 100, 1000
        self.mark = watermark(stored, start=100)
        self.lowest = 0

    @rule(size=st.integers(0, 300))
    def grow(self, size: int) -> None:
        self.end_offset += size

    @rule(offset=st.integers(-1, 5000))
    def frame(self, offset: int) -> None:
        self.mark.follow(offset, end_offset=self.end_offset)

    @rule(offset=st.one_of(st.none(), st.integers(-1, 5000)))
    def acknowledged(self, offset: int | None) -> None:
        self.mark.lead(offset, end_offset=self.end_offset)

    @rule(size=st.integers(0, 300))
    def cut(self, size: int) -> None:
        self.end_offset = max(self.end_offset - size, self.start_offset)
        self.mark.truncated(self.end_offset)
        self.lowest = min(self.lowest, self.end_offset)

    @rule(size=st.integers(0, 300))
    def expire(self, size: int) -> None:
        self.start_offset = min(self.start_offset + size, self.end_offset)
        self.mark.trimmed(self.start_offset)

    @invariant()
    def inside_and_never_back(self) -> None:
        assert self.start_offset <= self.mark.confirm_offset <= self.end_offset
        assert self.mark.confirm_offset >= self.lowest
        self.lowest = self.mark.confirm_offset


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=rounds(30, 1000), deadline=None)
