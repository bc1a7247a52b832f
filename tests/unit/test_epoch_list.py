"""The epoch list of a log: what may follow, what a cut leaves, and what a crash cannot bring back.

docs/defects.md, H1, H2, H4, H5, H11 and H12.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.epochs import EpochEntry, EpochList, common_points, epoch_at, format_epochs
from rmqstore.errors import ArgumentError, CorruptionError, Fenced
from tests.scenarios.ha_model import Died, EpochDisk


def epochs(*pairs: tuple[int, int]) -> EpochList:
    return EpochList(tuple(EpochEntry(epoch, start) for epoch, start in pairs))


@st.composite
def lists(draw: st.DrawFn) -> EpochList:
    steps = st.tuples(st.integers(1, 3), st.integers(0, 5))
    epoch = start = 0
    found = []
    for epoch_step, size in draw(st.lists(steps, max_size=8)):
        epoch, start = epoch + epoch_step, start + size
        found.append((epoch, start))
    return epochs(*found)


def test_h1_epoch_that_begins_where_the_last_one_did_is_kept_beside_it() -> None:
    assert epochs((1, 0), (2, 300)).append(EpochEntry(3, 300)) == epochs((1, 0), (2, 300), (3, 300))


def test_h1_epoch_that_wrote_nothing_ends_where_it_begins() -> None:
    ours, theirs = epochs((2, 0)), epochs((2, 0), (3, 0))
    points = common_points(ours.entries, theirs.entries, our_end=604, their_end=604)
    assert list(points) == [0]


@pytest.mark.parametrize("entry", [(2, 400), (1, 400), (3, 299), (3, -1), (-1, 0), (2**31, 400)])
def test_entry_that_contradicts_the_last_one_is_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(ArgumentError, match="epoch list"):
        epochs((1, 0), (2, 300)).append(EpochEntry(*entry))


def test_taking_office_again_in_one_epoch_changes_nothing() -> None:
    assert epochs((1, 0)).begin(2, log_end=300).begin(2, log_end=900) == epochs((1, 0), (2, 300))


def test_taking_office_in_an_epoch_that_is_over_is_fenced() -> None:
    with pytest.raises(Fenced, match="epoch 2 is over") as caught:
        epochs((1, 0), (3, 300)).begin(2, log_end=900)
    assert caught.value.epoch == 3


def test_h2_epochs_behind_the_end_of_the_log_are_dropped_at_a_start() -> None:
    assert epochs((1, 0), (2, 360)).restored(log_end=120) == epochs((1, 0))
    assert epochs((1, 0), (2, 120)).restored(log_end=120) == epochs((1, 0), (2, 120))


def test_h5_last_epoch_is_unbounded_again_after_a_cut() -> None:
    kept = epochs((1, 100), (2, 300)).truncate_to(250)
    assert kept == epochs((1, 100))
    assert epoch_at(kept.entries, 350) == EpochEntry(1, 100)


def test_epochs_of_deleted_files_go_but_not_the_one_that_ends_at_the_first_byte() -> None:
    assert epochs((1, 0), (2, 300), (3, 500)).trim_before(301) == epochs((2, 300), (3, 500))
    assert epochs((1, 0), (2, 300), (3, 500)).trim_before(300) == epochs((1, 0), (2, 300), (3, 500))
    assert epochs((1, 0), (2, 300)).trim_before(9000) == epochs((2, 300))


@given(lists(), st.integers(0, 40))
def test_cuts_at_both_ends_keep_the_epoch_of_every_byte_that_is_left(
    found: EpochList, offset: int
) -> None:
    for at in range(40):
        before = epoch_at(found.entries, at)
        if at >= offset:
            assert epoch_at(found.trim_before(offset).entries, at) == before
        else:
            assert epoch_at(found.truncate_to(offset).entries, at) == before


@given(lists())
def test_saved_list_is_loaded_again(found: EpochList) -> None:
    files = EpochDisk()
    found.save(files)
    assert EpochList.load(files) == found


def test_h4_empty_list_stays_empty() -> None:
    files = EpochDisk()
    epochs((1, 0), (2, 300)).save(files)
    EpochList().save(files)
    assert files.texts == {}
    assert EpochList.load(files) == EpochList()


@given(lists(), lists(), st.integers(0, 1))
def test_h12_death_in_the_middle_of_a_save_leaves_the_old_list_or_the_new(
    old: EpochList, new: EpochList, dies_at: int
) -> None:
    files = EpochDisk()
    old.save(files)
    dying = EpochDisk(dies_at=dies_at)
    dying.texts = files.texts
    with pytest.raises(Died):
        new.save(dying)
    assert EpochList.load(dying) in (old, new)


@pytest.mark.parametrize("torn", ["", "2", "2\n94643", "x\n0\n1-0\n"])
def test_h12_torn_file_gives_way_to_its_copy(torn: str) -> None:
    files = EpochDisk()
    epochs((1, 0), (2, 300)).save(files)
    files.texts[""] = torn
    assert EpochList.load(files) == epochs((1, 0), (2, 300))


def test_two_damaged_files_are_no_empty_list() -> None:
    files = EpochDisk()
    files.texts = {"": "2\n", ".bak": ""}
    with pytest.raises(CorruptionError, match="count and a CRC"):
        EpochList.load(files)


def test_copy_never_names_fewer_epochs_than_the_file() -> None:
    files = EpochDisk()
    epochs((1, 0)).save(files)
    epochs((1, 0), (2, 300)).save(files)
    files.texts[""] = "torn"
    assert EpochList.load(files) == epochs((1, 0), (2, 300))


def test_h11_list_of_many_thousand_epochs_is_saved_and_loaded() -> None:
    many = epochs(*((epoch, epoch * 10) for epoch in range(5000)))
    files = EpochDisk()
    many.save(files)
    assert files.texts[""] == format_epochs(many.entries)
    assert EpochList.load(files) == many
