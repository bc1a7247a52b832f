"""rmqstore accepts what the real Java store wrote: closed, crashed, killed, and while it writes."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

import rmqstore
from rmqstore.check import manifest
from tests.golden.rewriting import FAR_TIME_MS, config_of
from tests.reference.manifest import comparable
from tests.support.every_kind import SETTINGS, SPEC, Case, assert_accepted, read_by_java
from tests.support.java_store import JavaStore
from tests.support.releases import NEW, with_release
from tests.support.waiting import spin_until


def open_java(case: Case, *, read_only: bool = False) -> rmqstore.Store:
    config = config_of(case.settings, case.root, compatibility="auto")
    return rmqstore.open(case.root, config, read_only=read_only)


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_a_java_store_with_every_kind_of_message(
    java_store: JavaStore, crash: bool, tmp_path: Path
) -> None:
    case = Case(tmp_path, SETTINGS)
    written = [dict(line) for line in java_store.write(case.directory, SPEC, crash=crash)]
    expected = [comparable(line) for line in written]
    assert len(expected) > 300

    with open_java(case, read_only=True) as store:
        assert list(manifest.dump(store)) == expected

    with open_java(case) as store:
        assert store.recovery.was_closed is not crash
        assert list(manifest.dump(store)) == expected

        for line in expected:
            for key in (line["keys"] or "").split():
                found = store._query(line["topic"], key, False, 0, FAR_TIME_MS, 64)
                assert line["phyOffset"] in {record.physical_offset for record in found}

    # What rmqstore's recovery left is a store for Java again.
    with open_java(case) as store:
        case.write_manifest(store)
    assert_accepted(read_by_java(java_store, case), messages=len(expected))


BENCH = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}


@with_release(NEW, fixture="java_store")
def test_beside_a_java_writer_and_after_it_was_killed(
    java_store: JavaStore, tmp_path: Path
) -> None:
    case = Case(tmp_path / "case", BENCH)
    case.write_spec()
    ends: list[int] = []
    with java_store.benching(
        "put", case.root, settings=BENCH, messages=50_000_000, body=700, topics=2, queues=3
    ) as writer:
        deadline = time.monotonic() + 60
        wait_for_log(case.root, writer)
        with open_java(case, read_only=True) as store:
            while len(ends) < 12 or ends[-1] < 4 << 20:
                assert writer.poll() is None
                assert time.monotonic() < deadline, ends
                store.refresh()
                if not ends or store.end_offset > ends[-1]:
                    check_what_is_seen(store, since=ends[-1] if ends else 0)
                    ends.append(store.end_offset)
        assert not (case.root / "cut").exists()
    assert ends == sorted(set(ends))
    assert (case.root / "abort").exists()

    ours = Case(tmp_path / "ours", BENCH)
    ours.write_spec()
    shutil.copytree(case.root, ours.root)
    with open_java(ours) as store:
        assert not store.recovery.was_closed
        assert store.end_offset >= ends[-1]
        records, _ = store.scan_log().count()
        assert sum(len(queue) for queue in store.queues()) == records
        messages = ours.write_manifest(store)
    # What rmqstore's recovery left is a store for Java again.
    assert_accepted(read_by_java(java_store, ours), messages=messages)


def wait_for_log(root: Path, writer: subprocess.Popen[str]) -> None:
    """Return when the Java store has begun to write."""
    log = root / "commitlog" / f"{0:020}"

    def has_begun() -> bool:
        assert writer.poll() is None
        return log.exists() and read_head(log) != bytes(4)

    spin_until(has_begun, "the Java store writes")


def read_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4).ljust(4, b"\0")


def check_what_is_seen(store: rmqstore.Store, *, since: int) -> None:
    """Hold queues and log of a store that is being written against each other."""
    scan = store.scan_log(since, on_corrupt="stop")
    last = {}
    for record in scan:
        last[record.topic, record.queue] = record.queue_offset
    assert scan.error is None
    assert scan.offset == store.end_offset
    for (topic, number), offset in last.items():
        low, high = store._bounds(topic, number) or (0, 0)
        # The writer's dispatcher follows its log; queues never lead it.
        assert low <= high <= offset + 1
        if high > low:
            record = store.get(topic, queue=number, offset=high - 1)
            assert record.queue_offset == high - 1
