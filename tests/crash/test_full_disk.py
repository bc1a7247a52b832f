"""A disk that fills under the store, and has room again."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import DiskError, Durability, Message, NotWritable, Receipt
from tests.crash.disk import LoopDisk, fill_up, run, small_tmpfs, unmount
from tests.support.agreement import FILES, check_agreement
from tests.support.effort import rounds

DISK_BYTES = 1 << 20
BALLAST_BYTES = 512 << 10
"""More than queues and index of all that fits beside it can take."""
SIZES = {
    **FILES,
    "consume_queue_file_size_bytes": 20_000,
    "index_entry_count": 2000,
}
PUTS_MAX = 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB with a ballast file, which a test removes to make room."""
    with small_tmpfs(tmp_path / "disk", DISK_BYTES) as path:
        (path / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield path


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


def refused_end(store: rmqstore.Store) -> int:
    """Put large messages until one is refused; return where the log ended before that one.

    A refusal for the room of queues may be over by now, and then some fit.
    """
    for _ in range(PUTS_MAX):
        end = store.end_offset
        try:
            store.put("orders", bytes(20_000))
        except NotWritable:
            return end
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
        check_refusal(refusal)
        assert "No space left" in str(refusal)
        end = refused_end(store)
        assert (
            store.end_offset == end or store.end_offset % FILES["commit_log_file_size_bytes"] == 0
        )
        (disk / "ballast").unlink()
        again = store.put("orders", b"again", durability=Durability.DISK)
        check_all_there(store, receipts)
        assert store.failure is None
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
    store.abandon()
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


def check_refusal(refusal: NotWritable) -> None:
    assert isinstance(refusal.__cause__, DiskError)
    assert refusal.__cause__.errno == errno.ENOSPC
    assert refusal.stored is False


class Load:
    """Threads that put as long as they are let, and count what was acknowledged and refused."""

    def __init__(self, store: rmqstore.Store) -> None:
        self.store = store
        self.stop = threading.Event()
        self.changed = threading.Condition()
        self.refused = 0
        self.acknowledged: list[tuple[Receipt, bytes]] = []
        self.unexpected: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(3)]
        for thread in self.threads:
            thread.start()

    def _run(self, queue: int) -> None:
        try:
            rng = random.Random(queue)
            number = 0
            while not self.stop.is_set():
                number += 1
                self._put(queue, number, rng)
        except BaseException as error:
            with self.changed:
                self.unexpected.append(error)
                self.changed.notify_all()

    def _put(self, queue: int, number: int, rng: random.Random) -> None:
        body = (b"%d:%06d:" % (queue, number)).ljust(rng.choice((10, 500, 5000)))
        durability = rng.choice((Durability.MEMORY, Durability.DISK))
        try:
            receipt = self.store.put("orders", body, queue=queue, durability=durability)
        except NotWritable as error:
            if "diskSpaceWarningLevelRatio" not in str(error):
                check_refusal(error)
            with self.changed:
                self.refused += 1
                self.changed.notify_all()
            self.stop.wait(0.001)
        else:
            with self.changed:
                self.acknowledged.append((receipt, body))
                self.changed.notify_all()

    def reaches(self, *, refused: int = 0, acknowledged: int = 0, timeout: float = 60) -> bool:
        """Whether so many more puts are refused and acknowledged in time."""
        with self.changed:
            goals = self.refused + refused, len(self.acknowledged) + acknowledged
            reached = self.changed.wait_for(
                lambda: (
                    self.unexpected
                    or (self.refused >= goals[0] and len(self.acknowledged) >= goals[1])
                ),
                timeout=timeout,
            )
        assert not self.unexpected, self.unexpected
        return bool(reached)

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


def test_disk_that_fills_and_empties_under_load_loses_nothing_acknowledged(disk: Path) -> None:
    # The retention timer refuses puts as well when it finds the disk full, until it looks again.
    with rmqstore.open(disk / "store", clean_interval_ms=20, **SIZES) as store:
        load = Load(store)
        try:
            for _ in range(rounds(10, 500)):
                fill_up(disk / "ballast")
                assert load.reaches(refused=5)
                (disk / "ballast").unlink()
                assert goes_on(store, load)
        finally:
            load.end()
        # Queues need room for what the log took last.
        store.expire_files(max(0, len(store._files()) - 4))
        store.wait_dispatched()
        assert store.failure is None
        check_acknowledged(store, load)
        check_agreement(store)
    with rmqstore.open(disk / "store") as store:
        assert store.recovery.was_closed
        check_acknowledged(store, load)
        check_agreement(store)


def goes_on(store: rmqstore.Store, load: Load) -> bool:
    """Whether puts go on once there is room: the load may fill the disk all by itself."""
    for _ in range(60):
        store.expire_files(max(0, len(store._files()) - 4))
        if load.reaches(acknowledged=10, timeout=1):
            return True
    return False


def check_acknowledged(store: rmqstore.Store, load: Load) -> None:
    kept = [each for each in load.acknowledged if each[0].physical_offset >= store.start_offset]
    assert kept
    for receipt, body in kept:
        found = store.get("orders", queue=receipt.queue, offset=receipt.queue_offset)
        assert found.body == body


def test_reader_in_another_process_survives_a_full_disk(disk: Path) -> None:
    """It looks behind the end of what was written, where a file on a full tmpfs has holes."""
    program = (
        "import rmqstore, sys\n"
        "with rmqstore.open(sys.argv[1], read_only=True) as store:\n"
        "    for _ in range(3):\n"
        "        store.refresh()\n"
        "    print(sum(len(queue) for queue in store.queues()), len(list(store.scan_log())))\n"
    )
    with rmqstore.open(disk / "store", **SIZES) as store:
        receipts = [store.put("orders", bytes(700), keys=[f"k{i}"]) for i in range(100)]
        store.wait_dispatched()
        fill_up(disk / "ballast")
        done = subprocess.run(
            [sys.executable, "-c", program, str(disk / "store")], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"
        assert done.stdout.split() == [str(len(receipts))] * 2


def test_queue_without_room_is_said_and_its_messages_are_there_once_there_is_room(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = rmqstore.open(disk / "store", **SIZES)
    old = store.put("old", b"1")
    store.wait_dispatched()
    fill_up(disk / "more")
    receipt = store.put("new", b"2")
    with pytest.raises(DiskError, match=r"stored.*consumequeue.*needs .* more bytes"):
        store.get("new", offset=receipt.queue_offset)
    assert store.get("old", offset=old.queue_offset).body == b"1"
    assert isinstance(store.failure, DiskError)
    assert store.failure.errno == errno.ENOSPC
    with pytest.raises(DiskError, match="once there is room"):
        store.wait_dispatched()
    (disk / "more").unlink()
    assert store.get("new", offset=receipt.queue_offset).body == b"2"
    assert store.failure is None

    fill_up(disk / "more")
    # A log file made ahead is removed when the store closes; these queues need more room than that.
    count = 2 * SIZES["commit_log_file_size_bytes"] // SIZES["consume_queue_file_size_bytes"]
    store.put_many([Message(f"third-{number}", b"3") for number in range(count)])
    with caplog.at_level("WARNING", logger="rmqstore"):
        store.close()
    assert "once there is room" in caplog.text
    (disk / "more").unlink()
    with rmqstore.open(disk / "store", **SIZES) as store:
        assert store.get("third-0", offset=0).body == b"3"


def test_puts_take_no_room_while_queues_wait_for_it(disk: Path) -> None:
    """The log has room reserved; what a put takes of it would have no room in a queue either."""
    with rmqstore.open(disk / "store", **SIZES) as store:
        store.put("old", b"1")
        store.wait_dispatched()
        fill_up(disk / "more")
        waiting = store.put("new", b"2")
        with pytest.raises(DiskError):
            store.wait_dispatched()
        end = store.end_offset
        with pytest.raises(NotWritable, match="once there is room") as caught:
            store.put("old", b"3")
        check_refusal(caught.value)
        assert caught.value.retriable
        assert store.end_offset == end
        (disk / "more").unlink()
        again = store.put("old", b"3")
        assert store.get("new", offset=waiting.queue_offset).body == b"2"
        assert store.get("old", offset=again.queue_offset).body == b"3"


SMALL_BLOCKS = """
import os, sys, rmqstore
store = rmqstore.open(sys.argv[1])
try:
    for number in range(int(sys.argv[2])):
        store.put("t", bytes(100))
except rmqstore.NotWritable as error:
    print(error)
os._exit(0)
"""
TINY = {
    "commit_log_file_size_bytes": 1 << 20,
    "consume_queue_file_size_bytes": 2000,
    "index_slot_count": 10,
    "index_entry_count": 40,
}


@pytest.fixture
def small_blocks(tmp_path: Path) -> Iterator[Path]:
    """A file system whose blocks are smaller than a page of memory."""
    disk = LoopDisk(tmp_path, 8 << 20, block_bytes=1024)
    yield disk.path
    unmount(disk.path)


def leave_free(path: Path, free_bytes: int) -> None:
    usage = os.statvfs(path)
    with (path / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, usage.f_bavail * usage.f_frsize - free_bytes)


@pytest.mark.parametrize("free_kib", range(42, 46))
@pytest.mark.parametrize("is_copied", [False, True])
def test_full_disk_of_small_blocks_refuses_puts_and_kills_nobody(
    is_copied: bool, free_kib: int, small_blocks: Path, tmp_path: Path
) -> None:
    """A page of the mapping has several blocks there, and a copy may lack some of them."""
    path = small_blocks / "store"
    home = tmp_path / "store" if is_copied else path
    with rmqstore.open(home, **TINY) as store:
        for _ in range(5 if is_copied else 0):
            store.put("t", bytes(600), keys=["k"])
    if is_copied:
        run("cp", "-r", "--sparse=always", home, path)
    leave_free(small_blocks, free_kib << 10)
    command = [sys.executable, "-c", SMALL_BLOCKS, str(path), "10000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr}"
    assert "No space left" in done.stdout
    (small_blocks / "filler").unlink()
    with rmqstore.open(path) as store:
        check_agreement(store)
