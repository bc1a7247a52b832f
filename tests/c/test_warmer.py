"""The warmer's thread keeps ahead of a writer, whatever its calls meet."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cffi
import pytest

from tests.c.store_calls import ALLOCATE, ANY, EVERY, WRITE, FaultyDoor
from tests.support.waiting import spin_until

MIB = 1 << 20
FILE_SIZE = 256 * MIB
AHEAD = 8 * MIB
WINDOW = MIB // 4


class Warmed:
    """A warmer of one large file, of which the test moves the end without storing anything."""

    def __init__(self, core: Any, root: Path, door: FaultyDoor) -> None:
        self.ffi, self.lib = core
        self.error = self.ffi.new("struct rmq_error *")
        self.kept = self.ffi.new("char[]", bytes(root))
        self.names = self.ffi.new("char *[]", [self.kept])
        options = self.ffi.new("struct rmq_file_queue_options *")
        options.vfs = door.vfs
        options.directories, options.directory_count = self.names, 1
        options.file_size, options.window = FILE_SIZE, 4096
        options.keep_descriptor = True
        self.files = self.ffi.new("struct rmq_file_queue *")
        self.check(self.lib.rmq_file_queue_open(self.files, options, self.error))
        self.check(self.lib.rmq_file_queue_roll(self.files, 0, self.ffi.NULL, self.error))
        self.warmer = self.ffi.new("struct rmq_warmer *")
        chosen = self.ffi.new("struct rmq_warmer_options *")
        self.check(self.lib.rmq_warmer_start(self.warmer, self.files, chosen, self.error))

    def check(self, status: int) -> None:
        assert status == self.lib.RMQ_OK, self.ffi.string(self.error.detail)

    def move_end(self, end: int) -> None:
        self.files.last.wrote = self.files.end_offset = end

    def follow(self, end: int) -> None:
        """Move the end, and return once pages ahead of it are ready."""
        self.move_end(end)
        self.lib.rmq_warmer_wake(self.warmer)
        spin_until(lambda: self.reserved >= end + AHEAD, "pages ahead of the writer")

    def store(self, at: int, data: bytes) -> int:
        arguments = self.files.last, at, data, len(data), self.error
        return int(self.lib.rmq_warmer_store(self.warmer, *arguments))

    @property
    def reserved(self) -> int:
        return int(self.files.last.reserved)

    def close(self) -> None:
        self.lib.rmq_warmer_stop(self.warmer)
        self.lib.rmq_file_queue_close(self.files)


@pytest.fixture
def warmed(core: Any, door: FaultyDoor, tmp_path: Path) -> Iterator[Warmed]:
    made = Warmed(core, tmp_path, door)
    yield made
    made.close()


def test_writer_that_passes_the_mark_before_the_thread_sleeps_is_not_waited_for(
    warmed: Warmed, door: FaultyDoor
) -> None:
    """The schedule: the round of the thread ends, the writer calls, then the thread would sleep."""
    libc = cffi.FFI()
    libc.cdef("int pthread_mutex_lock(void *mutex); int pthread_mutex_unlock(void *mutex);")
    threads = libc.dlopen(None)
    lock = libc.cast(
        "void *", int(warmed.ffi.cast("intptr_t", warmed.ffi.addressof(warmed.warmer, "lock")))
    )
    spin_until(lambda: warmed.reserved >= AHEAD, "the first round")

    door.hold(WRITE)
    warmed.move_end(5 * MIB)
    warmed.lib.rmq_warmer_wake(warmed.warmer)
    spin_until(lambda: door.held == 1, "a round with this end")
    threads.pthread_mutex_lock(lock)
    try:
        door.release()
        spin_until(lambda: warmed.warmer.wake_at == 5 * MIB + AHEAD // 2, "the mark of the round")
        warmed.move_end(20 * MIB)
        warmed.lib.rmq_warmer_wake(warmed.warmer)
    finally:
        threads.pthread_mutex_unlock(lock)
    spin_until(lambda: warmed.reserved >= 20 * MIB + AHEAD, "pages ahead of the writer")


def test_every_call_of_a_writer_is_followed(warmed: Warmed) -> None:
    for end in range(MIB, 200 * MIB, 5 * MIB):
        warmed.move_end(end)
        if end > warmed.warmer.wake_at:
            warmed.lib.rmq_warmer_wake(warmed.warmer)
        spin_until(lambda end=end: warmed.reserved >= end + AHEAD // 2, f"pages ahead of {end}")


def test_blocks_are_allocated_in_larger_ranges_than_zeros_are_written(
    warmed: Warmed, door: FaultyDoor
) -> None:
    warmed.follow(20 * MIB)
    assert 0 < door.count(ALLOCATE) <= 10
    assert door.count(WRITE) >= (20 * MIB + AHEAD) // WINDOW


def test_disk_without_room_for_larger_ranges_gives_what_is_needed(
    warmed: Warmed, door: FaultyDoor
) -> None:
    spin_until(lambda: warmed.reserved >= AHEAD, "the first round")
    door.arm(ALLOCATE, 0, errno.ENOSPC)
    warmed.follow(20 * MIB)
    assert door.count(ALLOCATE) >= 2, "the larger range was not refused"


def test_writer_has_pages_for_the_time_in_which_the_next_file_is_made(warmed: Warmed) -> None:
    warmed.move_end(40 * MIB)
    warmed.lib.rmq_warmer_wake(warmed.warmer)
    spin_until(lambda: warmed.warmer.prepared != warmed.ffi.NULL, "the next file")
    assert warmed.reserved >= 40 * MIB + 8 * AHEAD


def test_writer_has_pages_for_the_time_in_which_blocks_are_allocated(
    warmed: Warmed, door: FaultyDoor
) -> None:
    warmed.follow(10 * MIB)
    assert warmed.reserved + AHEAD < warmed.files.last.allocated
    allocated = int(warmed.files.last.allocated)
    end = allocated * 3 // 4

    door.hold(ALLOCATE)
    try:
        warmed.move_end(end)
        warmed.lib.rmq_warmer_wake(warmed.warmer)
        spin_until(lambda: door.held == 1, "an allocation before its blocks are needed")
        assert warmed.reserved > allocated - WINDOW, "all pages that have blocks are ready"
    finally:
        door.release()


# -- large appends


LARGE = 128 << 10


def test_large_appends_are_written_and_need_no_zeros_ahead(
    warmed: Warmed, door: FaultyDoor, tmp_path: Path
) -> None:
    spin_until(lambda: warmed.reserved >= AHEAD, "the first round")
    writes, end = door.count(WRITE), 0
    while end < 4 * AHEAD:
        assert warmed.store(end, bytes((end // LARGE % 255 + 1,)) * LARGE) == warmed.lib.RMQ_OK
        end += LARGE
        warmed.move_end(end)
        if end > warmed.warmer.wake_at:
            warmed.lib.rmq_warmer_wake(warmed.warmer)
    assert door.count(WRITE) - writes == 4 * AHEAD // LARGE
    assert warmed.reserved == end
    data = (tmp_path / f"{0:020}").read_bytes()[:end]
    assert data == b"".join(bytes((n % 255 + 1,)) * LARGE for n in range(end // LARGE))

    # Small appends need pages again.
    assert warmed.store(end, b"small") == warmed.lib.RMQ_OK
    warmed.move_end(end + 5)
    spin_until(lambda: warmed.reserved >= end + AHEAD, "pages ahead of small appends")


def test_large_append_that_fails_leaves_zeros(
    warmed: Warmed, door: FaultyDoor, tmp_path: Path
) -> None:
    spin_until(lambda: warmed.reserved >= AHEAD, "the first round")
    warmed.move_end(LARGE + 100)
    door.arm(WRITE, 0, errno.EIO, short=LARGE // 2)
    assert warmed.store(LARGE + 100, b"x" * LARGE) == warmed.lib.RMQ_IO
    assert (tmp_path / f"{0:020}").read_bytes()[:AHEAD] == bytes(AHEAD)
    assert warmed.store(LARGE + 100, b"y" * LARGE) == warmed.lib.RMQ_OK


def test_large_append_that_cannot_be_taken_back_ends_the_writing(
    warmed: Warmed, door: FaultyDoor
) -> None:
    spin_until(lambda: warmed.reserved >= AHEAD, "the first round")
    door.arm(ANY, 0, errno.EIO, count=EVERY, short=LARGE // 2)
    assert warmed.store(0, b"x" * LARGE) == warmed.lib.RMQ_NOT_WRITABLE
