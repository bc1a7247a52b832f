"""The real Java store accepts what rmqstore wrote: closed, crashed, killed, cut, expired, copied.

Java opens a copy, recovers it, finds every record that the manifest names and no other, through
queues and through the index, and puts one more message into each queue.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.check import manifest
from tests.golden import GoldenCase
from tests.golden.rewriting import open_fresh
from tests.reference import log
from tests.support.builds import REPOSITORY
from tests.support.every_kind import SETTINGS, Case, assert_accepted, put_every_kind, read_by_java
from tests.support.java_store import JavaStore
from tests.support.waiting import spin_until

GoldenCopy = Callable[[str, str], GoldenCase]

KINDS_OF_QUEUE = ("consumequeue", "batchconsumequeue", "index")


def compatibility(java: JavaStore, wanted: str) -> str:
    """Return the setting: `both` releases, or the `own` bytes of the release that reads."""
    return {"both": "auto", "own": java.release[:3]}[wanted]


@pytest.mark.parametrize("written_for", ["auto", "5.3", "5.5"])
def test_a_closed_store_with_every_kind_of_message(
    java_store: JavaStore, written_for: str, tmp_path: Path
) -> None:
    case = Case(tmp_path, SETTINGS)
    with case.open(compatibility=written_for) as store:
        put_every_kind(store)
        messages = case.write_manifest(store)
    report = read_by_java(java_store, case)
    assert_accepted(report, messages=messages)
    assert report.of("store")[0]["abortFile"] is False


@pytest.mark.parametrize("wanted", ["both", "own"])
def test_a_crashed_store_whose_later_queue_pages_never_reached_the_disk(
    java_store: JavaStore, wanted: str, tmp_path: Path
) -> None:
    case = Case(tmp_path / "case", SETTINGS)
    kept = tmp_path / "kept"
    store = case.open(compatibility=compatibility(java_store, wanted))
    put_every_kind(store, rounds=10)
    store.wait_dispatched()

    if wanted == "both":
        # With the exact bytes of one release a checkpoint has that release's own gaps: 5.3 vouches
        # for queue pages that were never flushed, 5.5 forgets an index file that is being filled.
        store.flush()

    keep(case, kept)
    put_every_kind(store, first=10, rounds=10)
    messages = case.write_manifest(store)
    store.abandon()

    restore(kept, case)
    report = read_by_java(java_store, case)
    assert_accepted(report, messages=messages)
    assert report.of("store")[0]["abortFile"] is True


def keep(case: Case, kept: Path) -> None:
    """Copy queues, index and checkpoint as they are."""
    for name in KINDS_OF_QUEUE:
        shutil.copytree(case.root / name, kept / name)
    if (case.root / "checkpoint").exists():
        shutil.copy(case.root / "checkpoint", kept)


def restore(kept: Path, case: Case) -> None:
    """Put queues, index and checkpoint back to what they were."""
    for name in KINDS_OF_QUEUE:
        shutil.rmtree(case.root / name)
    shutil.copytree(kept, case.root, dirs_exist_ok=True)


WRITER = """
import sys
from pathlib import Path
from tests.support.every_kind import SETTINGS, Case, put_every_kind

store = Case(Path(sys.argv[1]), SETTINGS).open()
for number in range(100_000):
    put_every_kind(store, first=number, rounds=1)
    print(store.end_offset, flush=True)
"""


def test_a_store_whose_writer_was_killed(java_store: JavaStore, tmp_path: Path) -> None:
    case = Case(tmp_path / "case", SETTINGS)

    acknowledged = 0
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(case.directory)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    ) as writer:
        assert writer.stdout is not None
        try:
            for _ in range(40):
                acknowledged = int(writer.stdout.readline())
        finally:
            writer.send_signal(signal.SIGKILL)

    assert (case.root / "abort").exists()

    # Each side recovers a copy of its own.
    ours = Case(tmp_path / "ours", SETTINGS)
    shutil.copytree(case.root, ours.root)
    with ours.open() as store:
        assert not store.recovery.was_closed
        assert store.end_offset >= acknowledged
        messages = ours.write_manifest(store)

    shutil.copy(ours.manifest, case.manifest)
    assert_accepted(read_by_java(java_store, case), messages=messages)


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_a_store_that_was_cut_and_went_on(java_store: JavaStore, end: str, tmp_path: Path) -> None:
    case = Case(tmp_path, SETTINGS)
    store = case.open()
    put_every_kind(store, rounds=20)
    offsets = [record.physical_offset for record in store.scan_log()]
    store.flush()
    store.truncate_to(offsets[len(offsets) // 3])
    assert store.end_offset <= offsets[len(offsets) // 3]
    put_every_kind(store, first=100, rounds=6)
    messages = case.write_manifest(store)
    assert messages < len(offsets)
    if end == "closed":
        store.close()
    else:
        store.abandon()
    assert_accepted(read_by_java(java_store, case), messages=messages)


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_a_store_with_property_crcs_on_several_paths_without_its_oldest_files(
    java_store: JavaStore, end: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        **SETTINGS,
        "enabledAppendPropCRC": True,
        "forceVerifyPropCRC": True,
        "storePathCommitLog": "disk1,disk2,disk3",
    }

    case = Case(tmp_path, settings)
    store = case.open()
    put_every_kind(store, rounds=40)
    store.wait_dispatched()

    store.expire_files(2)
    put_every_kind(store, first=40, rounds=4)
    assert store.start_offset == 2 * settings["mappedFileSizeCommitLog"]
    assert all((case.root / f"disk{number}").exists() for number in (1, 2, 3))

    messages = case.write_manifest(store)
    if end == "closed":
        store.close()
    else:
        store.flush()
        store.abandon()

    report = read_by_java(java_store, case)
    assert_accepted(report, messages=messages)
    assert report.of("store")[0]["minPhyOffset"] == 2 * settings["mappedFileSizeCommitLog"]


def test_a_crashed_store_of_more_log_files_than_java_walks_back_over(
    java_store: JavaStore, tmp_path: Path
) -> None:
    # An index file takes all entries here, so that only the bound on its span ends it.
    settings = {**SETTINGS, "maxIndexNum": 20_000, "flushIntervalCommitLog": 1}
    case = Case(tmp_path, settings)
    file_size = SETTINGS["mappedFileSizeCommitLog"]
    store = case.open()
    number = 0
    while store.end_offset < 20 * file_size:
        put_every_kind(store, first=number, rounds=1)
        number += 1
        wait_until_covered(store, file_size)
    messages = case.write_manifest(store)
    assert len(list((case.root / "commitlog").iterdir())) > 20
    assert store._checkpoint()["logics_physical_offset"] > 10 * file_size
    store.abandon()
    assert_accepted(read_by_java(java_store, case), messages=messages)


def wait_until_covered(store: rmqstore.Store, file_size: int) -> None:
    """Return when the flusher, on its own, has brought the checkpoint close to the log's end.

    Log files as small as these are full faster than any disk flushes.
    """

    def is_covered() -> bool:
        covered: int = store._checkpoint()["logics_physical_offset"]
        return store.end_offset - covered < 7 * file_size

    spin_until(is_covered, "the checkpoint follows")


@pytest.mark.parametrize("case_name", ["many-queues", "transactions"])
def test_a_golden_log_copied_raw(
    java_store: JavaStore, case_name: str, golden_case: GoldenCopy, tmp_path: Path
) -> None:
    golden = golden_case(java_store.release, case_name)
    case = Case(tmp_path / "case", golden.spec["store"])
    case.write_spec()
    _, data = log.read_run(golden.root / "commitlog")
    (line,) = golden.expected_of("store")
    with open_fresh(golden, case.root) as store:
        for at in range(0, line["maxPhyOffset"], 1021):
            store.append_raw(at, data[at : min(at + 1021, line["maxPhyOffset"])])
    shutil.copy(golden.directory / "manifest.jsonl", case.manifest)
    report = read_by_java(java_store, case, probe=False)
    assert_accepted(report, messages=len(golden.manifest))
    assert report.of("queue") == list(golden.expected_of("queue"))
    assert report.of("index") == list(golden.expected_of("index"))


def test_a_store_that_java_went_on_with_and_rmqstore_after_it(
    java_store: JavaStore, tmp_path: Path
) -> None:
    case = Case(tmp_path, SETTINGS)
    with case.open() as store:
        put_every_kind(store, rounds=3)
        before = list(manifest.dump(store))
        ends = {(queue.topic, queue.number): queue.end for queue in store.queues()}
        messages = case.write_manifest(store)

    report = java_store.dump(
        case.directory, keys=True, probe=True, in_place=True, manifest=case.manifest
    )
    assert_accepted(report, messages=messages)
    (probed,) = report.of("probe")

    with case.open() as store:
        assert store.recovery.was_closed
        after = list(manifest.dump(store))
        assert after[: len(before)] == before
        assert len(after) == len(before) + probed["queues"]
        for line in after[len(before) :]:
            assert line["queueOffset"] == ends[line["topic"], line["queueId"]]

        put_every_kind(store, first=50, rounds=2)
        messages = case.write_manifest(store)

    assert_accepted(read_by_java(java_store, case), messages=messages)
