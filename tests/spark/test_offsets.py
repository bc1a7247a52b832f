"""Positions of streaming queries, checked by bounds and epochs alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.epochs import EpochEntry
from rmqstore.errors import ArgumentError
from rmqstore.spark.stream.offsets import (
    LogPosition,
    Position,
    Verdict,
    begin_of,
    cut_error,
    epoch_below,
    expired_error,
    shares,
    verdict_on,
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A log as far as a position is checked by it."""

    start: int
    end: int
    epochs: tuple[EpochEntry, ...] = ()


def _epochs(**starts: int) -> tuple[EpochEntry, ...]:
    """Make entries of e1=0, e2=500 and the like."""
    return tuple(EpochEntry(int(name[1:]), start) for name, start in starts.items())


def _place(offset: int, epoch: int | None = -1) -> LogPosition:
    return LogPosition(offset, 0, epoch=epoch)


# ---- the text that Spark keeps ----


def test_positions_have_the_form_that_the_checkpoints_keep() -> None:
    place = LogPosition(7340288, 100, epoch=3, tail_crc=17, starting_until=524288)
    position = Position({"/b": LogPosition(5, 5, epoch=-1), "/a": place}, {"timestamp": 4})
    assert json.dumps(position.to_json()) == (
        '{"version": 1, "commitLog": {'
        '"/a": {"physicalOffset": 7340288, "epoch": 3, "initialOffset": 100, "tailCrc": 17,'
        ' "startingUntil": 524288}, "/b": {"physicalOffset": 5, "epoch": -1, "initialOffset": 5}},'
        ' "starting": {"timestamp": 4}}'
    )


_OFFSETS = st.integers(0, 2**63 - 1)
_PLACES = st.builds(
    LogPosition,
    _OFFSETS,
    _OFFSETS,
    epoch=st.none() | st.integers(-1, 2**31 - 1),
    tail_crc=st.none() | st.integers(0, 2**32 - 1),
    starting_until=st.none() | _OFFSETS,
)


@given(st.dictionaries(st.text(), _PLACES), st.dictionaries(st.text(), st.integers()))
def test_positions_come_back_from_their_text(
    logs: dict[str, LogPosition], starting: dict[str, int]
) -> None:
    position = Position(logs, starting)
    text = json.dumps(position.to_json())
    assert Position.from_json(json.loads(text)) == position
    assert json.dumps(Position.from_json(json.loads(text)).to_json()) == text


def test_a_place_needs_its_physical_offset_alone() -> None:
    given = {"version": 1, "commitLog": {"/a": {"physicalOffset": 70}}}
    assert Position.from_json(given).logs == {"/a": LogPosition(70, 70)}


@pytest.mark.parametrize(
    "given",
    [
        None,
        17,
        {},
        {"version": 1},
        {"version": 2, "commitLog": {}},
        {"version": 1, "commitLog": []},
        {"version": 1, "commitLog": {}, "starting": 3},
        {"version": 1, "commitLog": {"/a": 5}},
        {"version": 1, "commitLog": {"/a": None}},
        {"version": 1, "commitLog": {"/a": {"epoch": 3}}},
        {"version": 1, "commitLog": {"/a": {"physicalOffset": -1}}},
        {"version": 1, "commitLog": {"/a": {"physicalOffset": 2**63}}},
        {"version": 1, "commitLog": {"/a": {"physicalOffset": True}}},
        {"version": 1, "commitLog": {"/a": {"physicalOffset": "5"}}},
        {"version": 1, "commitLog": {"/a": {"physicalOffset": 5, "tailCrc": 1.5}}},
    ],
)
def test_what_is_no_position_is_refused(given: object) -> None:
    with pytest.raises(ArgumentError, match="checkpoint"):
        Position.from_json(given)


# ---- where a batch begins ----


def _position(**logs: LogPosition) -> Position:
    return Position({f"/{name}": place for name, place in logs.items()})


def test_a_batch_begins_where_the_one_before_it_ended() -> None:
    start, end = _position(a=LogPosition(70, 10, epoch=2)), _position(a=LogPosition(90, 10))
    assert begin_of("/a", start, end) == LogPosition(70, 10, epoch=2)


def test_a_first_batch_read_again_begins_where_it_did() -> None:
    # The log has grown, and the start that was made up again lies at its latest end.
    start, end = (
        _position(a=LogPosition(500, 500)),
        _position(a=LogPosition(90, 10, starting_until=80)),
    )
    assert begin_of("/a", start, end) == LogPosition(10, 10, starting_until=80)


def test_a_log_found_during_a_batch_begins_where_it_did() -> None:
    end = _position(a=LogPosition(90, 10), b=LogPosition(40, 20))
    assert begin_of("/b", _position(a=LogPosition(70, 10)), end) == LogPosition(20, 20)


@pytest.mark.parametrize(("offset", "choosing"), [(79, True), (80, False), (81, False)])
def test_starting_options_choose_below_the_end_the_query_began_at(
    offset: int, choosing: bool
) -> None:
    position = _position(a=LogPosition(5, 5), b=LogPosition(offset, 0, starting_until=80))
    assert position.is_choosing() is choosing


# ---- judging ----


@pytest.mark.parametrize("offset", [100, 500, 900])
@pytest.mark.parametrize("epoch", [None, -1, 7])
def test_a_place_within_the_bounds_of_a_log_without_epochs_holds(
    offset: int, epoch: int | None
) -> None:
    assert verdict_on(_place(offset, epoch), Bounds(100, 900)) == (Verdict.HOLDS, offset)


def test_a_place_below_the_log_is_expired_and_goes_on_at_its_start() -> None:
    log = Bounds(100, 900, _epochs(e3=100))
    assert verdict_on(_place(99, 2), log) == (Verdict.EXPIRED, 100)
    message = str(expired_error("/a", _place(99), log))
    assert "offset 99" in message
    assert "starts at 100" in message
    assert "failOnDataLoss" in message


def test_a_log_that_ends_before_the_place_was_cut() -> None:
    log = Bounds(100, 900)
    assert verdict_on(_place(901), log) == (Verdict.CUT, 900)
    error = cut_error("/a", _place(901), log, 900)
    assert "offset 901" in str(error)
    assert "ends at 900" in str(error)
    assert (error.start, error.end, error.nearest) == (100, 900, 900)


@pytest.mark.parametrize(
    ("offset", "epoch", "verdict"),
    [
        # Epochs of the log: 2 from 200, 4 from 400, 5 from 600.
        (150, -1, (Verdict.HOLDS, 150)),
        (200, -1, (Verdict.HOLDS, 200)),
        (201, -1, (Verdict.CUT, 200)),
        (300, 2, (Verdict.HOLDS, 300)),
        (400, 2, (Verdict.HOLDS, 400)),
        (401, 2, (Verdict.CUT, 400)),
        (800, 2, (Verdict.CUT, 400)),
        (800, 3, (Verdict.CUT, 400)),
        (800, 5, (Verdict.HOLDS, 800)),
        (600, 5, (Verdict.CUT, -1)),
        (800, 6, (Verdict.CUT, -1)),
        (300, 3, (Verdict.CUT, -1)),
        (800, None, (Verdict.HOLDS, 800)),
    ],
)
def test_a_place_holds_only_in_the_epoch_it_was_read_in(
    offset: int, epoch: int | None, verdict: tuple[Verdict, int]
) -> None:
    log = Bounds(100, 900, _epochs(e2=200, e4=400, e5=600))
    assert verdict_on(_place(offset, epoch), log) == verdict


def test_an_epoch_that_retention_took_below_the_place_is_not_missed() -> None:
    assert verdict_on(_place(400, 2), Bounds(400, 900, _epochs(e4=400)))[0] is Verdict.HOLDS


def test_the_error_of_a_new_epoch_names_both_offsets() -> None:
    log = Bounds(0, 900, _epochs(e2=0, e4=400))
    message = str(cut_error("/a", _place(700, 2), log, 400))
    assert "offset 700" in message
    assert "newer than 2 begins at 400" in message


@given(
    st.lists(st.integers(0, 1000), unique=True, max_size=6).map(sorted),
    st.integers(0, 1000),
    st.integers(0, 1000),
)
def test_a_place_holds_as_long_as_the_log_only_grows(
    starts: list[int], offset: int, start: int
) -> None:
    epochs = tuple(EpochEntry(number, at) for number, at in enumerate(starts, 1))
    place = _place(offset, epoch_below(epochs, offset))
    grown = (*epochs, EpochEntry(9, 2000))
    verdict, _ = verdict_on(place, Bounds(start, 3000, grown))
    assert verdict is (Verdict.EXPIRED if offset < start else Verdict.HOLDS)


@given(
    st.lists(st.integers(0, 1000), unique=True, min_size=1, max_size=6).map(sorted),
    st.integers(1, 1000),
    st.integers(0, 999),
)
def test_a_log_cut_below_a_place_and_led_by_another_is_seen(
    starts: list[int], offset: int, cut: int
) -> None:
    epochs = tuple(EpochEntry(number, at) for number, at in enumerate(starts, 1))
    place = _place(offset, epoch_below(epochs, offset))
    kept = tuple(each for each in epochs if each.start_offset < cut)
    verdict, _ = verdict_on(place, Bounds(0, 3000, (*kept, EpochEntry(9, cut))))
    assert verdict is (Verdict.CUT if cut < offset else Verdict.HOLDS)


# ---- limits ----


@given(
    st.integers(1, 2**40),
    st.dictionaries(st.text(max_size=2), st.integers(0, 2**50), min_size=1, max_size=6),
)
def test_a_limit_is_divided_without_rest(limit: int, available: Mapping[str, int]) -> None:
    parts = shares(limit, available)
    assert set(parts) == set(available)
    assert sum(parts.values()) == (limit if any(available.values()) else 0)
    assert all(part == 0 for name, part in parts.items() if available[name] == 0)


def test_a_limit_is_divided_by_what_there_is() -> None:
    assert shares(100, {"/a": 3000, "/b": 1000, "/c": 0}) == {"/a": 75, "/b": 25, "/c": 0}


def test_a_limit_of_one_goes_to_the_log_with_most() -> None:
    assert shares(1, {"/a": 10, "/b": 11, "/c": 11}) == {"/a": 0, "/b": 1, "/c": 0}
