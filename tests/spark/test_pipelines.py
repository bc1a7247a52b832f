"""What the tasks of pipelines find in golden stores, and in copies of them that were harmed."""

from __future__ import annotations

import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pipelines are Spark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore import Message
from rmqstore.epochs import EpochEntry, format_epochs
from rmqstore.errors import ArgumentError, CorruptionError, MissingExtraError
from rmqstore.spark.pipelines import differences as comparison
from rmqstore.spark.pipelines import plot
from rmqstore.spark.pipelines.compare import pairs_of
from rmqstore.spark.pipelines.statistics import QueueStatistics, Statistics
from tests.golden import GoldenCase, every_case
from tests.spark.checking import audited, checked_queues, differences, summed
from tests.spark.golden_rows import expected_rows
from tests.support.damage import DAMAGES

GoldenCopy = Callable[[str, str], GoldenCase]

SMALL = {"maxPartitionBytes": 20_000}

# A log with a file that is longer than the others is refused as a whole.
REFUSED = ["log file too long"]
# Of these nothing is left in the log that could tell; queues and index do.
ENDS_EARLIER = [
    "last record, all but its first byte",
    "last log file empty",
    "last log file missing",
]
LOG_DAMAGES = [
    name
    for name, damage in DAMAGES.items()
    if damage.is_log and name not in (*REFUSED, *ENDS_EARLIER)
]


@every_case()
def test_audit_of_a_golden_store_counts_every_whole_record(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    whole = [line for line in case.manifest if "damaged" not in line]
    for options in ({}, SMALL):
        found = audited(case.root, **options)
        assert found.is_sound, str(found)
        assert found.records == len(whole)
        assert found.bytes == sum(line["size"] for line in whole)
    torn = case.manifest[-1]["phyOffset"]
    assert [each.start for each in found.damage] == (
        [torn] if len(whole) < len(case.manifest) else []
    )


@pytest.mark.parametrize("name", LOG_DAMAGES)
def test_audit_names_the_places_of_harm_and_counts_all_other_records(
    name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "plain")
    harmed = DAMAGES[name].do(case)
    found = audited(case.root)
    assert not found.is_sound
    for place in harmed:
        is_cut_off = place >= found.partitions[-1].stop
        assert is_cut_off or any(each.start <= place < each.stop for each in found.damage), place
    whole = [line for line in case.manifest if line["phyOffset"] not in harmed]
    assert found.records == len(whole)
    for line in whole:
        place = line["phyOffset"]
        assert not any(each.start <= place < each.stop for each in found.damage), place


@pytest.mark.parametrize("name", ENDS_EARLIER)
def test_audit_of_a_log_that_ends_earlier_counts_what_is_there(
    name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "plain")
    harmed = DAMAGES[name].do(case)
    assert audited(case.root).records == len(case.manifest) - len(harmed)


@pytest.mark.parametrize("name", REFUSED)
def test_a_log_file_that_is_too_long_is_refused_by_name(name: str, golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    DAMAGES[name].do(case)
    with pytest.raises(CorruptionError, match="files of a commit log have one size"):
        audited(case.root)


@every_case(without={"crash-torn"})
def test_statistics_of_a_golden_store_are_the_sums_of_its_manifest(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    for options in ({}, SMALL):
        merged, damage = summed(case.root, **options)
        assert not damage
        assert {key: _comparable(row) for key, row in merged.items()} == _sums_of(case)


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    names = ("messages", "records", "bytes", "minQueueOffset", "maxQueueOffset")
    return {name: row[name] for name in names} | {"sizes": sum(row["sizes"])}


def _sums_of(case: GoldenCase) -> dict[tuple[str, int], dict[str, Any]]:
    rows = defaultdict(list)
    for row in expected_rows(case):
        rows[row["topic"], row["queueId"]].append(row)
    return {
        key: {
            "messages": len(of_queue),
            "records": len(places := {row["physicalOffset"]: row["size"] for row in of_queue}),
            "bytes": sum(places.values()),
            "minQueueOffset": min(row["queueOffset"] for row in of_queue),
            "maxQueueOffset": max(row["queueOffset"] for row in of_queue),
            "sizes": len(places),
        }
        for key, of_queue in rows.items()
    }


def test_statistics_of_a_topic_and_a_time_are_those_of_its_messages_alone(
    golden_case: GoldenCopy,
) -> None:
    case = golden_case("5.3.3", "many-queues")
    counts = Counter(line["topic"] for line in case.manifest)
    topic, count = counts.most_common(1)[0]
    merged, _ = summed(case.root, topic=topic, **SMALL)
    assert {name for name, _ in merged} == {topic}
    assert sum(row["messages"] for row in merged.values()) == count
    middle = sorted(line["storeTimestamp"] for line in case.manifest)[len(case.manifest) // 2]
    merged, _ = summed(case.root, topic=topic, startingTimestamp=middle)
    assert sum(row["messages"] for row in merged.values()) == sum(
        line["topic"] == topic and line["storeTimestamp"] >= middle for line in case.manifest
    )


@pytest.mark.parametrize("name", LOG_DAMAGES)
def test_statistics_pass_over_damage_and_tell_of_it(name: str, golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    harmed = DAMAGES[name].do(case)
    merged, damage = summed(case.root, checkCrc=True, failOnDataLoss=False)
    assert sum(row["records"] for row in merged.values()) == len(case.manifest) - len(harmed)
    is_gone = name.endswith(("empty", "missing"))
    assert bool(damage) != is_gone


@every_case()
def test_copies_of_a_store_do_not_differ(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    a, b = golden_case(release, case_name), golden_case(release, case_name)
    assert differences(a.root, b.root) == []


@pytest.mark.parametrize("name", LOG_DAMAGES)
def test_comparison_tells_harmed_records_as_damage_of_their_side(
    name: str, golden_case: GoldenCopy
) -> None:
    whole, broken = golden_case("5.3.3", "plain"), golden_case("5.3.3", "plain")
    harmed = DAMAGES[name].do(broken)

    found = differences(whole.root, broken.root)
    assert {each.kind for each in found} <= {"damage"}

    end = audited(broken.root).partitions[-1].stop
    sizes = {line["phyOffset"]: line["size"] for line in whole.manifest}
    comparable = {place for place in harmed if place + sizes[place] <= end}

    for place in comparable:
        assert any(each.start <= place < each.stop for each in found), place

    assert sum(each.records_a for each in found) == len(comparable)
    assert all(each.state_a == "whole" for each in found)
    assert all(each.state_b in ("broken", "") and not each.records_b for each in found)

    turned = differences(broken.root, whole.root)
    assert [(each.start, each.stop, each.first) for each in turned] == [
        (each.start, each.stop, each.first) for each in found
    ]


def test_first_difference_is_the_byte_that_was_changed(golden_case: GoldenCopy) -> None:
    a, b = golden_case("5.3.3", "plain"), golden_case("5.3.3", "plain")
    line = a.manifest[150]
    DAMAGES["body of a record in the middle"].do(b)
    (found,) = differences(a.root, b.root)
    assert found.first == line["phyOffset"] + 90
    assert (found.start, found.stop) == (line["phyOffset"], line["phyOffset"] + line["size"])


def test_filler_behind_the_last_record_of_a_file_is_told_apart(golden_case: GoldenCopy) -> None:
    a, b = golden_case("5.3.3", "plain"), golden_case("5.3.3", "plain")
    path = sorted((b.root / "commitlog").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[-4:] = b"left"
    path.write_bytes(data)
    (found,) = differences(a.root, b.root)
    assert found.kind == "filler"
    assert found.first == int(path.name) + len(data) - 4


@pytest.mark.parametrize(
    "name", ["first record", "several records zeroed", "log file in the middle missing"]
)
def test_differences_do_not_depend_on_where_ranges_are_cut(
    name: str, golden_case: GoldenCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = golden_case("5.3.3", "plain"), golden_case("5.3.3", "plain")
    DAMAGES[name].do(b)
    expected = differences(a.root, b.root)
    assert expected
    for sample, run_up, size in ((1000, 2500, 7000), (333, 70_000, 2000), (4096, 5000, 4096)):
        monkeypatch.setattr(comparison, "_SAMPLE", sample)
        monkeypatch.setattr(comparison, "_RUN_UP", run_up)
        monkeypatch.setattr(sys.modules[pairs_of.__module__], "RANGE", size)
        assert differences(a.root, b.root) == expected


@pytest.fixture
def forked(tmp_path: Path) -> tuple[Path, Path, int]:
    """Return two stores that share a beginning and were then written by different masters, and the
    offset at which they part."""
    a, b = tmp_path / "a", tmp_path / "b"
    with rmqstore.open(a, commit_log_file_size_bytes=1 << 16) as store:
        for number in range(100):
            store.put("orders", f"common {number}".encode(), queue=number % 2)
        border = store.end_offset
    shutil.copytree(a, b)
    for root, epoch, bodies in ((a, 2, (b"of a",) * 50), (b, 3, (b"written by b",) * 60)):
        with rmqstore.open(root, commit_log_file_size_bytes=1 << 16) as store:
            store.put_many(Message("orders", body) for body in bodies)
        text = format_epochs([EpochEntry(1, 0), EpochEntry(epoch, border)])
        (root / "epochFileCheckpoint").write_text(text)
    return a, b, border


def test_what_different_masters_wrote_is_divergence_from_their_border_on(
    forked: tuple[Path, Path, int],
) -> None:
    a, b, border = forked
    (found,) = differences(a, b)
    assert (found.kind, found.start) == ("divergence", border)
    assert (found.state_a, found.state_b) == ("whole", "whole")
    # Damage before the border stays damage.
    path = b / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert [each.kind for each in differences(a, b)] == ["damage", "divergence"]


def test_without_a_border_whole_records_that_differ_are_damage(
    forked: tuple[Path, Path, int],
) -> None:
    a, b, border = forked
    for root in (a, b):
        (root / "epochFileCheckpoint").unlink()
    (found,) = differences(a, b)
    assert (found.kind, found.start) == ("damage", border)


def test_stores_behind_urls_are_looked_at_like_others(golden_case: GoldenCopy) -> None:
    fsspec = pytest.importorskip("fsspec")
    case = golden_case("5.3.3", "plain")
    DAMAGES["several records zeroed"].do(case)

    memory = fsspec.filesystem("memory")
    memory.put(str(case.root), "/pipelines/store", recursive=True)
    url = "memory://pipelines/store"

    try:
        near, far = audited(case.root), audited(url)
        assert [(each.start, each.stop) for each in far.damage] == [
            (each.start, each.stop) for each in near.damage
        ]
        assert far.records == near.records
        assert checked_queues(url) == checked_queues(case.root)
        assert differences(case.root, url) == []
    finally:
        memory.rm("/pipelines", recursive=True)


def _statistics() -> Statistics:
    def queue(topic: str, number: int, bytes: int) -> QueueStatistics:
        return QueueStatistics(
            topic=topic,
            queue_id=number,
            messages=10,
            records=10,
            bytes=bytes,
            body_bytes=bytes // 2,
            min_queue_offset=0,
            max_queue_offset=9,
            min_store_timestamp=1_700_000_000_000,
            max_store_timestamp=1_700_000_100_000,
            min_physical_offset=0,
            max_physical_offset=bytes,
            sizes=(*[0] * 7, 4, 6, *[0] * 15),
        )

    many = [queue(f"topic {number}", 0, 1000 + number) for number in range(30)]
    return Statistics((queue("<b>$x$", 0, 5 << 20), queue("<b>$x$", 1, 1 << 20), *many), ())


def test_plot_as_html_stands_alone_and_escapes_names(tmp_path: Path) -> None:
    target = plot(_statistics(), tmp_path / "store.html")
    text = target.read_text()
    assert "&lt;b&gt;$x$" in text
    assert "<b>" not in text
    assert "6.0 MiB" in text
    assert "11 other topics" in text
    assert "from 128 bytes" in text
    assert "src=" not in text
    assert "href=" not in text
    assert text.count("<rect") == 21 + 21 + 2


def test_plot_as_png_is_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = plot(_statistics(), tmp_path / "store.png")
    assert target.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_plot_as_png_without_matplotlib_names_the_package_and_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"pip install matplotlib.*\.html"):
        plot(_statistics(), tmp_path / "store.png")


def test_plot_refuses_another_ending(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"\.png or \.html"):
        plot(_statistics(), tmp_path / "store.svg")
