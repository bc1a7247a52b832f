"""Timer log and wheel: files that follow each other, cuts, and what is refused.

Behaviour of upstream's TimerLogTest and TimerWheelTest; a docstring names the methods. Upstream's
checkPhyPos has no counterpart here: the wheel is made again at each opening.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore._native.core import TimerIndex
from rmqstore.broker.timers import LAP_SLOTS
from rmqstore.errors import ArgumentError, StoreClosedError
from tests.reference.timer_files import Unit, encode_log, wheel_of

FILE_SIZE = 2600
"""49 units, and a blank of 52 bytes."""
EVERYTHING = 1 << 62
BASE_MS = 1_700_000_000_000


def opened(root: Path, bound: int = EVERYTHING) -> TimerIndex:
    return TimerIndex(root, file_size=FILE_SIZE, precision_ms=1000, bound=bound)


def add(index: TimerIndex, number: int, *, slot: int = 0, magic: int = 1) -> None:
    index.add(
        BASE_MS + 1000 * slot,
        write_ms=BASE_MS,
        magic=magic,
        physical_offset=100 * number,
        size=100,
        topic_hash=number,
    )


def filled(root: Path, count: int) -> TimerIndex:
    """Return an index of messages in three slots by turns."""
    index = opened(root)
    for number in range(count):
        add(index, number, slot=number % 3)
    index.flush()
    return index


def log_of(root: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted((root / "timerlog").iterdir()))


def test_files_are_those_of_the_reference(tmp_path: Path) -> None:
    filled(tmp_path, 120).close()
    units, last, position = {}, {0: -1, 1: -1, 2: -1}, 0
    for number in range(120):
        if number and number % 49 == 0:
            position += 52
        slot = number % 3
        units[position] = Unit(last[slot], 1, BASE_MS, 1000 * slot, 100 * number, 100, number)
        last[slot] = position
        position += 52
    assert log_of(tmp_path) == encode_log(units.values(), FILE_SIZE)
    assert (tmp_path / "timerwheel").read_bytes() == wheel_of(units, 1000)


def test_units_come_in_their_order_and_deletions_count_less(tmp_path: Path) -> None:
    """TimerWheelTest: testPutGet, testGetNum."""
    index = filled(tmp_path, 1000)
    add(index, 1000, slot=1, magic=5)
    assert [each[2] for each in index.units(BASE_MS + 1000)] == [
        *range(100, 100_000, 300),
        100_000,
    ]
    assert index.slot_count(BASE_MS + 1000) == 333 - 1
    assert index.count(BASE_MS) == 1000 - 1
    assert index.count(BASE_MS + 2000) == 333
    assert index.next(BASE_MS - 50_000, BASE_MS + 50_000) == BASE_MS
    assert index.next(BASE_MS + 3000, BASE_MS + 9_000_000_000) == BASE_MS + 9_000_000_000
    index.close()


@pytest.mark.parametrize("kept", [0, 1, 48, 49, 50, 98, 119, 120])
def test_units_of_another_log_are_cut(tmp_path: Path, kept: int) -> None:
    """TimerLogTest: testRecovery; TimerWheelTest: testRecoveryData."""
    filled(tmp_path, 120).close()
    index = opened(tmp_path, bound=100 * kept)
    assert index.last_offset == 100 * (kept - 1) if kept else index.last_offset == -1
    found = sorted(each[2] for slot in range(3) for each in index.units(BASE_MS + 1000 * slot))
    assert found == [100 * number for number in range(kept)]
    for number in range(kept, 120):
        add(index, number, slot=number % 3)
    index.flush()
    index.close()
    again = tmp_path / "again"
    again.mkdir()
    filled(again, 120).close()
    assert log_of(tmp_path) == log_of(again)
    assert (tmp_path / "timerwheel").read_bytes() == (again / "timerwheel").read_bytes()


def test_slot_of_a_later_lap_takes_the_place_of_a_former_one(tmp_path: Path) -> None:
    """TimerWheelTest: testPutRevise. The unit of the former lap stays in the log."""
    index = opened(tmp_path)
    add(index, 0)
    add(index, 1, slot=LAP_SLOTS)
    assert index.slot_count(BASE_MS) == 0
    assert index.units(BASE_MS) == []
    assert index.slot_count(BASE_MS + 1000 * LAP_SLOTS) == 1
    [unit] = index.units(BASE_MS + 1000 * LAP_SLOTS)
    assert unit[2] == 100
    index.flush()
    index.close()
    index = opened(tmp_path)
    assert (index.slot_count(BASE_MS), index.last_offset) == (0, 100)
    index.close()


def test_files_whose_messages_are_gone_are_removed(tmp_path: Path) -> None:
    """TimerLogTest: testAppendRollSelectDelete."""
    index = filled(tmp_path, 120)
    index.delete_before(100 * 48)
    assert len(list((tmp_path / "timerlog").iterdir())) == 3
    index.delete_before(100 * 48 + 1)
    assert len(list((tmp_path / "timerlog").iterdir())) == 2
    index.delete_before(EVERYTHING)
    assert len(list((tmp_path / "timerlog").iterdir())) == 1
    found = sorted(each[2] for slot in range(3) for each in index.units(BASE_MS + 1000 * slot))
    assert found == [100 * number for number in range(98, 120)]
    index.close()
    index = opened(tmp_path)
    assert index.count(BASE_MS) == 22
    index.close()


def test_unit_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    index = filled(tmp_path, 5)
    for changes in ({"number": 3}, {"number": 5, "magic": 2}, {"number": 5, "slot": 3_000_000}):
        with pytest.raises(ArgumentError):
            add(index, **changes)
    add(index, 5)
    assert index.last_offset == 500
    index.close()
    index.close()
    with pytest.raises(StoreClosedError):
        index.units(BASE_MS)
