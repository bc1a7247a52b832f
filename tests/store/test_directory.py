"""What can be told of a store from its files alone."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import NotFoundError, UnsupportedStoreError
from rmqstore.check import verify
from rmqstore.check.repair import plan
from rmqstore.store.directory import Directory
from tests.golden import GoldenCase, every_case

SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 65536,
    "consume_queue_file_size_bytes": 1000,
    "index_slot_count": 64,
    "index_entry_count": 200,
}


def make(path: Path, *, count: int = 10, **settings: Any) -> None:
    with rmqstore.open(path, **{**SIZES, **settings}) as store:
        for number in range(count):
            store.put("orders", b"x", keys=[f"k{number}"])


def contents_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@every_case()
def test_golden_stores_tell_their_release(
    release: str, case_name: str, golden_case: Callable[[str, str], GoldenCase]
) -> None:
    facts = Directory.inspect(golden_case(release, case_name).root)
    assert facts.is_store
    assert facts.release == release[:3]


def test_nothing_is_no_store(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        facts = Directory.inspect(path)
        assert not facts.is_store
        assert facts.release is None
        with pytest.raises(NotFoundError, match=str(path)):
            facts.require_store()


@pytest.mark.parametrize("count", [2, 10, 199, 500])
def test_sizes_are_found_out(count: int, tmp_path: Path) -> None:
    make(tmp_path / "store", count=count)
    facts = Directory.inspect(tmp_path / "store")
    assert facts.commit_log_file_size == 65536
    assert facts.consume_queue_file_size == 1000
    assert (facts.index_slot_count, facts.index_entry_count) == (64, 200)
    assert facts.has_index
    assert facts.was_closed


def test_store_opens_with_the_sizes_it_was_written_with(tmp_path: Path) -> None:
    make(tmp_path / "store")
    with rmqstore.open(tmp_path / "store") as store:
        assert store.config.commit_log_file_size_bytes == 65536
        assert store.config.consume_queue_file_size_bytes == 1000
        assert (store.config.index_slot_count, store.config.index_entry_count) == (64, 200)


def test_store_that_died_is_told_by_its_marker(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store", **SIZES)
    store.put("orders", b"x")
    assert not Directory.inspect(tmp_path / "store").was_closed
    store.close()
    assert Directory.inspect(tmp_path / "store").was_closed


def test_commit_log_opened_by_itself_is_said(tmp_path: Path) -> None:
    make(tmp_path / "store")
    with pytest.raises(NotFoundError, match="open the folder it is in"):
        rmqstore.open(tmp_path / "store" / "commitlog", read_only=True)


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("consumequeue/CURRENT", "RocksDB"),
        ("compaction/compactionLog/topic", "compacted"),
        ("dledger-n0/data/00000000000000000000", "DLedger (dledger-n0/)"),
    ],
)
def test_parts_that_are_not_read_are_named(marker: str, words: str, tmp_path: Path) -> None:
    make(tmp_path / "store")
    path = tmp_path / "store" / marker
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    facts = Directory.inspect(tmp_path / "store")
    assert any(words in each for each in facts.left_alone)


def test_a_log_of_dledger_is_refused_for_writing_and_repair(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make(root)
    (root / "dledger-n0" / "data").mkdir(parents=True)
    before = contents_of(root)

    for refused in (lambda: rmqstore.open(root), lambda: plan(root, rebuild=True)):
        with pytest.raises(UnsupportedStoreError, match=r"DLedger \(dledger-n0/\).*empty"):
            refused()
    assert contents_of(root) == before

    with rmqstore.open(root, read_only=True) as store:
        assert sum(1 for _ in store.scan_log()) == 10


def test_queues_beside_a_log_of_dledger_are_not_called_damaged(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make(root)
    (root / "dledger-n0" / "data").mkdir(parents=True)
    queue = root / "consumequeue" / "orders" / "0" / "00000000000000000000"
    data = bytearray(queue.read_bytes())
    data[200:220] = struct.pack(">qiq", 65536, 100, 0)
    queue.write_bytes(data)

    report = verify(root)
    assert report.is_sound
    notes = [str(finding) for finding in report.findings]
    assert any("also point into dledger-n0/" in note for note in notes), notes
    assert not any("cut" in note for note in notes), notes


def test_a_directory_of_dledger_without_a_commit_log_is_named(tmp_path: Path) -> None:
    make(tmp_path / "store")
    root = tmp_path / "dledger"
    shutil.copytree(tmp_path / "store" / "consumequeue", root / "consumequeue")
    (root / "dledger-n0" / "data").mkdir(parents=True)

    for read_only in (True, False):
        with pytest.raises(UnsupportedStoreError, match="DLedger"):
            rmqstore.open(root, read_only=read_only)
    with pytest.raises(UnsupportedStoreError, match="DLedger"):
        verify(root)
    assert not (root / "commitlog").exists()


def test_an_empty_folder_of_a_similar_name_is_no_log_of_dledger(tmp_path: Path) -> None:
    (tmp_path / "store" / "dledger-n0").mkdir(parents=True)
    make(tmp_path / "store")


def test_queues_in_rocksdb_are_opened_read_only_alone(tmp_path: Path) -> None:
    make(tmp_path / "store")
    (tmp_path / "store" / "consumequeue" / "CURRENT").write_text("")
    with pytest.raises(UnsupportedStoreError, match="read-only"):
        rmqstore.open(tmp_path / "store")
    with rmqstore.open(tmp_path / "store", read_only=True) as store:
        assert sum(1 for _ in store.scan_log()) == 10
