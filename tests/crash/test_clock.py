"""Wall clocks that jump by years, back and forth, while a store works."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.config import StoreConfig
from rmqstore.message import Boundary
from rmqstore.store.retention import CommitLogFile, DiskUse, RetentionPolicy, decide
from tests.c.library import SOURCES
from tests.support.agreement import FILES, check_agreement
from tests.support.effort import rounds
from tests.support.native_store import set_clock
from tests.support.preloaded import preloaded

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
NOW_MS = 1_700_000_000_000
JUMPS = {
    "ahead": [0, 30 * YEAR_MS],
    "back": [0, -30 * YEAR_MS],
    "ahead and back": [0, 30 * YEAR_MS, 1000, -20 * YEAR_MS, 2000],
    "beyond the seconds of an index entry": [0, 80 * YEAR_MS, -50 * YEAR_MS, 3000],
    "to the epoch": [0, 1 - NOW_MS, 0],
    "to and fro by seconds": [0, 1500, -1500, 900, -900] * 6,
}
BATCH = 80


def clocks(jumps: list[int]) -> Iterator[int]:
    """The clock's readings: a batch of puts a millisecond apart from each jump on."""
    for jump in jumps:
        for number in range(BATCH):
            yield NOW_MS + jump + number


def put_all(store: rmqstore.Store, jumps: list[int]) -> None:
    for number, now_ms in enumerate(clocks(jumps)):
        set_clock(store, now_ms)
        body = b"%06d" % number + bytes(number % 1500)
        receipt = store.put("orders", body, queue=number % 2, keys=[f"k{number}"])
        assert receipt.store_timestamp == now_ms
        assert receipt.queue_offset == number // 2


def check_all(store: rmqstore.Store, jumps: list[int]) -> None:
    count = BATCH * len(jumps)
    records = check_agreement(store, key_count=count)
    assert [record.store_timestamp for record in records] == list(clocks(jumps))
    for record in records:
        found = store.find("orders", record.keys[0])
        assert [each.physical_offset for each in found] == [record.physical_offset]


@pytest.mark.parametrize("compatibility", ["auto", "5.3", "5.5"])
@pytest.mark.parametrize("jumps", JUMPS.values(), ids=JUMPS)
def test_messages_put_over_a_jump_are_all_there_after_closing_and_after_a_crash(
    jumps: list[int], compatibility: str, tmp_path: Path
) -> None:
    settings = {**FILES, "compatibility": compatibility}
    with rmqstore.open(tmp_path / "closed", **settings) as store:
        put_all(store, jumps)
        check_all(store, jumps)

    with rmqstore.open(tmp_path / "closed", **settings) as store:
        assert store.recovery.was_closed
        check_all(store, jumps)

    store = rmqstore.open(tmp_path / "crashed", **settings)
    put_all(store, jumps)
    store.wait_dispatched()
    store.flush()
    store.put("orders", b"last", queue=0)
    store.abandon()

    with rmqstore.open(tmp_path / "crashed", **settings) as store:
        assert not store.recovery.was_closed
        assert store.queue("orders", 0).get(BATCH * len(jumps) // 2).body == b"last"
        store.truncate_to(store.get("orders", offset=BATCH * len(jumps) // 2).physical_offset)
        check_all(store, jumps)


@pytest.mark.parametrize("jumps", JUMPS.values(), ids=JUMPS)
def test_search_by_time_stays_inside_of_the_queue_whatever_the_clock_did(
    jumps: list[int], tmp_path: Path
) -> None:
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        put_all(store, jumps)
        queue = store.queue("orders", 1)
        for jump in jumps:
            for boundary in Boundary:
                for probe in (NOW_MS + jump - 1, NOW_MS + jump + BATCH // 2, NOW_MS + jump + BATCH):
                    assert queue.start <= queue.offset_at(probe, boundary) <= queue.end


def test_search_by_time_is_right_where_the_clock_only_ran_ahead(tmp_path: Path) -> None:
    jumps = [0, YEAR_MS, 30 * YEAR_MS]
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        put_all(store, jumps)
        queue = store.queue("orders", 0)
        for number, now_ms in list(enumerate(clocks(jumps)))[::2]:
            assert queue.offset_at(now_ms) == number // 2
            assert queue.offset_at(now_ms, Boundary.UPPER) == number // 2


def test_keys_within_a_range_of_times_are_found_on_both_sides_of_a_jump_ahead(
    tmp_path: Path,
) -> None:
    jumps = [0, YEAR_MS]
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        put_all(store, jumps)
        before = {"begin_ms": NOW_MS - DAY_MS, "end_ms": NOW_MS + DAY_MS}
        after = {"begin_ms": NOW_MS + YEAR_MS - DAY_MS, "end_ms": NOW_MS + YEAR_MS + DAY_MS}
        for number in range(2 * BATCH):
            found = [len(store.find("orders", f"k{number}", **times)) for times in (before, after)]
            assert found == ([1, 0] if number < BATCH else [0, 1])


# -- retention

POLICY = RetentionPolicy.from_config(StoreConfig())
EMPTY = DiskUse("disk", 0.1)


def files(count: int) -> list[CommitLogFile]:
    """A log of which one file was written an hour, up to now."""
    return [
        CommitLogFile(number << 30, 1 << 30, NOW_MS - (count - number) * 3_600_000)
        for number in range(count)
    ]


def deleted(count: int, *, now_ms: int, hour: int, disk: DiskUse = EMPTY) -> int:
    decision = decide(
        files(count),
        POLICY,
        now_ms=now_ms,
        hour=hour,
        commit_log_disks=[disk],
        queue_disk=disk,
        keep_from_offset=count << 30,
    )
    assert [each.start_offset for each in decision.delete] == [
        number << 30 for number in range(len(decision.delete))
    ]
    return len(decision.delete)


def test_clock_that_jumps_ahead_deletes_no_more_in_a_round_than_any_day() -> None:
    """And only at the hour of deletion: the files look as old as the clock says."""
    (hour,) = POLICY.delete_at_hours
    assert deleted(200, now_ms=NOW_MS, hour=hour) == POLICY.batch_max
    assert deleted(200, now_ms=NOW_MS + 30 * YEAR_MS, hour=hour) == POLICY.batch_max
    assert deleted(200, now_ms=NOW_MS + 30 * YEAR_MS, hour=(hour + 1) % 24) == 0


def test_clock_that_jumps_ahead_leaves_the_file_that_is_written_to() -> None:
    (hour,) = POLICY.delete_at_hours
    assert deleted(1, now_ms=NOW_MS + 30 * YEAR_MS, hour=hour) == 0
    assert deleted(3, now_ms=NOW_MS + 30 * YEAR_MS, hour=hour) == 2


def test_clock_set_back_deletes_nothing_by_age_and_still_makes_room_on_a_full_disk() -> None:
    (hour,) = POLICY.delete_at_hours
    assert deleted(200, now_ms=NOW_MS - 30 * YEAR_MS, hour=hour) == 0
    full = DiskUse("disk", 0.99)
    assert deleted(200, now_ms=NOW_MS - 30 * YEAR_MS, hour=hour, disk=full) == POLICY.batch_max


def test_store_without_retention_deletes_nothing_when_the_clock_jumps(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        put_all(store, [0, 30 * YEAR_MS])
        start = store.start_offset
        store._cleaner.round(store, deletes=False, hour=4, now_ms=NOW_MS + 60 * YEAR_MS)
        assert store.start_offset == start


# -- waits and intervals


def test_nothing_in_the_core_waits_by_the_wall_clock() -> None:
    """It is read in one place, for store times; a wait by it ends in short steps."""
    readers = {
        path.name
        for path in SOURCES.glob("*.[ch]")
        if re.search(r"CLOCK_REALTIME|gettimeofday|\btime\(NULL\)", path.read_text())
    }
    assert readers <= {"clock.h", "flusher.c"}


PUT_WHILE_THE_CLOCK_JUMPS = """
import mmap, random, struct, sys, time
import rmqstore
from rmqstore import Durability
from tests.support.agreement import FILES, check_agreement
from tests.support.waiting import spin_until

directory, count = sys.argv[1], int(sys.argv[3])
settings = {**FILES, "flush_commit_log_interval_ms": 5, "flush_commit_log_thorough_interval_ms": 20}
rng = random.Random(1)
with open(sys.argv[2], "r+b") as file:
    jump = mmap.mmap(file.fileno(), 8)
day, year = 86_400, 365 * 86_400
with rmqstore.open(directory, **settings) as store:
    years = set()
    for number in range(count):
        jump[:] = struct.pack("q", rng.choice((0, 20 * year, -20 * year, 3 * day, -3600)))
        years.add(time.gmtime().tm_year)
        store.put("orders", b"%d" % number, durability=Durability.DISK)
        store.put("orders", b"x" * 3000, queue=1, keys=[f"k{number}"])
        end = store.put("orders", b"x", queue=2).end_offset
        # `wait_flushed` would have it flushed at once; here the interval must end.
        spin_until(lambda: store.flushed_offset >= end, "the flush after an interval")
        store.wait_dispatched(timeout=30)
        assert store.queue("orders", 2).wait(number, timeout=30)
    assert len(years) == 3, years
    check_agreement(store)
with rmqstore.open(directory) as store:
    assert len(check_agreement(store)) == 3 * count
"""


def test_waits_and_flushing_go_on_while_the_clock_of_the_process_jumps(tmp_path: Path) -> None:
    jump = tmp_path / "jump"
    jump.write_bytes(bytes(8))
    source = Path(__file__).with_name("jumping_clock.c")
    environment = preloaded(source, tmp_path, JUMPING_CLOCK=jump)
    count = str(rounds(50, 3000))
    done = subprocess.run(
        [
            *(sys.executable, "-c", PUT_WHILE_THE_CLOCK_JUMPS),
            *(str(tmp_path / "store"), str(jump), count),
        ],
        capture_output=True,
        text=True,
        env=environment,
    )

    assert done.returncode == 0, done.stderr[-4000:]
