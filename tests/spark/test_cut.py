"""Directories that RocketMQ cut, in batch reads, streams and pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore.spark.stream.follow import Follower
from tests.golden.cut_cases import every_cut_case, unpack
from tests.spark.reading import read

pytestmark = pytest.mark.filterwarnings("error")


@every_cut_case
@pytest.mark.parametrize("options", [{}, {"topic": "HaTopic"}], ids=["by log", "by queue"])
def test_batch_reads_what_rocketmq_reads(
    name: str, options: dict[str, str], tmp_path: Path
) -> None:
    case = unpack(name, tmp_path)
    with rmqstore.open(case.root, read_only=True) as store:
        expected = sorted(record.physical_offset for record in store.scan_log())
    rows = read(case.root, **options)
    assert sorted(row["physicalOffset"] for row in rows) == expected
    assert max(row["physicalOffset"] for row in rows) < case.end


@every_cut_case
def test_stream_ends_where_rocketmq_ends_the_log(name: str, tmp_path: Path) -> None:
    case = unpack(name, tmp_path)
    follower = Follower(str(case.root), "confirm")
    assert [follower.layout().readable_end for _ in range(3)] == [case.end] * 3
    with rmqstore.open(case.root) as store:
        receipt = store.put("HaTopic", b"new")
    assert follower.layout().readable_end == receipt.physical_offset + receipt.size
