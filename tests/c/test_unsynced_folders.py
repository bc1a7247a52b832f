"""Folders in which names were made without syncs, and the syncs that make these names durable."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.c.store_calls import DIRECTORY, FaultyDoor
from tests.support.disk_model import Effect, Kind, Recorder
from tests.support.waiting import spin_until


class Folders:
    """One struct rmq_unsynced_folders."""

    def __init__(self, core: Any) -> None:
        self.ffi, self.lib = core
        self.error = self.ffi.new("struct rmq_error *")
        self.folders = self.ffi.new("struct rmq_unsynced_folders *")
        self.lib.rmq_unsynced_folders_init(self.folders)

    def add(self, path: Path) -> None:
        added = self.lib.rmq_unsynced_folders_add(self.folders, bytes(path), self.error)
        assert added == self.lib.RMQ_OK

    def add_made(self, parent: Path, count: int) -> None:
        """Make folders and add them."""
        for number in range(count):
            path = parent / f"{number}"
            path.mkdir()
            self.add(path)

    def sync(self, vfs: Any) -> int:
        return int(self.lib.rmq_unsynced_folders_sync(self.folders, vfs, self.error))


@pytest.fixture
def folders(core: Any) -> Iterator[Folders]:
    made = Folders(core)
    yield made
    made.lib.rmq_unsynced_folders_destroy(made.folders)


@pytest.fixture
def recorder(core: Any, tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(core, tmp_path)
    yield made
    made.free()


def test_each_listed_folder_is_synced_once(
    folders: Folders, recorder: Recorder, tmp_path: Path
) -> None:
    for topic in "ab":
        for queue in "01":
            path = tmp_path / topic / queue
            path.mkdir(parents=True)
            for each in (path, path.parent, tmp_path):
                folders.add(each)

    assert folders.sync(recorder.vfs) == folders.lib.RMQ_OK
    assert recorder.effects() == [
        Effect(Kind.SYNC_DIRECTORY, path=path)
        for path in ("", "a", "a/0", "a/1", "b", "b/0", "b/1")
    ]
    assert folders.sync(recorder.vfs) == folders.lib.RMQ_OK
    assert len(recorder.effects()) == 7, "nothing was listed since"


def test_folder_that_is_gone_needs_no_sync(
    folders: Folders, recorder: Recorder, tmp_path: Path
) -> None:
    folders.add(tmp_path / "gone")
    folders.add(tmp_path)
    assert folders.sync(recorder.vfs) == folders.lib.RMQ_OK
    assert recorder.effects() == [Effect(Kind.SYNC_DIRECTORY)]


def test_failing_sync_of_a_folder_is_reported(folders: Folders, tmp_path: Path) -> None:
    lib = folders.lib
    vfs = lib.rmq_vfs_fault_new()
    try:
        folders.add(tmp_path)
        lib.rmq_vfs_fault_arm(vfs, lib.RMQ_CALL_DIRECTORY, 0, 1, errno.EIO, 0)
        assert folders.sync(vfs) == lib.RMQ_IO
        assert folders.error.os_errno == errno.EIO
    finally:
        lib.rmq_vfs_fault_free(vfs)


# -- many of them


MANY = 200
FEW = 10
"""Not worth threads."""


def test_many_folders_are_synced_by_several_threads(
    folders: Folders, door: FaultyDoor, tmp_path: Path
) -> None:
    folders.add_made(tmp_path, MANY)
    door.hold(DIRECTORY)
    with ThreadPoolExecutor(1) as pool:
        synced = pool.submit(folders.sync, door.vfs)
        spin_until(lambda: door.held == 8, "all threads at work")
        door.release()
        assert synced.result() == folders.lib.RMQ_OK
    assert door.count(DIRECTORY) == MANY


@pytest.mark.parametrize("first", [0, 100, MANY - 1])
def test_failing_sync_among_many_is_reported_and_all_are_listed_again(
    first: int, folders: Folders, door: FaultyDoor, tmp_path: Path
) -> None:
    folders.add_made(tmp_path, MANY)
    door.arm(DIRECTORY, first, errno.EIO)
    assert folders.sync(door.vfs) == folders.lib.RMQ_IO
    # The other threads go on until the failing one is heard.
    assert first < door.count(DIRECTORY) <= MANY
    door.disarm()
    assert folders.sync(door.vfs) == folders.lib.RMQ_OK
    assert door.count(DIRECTORY) == MANY


@pytest.mark.parametrize("first", [0, 5, FEW - 1])
def test_failing_sync_among_few_is_the_last_one(
    first: int, folders: Folders, door: FaultyDoor, tmp_path: Path
) -> None:
    folders.add_made(tmp_path, FEW)
    door.arm(DIRECTORY, first, errno.EIO)
    assert folders.sync(door.vfs) == folders.lib.RMQ_IO
    assert door.count(DIRECTORY) == first + 1
    door.disarm()
    assert folders.sync(door.vfs) == folders.lib.RMQ_OK
    assert door.count(DIRECTORY) == FEW


def test_failure_counts_more_than_the_want_of_a_descriptor(
    core: Any, folders: Folders, door: FaultyDoor, tmp_path: Path
) -> None:
    ffi, lib = core
    both = threading.Barrier(8, timeout=60)

    @ffi.callback("int(void *, size_t, struct rmq_error *)")
    def work(context: Any, item: int, error: Any) -> int:
        if item >= 8:
            return int(lib.RMQ_OK)
        number = both.wait()
        error.status = lib.RMQ_IO
        error.os_errno = errno.EIO if number == 3 else errno.EMFILE
        return int(lib.RMQ_IO)

    for _ in range(5):
        error = ffi.new("struct rmq_error *")
        assert lib.rmq_for_each(MANY, work, ffi.NULL, error) == lib.RMQ_IO
        assert error.os_errno == errno.EIO
