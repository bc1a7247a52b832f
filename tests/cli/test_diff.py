"""`diff`: from which byte on two stores differ, and which records lie there."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.check.log_bytes import LogBytes, first_difference, holder
from tests.cli.conftest import Run
from tests.golden import GoldenCase, every_case, wire

GoldenCopy = Callable[[str, str], GoldenCase]


def flip(root: Path, at: int) -> None:
    """Change the byte of a log at a physical offset."""
    paths = sorted(path for path in (root / "commitlog").iterdir() if int(path.name) <= at)
    with paths[-1].open("r+b") as file:
        file.seek(at - int(paths[-1].name))
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes((byte ^ 0x01,)))


@pytest.fixture
def pair(small: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a closed store and its copy."""
    shutil.copytree(small, tmp_path / "copy.store")
    return small, tmp_path / "copy.store"


@every_case("plain", "deleted-head", "epoch-checkpoint")
def test_a_store_and_its_copy_are_equal(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    answer = run("diff", golden_case(release, case_name).root, golden_case(release, case_name).root)
    assert answer.code == 0
    assert answer.lines[-1].startswith("equal: ")


@pytest.mark.parametrize("name", wire.NAMES)
def test_recorded_java_replicas_differ_as_their_recorder_says(
    name: str, tmp_path: Path, run: Run
) -> None:
    case = wire.unpack(name, tmp_path)
    verdict = json.loads((case / "case.json").read_bytes())["verdict"]
    names = ("master", "slave") if (case / "master").exists() else ("a", "b")
    *_, summary = run("diff", case / names[0], case / names[1], "--json").json
    logs = verdict.get("logs")
    if logs is None:
        assert name == "switch-no-common-point"
        assert summary["epochsPartAt"] == -1
    elif logs["same"]:
        assert (summary["commonStart"], summary["commonEnd"]) == (logs["from"], logs["to"])
        assert summary["firstDifference"] is None
    else:
        assert summary["firstDifference"] is not None


@pytest.mark.parametrize("name", ["switch-fork", "switch-fork-epochs"])
def test_a_fork_is_found_in_the_record_where_it_began(name: str, tmp_path: Path, run: Run) -> None:
    case = wire.unpack(name, tmp_path)
    fork_at = json.loads((case / "case.json").read_bytes())["verdict"]["forkAt"]
    answer = run("diff", case / "a-before-truncation", case / "b", "--json")
    assert answer.code == 1
    (found,) = [line for line in answer.json if line["type"] == "difference"]
    summary = answer.json[-1]
    assert found["kind"] == "records"
    assert found["a"]["startOffset"] == found["b"]["startOffset"] == fork_at
    assert found["a"]["epoch"] != found["b"]["epoch"]
    assert found["a"]["storeTimestamp"] < found["b"]["storeTimestamp"]
    assert summary["epochsPartAt"] == fork_at <= summary["firstDifference"]


@every_case("plain")
def test_any_byte_is_found_with_its_record(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case, chance = golden_case(release, case_name), random.Random(case_name)
    records = {line["phyOffset"]: line for line in case.manifest}
    with rmqstore.open(case.root, read_only=True) as store:
        end = store.end_offset
        for place in [0, end - 1, *(chance.randrange(end) for _ in range(200))]:
            found = holder(store, place)
            assert found.start <= place < found.end
            start = max(each for each in records if each <= place)
            line = records[start]
            if place < start + line["size"]:
                assert (found.kind, found.start, found.end) == (
                    "record",
                    start,
                    start + line["size"],
                )
                assert (found.topic, found.queue) == (line["topic"], line["queueId"])
                assert (found.queue_offset, found.store_timestamp) == (
                    line["queueOffset"],
                    line["storeTimestamp"],
                )
            else:
                assert (found.kind, found.start) == ("filler", start + line["size"])


def test_a_record_far_behind_the_beginning_of_its_file_is_found(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, commit_log_file_size_bytes=64 << 20) as store:
        receipts = store.put_many([b"x" * 50_000] * 400, topic="t")
        wanted = receipts[-3]
        for place in (wanted.physical_offset, wanted.end_offset - 1):
            found = holder(store, place)
            assert (found.start, found.queue_offset) == (wanted.physical_offset, 397)


@pytest.mark.parametrize("within", [0, 3, 60, -1])
def test_a_changed_byte_is_named_with_the_record_of_the_sound_side(
    pair: tuple[Path, Path], run: Run, within: int
) -> None:
    with rmqstore.open(pair[0], read_only=True) as store:
        record = store.get("orders", queue=1, offset=4)
    at = record.physical_offset + (within if within >= 0 else record.size + within)
    flip(pair[1], at)
    answer = run("diff", *pair, "--json")
    assert answer.code == 1
    (found,) = [line for line in answer.json if line["type"] == "difference"]
    assert found["offset"] == at
    assert found["a"] | {"kind": "record", "topic": "orders", "queueId": 1} == found["a"]
    assert found["a"]["queueOffset"] == 4
    # No CRC guards times and properties: with others in it, a record stays one.
    kind = "record" if within in (60, -1) else "nothing"
    assert (found["b"]["kind"], found["b"]["startOffset"]) == (kind, record.physical_offset)
    assert answer.json[-1]["firstDifferentRecord"] == at


def test_a_difference_in_what_fills_a_file_up_hides_no_difference_behind_it(
    tmp_path: Path, run: Run
) -> None:
    roots = tmp_path / "a", tmp_path / "b"
    with rmqstore.open(roots[0], commit_log_file_size_bytes=1 << 16) as store:
        store.put_many([b"x" * 1000] * 100, topic="t")
        records = list(store.scan_log())
    shutil.copytree(*roots)
    ends = [each.physical_offset + each.size for each in records]
    filler = max(end for end in ends if end <= 1 << 16) + 8
    flip(roots[1], filler)
    answer = run("diff", *roots, "--json")
    assert answer.code == 1
    assert answer.json[2]["kind"] == "filler"
    assert answer.json[-1]["firstDifferentRecord"] is None
    assert "no message" in run("diff", *roots).lines[-1]

    flip(roots[1], records[70].physical_offset + 60)
    summary = run("diff", *roots, "--json").json[-1]
    assert summary["firstDifference"] == filler
    assert summary["firstDifferentRecord"] == records[70].physical_offset + 60


def test_a_log_that_goes_on_is_told_with_its_range_and_common_exits_with_0(
    pair: tuple[Path, Path], run: Run
) -> None:
    with rmqstore.open(pair[0]) as store:
        start = store.end_offset
        store.put("orders", b"one more")
        end = store.end_offset
    answer = run("diff", *pair, "--json")
    assert answer.code == 1
    (only,) = [line for line in answer.json if line["type"] == "only"]
    assert (only["side"], only["startOffset"], only["endOffset"]) == ("a", start, end)
    (queue,) = [line for line in answer.json if line["type"] == "queue"]
    assert (queue["topic"], queue["queueId"], queue["endA"], queue["endB"]) == ("orders", 0, 11, 10)
    assert run("diff", "--common", *pair).code == 0
    answer = run("diff", *pair)
    assert f"only in A: {start} to {end}, {end - start} bytes" in answer.lines
    assert "orders\t0\t11\t10" in answer.lines


def test_a_queue_whose_messages_were_all_cut_off_is_as_good_as_none(
    pair: tuple[Path, Path], run: Run
) -> None:
    with rmqstore.open(pair[0]) as store:
        receipt = store.put("cut", b"off")
        store.wait_dispatched()
        store.truncate_to(receipt.physical_offset)
        assert [len(queue) for queue in store.queues("cut")] == [0]
    assert run("diff", *pair).code == 0


def test_a_log_that_begins_later_is_equal_in_common(tmp_path: Path, run: Run) -> None:
    roots = tmp_path / "a", tmp_path / "b"
    with rmqstore.open(roots[0], commit_log_file_size_bytes=1 << 16) as store:
        store.put_many([b"x" * 1000] * 200, topic="t")
    shutil.copytree(*roots)
    with rmqstore.open(roots[1]) as store:
        store.expire_files(2)
    answer = run("diff", *roots, "--json")
    assert answer.code == 1
    (only,) = [line for line in answer.json if line["type"] == "only"]
    assert (only["side"], only["startOffset"], only["endOffset"]) == ("a", 0, 2 << 16)
    assert run("diff", "--common", *roots).code == 0


def test_logs_without_a_byte_in_common_exit_with_1(tmp_path: Path, run: Run) -> None:
    roots = tmp_path / "a", tmp_path / "b"
    for root, size in zip(roots, (200, 2), strict=True):
        with rmqstore.open(root, commit_log_file_size_bytes=1 << 16) as store:
            store.put_many([b"x" * 1000] * size, topic="t")
    with rmqstore.open(roots[0]) as store:
        store.expire_files(1)
    answer = run("diff", *roots)
    assert answer.code == 1
    assert answer.lines[-1] == "different: the two logs have no byte in common"
    answer = run("diff", "--common", *roots)
    assert answer.code == 1
    assert "no byte in common" in answer.err


def test_log_files_of_different_sizes_are_compared_by_physical_offset(
    tmp_path: Path, run: Run
) -> None:
    roots = tmp_path / "a", tmp_path / "b"
    messages = [bytes((number,)) * 500 for number in range(100)]
    with rmqstore.open(roots[0], commit_log_file_size_bytes=1 << 20) as store:
        store.put_many(messages, topic="t")
        records = [(each.physical_offset, each.raw) for each in store.scan_log()]
    with rmqstore.open(roots[1], commit_log_file_size_bytes=1 << 16) as store:
        for place, raw in records:
            if place + len(raw) <= (1 << 16) - 8:
                store.append_raw(place, raw)
    answer = run("diff", *roots, "--json")
    assert answer.json[-1]["firstDifference"] is None
    assert 50_000 < answer.json[-1]["commonEnd"] < 1 << 16
    assert run("diff", "--common", *roots).code == 0


@pytest.mark.parametrize(
    ("turned", "told_of_it"), [(False, ", as on the other side"), (True, ", different from byte ")]
)
def test_half_a_record_behind_the_end_is_told_and_compared(
    pair: tuple[Path, Path], run: Run, turned: bool, told_of_it: str
) -> None:
    with rmqstore.open(pair[0]) as store:
        receipt = store.put("orders", b"copied by halves")
        half = store.read_raw(receipt.physical_offset, receipt.size // 2)
    with (pair[1] / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(receipt.physical_offset)
        file.write(half)
    if turned:
        flip(pair[1], receipt.physical_offset + 5)
    answer = run("diff", *pair)
    (line,) = [each for each in answer.lines if each.startswith("after the end of B: ")]
    assert f" {len(half)} bytes that are not a whole record{told_of_it}" in line
    wanted = receipt.physical_offset + 5 if turned else None
    assert run("diff", "--json", *pair).json[-1]["tailDifference"] == wanted
    assert run("diff", "--common", *pair).code == 0


def test_damage_in_the_last_record_of_one_is_a_difference(
    pair: tuple[Path, Path], run: Run
) -> None:
    with rmqstore.open(pair[0], read_only=True) as store:
        place = store.get("orders", queue=1, offset=9).physical_offset + 90
    flip(pair[1], place)
    assert run("diff", "--json", *pair).json[-1]["firstDifference"] == place


def test_epochs_that_promise_more_than_the_logs_hold_are_told(
    pair: tuple[Path, Path], run: Run
) -> None:
    flip(pair[1], 100)
    for root in pair:
        (root / "epochFileCheckpoint").write_text("1\n0\n1-0\n")
    answer = run("diff", *pair)
    (line,) = [each for each in answer.lines if each.startswith("by their epochs")]
    assert line.endswith("but the bytes differ: do not join them")


def test_a_master_at_work_and_a_store_that_follows_it_are_equal_in_common(
    tmp_path: Path, run: Run
) -> None:
    roots = tmp_path / "a", tmp_path / "b"
    stop, begun = threading.Event(), threading.Event()

    def write(store: rmqstore.Store) -> None:
        for number in range(50_000):
            store.put("t", bytes(number % 3000), queue=number % 3)
            if number % 50 == 0 and stop.wait(0.002):
                return

    def follow(source: rmqstore.Store, target: rmqstore.Store) -> None:
        while not stop.is_set():
            data = source.read_raw(target.end_offset, 10_000)
            if data:
                target.append_raw(target.end_offset, data)
                begun.set()

    with (
        rmqstore.open(roots[0], commit_log_file_size_bytes=1 << 20) as a,
        rmqstore.open(roots[1], commit_log_file_size_bytes=1 << 20) as b,
    ):
        threads = [
            threading.Thread(target=write, args=(a,)),
            threading.Thread(target=follow, args=(a, b)),
        ]
        for thread in threads:
            thread.start()
        try:
            assert begun.wait(30)
            answer = [run("diff", "--common", "--json", *roots) for _ in range(5)]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert [each.code for each in answer] == [0] * 5
    assert answer[0].json[-1]["commonEnd"] < answer[-1].json[-1]["commonEnd"]


def test_a_file_that_is_deleted_meanwhile_is_an_error_that_names_it(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, commit_log_file_size_bytes=1 << 16) as writer:
        writer.put_many([b"x" * 1000] * 200, topic="t")
        with (
            rmqstore.open(tmp_path, read_only=True) as store,
            LogBytes(store) as a,
            LogBytes(store) as b,
        ):
            writer.wait_dispatched()
            writer.expire_files(1)
            with pytest.raises(rmqstore.OffsetOutOfRange, match="deleted meanwhile") as caught:
                first_difference(a, b, 0, 1000, report=lambda done: None)
    assert caught.value.start == 1 << 16


def test_a_store_that_is_none_exits_with_3_and_writes_nothing(
    pair: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    before = {path: path.stat().st_mtime_ns for path in pair[0].rglob("*")}
    assert run("diff", *pair).code == 0
    assert run("diff", pair[0], tmp_path / "none").code == 3
    assert {path: path.stat().st_mtime_ns for path in pair[0].rglob("*")} == before
