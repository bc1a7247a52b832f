"""Every store that Java wrote gives exactly the rows of its manifest, however it is cut."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

from rmqstore.compression import decompress
from rmqstore.spark.read import partitions
from rmqstore.spark.read.ranges import Partition
from tests.golden import GoldenCases, every_case
from tests.spark.golden_rows import comparable, expected_rows
from tests.spark.reading import Read, Row, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def _in_log_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["physicalOffset"], row["queueOffset"]))


def _spans(planned: Read) -> int:
    found: list[Partition] = [each.value for each in planned.partitions]
    return sum(len(partition.splits) for partition in found)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"maxPartitionBytes": 1}, id="one-record-a-partition"),
        pytest.param({"maxPartitionBytes": 1500}, id="a-few-records"),
        pytest.param({"maxPartitionBytes": 40_000, "batchBytes": 3000}, id="parts-of-a-file"),
        pytest.param({}, id="one-partition"),
        pytest.param({"minPartitions": 7, "checkCrc": True}, id="seven-partitions"),
    ],
)
@every_case()
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


@pytest.mark.parametrize("max_partition_bytes", [1, 20_000, 1 << 30])
@every_case()
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

        assert _in_log_order([comparable(row) for row in through_queues.rows()]) == expected
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


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_spark_gives_the_rows_of_the_manifest(
    release: str, spark: SparkSession, kept_case: KeptCase
) -> None:
    names = ("plain", "batch", "ipv6", "transactions", "compressed", "topic-length")
    cases = {name: kept_case(release, name) for name in names}
    reader = spark.read.format("rmqstore").option("maxPartitionBytes", 60_000)
    frame = reader.load([str(case.root) for case in cases.values()])
    rows = rows_of(frame.toArrow())
    for case in cases.values():
        own = [row for row in rows if row["path"].startswith(f"{case.root}/")]
        assert [comparable(row) for row in _in_log_order(own)] == case.rows
    assert len(rows) == sum(len(case.rows) for case in cases.values())
