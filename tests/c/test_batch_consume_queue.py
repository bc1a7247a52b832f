"""The batch consume queue: one unit for a record of several messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import GoldenCases, every_case
from tests.reference import batch_consume_queue as reference
from tests.reference.batch_consume_queue import UNIT, Unit

UNITS_PER_FILE = 4
FILE_SIZE = UNITS_PER_FILE * UNIT.size
EVERYTHING = (1 << 63) - 1


class Queue:
    """One open queue; leaving the block closes it without a flush, as a crash would."""

    def __init__(
        self, core: Any, path: Path, *, file_size: int = FILE_SIZE, read_only: bool = False
    ) -> None:
        self.ffi, self.lib = core
        self.queue = self.ffi.new("struct rmq_batch_consume_queue *")
        self.budget = self.ffi.new("struct rmq_map_budget *")
        self.budget.left, self.budget.hot_uses = 8, 4
        self.error = self.ffi.new("struct rmq_error *")
        self.check(
            self.lib.rmq_batch_consume_queue_open(
                self.queue,
                self.lib.rmq_vfs_posix(),
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
        self.lib.rmq_batch_consume_queue_close(self.queue)

    def check(self, status: int) -> None:
        assert status == 0, (status, self.ffi.string(self.error.detail))

    @property
    def bounds(self) -> tuple[int, int, int]:
        return self.queue.min_offset, self.queue.max_offset, self.queue.physical_end

    def put(self, unit: Unit) -> int:
        native = self.ffi.new(
            "struct rmq_unit *",
            {
                "physical_offset": unit.physical_offset,
                "size": unit.size,
                "tags_code": unit.tags_code,
                "store_timestamp": unit.store_timestamp,
                "queue_offset": unit.base_offset,
                "batch_size": unit.count,
            },
        )
        status: int = self.lib.rmq_batch_consume_queue_append(self.queue, native, self.error)
        return status

    def extend(self, units: list[Unit]) -> None:
        for unit in units:
            self.check(self.put(unit))

    def call(self, name: str, offset: int) -> tuple[int, int, int]:
        function = getattr(self.lib, f"rmq_batch_consume_queue_{name}")
        self.check(function(self.queue, offset, self.error))
        return self.bounds

    def recover(self, log_end: int = EVERYTHING) -> tuple[int, int, int]:
        return self.call("recover", log_end)

    def read(self, queue_offset: int, capacity: int = 1000) -> list[Unit]:
        units = self.ffi.new("struct rmq_unit[]", capacity)
        count = self.ffi.new("size_t *")
        self.check(
            self.lib.rmq_batch_consume_queue_read(
                self.queue, queue_offset, units, capacity, count, self.error
            )
        )

        return [
            Unit(
                unit.physical_offset,
                unit.size,
                unit.tags_code,
                unit.store_timestamp,
                unit.queue_offset,
                unit.batch_size,
            )
            for unit in (units[i] for i in range(count[0]))
        ]


def units_of(counts: list[int], *, first: int = 0) -> list[Unit]:
    """Units of records of 100 bytes each, with these numbers of messages."""
    return [
        Unit(100 * n, 100, n - 2, 1_700_000_000_000 + n, first + sum(counts[:n]), count)
        for n, count in enumerate(counts)
    ]


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def encoded(units: list[Unit]) -> dict[str, bytes]:
    data = reference.encode(units)
    return {
        f"{at:020d}": data[at : at + FILE_SIZE].ljust(FILE_SIZE, b"\0")
        for at in range(0, len(data), FILE_SIZE)
    }


def test_appended_units_are_the_bytes_of_the_reference(core: Any, tmp_path: Path) -> None:
    units = units_of([3, 1, 32767, 2, 2, 9, 1, 1, 4])
    with Queue(core, tmp_path) as queue:
        queue.extend(units)
        assert queue.bounds == (0, 32790, 900)
        assert queue.read(0) == units
    assert files(tmp_path) == encoded(units)


def test_empty_queue_has_min_minus_one_and_max_zero(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        assert queue.bounds == (-1, 0, -1)
        assert queue.recover() == (-1, 0, -1)
        assert queue.read(0) == []


def test_file_size_that_cuts_a_unit_is_refused(core: Any, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not a multiple of 46"):
        Queue(core, tmp_path, file_size=FILE_SIZE + 1)


def test_every_message_of_a_record_leads_to_its_unit(core: Any, tmp_path: Path) -> None:
    units = units_of([3, 1, 5, 2, 2, 9], first=7)
    with Queue(core, tmp_path) as queue:
        queue.extend(units)
        for queue_offset in range(7, 29):
            assert queue.read(queue_offset, capacity=1) == [reference.find(units, queue_offset)]
        assert queue.read(6) == queue.read(29) == queue.read(-1) == []
        assert queue.read(11, capacity=3) == units[2:5]


def test_record_that_is_there_already_changes_nothing(core: Any, tmp_path: Path) -> None:
    units = units_of([3, 1, 5])
    with Queue(core, tmp_path) as queue:
        queue.extend(units)
        queue.extend(units)
        queue.extend([Unit(5000, 10, 0, 0, 8, 2)])
        assert queue.bounds == (0, 9, 300)
        assert queue.read(0) == units


@pytest.mark.parametrize(
    "unit",
    [
        Unit(-1, 10, 0, 0, 0, 1),
        Unit(0, 0, 0, 0, 0, 1),
        Unit(0, 10, 0, 0, -1, 1),
        Unit(0, 10, 0, 0, 0, 0),
        Unit(0, 10, 0, 0, 0, 32768),
        Unit(0, 10, 0, 0, EVERYTHING, 1),
    ],
)
def test_unit_out_of_range_is_refused(core: Any, tmp_path: Path, unit: Unit) -> None:
    with Queue(core, tmp_path) as queue:
        assert queue.put(unit) == queue.lib.RMQ_INVALID
        assert queue.bounds == (-1, 0, -1)


def test_cut_below_everything_leaves_an_empty_queue(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of([2] * 9))
        assert queue.call("truncate", 0) == (-1, 0, -1)
        assert files(tmp_path) == {}
        queue.extend(units_of([4], first=3))
        assert queue.bounds == (3, 7, 100)


@pytest.mark.parametrize("log_start", [0, 1, 100, 399, 400, 799, 800, 801, 2000])
def test_expiry_moves_min_and_unlinks_whole_files_but_the_last(
    core: Any, tmp_path: Path, log_start: int
) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of([2] * 9))
        expired = min(-(-log_start // 100), 9)
        assert queue.call("expire", log_start) == (2 * expired, 18, 900)
        first = min(expired // UNITS_PER_FILE, 2) * FILE_SIZE
        assert min(files(tmp_path)) == f"{first:020d}"
        assert queue.read(2 * expired) == units_of([2] * 9)[expired:]


def test_read_only_recovery_changes_no_file(core: Any, tmp_path: Path) -> None:
    with Queue(core, tmp_path) as queue:
        queue.extend(units_of([2] * 9))
    before = files(tmp_path)
    with Queue(core, tmp_path, read_only=True) as queue:
        for log_end in (850, 250):
            kept = -(-log_end // 100)
            assert queue.recover(log_end) == (0, 2 * kept, 100 * kept)
            assert queue.read(0) == units_of([2] * 9)[:kept]
        assert queue.recover() == (0, 18, 900)
    assert files(tmp_path) == before


def test_queue_offsets_that_run_backwards_are_corrupt(core: Any, tmp_path: Path) -> None:
    backwards = [*units_of([2], first=90), Unit(100, 100, 0, 0, 4, 2)]
    (tmp_path / ("0" * 20)).write_bytes(reference.encode(backwards).ljust(FILE_SIZE, b"\0"))
    with Queue(core, tmp_path) as queue, pytest.raises(AssertionError, match="repair"):
        queue.recover()


@given(st.lists(st.integers(1, 6), max_size=20), st.integers(0, 9), st.integers(0, 2100))
def test_agrees_with_the_reference_for_every_cut(
    core: Any,
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    first: int,
    log_end: int,
) -> None:
    path = tmp_path_factory.mktemp("cut")
    units = units_of(counts, first=first)
    kept = [unit for unit in units if unit.physical_offset < log_end]
    end = kept[-1].base_offset + kept[-1].count if kept else 0
    expected = (first if kept else -1, end, 100 * len(kept) if kept else -1)
    with Queue(core, path) as queue:
        queue.extend(units)
        assert queue.call("truncate", log_end) == expected
        assert queue.read(first) == kept
    assert files(path) == encoded(kept)
    with Queue(core, path) as queue:
        assert queue.recover() == expected
        queue.extend(units)
        assert queue.read(first) == units


def write(path: Path, units: list[Unit]) -> None:
    path.mkdir()
    for name, data in encoded(units).items():
        (path / name).write_bytes(data)


def test_first_unit_that_is_none_is_damage_and_no_reason_to_die(core: Any, tmp_path: Path) -> None:
    units = units_of([2, 1, 3])
    write(tmp_path / "0", [replace(units[0], base_offset=-7), *units[1:]])
    with Queue(core, tmp_path / "0") as queue:
        status = queue.lib.rmq_batch_consume_queue_recover(queue.queue, EVERYTHING, queue.error)
        assert status == queue.lib.RMQ_CORRUPT
        assert queue.error.at_offset == 0


def test_unit_out_of_order_is_not_handed_out_and_the_next_one_can_be_found(
    core: Any, tmp_path: Path
) -> None:
    units = units_of([2, 1, 3, 1])
    # A reader that went on where it says would begin anew, forever.
    write(tmp_path / "0", [units[0], units[1], replace(units[2], base_offset=0, count=1), units[3]])
    with Queue(core, tmp_path / "0") as queue:
        assert queue.recover()[:2] == (0, 7)
        assert queue.read(0) == units[:2]
        assert queue.read(3) == units[3:]
        assert queue.lib.rmq_batch_consume_queue_next(queue.queue, 3) == 6


@every_case("batch")
def test_golden_queues_have_the_bounds_and_units_that_java_reports(
    core: Any, golden_cases: GoldenCases, tmp_path: Path, release: str, case_name: str
) -> None:
    case = golden_cases.copy(release, case_name, into=tmp_path)
    file_size = case.spec["store"]["mapperFileSizeBatchConsumeQueue"]
    lines = [line for line in case.expected_of("queue") if line["queueType"] == "BatchCQ"]
    assert len(lines) == 2

    for line in lines:
        units = [
            Unit(
                record["phyOffset"],
                record["size"],
                entry["tagsCode"],
                record["storeTimestamp"],
                entry["offset"],
                entry["batchNum"],
            )
            for record in case.manifest
            for entry in record["consumeQueues"]
            if (entry["topic"], entry["queueId"]) == (line["topic"], line["queueId"])
        ]

        path = case.root / "batchconsumequeue" / line["topic"] / str(line["queueId"])
        before = files(path)
        with Queue(core, path, file_size=file_size) as queue:
            assert queue.recover()[:2] == (line["minOffset"], line["maxOffset"])
            assert queue.read(0) == units
        assert files(path) == before

        with Queue(core, tmp_path / "again" / path.name, file_size=file_size) as queue:
            queue.extend(units)
        assert files(tmp_path / "again" / path.name) == before
