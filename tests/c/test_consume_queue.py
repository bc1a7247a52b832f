"""The consume queue: append, find the end again, cut, expire, look up."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import GoldenCase, GoldenCases, every_case
from tests.reference import consume_queue as reference
from tests.reference.consume_queue import FILL, UNIT, Unit

UNITS_PER_FILE = 5
FILE_SIZE = UNITS_PER_FILE * UNIT.size
HOT_USES = 3
EVERYTHING = (1 << 63) - 1


class Queue:
    """One open queue; leaving the block closes it without a flush, as a crash would."""

    def __init__(
        self, core: Any, path: Path, *, file_size: int = FILE_SIZE, **options: Any
    ) -> None:
        self.ffi, self.lib = core
        self.path = path
        self.queue = self.ffi.new("struct rmq_consume_queue *")
        self.error = self.ffi.new("struct rmq_error *")
        vfs = options.get("vfs", self.lib.rmq_vfs_posix())
        read_only = options.get("read_only", False)
        self.budget = self.ffi.new("struct rmq_map_budget *")
        self.budget.left, self.budget.hot_uses = options.get("mappings", 8), HOT_USES
        self.check(
            self.lib.rmq_consume_queue_open(
                self.queue,
                vfs,
                bytes(path),
                file_size,
                read_only,
                self.ffi.NULL,
                self.budget,
                self.error,
            )
        )

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.rmq_consume_queue_close(self.queue)

    def check(self, status: int) -> None:
        assert status == 0, (status, self.ffi.string(self.error.detail))

    @property
    def bounds(self) -> tuple[int, int, int]:
        return self.queue.min_offset, self.queue.max_offset, self.queue.physical_end

    def put(self, queue_offset: int, unit: Unit) -> int:
        status: int = self.lib.rmq_consume_queue_append(
            self.queue, queue_offset, *astuple(unit), self.error
        )
        return status

    def append(self, queue_offset: int, unit: Unit) -> None:
        self.check(self.put(queue_offset, unit))

    def extend(self, units: list[Unit], *, first: int = 0) -> None:
        for queue_offset, unit in enumerate(units, first):
            self.append(queue_offset, unit)

    def keep(self, units: list[Unit], *, first: int) -> None:
        """As extend with those up to the first one that the files do not hold."""
        for queue_offset, unit in enumerate(units, first):
            if not self.lib.rmq_consume_queue_recognise(self.queue, queue_offset, *astuple(unit)):
                break
        self.check(self.lib.rmq_consume_queue_keep(self.queue, self.error))

    def call(self, name: str, offset: int) -> tuple[int, int, int]:
        function = getattr(self.lib, f"rmq_consume_queue_{name}")
        self.check(function(self.queue, offset, self.error))
        return self.bounds

    def recover(self, log_end: int = EVERYTHING) -> tuple[int, int, int]:
        return self.call("recover", log_end)

    def read(self, queue_offset: int, capacity: int = 1000) -> list[Unit]:
        units = self.ffi.new("struct rmq_unit[]", capacity)
        count = self.ffi.new("size_t *")
        self.check(
            self.lib.rmq_consume_queue_read(
                self.queue, queue_offset, units, capacity, count, self.error
            )
        )
        found = [units[i] for i in range(count[0])]
        assert [unit.queue_offset for unit in found] == list(
            range(queue_offset, queue_offset + len(found))
        )
        assert all(unit.batch_size == 1 and unit.store_timestamp == -1 for unit in found)
        return [Unit(unit.physical_offset, unit.size, unit.tags_code) for unit in found]

    def flush(self) -> None:
        self.check(self.lib.rmq_consume_queue_flush(self.queue, self.error))


def astuple(unit: Unit) -> tuple[int, int, int]:
    return unit.physical_offset, unit.size, unit.tags_code


def units_of(count: int, *, size: int = 100, start: int = 0) -> list[Unit]:
    return [Unit(start + n * size, size, n - 3) for n in range(count)]


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("first", [0, 3, 5, 12])
def test_appended_units_are_the_bytes_of_the_reference(
    core: Any, tmp_path: Path, first: int
) -> None:
    units = units_of(12)
    with Queue(core, tmp_path / "q") as queue:
        queue.extend(units, first=first)
        assert queue.bounds == (first, first + 12, 1200)
        assert queue.read(first) == units
    assert files(tmp_path / "q") == reference.encode_files(units, first=first, file_size=FILE_SIZE)


def test_file_size_is_rounded_up_to_whole_units(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path, file_size=41) as queue:
        queue.append(0, Unit(0, 10, 1))
    assert {name: len(data) for name, data in files(tmp_path).items()} == {"0" * 20: 60}


@pytest.mark.parametrize("file_size", [0, -20, 1 << 31])
def test_impossible_file_size_is_refused(core: Any, tmp_path: Path, file_size: int) -> None:
    with pytest.raises(AssertionError, match="file size"):
        Queue(core, tmp_path, file_size=file_size)


def test_unit_that_is_there_already_changes_nothing(core: Any, tmp_path: Path) -> None:
    units = units_of(7)
    with Queue(core, tmp_path) as queue:
        queue.extend(units)
        queue.append(6, Unit(9999, 1, 0))
        queue.append(0, Unit(9999, 1, 0))
        assert queue.bounds == (0, 7, 700)
        assert queue.read(0) == units


def test_first_unit_at_five_stands_behind_five_fill_units(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path, file_size=200) as queue:
        queue.append(5, Unit(500, 100, 7))
        assert queue.bounds == (5, 6, 600)
        assert queue.read(0) == [FILL] * 5 + [Unit(500, 100, 7)]
    with Queue(core, tmp_path, file_size=200) as queue:
        assert queue.recover() == (5, 6, 600)


def test_gap_over_several_files_keeps_every_unit_at_its_place(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(3))
        queue.append(14, Unit(1400, 100, 7))
        assert queue.bounds == (0, 15, 1500)
        assert queue.read(0) == [*units_of(3), *[FILL] * 11, Unit(1400, 100, 7)]
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (0, 15, 1500)


def test_gap_beyond_the_limit_is_corrupt_and_loses_nothing(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(3))
        assert queue.put((16 << 20) + 4, Unit(400, 100, 0)) == queue.lib.RMQ_CORRUPT
        assert b"repair" in queue.ffi.string(queue.error.detail)
        queue.append(3, Unit(300, 100, 0))
        assert queue.bounds == (0, 4, 400)


@pytest.mark.parametrize(
    ("queue_offset", "unit"),
    [
        (-1, Unit(0, 10, 0)),
        (EVERYTHING // 20, Unit(0, 10, 0)),
        (0, Unit(-1, 10, 0)),
        (0, Unit(0, 0, 0)),
        (0, Unit(EVERYTHING, 10, 0)),
    ],
)
def test_unit_out_of_range_is_refused(
    core: Any, tmp_path: Path, queue_offset: int, unit: Unit
) -> None:
    with Queue(core, tmp_path) as queue:
        assert queue.put(queue_offset, unit) == queue.lib.RMQ_INVALID
        assert queue.bounds == (0, 0, -1)
    assert files(tmp_path) == {}


@pytest.mark.parametrize("count", range(13))
def test_recovery_ends_behind_the_last_unit(core: Any, tmp_path: Path, count: int) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(count))
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (0, count, count * 100 if count else -1)
        queue.append(count, Unit(5000, 50, 1))
        assert queue.read(0) == [*units_of(count), Unit(5000, 50, 1)]


@pytest.mark.parametrize("log_end", [0, 1, 100, 101, 599, 600, 601, 1199, 1200, 5000])
def test_recovery_cuts_units_at_or_behind_the_log_end_on_disk(
    core: Any, tmp_path: Path, log_end: int
) -> None:
    units = units_of(12)
    with Queue(core, tmp_path) as queue:
        queue.extend(units)
    kept = [unit for unit in units if unit.physical_offset < log_end]
    with Queue(core, tmp_path) as queue:
        assert queue.recover(log_end) == (0, len(kept), len(kept) * 100 if kept else -1)
    assert files(tmp_path) == reference.encode_files(kept, first=0, file_size=FILE_SIZE)


def test_what_follows_the_known_whole_part_does_not_matter(core: Any, tmp_path: Path) -> None:
    """After a power loss some pages behind the last flush are old, some are there."""
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(20))
    lost = sorted(tmp_path.iterdir())[1]
    lost.write_bytes(units_of(6)[5].encode() + bytes(40) + lost.read_bytes()[60:])
    with Queue(core, tmp_path) as queue:
        assert queue.recover(600) == (0, 6, 600)
        assert queue.read(0) == units_of(6)
    assert sum(len(data.rstrip(b"\0")) > 0 for data in files(tmp_path).values()) == 2


@given(
    st.integers(0, 17),
    st.integers(0, 1800),
    st.integers(0, 17),
    st.one_of(st.none(), st.integers(0, 17)),
)
def test_rewound_queue_ends_as_one_that_was_cut_and_written_anew(
    core: Any,
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    log_end: int,
    count_again: int,
    changed: int | None,
) -> None:
    """Whatever is appended again: nothing, the same, more, or another unit in the middle."""
    again = units_of(count_again)
    if changed is not None and changed < count_again:
        again[changed] = Unit(again[changed].physical_offset, 100, 77)

    results = []
    for verb, keeps in (("recover", False), ("rewind", False), ("rewind", True)):
        path = tmp_path_factory.mktemp("q")

        with Queue(core, path) as queue:
            queue.extend(units_of(count))

        with Queue(core, path) as queue:
            bounds = queue.call(verb, log_end)
            kept = bounds[1]
            if keeps:
                queue.keep(again[kept:], first=kept)
            for number in range(kept, count_again):
                queue.append(number, again[number])
            end = queue.call("truncate", EVERYTHING)
            units = queue.read(0)
            queue.flush()
        results.append((bounds, end, units, files(path)))

    assert results[0] == results[1] == results[2]


def test_units_that_are_kept_are_those_the_files_hold_and_not_yet_flushed(
    core: Any, tmp_path: Path
) -> None:
    units = units_of(12)
    with Queue(core, tmp_path) as queue:
        queue.extend(units)
    before = files(tmp_path)
    with Queue(core, tmp_path) as queue:
        assert queue.call("rewind", 300) == (0, 3, 300)
        queue.keep([*units[3:8], Unit(800, 100, 77)], first=3)
        assert queue.bounds == (0, 8, 800)
        assert queue.queue.files.flushed_offset == 3 * UNIT.size
        queue.flush()
        assert queue.queue.files.flushed_offset == 8 * UNIT.size
        assert files(tmp_path) == before


def test_rewinding_leaves_the_files_as_they_are_until_the_queue_is_cut(
    core: Any, tmp_path: Path
) -> None:
    units = units_of(12)
    with Queue(core, tmp_path) as queue:
        queue.extend(units)
    before = files(tmp_path)
    with Queue(core, tmp_path) as queue:
        assert queue.call("rewind", 300) == (0, 3, 300)
        queue.extend(units[3:7], first=3)
        assert files(tmp_path) == before
        assert queue.call("truncate", EVERYTHING) == (0, 7, 700)
    assert files(tmp_path) == reference.encode_files(units[:7], first=0, file_size=FILE_SIZE)


def test_recovery_of_a_sparse_file_reads_nothing_into_its_holes(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path, file_size=8 << 20) as queue:
        queue.append(0, Unit(0, 10, 1))
        queue.flush()
    with Queue(core, tmp_path, file_size=8 << 20) as queue:
        assert queue.recover() == (0, 1, 10)
        while queue.budget.left == 8:
            queue.read(0)
        resident = resident_bytes(next(tmp_path.iterdir()))
        assert 0 < resident <= 128 << 10


def resident_bytes(path: Path) -> int:
    """How much of a file that this process maps is in its memory."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if str(path) in line:
            inside = True
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1]) << 10
    return 0


def test_all_zero_last_file_holds_no_unit(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(5))
    (tmp_path / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (0, 5, 500)
        assert queue.call("truncate", 400) == (0, 4, 400)


def test_fill_units_behind_the_last_unit_go_with_what_followed_them(
    core: Any, tmp_path: Path
) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(3))
        queue.append(7, Unit(700, 100, 0))
        assert queue.call("truncate", 700) == (0, 3, 300)
        queue.append(3, Unit(700, 100, 9))
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (0, 4, 800)
        assert queue.read(3) == [Unit(700, 100, 9)]


def test_cut_between_fill_units_finds_the_unit_before_them(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(3))
        queue.append(12, Unit(1200, 100, 0))
        for log_end, kept in ((1200, 3), (200, 2), (150, 2), (100, 1)):
            assert queue.call("truncate", log_end) == (0, kept, kept * 100)


def test_queue_of_fill_units_only_keeps_its_place(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(2, start=300), first=3)
        assert queue.call("truncate", 300) == (3, 3, -1)
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (3, 3, -1)
        queue.append(4, Unit(300, 100, 0))
        assert queue.bounds == (4, 5, 400)


def test_truncate_below_everything_empties_a_queue_that_begins_at_zero(
    core: Any, tmp_path: Path
) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(12, start=50))
        assert queue.call("truncate", 50) == (0, 0, -1)
        assert files(tmp_path) == {}
        queue.append(0, Unit(60, 10, 0))
        assert queue.bounds == (0, 1, 70)


def test_expired_queue_keeps_its_place_when_the_rest_is_cut(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(23))
        queue.flush()
        assert queue.call("expire", 1000) == (10, 23, 2300)
        assert min(files(tmp_path)) == f"{200:020d}"
        assert queue.call("truncate", 1000) == (10, 10, -1)
        assert files(tmp_path) == {f"{200:020d}": bytes(FILE_SIZE)}
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (10, 10, -1)
        queue.append(10, Unit(1000, 30, 0))
        queue.flush()
        assert queue.queue.files.flushed_offset == 220
        assert queue.bounds == (10, 11, 1030)
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (10, 11, 1030)


@pytest.mark.parametrize("log_start", [0, 1, 400, 450, 500, 900, 1150, 1200, 9999])
def test_expiry_moves_min_and_unlinks_whole_files_but_the_last(
    core: Any, tmp_path: Path, log_start: int
) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(12))
        low = min(-(-log_start // 100), 12)
        assert queue.call("expire", log_start) == (low, 12, 1200)
        first = min(low // UNITS_PER_FILE, 2) * FILE_SIZE
        assert min(files(tmp_path)) == f"{first:020d}"
        assert queue.read(low) == units_of(12)[low:]
        assert queue.read(first // UNIT.size - 1) == [] if first else True


def test_wholly_expired_queue_starts_anew_where_a_later_unit_belongs(
    core: Any, tmp_path: Path
) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(7))
        assert queue.call("expire", 5000) == (7, 7, 700)
        queue.append(1_000_000_002, Unit(6000, 10, 0))
        assert queue.bounds == (1_000_000_002, 1_000_000_003, 6010)
    assert list(files(tmp_path)) == [f"{20_000_000_000:020d}"]
    with Queue(core, tmp_path) as queue:
        assert queue.recover() == (1_000_000_002, 1_000_000_003, 6010)


def test_reads_outside_give_nothing_and_inside_what_fits(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(12))
        assert queue.read(12) == queue.read(13) == queue.read(-1) == []
        assert queue.read(3, capacity=4) == units_of(12)[3:7]
        assert queue.read(11, capacity=4) == units_of(12)[11:]
        assert queue.read(0, capacity=0) == []


def test_read_only_recovery_changes_no_file(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(12))
    before = files(tmp_path)
    with Queue(core, tmp_path, read_only=True) as queue:
        assert queue.recover(700) == (0, 7, 700)
        assert queue.read(0) == units_of(7)
        assert queue.call("expire", 600) == (6, 7, 700)
        assert queue.recover() == (0, 12, 1200)
        assert queue.read(0) == units_of(12)
    assert files(tmp_path) == before


def test_file_of_another_size_is_named(core: Any, tmp_path: Path) -> None:
    (tmp_path / ("0" * 20)).write_bytes(bytes(FILE_SIZE + 1))
    with pytest.raises(AssertionError, match="0000 has 101 bytes, expected 100"):
        Queue(core, tmp_path)


@pytest.fixture
def faulty(core: Any) -> Iterator[Any]:
    _, lib = core
    vfs = lib.rmq_vfs_fault_new()
    yield vfs
    lib.rmq_vfs_fault_free(vfs)


@pytest.mark.parametrize("written", [0, 7, 15])
def test_full_disk_refuses_the_unit_and_a_later_append_succeeds(
    core: Any, tmp_path: Path, faulty: Any, written: int
) -> None:
    _, lib = core
    with Queue(core, tmp_path, vfs=faulty, mappings=0) as queue:
        queue.extend(units_of(2))
        lib.rmq_vfs_fault_arm(faulty, lib.RMQ_CALL_WRITE, 0, 1 << 30, errno.ENOSPC, written)
        assert queue.put(2, units_of(3)[2]) == lib.RMQ_NO_SPACE
        assert b"needs 20 more bytes" in queue.ffi.string(queue.error.detail)
        assert queue.bounds == (0, 2, 200)
        assert queue.read(0) == units_of(2)
        lib.rmq_vfs_fault_arm(faulty, lib.RMQ_CALL_ANY, 0, 0, 0, 0)
        queue.extend(units_of(7)[2:], first=2)
        assert queue.read(0) == units_of(7)
    with Queue(core, tmp_path, vfs=faulty) as queue:
        queue.recover()
        assert queue.read(0) == units_of(7)


@pytest.mark.parametrize("call", ["MAP", "ALLOCATE"])
def test_file_that_cannot_be_mapped_takes_units_and_shows_them(
    core: Any, tmp_path: Path, faulty: Any, call: str
) -> None:
    _, lib = core
    with Queue(core, tmp_path, vfs=faulty) as queue:
        lib.rmq_vfs_fault_arm(faulty, getattr(lib, f"RMQ_CALL_{call}"), 0, 1 << 30, errno.ENOSPC, 0)
        for count in range(1, 13):
            queue.append(count - 1, units_of(count)[-1])
            assert queue.read(0) == units_of(count)


def test_no_more_files_are_mapped_than_may_be(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path, mappings=2) as queue:
        queue.extend(units_of(4 * UNITS_PER_FILE))
        for _ in range(4 * HOT_USES):
            assert queue.read(0) == units_of(4 * UNITS_PER_FILE)
        assert queue.budget.left == 0
        queue.call("expire", 100 * 3 * UNITS_PER_FILE)
        assert queue.budget.left > 0, "a file that is gone gives its mapping back"


def test_file_stays_without_a_mapping_until_it_is_hot(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of(1))
        for use in range(HOT_USES):
            assert queue.budget.left == 8, use
            assert queue.read(0) == units_of(1)
        assert queue.budget.left == 7
        queue.extend(units_of(3)[1:], first=1)
        assert queue.read(0) == units_of(3)


def test_full_disk_refuses_a_new_file_and_a_later_append_succeeds(
    core: Any, tmp_path: Path, faulty: Any
) -> None:
    _, lib = core
    with Queue(core, tmp_path, vfs=faulty) as queue:
        queue.extend(units_of(5), first=2)
        lib.rmq_vfs_fault_arm(faulty, lib.RMQ_CALL_RESIZE, 0, 1 << 30, errno.ENOSPC, 0)
        queue.extend(units_of(8)[5:], first=7)
        assert queue.put(10, units_of(9)[8]) == lib.RMQ_NO_SPACE
        assert queue.bounds == (2, 10, 800)
        lib.rmq_vfs_fault_arm(faulty, lib.RMQ_CALL_ANY, 0, 0, 0, 0)
        queue.extend(units_of(12)[8:], first=10)
        assert queue.read(2) == units_of(12)


@pytest.mark.parametrize("call", ["ALLOCATE", "RENAME", "ANY"])
@pytest.mark.parametrize("first", [0, 12])
def test_new_file_gets_its_name_with_its_first_unit(
    core: Any, tmp_path: Path, faulty: Any, first: int, call: str
) -> None:
    """To RocketMQ an empty file of a queue holds one unit; so a kill must not leave any."""
    _, lib = core
    for step in range(20):
        path = tmp_path / str(step)
        with Queue(core, path, vfs=faulty) as queue:
            count = first + UNITS_PER_FILE
            queue.extend(units_of(count)[first:], first=first)
            unit = units_of(count + 1)[count]
            lib.rmq_vfs_fault_arm(
                faulty, getattr(lib, f"RMQ_CALL_{call}"), step, 1 << 30, errno.EIO, 0
            )
            is_stored = queue.put(count, unit) == lib.RMQ_OK
            assert all(any(file.read_bytes()) for file in path.iterdir())
            lib.rmq_vfs_fault_arm(faulty, lib.RMQ_CALL_ANY, 0, 0, 0, 0)
            queue.extend([unit], first=count)
            assert queue.read(first) == units_of(count + 1)[first:]
        with Queue(core, path) as queue:
            queue.recover()
            assert queue.read(first) == units_of(count + 1)[first:]
        assert [each.name for each in tmp_path.iterdir() if each.suffix] == []
        if is_stored:
            break
    else:
        pytest.fail("no end of failing steps")


@pytest.mark.parametrize("log_end", [1000, 1700])
def test_failure_at_any_step_of_a_cut_leaves_a_queue_that_recovers(
    core: Any, tmp_path: Path, faulty: Any, log_end: int
) -> None:
    _, lib = core
    count = log_end // 100
    expected = (10, count, log_end if count > 10 else -1)

    for step in range(100):
        path = tmp_path / str(step)
        with Queue(core, path, vfs=faulty) as queue:
            queue.extend(units_of(23))
            queue.call("expire", 1000)
            lib.rmq_vfs_fault_arm(faulty, lib.RMQ_CALL_ANY, step, 1 << 30, errno.EIO, 0)
            status = lib.rmq_consume_queue_truncate(queue.queue, log_end, queue.error)
            assert queue.bounds == expected
            lib.rmq_vfs_fault_arm(faulty, lib.RMQ_CALL_ANY, 0, 0, 0, 0)

        with Queue(core, path) as queue:
            assert queue.recover(log_end) == expected

        if status == lib.RMQ_OK:
            break

    assert 0 < step < 99


@given(
    st.lists(st.integers(1, 400), max_size=30),
    st.integers(0, 12),
    st.integers(0, 6000),
    st.integers(0, 6000),
)
def test_agrees_with_the_reference_for_every_cut(
    core: Any,
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    first: int,
    log_end: int,
    log_start: int,
) -> None:
    path = tmp_path_factory.mktemp("cut")
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    units = [Unit(at, size, -size) for at, size in zip(starts, sizes, strict=True)]
    kept = [unit for unit in units if unit.physical_offset < log_end]

    with Queue(core, path) as queue:
        queue.extend(units, first=first)
        queue.call("truncate", log_end)
        bounds = queue.bounds

    with Queue(core, path) as queue:
        assert queue.recover() == bounds
        if kept:
            end = kept[-1].physical_offset + kept[-1].size
            assert bounds == (first, first + len(kept), end)
            assert queue.read(first) == kept

        queue.call("expire", log_start)
        live = [unit for unit in kept if unit.physical_offset >= log_start]
        assert queue.bounds[1] - queue.bounds[0] == len(live)
        assert queue.read(queue.bounds[0]) == live


@pytest.fixture
def unpacked(golden_cases: GoldenCases, tmp_path: Path, release: str, case_name: str) -> GoldenCase:
    return golden_cases.copy(release, case_name, into=tmp_path)


def simple_units(case: GoldenCase) -> dict[tuple[str, int], dict[int, Unit]]:
    found: dict[tuple[str, int], dict[int, Unit]] = {}
    for line in case.manifest:
        for entry in line["consumeQueues"]:
            code = entry.get("extAddress", entry["tagsCode"])
            unit = Unit(line["phyOffset"], line["size"], code)
            found.setdefault((entry["topic"], entry["queueId"]), {})[entry["offset"]] = unit
    return found


@every_case("plain", "many-queues", "keys-index", "deleted-head", "cq-ext", "batch", "delay")
def test_golden_queue_has_the_bounds_and_units_that_java_reports(
    core: Any, unpacked: GoldenCase
) -> None:
    file_size = unpacked.spec["store"]["mappedFileSizeConsumeQueue"]
    log_start = next(unpacked.expected_of("store"))["minPhyOffset"]
    units = simple_units(unpacked)
    lines = [x for x in unpacked.expected_of("queue") if x["queueType"] == "SimpleCQ"]
    assert lines

    for line in lines:
        key = line["topic"], line["queueId"]
        path = unpacked.root / "consumequeue" / key[0] / str(key[1])
        before = files(path)
        with Queue(core, path, file_size=file_size) as queue:
            queue.recover()
            assert files(path) == before
            queue.call("expire", log_start)
            low, high, _ = queue.bounds
            assert high == line["maxOffset"]
            assert low == line["minOffset"] + line["expiredEntries"]
            assert queue.read(low) == [units[key][n] for n in range(low, high)]


@every_case("plain", "many-queues", "cq-ext")
def test_golden_queue_is_written_again_byte_for_byte(
    core: Any, unpacked: GoldenCase, tmp_path: Path
) -> None:
    file_size = unpacked.spec["store"]["mappedFileSizeConsumeQueue"]
    for number, ((topic, queue_id), units) in enumerate(simple_units(unpacked).items()):
        with Queue(core, tmp_path / str(number), file_size=file_size) as queue:
            for queue_offset, unit in units.items():
                queue.append(queue_offset, unit)
        written = unpacked.root / "consumequeue" / topic / str(queue_id)
        assert files(tmp_path / str(number)) == files(written)
