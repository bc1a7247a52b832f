"""`epoch`: lists of the Java store's are shown as they are, and every kind of harm is told."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.epochs import EpochEntry, format_epochs
from tests.cli.conftest import Run
from tests.golden import GoldenCase, every_case, wire

GoldenCopy = Callable[[str, str], GoldenCase]

FILE, COPY = "epochFileCheckpoint", "epochFileCheckpoint.bak"


def text_of(*entries: tuple[int, int]) -> str:
    return format_epochs([EpochEntry(*entry) for entry in entries])


@pytest.fixture
def ends(small: Path) -> list[int]:
    """Return the ends of the records of `small`, and give it a sound list of three epochs."""
    with rmqstore.open(small, read_only=True) as store:
        found = [record.physical_offset + record.size for record in store.scan_log()]
    text = text_of((1, 0), (2, found[4]), (7, found[9]))
    for name in (FILE, COPY):
        (small / name).write_text(text)
    return found


@every_case("epoch-checkpoint")
def test_a_list_of_the_java_store_is_sound_and_shown_with_the_log_as_its_end(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, case_name)
    answer = run("epoch", case.root, "--json")
    assert answer.code == 0
    *rows, note, summary = answer.json
    (wanted,) = case.expected_of("epochs")
    shown = [[row["epoch"], row["startOffset"]] for row in rows]
    assert shown == [[each["epoch"], each["startOffset"]] for each in wanted["entries"]]
    last = case.manifest[-1]
    ends = [*(row["startOffset"] for row in rows[1:]), last["phyOffset"] + last["size"]]
    assert [row["endOffset"] for row in rows] == ends
    assert sum(row["bytes"] for row in rows) == ends[-1]
    # The Java store's copy is the previous file.
    assert (note["level"], note["place"]) == ("note", str(case.root / COPY))
    assert (summary["sound"], summary["epochs"]) == (True, len(rows))


@pytest.mark.parametrize("name", [name for name in wire.NAMES if name.startswith("switch-")])
def test_lists_of_recorded_java_replicas_are_sound(name: str, tmp_path: Path, run: Run) -> None:
    case = wire.unpack(name, tmp_path)
    roots = sorted(path.parent for path in case.glob(f"*/{FILE}"))
    assert roots
    for root in roots:
        answer = run("epoch", root, "--json")
        assert answer.code == 0, answer.out
        lines = (root / FILE).read_text().splitlines()
        summary = answer.json[-1]
        assert (summary["epochs"], summary["crc"]) == (int(lines[0]), lines[1])


def test_bytes_before_the_first_epoch_are_a_note(tmp_path: Path, run: Run) -> None:
    root = wire.unpack("switch-epochs-eager", tmp_path) / "slave"
    (note,) = [line for line in run("epoch", root, "--json").json if line["type"] == "finding"]
    assert (note["level"], note["offset"]) == ("note", 0)
    assert "0 to 1452 belong to no epoch" in note["text"]


def test_a_sound_list_is_a_table_and_a_verdict(small: Path, ends: list[int], run: Run) -> None:
    answer = run("epoch", small)
    assert answer.code == 0
    assert answer.lines[:-1] == [
        "epoch\tstart\tend\tbytes",
        f"1\t0\t{ends[4]}\t{ends[4]}",
        f"2\t{ends[4]}\t{ends[9]}\t{ends[9] - ends[4]}",
        f"7\t{ends[9]}\t{ends[-1]}\t{ends[-1] - ends[9]}",
    ]
    assert "sound: 3 epochs" in answer.lines[-1]


DAMAGED = {
    "count": ("3\n", "4\n", "there are 3 entries"),
    "crc": ("7-", "8-", "the CRC of the entries"),
    "form": ("1-0\n", "1:0\n", "is not EPOCH-OFFSET"),
    "first lines": ("3\n", "three\n", "instead of a count and a CRC"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_told_and_its_copy_shown(
    small: Path, ends: list[int], run: Run, name: str
) -> None:
    old, new, fault = DAMAGED[name]
    text = (small / FILE).read_text()
    (small / FILE).write_text(text.replace(old, new, 1))
    answer = run("epoch", small, "--json")
    assert answer.code == 1
    *rows, finding, summary = answer.json
    assert [row["epoch"] for row in rows] == [1, 2, 7]
    assert (finding["level"], finding["place"]) == ("damage", str(small / FILE))
    assert fault in finding["text"]
    assert summary["file"] == str(small / COPY)


def test_where_file_and_copy_are_damaged_the_lines_that_can_be_read_are_shown(
    small: Path, ends: list[int], run: Run
) -> None:
    for name in (FILE, COPY):
        (small / name).write_text((small / name).read_text().replace("2-", "two-"))
    answer = run("epoch", small, "--json")
    assert answer.code == 1
    assert [line["epoch"] for line in answer.json if line["type"] == "epoch"] == [1, 7]
    assert answer.json[-1]["damage"] == 2


def test_epochs_out_of_order_are_damage_that_names_both(
    small: Path, ends: list[int], run: Run
) -> None:
    for name in (FILE, COPY):
        (small / name).write_text(f"2\n0\n3-0\n2-{ends[4]}\n")
    answer = run("epoch", small)
    assert answer.code == 1
    assert f"epoch 2 at {ends[4]} follows epoch 3 at 0" in answer.out


def test_a_missing_file_is_damage_when_its_copy_is_there(
    small: Path, ends: list[int], run: Run
) -> None:
    (small / FILE).unlink()
    answer = run("epoch", small)
    assert answer.code == 1
    assert "is missing" in answer.out
    assert "3 epochs" in answer.out


def test_a_store_without_epochs_exits_with_1(small: Path, run: Run) -> None:
    answer = run("epoch", small)
    assert (answer.code, answer.out) == (1, "")
    assert "part of a group with epochs" in answer.err


def test_a_folder_without_a_store_exits_with_3(tmp_path: Path, run: Run) -> None:
    (tmp_path / FILE).write_text(text_of((1, 0)))
    assert run("epoch", tmp_path).code == 3


def test_an_epoch_behind_the_end_of_the_log_is_damage(
    small: Path, ends: list[int], run: Run
) -> None:
    (small / FILE).write_text(text_of((1, 0), (2, ends[-1]), (3, ends[-1] + 1)))
    answer = run("epoch", small, "--json")
    assert answer.code == 1
    (found,) = [line for line in answer.json if line.get("level") == "damage"]
    assert found["offset"] == ends[-1] + 1
    assert "after the end of the log" in found["text"]


def test_an_epoch_that_begins_amid_a_record_is_damage(
    small: Path, ends: list[int], run: Run
) -> None:
    (small / FILE).write_text(text_of((1, 0), (2, ends[3] + 7), (3, ends[5])))
    answer = run("epoch", small, "--json")
    assert answer.code == 1
    (found,) = [line for line in answer.json if line.get("level") == "damage"]
    assert found["offset"] == ends[3] + 7


def test_an_epoch_that_begins_where_a_file_is_filled_up_or_begins_is_sound(
    tmp_path: Path, run: Run
) -> None:
    with rmqstore.open(tmp_path, commit_log_file_size_bytes=1 << 16) as store:
        store.put_many([b"x" * 1000] * 100, topic="t")
        records = list(store.scan_log())
    places = [(each.physical_offset, each.physical_offset + each.size) for each in records]
    filler = max(end for _, end in places if end < 1 << 16)
    (tmp_path / FILE).write_text(text_of((1, 0), (2, filler), (3, 1 << 16)))
    assert run("epoch", tmp_path).code == 0


def test_epochs_whose_bytes_are_deleted_and_empty_ones_are_notes(tmp_path: Path, run: Run) -> None:
    with rmqstore.open(tmp_path, commit_log_file_size_bytes=1 << 16) as store:
        store.put_many([b"x" * 1000] * 200, topic="t")
        store.wait_dispatched()
        store.expire_files(1)
        border = next(iter(store.scan_log())).physical_offset
    (tmp_path / FILE).write_text(text_of((1, 0), (2, 500), (3, border), (4, border)))
    answer = run("epoch", tmp_path, "--json")
    assert answer.code == 0
    notes = [(line["level"], line["offset"]) for line in answer.json if line["type"] == "finding"]
    assert notes == [("note", 0), ("note", border)]


def test_a_store_that_is_written_to_is_sound_at_every_look(tmp_path: Path, run: Run) -> None:
    begun, stop = threading.Event(), threading.Event()

    def reign(store: rmqstore.Store) -> None:
        entries: list[tuple[int, int]] = []
        for number in range(1, 2000):
            # A master writes its entry, then its first record.
            entries.append((number, store.end_offset))
            for name in (FILE, COPY):
                (tmp_path / f"{name}.next").write_text(text_of(*entries))
                os.replace(tmp_path / f"{name}.next", tmp_path / name)
            store.put("t", b"x" * 200)
            begun.set()
            if stop.wait(0.001):
                return

    with rmqstore.open(tmp_path) as store:
        store.put("t", b"first")
        writer = threading.Thread(target=reign, args=(store,))
        writer.start()
        try:
            assert begun.wait(30)
            answer = [run("epoch", tmp_path, "--json") for _ in range(10)]
        finally:
            stop.set()
            writer.join()
    assert [each.code for each in answer] == [0] * 10
    assert answer[0].json[-1]["epochs"] < answer[-1].json[-1]["epochs"]


def test_looking_writes_nothing(small: Path, ends: list[int], run: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in small.rglob("*")}
    run("epoch", small)
    assert {path: path.stat().st_mtime_ns for path in small.rglob("*")} == before
