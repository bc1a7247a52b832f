"""`verify` and `repair`: every golden store is sound, every kind of damage is found and mended."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore import Durability
from rmqstore.check import Kind, Level, repair, verify
from rmqstore.check.findings import Finding
from rmqstore.check.queues import QueueCheck
from rmqstore.errors import StoreError, StoreLockedError
from rmqstore.replication import Master, Quorum
from tests.cli.conftest import ROOT, Run
from tests.golden import RELEASES, GoldenCase, every_case
from tests.reference import record as reference
from tests.support.damage import DAMAGES

GoldenCopy = Callable[[str, str], GoldenCase]

every_damage = pytest.mark.parametrize("name", list(DAMAGES))


@every_case(without={"crash-torn"})
def test_a_golden_store_is_sound_to_the_last_key(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    report = verify(case.root, full=True)
    assert report.damage == ()
    assert report.records == len(case.manifest)
    assert report.units == sum(len(line["consumeQueues"]) for line in case.manifest)
    assert report.keys > 0


@every_case("crash-torn")
def test_a_torn_tail_is_found_and_the_lost_message_named(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, case_name)
    reply = run("verify", case.root, "--json")
    assert reply.code == 1
    torn = case.manifest[-1]
    damage = {
        (line["kind"], line["offset"]) for line in reply.json if line.get("level") == "damage"
    }
    assert damage == {("log", torn["phyOffset"]), ("queue", torn["queueOffset"])}


@pytest.mark.parametrize("release", RELEASES)
@every_damage
def test_damage_is_found_and_nothing_is_written(
    release: str, name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, "plain")
    DAMAGES[name].do(case)
    before = {path: path.stat().st_mtime_ns for path in case.root.rglob("*")}
    assert run("verify", "--full", case.root).code == 1
    reply = run("repair", case.root)
    assert reply.code == 1
    assert "would be done:" in reply.out
    assert "--yes" in reply.err
    assert {path: path.stat().st_mtime_ns for path in case.root.rglob("*")} == before


@pytest.mark.parametrize("release", RELEASES)
@every_damage
def test_after_a_repair_every_unharmed_message_is_there(
    release: str, name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, "plain")
    harmed = DAMAGES[name].do(case)

    reply = run("repair", "--yes", case.root)
    assert reply.code == 0, reply.out + reply.err

    kept = [line for line in case.manifest if line["phyOffset"] not in harmed]
    with rmqstore.open(case.root) as store:
        assert store.recovery.was_closed
        for line in kept:
            record = store.get(line["topic"], queue=line["queueId"], offset=line["queueOffset"])
            assert record.physical_offset == line["phyOffset"]
            assert record.message_id == line["msgId"]

        receipt = store.put(kept[-1]["topic"], b"after the repair", queue=kept[-1]["queueId"])
        assert store.get(receipt.topic, queue=receipt.queue, offset=receipt.queue_offset)

    report = verify(case.root, full=True)
    assert report.damage == ()
    assert report.units == len(kept) + 1


@pytest.mark.parametrize("name", [name for name, damage in DAMAGES.items() if damage.is_log])
def test_bytes_that_a_repair_overwrites_are_kept(name: str, golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    DAMAGES[name].do(case)
    before = _log_bytes(case.root)

    outcome = repair.apply(repair.plan(case.root))
    after = _log_bytes(case.root)

    copies = {
        int(path.name): path.read_bytes()
        for path in (outcome.cut or case.root).glob("commitlog/*")
        if path.name.isdecimal()
    }

    for start, data in before.items():
        now = after.get(start, b"").ljust(len(data), b"\0")
        changed = [
            index for index, (old, new) in enumerate(zip(data, now, strict=False)) if old != new
        ]
        for index in changed:
            holder = max(place for place in copies if place <= start + index)
            assert copies[holder][start + index - holder] == data[index]


def _log_bytes(root: Path) -> dict[int, bytes]:
    paths = (path for path in (root / "commitlog").iterdir() if path.name.isdecimal())
    return {int(path.name): path.read_bytes() for path in paths}


@every_case("batch", "cq-ext", "deleted-head", "delay", "transactions", "many-queues", "prop-crc")
def test_a_rebuild_gives_queues_and_index_back_as_they_were(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, case_name)
    before = verify(case.root, full=True)

    assert run("repair", "--rebuild", "--yes", case.root).code == 0
    after = verify(case.root, full=True)

    assert (after.records, after.units, after.queues) == (
        before.records,
        before.units,
        before.queues,
    )
    assert after.is_sound

    wanted = {
        (queue["topic"], queue["queueId"]): queue["maxOffset"]
        for queue in case.expected_of("queue")
    }

    with rmqstore.open(case.root, read_only=True) as store:
        assert {(each.topic, each.number): each.end for each in store.queues()} == wanted


@every_case("cq-ext")
def test_bit_maps_that_a_rebuild_cannot_give_back_are_named_and_kept(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    extensions = {
        path.relative_to(case.root): path.read_bytes()
        for path in case.root.glob("consumequeue_ext/*/*/*")
    }
    plan = repair.plan(case.root, rebuild=True)
    assert any("bit maps" in loss for loss in plan.losses)
    outcome = repair.apply(plan)
    assert outcome.cut is not None
    assert extensions
    assert {path: (outcome.cut / path).read_bytes() for path in extensions} == extensions


def test_a_store_that_is_being_written_to_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "busy.store"
    stop = threading.Event()

    def write(store: rmqstore.Store) -> None:
        # Paced, so that the log does not outgrow the disk while it is read.
        for number in range(50_000):
            store.put("t", bytes(number % 3000), queue=number % 3, keys=[f"k{number}"])
            if number % 50 == 0 and stop.wait(0.002):
                return

    with rmqstore.open(path, commit_log_file_size_bytes=1 << 20, index_slot_count=1000) as store:
        writer = threading.Thread(target=write, args=(store,))
        writer.start()
        try:
            reports = [verify(path, full=True) for _ in range(5)]
        finally:
            stop.set()
            writer.join()
    assert [report.damage for report in reports] == [()] * 5
    assert reports[0].records < reports[-1].records
    assert verify(path, full=True).findings == ()


def test_a_log_file_that_begins_once_the_log_was_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "busy.store"
    compare = QueueCheck.findings

    with rmqstore.open(path, commit_log_file_size_bytes=1 << 16) as store:
        store.put_many([bytes(1000)] * 5, topic="t")

        def write_first(check: QueueCheck, view: rmqstore.Store, **places: Any) -> list[Finding]:
            store.put_many([bytes(1000)] * 150, topic="t")
            store.wait_dispatched()
            return list(compare(check, view, **places))

        monkeypatch.setattr(QueueCheck, "findings", write_first)
        assert verify(path, full=True).damage == ()


def test_a_queue_whose_messages_are_all_expired_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "expired.store"
    with rmqstore.open(path, commit_log_file_size_bytes=1 << 16) as store:
        store.put_many([b"old"] * 5, topic="quiet")
        store.put_many([b"x" * 1000] * 150, topic="busy")
        store.wait_dispatched()
        store.expire_files(1)
    repair.apply(repair.plan(path, rebuild=True))
    with rmqstore.open(path) as store:
        assert store.put("quiet", b"new").queue_offset == 5


@every_case("crash-intact")
def test_a_store_that_was_not_closed_is_sound_and_repair_recovers_it(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, case_name)
    report = verify(case.root)
    assert report.is_sound
    assert {finding.level for finding in report.findings} == {Level.NOTE}
    assert run("repair", "--yes", case.root).code == 0
    assert not (case.root / "abort").exists()
    assert not (case.root / "cut").exists()


def test_queue_entries_that_a_crash_left_out_are_a_note(tmp_path: Path) -> None:
    path = tmp_path / "late.store"
    with rmqstore.open(path) as store:
        store.put_many([b"x"] * 10, topic="t")
    (path / "abort").touch()
    shutil.rmtree(path / "consumequeue")
    (finding,) = [each for each in verify(path).findings if each.kind is Kind.QUEUE]
    assert (finding.level, finding.place) == (Level.NOTE, "t/0")
    assert "units 0 to 9" in finding.text


def test_what_a_replica_holds_back_is_a_note_and_what_it_lacks_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "replica.store"
    keyed = [rmqstore.Message("t", b"x", keys=[f"key-{number}"]) for number in range(10)]

    with rmqstore.open(path) as store:
        store.put_many(keyed)
        with Master(store, listen=("127.0.0.1", 0), quorum=Quorum(total=2, in_sync=2)):
            store.put_many(keyed, durability=Durability.MEMORY)

    report = verify(path, full=True)
    (finding,) = report.findings
    assert (finding.level, finding.place) == (Level.NOTE, "t/0")
    assert "units 10 to 19 are not built yet" in finding.text
    assert not report.bad_queues

    (units,) = (path / "consumequeue" / "t" / "0").iterdir()
    with units.open("r+b") as file:
        file.seek(9 * 20)
        file.write(bytes(20))

    (finding,) = verify(path).findings
    assert (finding.level, finding.place) == (Level.DAMAGE, "t/0")
    assert "units 9 to 19 are missing" in finding.text


def test_a_sound_store_gives_an_empty_plan(small: Path, run: Run) -> None:
    reply = run("repair", "--yes", small)
    assert reply.code == 0
    assert "nothing to repair" in reply.out
    assert not (small / "cut").exists()


def test_a_plan_that_time_has_overtaken_is_refused(small: Path) -> None:
    plan = repair.plan(small, rebuild=True)
    with (small / "commitlog" / "notes.txt").open("w"):
        pass
    with pytest.raises(StoreError, match="plan again"):
        repair.apply(plan)


def test_repair_keeps_away_from_a_store_that_is_open(small: Path) -> None:
    plan = repair.plan(small, rebuild=True)
    with rmqstore.open(small), pytest.raises(StoreLockedError, match="in use"):
        repair.apply(plan)


def test_the_only_log_file_cut_is_mended_when_its_size_is_told(small: Path, run: Run) -> None:
    log = small / "commitlog" / f"{0:020}"
    with rmqstore.open(small, read_only=True) as store:
        kept = store.get("orders", queue=0, offset=5).physical_offset
    with log.open("r+b") as file:
        file.truncate(kept + 50)
    reply = run("repair", "--yes", "--log-file-size", 1 << 20, small)
    assert reply.code == 0
    assert log.stat().st_size == 1 << 20
    with rmqstore.open(small) as store:
        assert [queue.end for queue in store.queues()] == [5, 5]


@given(st.integers(91, 5000) | st.integers((1 << 20) - 200, (1 << 20) + 200), st.integers(0, 2**40))
def test_a_filler_is_records_that_enter_no_queue(size: int, at: int) -> None:
    data = repair.filler(at, size, timestamp=1_700_000_000_000)
    assert len(data) == size
    place = 0
    while place < size:
        found = reference.decode(data, place)
        assert found.physical_offset == at + place
        assert found.sys_flag == 0xC
        assert found.body_crc == zlib.crc32(found.body) & 0x7FFFFFFF
        place += found.size
    assert place == size


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_on_a_terminal_repair_shows_progress_and_asks(
    answer: bytes, code: int, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "crash-torn")
    screen, terminal = os.openpty()

    process = subprocess.Popen(
        [sys.executable, "-m", "rmqstore", "repair", str(case.root)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)

    shown = b""
    with process, open(screen, "r+b", buffering=0) as keys:
        while b"Do this?" not in shown:
            shown += keys.read(4096)
        keys.write(answer)
        # Reading a terminal that nobody writes to any more fails.
        with contextlib.suppress(OSError):
            while data := keys.read(4096):
                shown += data
        assert process.wait(timeout=60) == code, shown.decode()

    assert b"verifying" in shown
    assert b"Traceback" not in shown
    assert (case.root / "cut").exists() == (code == 0)


def test_a_wrong_topics_file_is_named_and_left_alone(small: Path, run: Run) -> None:
    topics = small / "config" / "topics.json"
    topics.parent.mkdir(exist_ok=True)
    topics.write_text("{ no json")
    reply = run("verify", small)
    assert reply.code == 1
    assert "topics.json" in reply.out
    run("repair", "--yes", small)
    assert topics.read_text() == "{ no json"
