"""A log that RocketMQ cut ends, for every reader, where RocketMQ's next start ends it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import rmqstore
from rmqstore._native import core
from rmqstore.check import Kind, Level, repair, verify
from rmqstore.errors import CorruptionError
from rmqstore.spark.read.layout import Layout
from tests.golden.cut_cases import CutCase, every_cut_case, unpack

TOPIC = "HaTopic"
FILL_UNIT = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
RIGHT = "5.3.3-overwritten", "5.5.0-overwritten", "5.3.3-grown-past", "5.5.0-grown-past"
"""Cases whose queues RocketMQ itself made longer with its next start."""


def check_reads(store: rmqstore.Store, case: CutCase) -> None:
    """Every record is whole, ends at RocketMQ's end, and is where its queue says."""
    records = list(store.scan_log())
    assert store.end_offset == case.end
    assert records[-1].physical_offset + records[-1].size == case.end
    by_place = {record.physical_offset: record for record in records}
    for queue in store.queues(TOPIC):
        for record in queue.records():
            assert by_place[record.physical_offset].raw == record.raw


@every_cut_case
@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "for writing"])
def test_store_ends_where_rocketmq_ends_it(name: str, read_only: bool, tmp_path: Path) -> None:
    case = unpack(name, tmp_path)
    with rmqstore.open(case.root, read_only=read_only) as store:
        check_reads(store, case)
        if name in RIGHT:
            found = {queue.number: (queue.start, queue.end) for queue in store.queues(TOPIC)}
            assert found == case.queues
            assert store.recovery.was_cut


@every_cut_case
def test_what_was_cut_is_gone_for_good_after_opening_for_writing(name: str, tmp_path: Path) -> None:
    case = unpack(name, tmp_path)
    with rmqstore.open(case.root) as store:
        receipt = store.put(TOPIC, b"new", keys=["new"])
        assert receipt.physical_offset == case.end
    for read_only in (True, False):
        with rmqstore.open(case.root, read_only=read_only) as store:
            assert store.end_offset == case.end + receipt.size
            assert not store.recovery.was_cut
            assert [each.body for each in store.find(TOPIC, "new")] == [b"new"]
    assert not [str(each) for each in verify(case.root, full=True).damage if each.kind is Kind.LOG]


@every_cut_case
def test_spark_finds_the_same_end(name: str, tmp_path: Path) -> None:
    case = unpack(name, tmp_path)
    found = Layout.of(str(case.root))
    for each in (found, Layout.of(str(case.root), with_queues=False), found.again()):
        assert (each.end, each.readable_end) == (case.end, case.end)


@every_cut_case
def test_verify_finds_the_same_end_and_names_what_was_left(name: str, tmp_path: Path) -> None:
    case = unpack(name, tmp_path)
    report = verify(case.root, full=True)
    assert report.end == case.end
    assert [str(each) for each in report.damage if each.kind is not Kind.INDEX] == []
    if report.was_cut:
        notes = [each for each in report.findings if each.kind is Kind.LOG]
        assert [each.level for each in notes] == [Level.NOTE]
        assert "RocketMQ cut its log" in notes[0].text
    assert report.was_cut or name == "5.5.0-brought-back"


@every_cut_case
@pytest.mark.parametrize("rebuild", [False, True], ids=["plain", "rebuild"])
def test_repair_does_not_leave_the_log_longer(name: str, rebuild: bool, tmp_path: Path) -> None:
    case = unpack(name, tmp_path)
    outcome = repair.apply(repair.plan(case.root, rebuild=rebuild))
    assert outcome.report.end == outcome.report.last_byte == case.end
    assert outcome.report.is_sound, outcome.report.damage
    with rmqstore.open(case.root, read_only=True) as store:
        check_reads(store, case)


@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "for writing"])
def test_keys_of_what_was_cut_are_not_found(read_only: bool, tmp_path: Path) -> None:
    case = unpack("5.3.3-overwritten", tmp_path)
    with rmqstore.open(case.root, read_only=read_only) as store:
        for number in range(10, 17):
            assert store.find(TOPIC, f"key-1-{number}") == []
        assert len(store.find(TOPIC, "key-1-9")) == 1
    with rmqstore.open(case.root) as store:
        assert len(store.find(TOPIC, "key-1-18")) == 1  # RocketMQ's own index lacks this key


def test_opening_for_writing_keeps_the_records_that_were_cut(tmp_path: Path) -> None:
    case = unpack("5.3.3-overwritten", tmp_path)
    before = (case.root / "commitlog" / f"{0:020}").read_bytes()
    with rmqstore.open(case.root) as store:
        assert store.recovery.cut_path == f"cut/{case.end:020}"
        kept = (case.root / store.recovery.cut_path).read_bytes()
    assert kept == before[case.end : case.end + len(kept)] == before[case.end :].rstrip(b"\0")


def test_bytes_turned_in_a_cut_log_are_damage_still(tmp_path: Path) -> None:
    case = unpack("5.3.3-overwritten", tmp_path)
    log = case.root / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[842 + 100] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptionError, match="842"):
        rmqstore.open(case.root).close()
    with (
        rmqstore.open(case.root, read_only=True) as store,
        pytest.raises(CorruptionError, match="842"),
    ):
        list(store.scan_log())


def test_an_end_that_nothing_explains_is_named_by_every_reader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad record that no queue knows of, newer ones after it: damage, or a cut."""
    root = tmp_path / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=1 << 16) as store:
        places = [store.put("t", b"body-%d" % number).physical_offset for number in range(20)]

    log, queue = root / "commitlog" / f"{0:020}", root / "consumequeue" / "t" / "0" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[data.index(b"body-8")] ^= 1
    log.write_bytes(data)

    with queue.open("r+b") as file:
        file.seek(8 * len(FILL_UNIT))
        file.write(FILL_UNIT)
    with (root / "checkpoint").open("r+b") as file:
        file.write(bytes(60))  # as RocketMQ leaves it: without rmqstore's own mark

    with pytest.raises(CorruptionError, match="or RocketMQ cut them off here"):
        rmqstore.open(root).close()

    with rmqstore.open(root, read_only=True) as store:
        assert store.recovery.doubtful_offset == places[8]
    assert "either RocketMQ cut the log" in caplog.text

    caplog.clear()
    Layout.of(str(root))
    assert "either RocketMQ cut the log" in caplog.text

    report = verify(root)
    assert [
        each.offset for each in report.findings if "which of the two is unknown" in each.text
    ] == [places[8]]
    assert not report.is_sound


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({"is_known": True, "is_overwritten": True}, "damaged"),
        ({"has_bytes": False, "is_overwritten": True}, "damaged"),
        ({"is_overwritten": True}, "cut"),
        ({"is_inside": False, "has_bytes": False, "is_overwritten": True}, "cut"),
        ({"next_timestamp": 9}, "cut"),
        ({"next_timestamp": 10}, "unknown"),
        ({"is_vouched": True, "is_passed": False}, "cut"),
        ({"is_vouched": True}, "unknown"),
        ({"is_inside": False, "has_bytes": False, "is_known": True}, "unknown"),
    ],
)
def test_rule_for_the_end_of_a_log(facts: dict[str, bool], verdict: str) -> None:
    usual = {
        "last_timestamp": 10,
        "next_timestamp": -1,
        "is_inside": True,
        "has_bytes": True,
        "is_vouched": False,
        "is_known": False,
        "is_passed": True,
        "is_overwritten": False,
    }
    assert core.classify_log_end(**{**usual, **facts}) == verdict
