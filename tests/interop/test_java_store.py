"""The Java store gives its verdict on stores it wrote itself, so its word can be relied on."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import GoldenCase
from tests.support import java
from tests.support.java_store import JavaStore, PeerError

GoldenCopy = Callable[[str, str], GoldenCase]


def _members(group: int) -> list[int]:
    """Descriptors of the running processes of *group*, readable when their process ends."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, of_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state not in "ZX":
                found.append(os.pidfd_open(int(stat.parent.name)))
        except OSError:  # ended while we looked
            continue
    return found


def _ends(process: int, timeout: float) -> bool:
    ready, _, _ = select.select([process], [], [], timeout)
    os.close(process)
    return bool(ready)


def test_missing_names_everything_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = java.missing()
    assert reason is not None
    assert all(what in reason for what in ("Java 17", "javac", "mvn"))


def test_every_key_of_a_golden_store_is_found(
    java_store: JavaStore, golden_case: GoldenCopy
) -> None:
    case = golden_case(java_store.release, "keys-index")
    report = java_store.dump(case.directory, keys=True, manifest=case.directory / "manifest.jsonl")
    assert report.exit_status == 0, report.stderr
    assert report.verdict["ok"]
    assert report.verdict["messages"] == len(case.manifest)
    assert report.of("queue") == list(case.expected_of("queue"))
    assert report.of("index") == list(case.expected_of("index"))


def test_a_flipped_body_byte_is_refused(java_store: JavaStore, golden_case: GoldenCopy) -> None:
    case = golden_case(java_store.release, "plain")
    record = case.manifest[0]
    log = case.root / "commitlog" / f"{0:020}"
    content = bytearray(log.read_bytes())
    content[record["size"] // 2] ^= 1
    log.write_bytes(content)
    report = java_store.dump(case.directory, quiet=True)
    assert report.exit_status != 0
    assert not report.verdict["ok"]


def test_a_written_store_can_be_appended_raw_to_another(
    java_store: JavaStore, tmp_path: Path
) -> None:
    spec = {
        "seed": 5,
        "store": {"mappedFileSizeCommitLog": 65536, "maxHashSlotNum": 50, "maxIndexNum": 400},
        "topics": [{"name": "orders", "queues": 2}],
        "steps": [{"kind": "normal", "count": 40, "topics": ["orders"], "body": [1, 900]}],
    }
    manifest = java_store.write(tmp_path / "master", spec)
    assert len(manifest) == 40
    java_store.append_raw(tmp_path / "master", tmp_path / "slave", chunk=1000)
    report = java_store.dump(
        tmp_path / "slave", manifest=tmp_path / "master" / "manifest.jsonl", quiet=True
    )
    assert report.verdict["ok"]
    assert report.verdict["messages"] == 40


def test_a_crashed_write_leaves_the_abort_file(java_store: JavaStore, tmp_path: Path) -> None:
    spec = {
        "seed": 6,
        "topics": [{"name": "orders", "queues": 1}],
        "store": {"mappedFileSizeCommitLog": 65536, "maxHashSlotNum": 50, "maxIndexNum": 400},
        "steps": [{"kind": "normal", "count": 10, "topics": ["orders"], "body": [1, 90]}],
    }
    assert len(java_store.write(tmp_path, spec, crash=True)) == 10
    assert (tmp_path / "store" / "abort").is_file()


def test_bench_returns_figures(java_store: JavaStore, tmp_path: Path) -> None:
    figures = java_store.bench(
        "put",
        tmp_path / "store",
        settings={"mappedFileSizeCommitLog": 1 << 20},
        messages=200,
        body=100,
        warmup=10,
        rate=100_000,
    )
    assert 0 < figures["msgs_per_s"] < 101_000
    assert figures["p999_us"] <= figures["p9999_us"] <= figures["max_us"]


def test_a_command_that_takes_too_long_is_killed_with_its_children(
    java_store: JavaStore, golden_case: GoldenCopy
) -> None:
    case = golden_case(java_store.release, "plain")
    with pytest.raises(PeerError, match="took over"):
        java_store.dump(case.directory, timeout=0.01)


def test_leaving_a_background_workload_kills_it(java_store: JavaStore, tmp_path: Path) -> None:
    with java_store.benching("put", tmp_path / "store", messages=100_000_000) as process:
        group = os.getpgid(process.pid)
        members = _members(group)
        assert members
    ended = [_ends(process, timeout=30) for process in members]
    assert all(ended)
