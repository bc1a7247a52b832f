"""Which half messages are undecided, what is due for them, and what notes and the log prove."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.broker.half_messages import Half, Key, Progress, ended_since, offsets_of
from rmqstore.broker.transactions import Action, Limits, Transactions

LIMITS = Limits(timeout_ms=6000, times_max=3, reserved_ms=3_600_000)
BEGIN = Progress(0, 0, 0)


@dataclass(kw_only=True)
class Stored:
    """A record as a broker reads it."""

    queue_offset: int = 0
    physical_offset: int = 0
    topic: str = "RMQ_SYS_TRANS_HALF_TOPIC"
    sys_flag: int = 0
    prepared_transaction_offset: int = 0
    born_timestamp: int = 0
    store_timestamp: int = 0
    unique_key: str | None = "K"
    properties: dict[str, str] = field(default_factory=dict)


def half(offset: int, **changes: Any) -> Half:
    """Return a half message with one record, at 100 times its offset in the log."""
    values: dict[str, Any] = {
        "offset": offset,
        "physical_offset": 100 * offset,
        "first": offset,
        "key": Key(f"K{offset}", "T"),
        "group": "pg",
        "born_ms": 0,
        "stored_ms": 0,
        **changes,
    }
    return Half(**values)


def read(*halves: Half, progress: Progress = BEGIN, noted: Iterable[int] = ()) -> Transactions:
    found = Transactions(progress, noted)
    for each in halves:
        found.found(each)
    return found


def end(found: Transactions, each: Half, *, is_decided: bool = True) -> None:
    assert found.begin_end(each, 1000)
    found.end(each, is_decided=is_decided)


def put_back(found: Transactions, each: Half, offset: int, *, times: int = 1) -> Half:
    return found.put_back(each, offset, 100 * offset, times=times, stored_ms=0)


# -- records


def test_half_message_is_what_its_record_says() -> None:
    properties = {
        "REAL_TOPIC": "T",
        "PGROUP": "pg",
        "CHECK_IMMUNITY_TIME_IN_SECONDS": "7",
        "TRANSACTION_CHECK_TIMES": "2",
        "HALF_ORIGIN": "3",
    }
    record = Stored(queue_offset=9, physical_offset=900, store_timestamp=5, properties=properties)
    wanted = half(9, first=3, key=Key("K", "T"), stored_ms=5, immunity_ms=7000, times=2)
    assert Half.of(record) == wanted


def test_rounds_without_a_question_that_rocketmq_counted_do_not_count() -> None:
    properties = {"TRAN_PREPARED_QUEUE_OFFSET": "3", "TRANSACTION_CHECK_TIMES": "14"}
    found = Half.of(Stored(queue_offset=9, properties=properties))
    assert (found.first, found.times, found.was_put_back) == (3, 0, True)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 30, "٣"])
def test_number_that_is_none_is_taken_as_missing(text: str) -> None:
    names = ("HALF_ORIGIN", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS")
    found = Half.of(Stored(queue_offset=9, properties=dict.fromkeys(names, text)))
    assert (found.first, found.times, found.immunity_ms) == (9, 0, 0)


def test_message_of_a_producer_whose_clock_is_ahead_is_born_when_it_is_stored() -> None:
    assert Half.of(Stored(born_timestamp=10**15, store_timestamp=5)).born_ms == 5


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"0,2,1,", [0, 2, 1]),
        (b"7", [7]),
        (b"", []),
        (b"-1,", []),
        (b"x,3,,4 ,\xff,5,", [3, 5]),
    ],
)
def test_note_names_its_offsets(body: bytes, offsets: list[int]) -> None:
    assert offsets_of(body) == offsets


@given(st.binary(max_size=60), st.lists(st.integers(0, 10**18 - 1), max_size=5))
def test_anything_may_stand_between_the_offsets_of_a_note(junk: bytes, wanted: list[int]) -> None:
    junk = bytes(each for each in junk if not chr(each).isdigit() or each > 127)
    body = b"".join(b"%d," % each for each in wanted)
    assert offsets_of(body + junk) == wanted
    assert offsets_of(junk + b"," + body) == wanted
    assert offsets_of(b"9" * 10_000 + b"," + body) == wanted


@given(st.text(max_size=30))
def test_progress_of_a_note_is_read_as_it_is_written(text: str) -> None:
    found = Progress.parse(text)
    assert found is None or Progress.parse(str(found)) == found


@pytest.mark.parametrize(
    "text", [None, "", "1-2", "9" * 10_000 + "-1-1", "1-2-3-4", "-1-2-3", "a-b-c", "1-2-"]
)
def test_text_that_is_no_progress_is_none(text: str | None) -> None:
    assert Progress.parse(text) is None
    assert Progress.parse("1-2-3") == Progress(1, 2, 3)


# -- ends


def test_half_message_that_is_not_read_yet_is_undecided_until_it_ends() -> None:
    found = read()
    early = half(5)
    assert found.undecided(early) == early
    end(found, early)
    assert found.undecided(early) is None
    found.found(early)
    assert (found.count, found.offset, found.unnoted) == (0, 0, [5])


def test_end_that_fails_leaves_the_message_undecided() -> None:
    found = read(half(0))
    end(found, half(0), is_decided=False)
    assert found.undecided(half(0)) == half(0)
    assert found.unnoted == []


def test_transaction_has_one_end_at_a_time_and_no_question_meanwhile() -> None:
    found = read(half(0))
    assert found.begin_end(half(0), 1000)
    assert not found.begin_end(half(0), 1000)
    assert list(found.due(10_000, LIMITS)) == []


def test_progress_passes_ended_messages_in_the_order_of_the_queue() -> None:
    found = read(*map(half, range(4)))
    for number, offset in ((2, 0), (0, 1), (1, 3)):
        end(found, half(number))
        assert found.offset == offset
    assert found.unnoted == [2, 0, 1]


# -- messages that were put back


def test_end_for_any_record_of_a_message_is_that_of_its_last_one() -> None:
    found = read(half(0))
    last = put_back(found, half(0), 1)
    assert found.undecided(half(0)) == last
    assert found.undecided(replace(last)) == last
    end(found, last)
    assert found.undecided(half(0)) is None
    assert found.undecided(last) is None
    assert found.unnoted == [0, 1]


def test_record_that_was_put_back_is_not_read_again() -> None:
    found = read(half(0))
    last = put_back(found, half(0), 1)
    assert not found.wants(1)
    found.skip(1)
    found.found(half(2))
    assert list(found) == [last, half(2)]


def test_new_master_knows_a_message_by_its_last_record() -> None:
    found = read(half(0), half(1), half(2, first=0, times=1))
    assert list(found) == [half(1), half(2, first=0, times=1)]
    assert found.unnoted == [0]


def test_records_that_rocketmq_put_back_are_one_message() -> None:
    """It does not note the former record, and saves its progress later."""
    key = Key("K", "T")
    first = half(0, key=key)
    second = half(1, key=key, times=1, was_put_back=True)
    third = half(2, key=key, times=2, was_put_back=True)
    found = read(first, second, third)
    [last] = found
    assert (last.offset, last.first) == (2, 0)
    for each in (first, second, third):
        assert found.undecided(each) == last
    end(found, last)
    for each in (first, second, third):
        assert found.undecided(each) is None


def test_note_of_the_first_record_ends_a_message_that_rocketmq_put_back_unasked() -> None:
    later = half(4, first=1, was_put_back=True)
    found = Transactions(Progress(4, 0, 0), [1])
    found.found(later, noted=[1])
    assert (found.count, found.offset) == (0, 5)
    found = Transactions(Progress(4, 0, 0), [2])
    found.found(later, noted=[2])
    assert found.count == 1


# -- questions


def due(found: Transactions, now_ms: int) -> list[tuple[int, Action]]:
    return [(each.offset, action) for each, action in found.due(now_ms, LIMITS)]


def test_producer_is_asked_once_its_message_is_old_enough() -> None:
    found = read(half(0), half(1, stored_ms=1000))
    assert due(found, 5999) == []
    assert due(found, 6000) == [(0, Action.ASK)]
    assert due(found, 7000) == [(0, Action.ASK), (1, Action.ASK)]


def test_immune_message_is_not_due_before_its_time() -> None:
    found = read(half(0, immunity_ms=60_000))
    assert due(found, 59_999) == []
    assert due(found, 60_000) == [(0, Action.ASK)]


def test_message_from_the_future_is_due() -> None:
    """The clock was set back by a day; RocketMQ asks at once, too."""
    found = read(half(0, born_ms=10**8, stored_ms=10**8, immunity_ms=60_000))
    assert due(found, 0) == [(0, Action.ASK)]
    assert due(found, 10**8) == []


def test_message_is_given_up_after_questions_alone() -> None:
    """RocketMQ counts every round."""
    found = read(half(0, times=2), half(1, times=3))
    assert due(found, 10_000) == [(0, Action.ASK), (1, Action.GIVE_UP)]


def test_message_that_cannot_be_asked_about_is_put_back_before_its_file_is_deleted() -> None:
    old_ms = LIMITS.reserved_ms // 2
    found = read(half(0, immunity_ms=10 * LIMITS.reserved_ms), half(1))
    assert due(found, old_ms) == [(0, Action.PUT_BACK), (1, Action.ASK)]
    assert found.holds_up(half(1), old_ms, LIMITS)
    assert not found.holds_up(half(1), old_ms - 1, LIMITS)


def test_oldest_message_is_put_back_where_too_many_wait_to_be_counted() -> None:
    oldest = half(0, immunity_ms=60_000)
    found = read(oldest)
    for number in range(1, 10_010):
        found.passed(number)
    assert due(found, 10_000) == [(0, Action.PUT_BACK)]
    put_back(found, oldest, 10_010, times=0)
    assert found.offset == 10_010
    assert due(found, 10_000) == []


def test_message_that_cannot_be_put_back_is_given_up_after_its_questions() -> None:
    found = read(half(0))
    last = half(0)
    for times in range(3):
        assert due(found, 10_000) == [(0, Action.ASK)]
        last = found.asked(last, times + 1)
    assert due(found, 10_000) == [(0, Action.GIVE_UP)]


# -- notes


def note(found: Transactions, at: int, *, size_max: int = 4096, log_end: int = 1000) -> Progress:
    """Write the next note."""
    offsets = found.note_offsets(size_max)
    progress = found.noting(offsets, at, log_end)
    found.noted(offsets, at, progress, log_end + 100)
    return progress


def test_note_has_the_progress_that_it_brings() -> None:
    found = read(*map(half, range(3)))
    end(found, half(1))
    assert note(found, 0) == Progress(0, 0, 1000)
    end(found, half(0))
    assert note(found, 1, log_end=2000) == Progress(2, 2, 2000)
    assert found.settle(1099) is None
    assert found.settle(2100) == Progress(2, 2, 2000)
    assert found.is_settled


def test_note_of_a_part_of_the_ends_has_the_former_progress() -> None:
    found = read(*map(half, range(3)))
    for number in range(3):
        end(found, half(number))
    assert note(found, 0, size_max=4) == BEGIN
    assert found.unnoted == [2]
    assert note(found, 1) == Progress(3, 2, 1000)


def test_commit_that_goes_on_lies_after_the_progress_in_the_log() -> None:
    """Its record may be in the log already, and no note names it."""
    found = read(half(0), half(1))
    found.begin_end(half(0), 700)
    end(found, half(1))
    assert note(found, 0) == Progress(0, 0, 700)


def test_long_log_with_an_undecided_message_gets_a_note() -> None:
    found = read(half(0))
    assert not found.is_stale(1 << 20)
    assert found.is_stale(1 << 30)
    assert found.body_of(found.note_offsets(4096)) == b"-1,"
    note(found, 0, log_end=1 << 30)
    assert not found.is_stale(1 << 30)
    assert not read().is_stale(1 << 30)


def test_new_master_goes_on_where_the_notes_end() -> None:
    found = read(*map(half, (3, 4, 5)), progress=Progress(3, 1, 0), noted=[1, 4])
    found.read_note(1, [1, 4])
    assert list(found) == [half(3), half(5)]
    end(found, half(3))
    assert note(found, 2) == Progress(5, 3, 1000)


def test_messages_that_retention_deleted_are_passed() -> None:
    found = read(half(0), half(1), half(9))
    found.begins_at(5)
    assert (found.offset, list(found)) == (5, [half(9)])


# -- the log


def committed(place: int, key: str, **changes: Any) -> Stored:
    values = {"topic": "T", "sys_flag": 8, "prepared_transaction_offset": place, **changes}
    return Stored(unique_key=key, **values)


def test_commits_in_the_log_name_their_half_messages() -> None:
    halves = {each.physical_offset: each for each in map(half, range(5))}
    records = [
        committed(100, "K1"),
        committed(200, "other"),
        committed(300, "K3", sys_flag=0),
        committed(999, "K4"),
        committed(0, "K0", topic="SCHEDULE_TOPIC_XXXX"),
    ]
    assert ended_since(records, halves) == [1, 0]


def test_messages_that_the_log_shows_as_given_up_are_ended() -> None:
    properties = {"REAL_TOPIC": "T", "TRANSACTION_CHECK_TIMES": "3"}
    copy = Stored(
        topic="TRANS_CHECK_MAX_TIME_TOPIC",
        unique_key="K1",
        physical_offset=500,
        properties=properties,
    )
    given_up, resumed = half(1, times=3), half(9, key=Key("K1", "T"), times=0)
    assert ended_since([copy], {100: given_up}) == [1]
    assert ended_since([copy], {900: resumed}) == []
