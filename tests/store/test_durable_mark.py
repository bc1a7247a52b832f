"""What a writer shows to readers of other processes: up to where its log is on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import Durability
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


@pytest.mark.parametrize("compatibility", ["auto", "5.3", "5.5"])
def test_the_checkpoint_vouches_for_no_queue_page_that_was_not_flushed(
    compatibility: str, tmp_path: Path
) -> None:
    """Only the bytes of 5.3, which a user has to ask for, do as 5.3 does."""
    root, never_ms = tmp_path / "a.store", 1_000_000
    with rmqstore.open(
        root,
        compatibility=compatibility,
        commit_log_file_size_bytes=1 << 20,
        flush_consume_queue_interval_ms=never_ms,
        flush_consume_queue_thorough_interval_ms=never_ms,
    ) as store:

        def is_log_noted() -> bool:
            store.put("topic", b"0", durability=Durability.DISK)
            return checkpoint.decode((root / "checkpoint").read_bytes()).physic_timestamp > 0

        spin_until(is_log_noted, "the checkpoint names a flushed record")
        found = checkpoint.decode((root / "checkpoint").read_bytes())
    assert (found.logics_timestamp > 0) == (compatibility == "5.3")
    assert found.logics_physical_offset == 0
