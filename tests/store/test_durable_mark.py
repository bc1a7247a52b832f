"""What a writer shows to readers of other processes: up to where its log is on the disk."""

from __future__ import annotations

from pathlib import Path

import rmqstore
from tests.reference import checkpoint
from tests.support.waiting import spin_until

WAIT_SECONDS = 30


def _mark(root: Path) -> int:
    return checkpoint.decode((root / "checkpoint").read_bytes()).flushed_offset


def test_the_mark_follows_the_flushed_offset_while_the_store_is_open(tmp_path: Path) -> None:
    with rmqstore.open(
        tmp_path / "a.store",
        commit_log_file_size_bytes=1 << 20,
        flush_commit_log_interval_ms=5,
        flush_commit_log_least_pages=0,
    ) as store:
        for number in range(3):
            store.put("topic", b"%d" % number)
            spin_until(lambda: _mark(tmp_path / "a.store") == store.end_offset, "the mark follows")
            assert _mark(tmp_path / "a.store") <= store.flushed_offset


def test_the_checkpoint_names_no_record_that_is_not_on_the_disk(tmp_path: Path) -> None:
    """A round of the queues flushes the log first, however far away its own round is."""
    root, never_ms = tmp_path / "a.store", 1_000_000
    with rmqstore.open(
        root,
        commit_log_file_size_bytes=1 << 20,
        flush_commit_log_interval_ms=never_ms,
        flush_commit_log_thorough_interval_ms=never_ms,
        flush_consume_queue_interval_ms=5,
        flush_consume_queue_thorough_interval_ms=5,
    ) as store:
        store.put("topic", b"0")
        last = store.put("topic", b"1").physical_offset

        def has_followed() -> bool:
            found = checkpoint.decode((root / "checkpoint").read_bytes())
            return found.logics_physical_offset >= last

        spin_until(has_followed, "the checkpoint follows")
        assert store.flushed_offset > last
