"""What planning over twenty files of a gigabyte reads and holds, and which files a time needs.

The files are sparse: a few records, then a blank one over the rest.
"""

from __future__ import annotations

import tracemalloc
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from rmqstore.spark.jvm.planner import answer
from tests.reference.record import Host, Record, encode, encode_blank
from tests.spark.clocked import CLOCK_MS

FILES = 20
FILE_BYTES = 1 << 30
HOUR_MS = 3_600_000
EVERY = 3
"""Records of a file, an hour in all."""


def _record(offset: int, number: int) -> bytes:
    host = Host(bytes(4), 1)
    return encode(
        Record(
            version=1,
            body_crc=0,
            queue_id=0,
            flag=0,
            queue_offset=number,
            physical_offset=offset,
            sys_flag=0,
            born_timestamp=0,
            born_host=host,
            store_timestamp=CLOCK_MS + number * HOUR_MS // EVERY,
            store_host=host,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"",
            topic_bytes=b"orders",
            property_bytes=b"",
        )
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a log whose file n has the times of hour n."""
    log = tmp_path_factory.mktemp("planning") / "commitlog"
    log.mkdir()
    for number in range(FILES):
        start = number * FILE_BYTES
        data = b""
        for each in range(EVERY):
            data += _record(start + len(data), number * EVERY + each)
        with (log / f"{start:020d}").open("wb") as file:
            file.write(data + encode_blank(FILE_BYTES - len(data)))
            file.truncate(FILE_BYTES)
    return log


def plan(log: Path, first: float, stop: float, **options: str) -> list[dict[str, Any]]:
    """Return the splits of a query for the messages of the hours from *first* to *stop*."""
    hours = [("<", stop), (">=", first)]
    answered = answer(
        {
            "call": "plan",
            "release": metadata.version("rmqstore"),
            "options": {"path": str(log), **options},
            "conditions": [
                {
                    "name": name,
                    "arguments": [
                        {"column": "storeTimestamp"},
                        {"value": int((CLOCK_MS + hour * HOUR_MS) * 1000)},
                    ],
                }
                for name, hour in hours
            ],
            "sample": None,
            "columns": ["body"],
            "schema": [["body", "binary", True]],
        }
    )
    return [split for each in answered["partitions"] for split in each["splits"]]


def files_of(splits: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of the files that splits are of."""
    return sorted({int(split["fileStart"]) // FILE_BYTES for split in splits})


@pytest.mark.parametrize(
    ("first", "stop", "step_ms", "expected"),
    [
        (7.1, 7.9, 1000, [7]),
        (7, 8, 1, [6, 7, 8]),
        (7.5, 9.5, 1, [7, 8, 9]),
        (7.5, 7.6, HOUR_MS, [6, 7, 8]),
        (0, 0.5, 1000, [0]),
        (19.5, 30, 1000, [19]),
        (21, 30, 1000, [19]),
    ],
)
def test_a_time_needs_the_files_that_may_hold_it(
    first: float, stop: float, step_ms: int, expected: list[int], log: Path
) -> None:
    assert files_of(plan(log, first, stop, maxClockStepMs=str(step_ms))) == expected


def test_every_file_may_hold_any_time_without_a_bound_of_the_clock(log: Path) -> None:
    assert files_of(plan(log, 7, 8)) == list(range(FILES))


@pytest.mark.parametrize("options", [{}, {"maxClockStepMs": "1000"}], ids=["all", "bounded"])
def test_planning_reads_and_holds_little_of_large_files(options: dict[str, str], log: Path) -> None:
    plan(log, 7, 8, **options)
    before = _read_bytes()
    tracemalloc.start()
    try:
        splits = plan(log, 7, 8, **options)
        _, held = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert splits
    assert held < 8 << 20
    assert _read_bytes() - before < FILES * (4 << 20)


def _read_bytes() -> int:
    """Return how many bytes this process has read by system calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
