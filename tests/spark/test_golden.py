"""Every store that Java wrote gives exactly the rows of its manifest, however it is cut."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

from rmqstore.compression import decompress
from rmqstore.spark.read import partitions
from rmqstore.spark.read.ranges import Partition
from tests.golden import NAMES, RELEASES, GoldenCases, every_case
from tests.spark.golden_rows import comparable, expected_rows
from tests.spark.reading import Read, Row, in_log_order, read
from tests.support.effort import is_long


@dataclass(frozen=True, slots=True)
class Kept:
    """A golden store, unpacked once for all tests here: reading changes no byte of it."""

    root: Path
    bare: Path
    """A copy in which no queue tells where messages lie."""
    manifest: Sequence[Mapping[str, Any]]
    rows: list[Row]
    """One a message, as `comparable` makes them."""


KeptCase = Callable[[str, str], Kept]


@pytest.fixture(scope="module")
def kept_case(golden_cases: GoldenCases, tmp_path_factory: pytest.TempPathFactory) -> KeptCase:
    """Return a function (release, name) that gives the store."""

    @functools.cache
    def kept(release: str, name: str) -> Kept:
        case = golden_cases.copy(release, name, into=tmp_path_factory.mktemp("kept"))
        bare = case.directory / "bare"
        shutil.copytree(case.root, bare, ignore=shutil.ignore_patterns("*consumequeue*"))
        return Kept(case.root, bare, case.manifest, list(expected_rows(case)))

    return kept


def _spans(planned: Read) -> int:
    found: list[Partition] = [each.value for each in planned.partitions]
    return sum(len(partition.splits) for partition in found)


def _each_way(name: str, ways: Mapping[str, object]) -> pytest.MarkDecorator:
    """Return a mark that gives a test every case with each value of *name*, by its id.

    The same case of two releases differs little: they take turns, and `make soak` runs them all.
    """
    chosen = [
        pytest.param(release, case, way, id=f"{release}-{case}-{key}")
        for turn, release in enumerate(RELEASES)
        for number, case in enumerate(NAMES)
        for at, (key, way) in enumerate(ways.items())
        if is_long() or (number + at) % len(RELEASES) == turn
    ]
    return pytest.mark.parametrize(("release", "case_name", name), chosen)


@_each_way(
    "options",
    {
        "one-record-a-partition": {"maxPartitionBytes": 1},
        "a-few-records": {"maxPartitionBytes": 1500},
        "parts-of-a-file": {"maxPartitionBytes": 40_000, "batchBytes": 3000},
        "one-partition": {},
        "seven-partitions": {"minPartitions": 7, "checkCrc": True},
    },
)
def test_rows_are_those_of_the_manifest(
    release: str, case_name: str, options: dict[str, int], kept_case: KeptCase
) -> None:
    case = kept_case(release, case_name)
    expected = case.rows
    planned = Read(case.root, **options)
    assert [comparable(row) for row in planned.rows()] == expected
    if options.get("maxPartitionBytes") == 1:
        records = {row["physicalOffset"] for row in expected}
        assert len(planned.partitions) == _spans(planned) == len(records)
    if "minPartitions" in options:
        assert len(planned.partitions) >= 7
    if not options:
        assert len(planned.partitions) == 1


@_each_way("max_partition_bytes", {"1": 1, "20000": 20_000, "all": 1 << 30})
def test_a_topic_read_through_its_queues_is_the_topic_read_from_the_log(
    release: str,
    case_name: str,
    max_partition_bytes: int,
    kept_case: KeptCase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However large the topic's share of the log is.
    monkeypatch.setattr(partitions, "_SPARSE", 10.0)
    case = kept_case(release, case_name)

    queued = {
        line["phyOffset"]: {entry["topic"] for entry in line["consumeQueues"]}
        for line in case.manifest
    }
    topics = sorted({line["topic"] for line in case.manifest})

    # All topics of the large case at every split would take long and tell nothing more.
    chosen = [topics[:3], topics] if max_partition_bytes > 1 else [topics[-1:]]

    for names in chosen:
        expected = [
            row
            for row in case.rows
            if row["topic"] in names and row["topic"] in queued[row["physicalOffset"]]
        ]

        options = {"topic": ",".join(names), "maxPartitionBytes": max_partition_bytes}
        through_queues = Read(case.root, **options)
        from_log = Read(case.bare, **options)

        assert any(
            split.units is not None
            for each in through_queues.partitions
            for split in each.value.splits
        ) == (bool(expected) and case_name != "crash-intact")  # whose queues never reached the disk

        assert all(
            split.units is None for each in from_log.partitions for split in each.value.splits
        )

        assert in_log_order([comparable(row) for row in through_queues.rows()]) == expected
        assert [comparable(row) for row in from_log.rows()] == expected


@every_case("plain", "batch", "cq-ext", "delay", "deleted-head")
def test_tags_codes_are_those_that_java_wrote_into_the_queues(
    release: str, case_name: str, kept_case: KeptCase
) -> None:
    case = kept_case(release, case_name)
    expected = {line["phyOffset"]: line["tagsCode"] for line in case.manifest}
    found = read(case.root, columns="physicalOffset,tagsCode")
    assert {row["physicalOffset"]: row["tagsCode"] for row in found} == expected


@every_case()
def test_raw_records_are_the_bytes_of_the_log(
    release: str, case_name: str, kept_case: KeptCase
) -> None:
    case = kept_case(release, case_name)
    for row in read(case.root, columns="record,path,physicalOffset,size"):
        start = int(Path(row["path"]).name)
        at = row["physicalOffset"] - start
        assert row["record"] == Path(row["path"]).read_bytes()[at : at + row["size"]]


@every_case("compressed")
def test_bodies_are_decompressed_on_request(
    release: str, case_name: str, kept_case: KeptCase
) -> None:
    case = kept_case(release, case_name)
    stored = read(case.root)
    expected = [decompress(row["body"], row["sysFlag"]) for row in stored]
    assert {row["sysFlag"] & 0x701 for row in stored} >= {0x101, 0x201, 0x301}
    # Small batches: a plain body may be larger than the whole stored batch.
    plain = read(case.root, decompress=True, batchBytes=20_000)
    assert [row["body"] for row in plain] == expected
    assert [row | {"body": b""} for row in plain] == [row | {"body": b""} for row in stored]
    assert [row["body"] for row in read(case.root, decompress=True, columns="body")] == expected
