"""Walking the log: records checked, and columns for Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import rmqstore
from benchmarks.workloads import TOPIC
from rmqstore import Store


@pytest.fixture
def store(prepared: Path) -> Iterator[Store]:
    with rmqstore.open(prepared, read_only=True) as store:
        yield store


@pytest.mark.parametrize("check_crc", [True, False])
def bench_count_log(benchmark: BenchmarkFixture, store: Store, check_crc: bool) -> None:
    count, _ = benchmark(lambda: store.scan_log(check_crc=check_crc).count())
    assert count == sum(len(queue) for queue in store.queues(TOPIC))


@pytest.mark.parametrize(
    "columns",
    [["queue_offset", "store_timestamp"], ["queue_offset", "tags", "properties"], ["body"]],
    ids=",".join,
)
def bench_arrow(benchmark: BenchmarkFixture, store: Store, columns: list[str]) -> None:
    pytest.importorskip("pyarrow", reason="columns need the extra arrow")

    def read() -> int:
        return sum(batch.num_rows for batch in store.scan_arrow(columns=columns))

    assert benchmark(read) == sum(len(queue) for queue in store.queues(TOPIC))
