"""A disk that fills under the store, and has room again."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import DiskError, Durability, Message, NotWritable, Receipt
from tests.crash.agreement import FILES, check_agreement

DISK_BYTES = 1 << 20
BALLAST_BYTES = 512 << 10
"""More than queues and index of all that fits beside it can take."""
SIZES = {**FILES, "consume_queue_file_size_bytes": 20_000, "index_entry_count": 2000}
PUTS_MAX = 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB with a ballast file, which a test removes to make room."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    (path / "ballast").write_bytes(bytes(BALLAST_BYTES))
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(
    store: rmqstore.Store, size: int, durability: Durability
) -> tuple[list[Receipt], NotWritable]:
    """Put until the disk refuses; return what was acknowledged and the refusal."""
    receipts: list[Receipt] = []
    for number in range(PUTS_MAX):
        try:
            receipts.append(
                store.put(
                    "orders",
                    (b"%06d" % number).ljust(size),
                    queue=number % 3,
                    keys=[f"k{number}"],
                    durability=durability,
                )
            )
        except NotWritable as error:
            return receipts, error
    pytest.fail("the disk never filled")


def check_all_there(store: rmqstore.Store, receipts: list[Receipt]) -> None:
    for number, receipt in enumerate(receipts):
        record = store.get("orders", queue=receipt.queue, offset=receipt.queue_offset)
        assert record.physical_offset == receipt.physical_offset
        assert record.body.startswith(b"%06d" % number)


@pytest.mark.parametrize("size", [6, 700, 20_000])
@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.DISK])
def test_full_disk_is_said_and_the_store_goes_on_once_there_is_room(
    durability: Durability, size: int, disk: Path
) -> None:
    with rmqstore.open(disk / "store", **SIZES) as store:
        receipts, refusal = fill(store, size, durability)
        assert isinstance(refusal.__cause__, DiskError)
        assert refusal.__cause__.errno == errno.ENOSPC
        assert "No space left" in str(refusal)
        assert refusal.stored is False
        end = store.end_offset
        with pytest.raises(NotWritable):
            store.put("orders", bytes(20_000))
        assert (
            store.end_offset == end or store.end_offset % FILES["commit_log_file_size_bytes"] == 0
        )
        assert store.failure is None
        (disk / "ballast").unlink()
        again = store.put("orders", b"again", durability=Durability.DISK)
        check_all_there(store, receipts)
        records = check_agreement(store)
        assert records[-1].body == b"again"
        assert again.physical_offset == records[-1].physical_offset
    with rmqstore.open(disk / "store") as store:
        assert store.recovery.was_closed
        check_all_there(store, receipts)
        check_agreement(store)


def test_full_disk_in_the_middle_of_put_many_names_what_was_stored(disk: Path) -> None:
    with rmqstore.open(disk / "store", **SIZES) as store:
        messages = [Message("orders", b"%06d" % i + bytes(500)) for i in range(2000)]
        with pytest.raises(NotWritable):
            store.put_many(messages)
        (disk / "ballast").unlink()
        stored = check_agreement(store)
        assert 0 < len(stored) < len(messages)
        expected = [each.body for each in messages[: len(stored)]]
        assert [bytes(each.body) for each in stored] == [bytes(each) for each in expected]


def test_process_that_died_on_a_full_disk_is_recovered_once_there_is_room(disk: Path) -> None:
    """Not before: a tmpfs wants room even for looking at the holes of a mapped file."""
    store = rmqstore.open(disk / "store", **SIZES)
    receipts, _ = fill(store, 700, Durability.MEMORY)
    store._abandon()
    (disk / "ballast").unlink()
    with rmqstore.open(disk / "store", **SIZES) as store:
        check_all_there(store, receipts)
        check_agreement(store)


def test_room_made_by_expiring_files_is_used(disk: Path) -> None:
    with rmqstore.open(disk / "store", **SIZES) as store:
        fill(store, 700, Durability.MEMORY)
        (disk / "ballast").unlink()
        store.wait_dispatched()
        receipts, _ = fill(store, 700, Durability.MEMORY)
        start = store.start_offset
        store.expire_files(2)
        assert store.start_offset > start
        again = store.put("orders", b"again")
        assert store.get("orders", offset=again.queue_offset).body == b"again"
        check_agreement(store)
        assert receipts
