"""What a writer tells those who read beside it: up to where its log is on the disk."""

from __future__ import annotations

import time
from pathlib import Path

import rmqstore
from tests.reference import checkpoint

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
            deadline = time.monotonic() + WAIT_SECONDS
            while _mark(tmp_path / "a.store") < store.end_offset:
                assert time.monotonic() < deadline, "the mark does not follow"
            assert _mark(tmp_path / "a.store") <= store.flushed_offset
