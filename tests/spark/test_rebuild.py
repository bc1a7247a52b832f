"""Queues and index checked against the log, on golden stores and harm done to them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pipelines are Spark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore import Message
from rmqstore.check.findings import Level
from rmqstore.spark.pipelines.calls import Keys
from tests.golden import GoldenCase, every_case
from tests.spark.checking import checked_index, checked_queues
from tests.support.damage import DAMAGES

GoldenCopy = Callable[[str, str], GoldenCase]
UNIT = struct.Struct(">qiq")
SMALL = {"maxPartitionBytes": 20_000}


@every_case(without={"crash-torn"})
def test_queues_of_a_golden_store_fit_its_log(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    units = sum(len(line["consumeQueues"]) for line in case.manifest)
    for options in ({}, SMALL):
        found, matched = checked_queues(case.root, **options)
        assert found == []
        assert matched == units


def test_records_of_a_deleted_topic_call_for_no_units(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, commit_log_file_size_bytes=1 << 16) as store:
        for topic in ("orders", "others", "orders"):
            store.put_many(Message(topic, b"%d" % number) for number in range(20))
        store._remove_queues("orders", store.end_offset)
        store.put("orders", b"new")
    found, matched = checked_queues(tmp_path)
    assert found == []
    assert matched == 21


@every_case(without={"crash-torn"})
def test_index_of_a_golden_store_fits_its_log(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    for options in ({}, SMALL):
        found, matched = checked_index(case.root, **options)
        assert found == []
        assert matched > 0


@pytest.mark.parametrize(
    ("name", "fault", "first", "last"),
    [
        ("queue flipped", "wrong", 2, 2),
        ("queue zeroed in the middle", "missing", 3, 4),
        ("queue cut", "missing", 16, 77),
        ("queue empty", "missing", 0, 77),
        ("queue missing", "missing", 0, 77),
        ("size of a record in the middle", "gap", 33, 33),
        ("several records zeroed", "gap", 25, 25),
        ("place of the last record", "stray", 64, 64),
        ("last record, half", "stray", 64, 64),
        ("last log file missing", "stray", 69, 77),
        ("log file in the middle missing", "gap", 36, 54),
    ],
)
def test_harm_shows_at_the_units_it_touches(
    name: str, fault: str, first: int, last: int, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "plain")
    DAMAGES[name].do(case)
    found, matched = checked_queues(case.root)
    of_units = [each for each in found if each.fault != "file"]
    assert {each.fault for each in of_units} == {fault}
    assert (of_units[0].offset, of_units[0].last_offset) == (first, last)
    assert all(each.is_damage for each in of_units)
    touched = sum(each.last_offset - each.offset + 1 for each in of_units)
    assert matched == len(case.manifest) - touched


def test_a_queue_file_of_a_wrong_size_is_named(golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    DAMAGES["queue cut"].do(case)
    found, _ = checked_queues(case.root)
    (of_file,) = (each for each in found if each.fault == "file")
    assert of_file.text.startswith("has 333 bytes instead of ")


def test_queue_offsets_that_come_twice_are_told_with_the_one_that_lacks(
    golden_case: GoldenCopy,
) -> None:
    case = golden_case("5.3.3", "plain")
    line = case.manifest[150]
    offset = line["queueOffset"]
    _overwrite(case.root / "commitlog", line["phyOffset"] + 20, struct.pack(">q", offset - 1))
    found, matched = checked_queues(case.root)
    assert {(each.fault, each.offset, each.last_offset) for each in found} == {
        ("duplicate", offset - 1, offset - 1),
        ("wrong", offset - 1, offset - 1),
        ("gap", offset, offset),
    }
    assert {each.place for each in found} == {f"{line['topic']}/{line['queueId']}"}
    assert matched == len(case.manifest) - 1


def _overwrite(folder: Path, place: int, data: bytes) -> None:
    path = [each for each in sorted(folder.iterdir()) if int(each.name) <= place][-1]
    with path.open("r+b") as file:
        file.seek(place - int(path.name))
        file.write(data)


def test_units_that_a_store_in_use_has_not_built_yet_are_normal(golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    (case.root / "abort").touch()
    queue = case.root / "consumequeue" / case.manifest[0]["topic"] / "0"
    last = sorted(queue.iterdir())[-1]
    data = bytearray(last.read_bytes())
    used = len(data.rstrip(b"\0"))
    end = -(-used // UNIT.size) * UNIT.size
    data[end - 2 * UNIT.size : end] = bytes(2 * UNIT.size)
    last.write_bytes(data)
    found, matched = checked_queues(case.root)
    (note,) = found
    assert (note.fault, note.level) == ("missing", Level.NOTE)
    assert matched == len(case.manifest) - 2


def _harm_index(case: GoldenCase, at: int, data: bytes) -> Path:
    path = sorted((case.root / "index").iterdir())[0]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    return path


def _slots(case: GoldenCase) -> int:
    slots = case.spec["store"]["maxHashSlotNum"]
    assert isinstance(slots, int)
    return slots


def test_harm_to_index_entries_shows_as_what_it_is(golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    sound, entries = checked_index(case.root)
    assert sound == []

    entry = 40 + 4 * _slots(case) + 20 * 5
    for at, data, kinds in (
        (entry, b"\x00\x00\x00\x01", {"wrong", "chain"}),  # the hash
        (entry + 4, b"\x7f", {"wrong", "missing", "stray"}),  # the place
        (entry + 12, b"\x00\x00\xff", {"wrong"}),  # the seconds
        (entry + 16, b"\x00\x00\x00\x07", {"chain"}),  # the entry before
        (32, b"\x00\x00\x00\x01", {"chain"}),  # the slots in use
    ):
        copy = golden_case("5.3.3", "plain")
        path = _harm_index(copy, at, data)

        found, matched = checked_index(copy.root)
        assert found
        assert {each.fault for each in found} <= kinds
        assert {each.place for each in found} == {str(path)}
        assert entries - 4 <= matched <= entries


@pytest.mark.parametrize("name", ["index empty", "index cut", "index header flipped"])
def test_an_index_file_that_is_none_is_named(name: str, golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    DAMAGES[name].do(case)
    found, _ = checked_index(case.root)
    assert [each.fault for each in found] == ["file"]


def test_keys_that_are_not_entered_are_told(golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    line = next(each for each in case.manifest[5:] if each["keys"] and " " not in each["keys"])
    # Another key of the same length: the record asks for what the index has not.
    data = line["propertiesRaw"].encode()
    at = data.index(f"KEYS\x01{line['keys']}".encode()) + len("KEYS\x01")
    start = line["phyOffset"] + line["size"] - len(data)
    _overwrite(case.root / "commitlog", start + at, b"?" * len(line["keys"].encode()))
    found, _ = checked_index(case.root)
    assert [(each.fault, each.offset) for each in found] == [("wrong", line["phyOffset"])]


def test_a_record_at_the_border_of_two_index_files_may_have_keys_in_both() -> None:
    keys = Keys(100, 0, (1, 2, 3), 9)
    assert keys.fits([1, 2, 3], may_begin_late=False, may_end_early=False)
    assert keys.fits([1, 2, 3, 9], may_begin_late=False, may_end_early=False)
    assert keys.fits([1, 2, 3, 1, 2, 3], may_begin_late=False, may_end_early=False)
    assert keys.fits([2, 3], may_begin_late=True, may_end_early=False)
    assert keys.fits([1, 2], may_begin_late=False, may_end_early=True)
    assert not keys.fits([2, 3], may_begin_late=False, may_end_early=True)
    assert not keys.fits([1, 2], may_begin_late=True, may_end_early=False)
    assert not keys.fits([1, 3, 2], may_begin_late=True, may_end_early=True)
    assert not keys.fits([4], may_begin_late=True, may_end_early=True)
