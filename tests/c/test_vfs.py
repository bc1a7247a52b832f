"""The door to the file system, and its twins."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WRITE, CREATE, EXCLUSIVE = 1, 2, 4
PAGE = 4096

HOLD_LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


class Door:
    """Calls through a struct rmq_vfs; each call returns its status and keeps its error."""

    def __init__(self, core: Any, vfs: Any) -> None:
        self.ffi, self.lib = core
        self.vfs = vfs
        self.error = self.ffi.new("struct rmq_error *")

    def call(self, name: str, *arguments: Any) -> int:
        given = [bytes(value) if isinstance(value, Path) else value for value in arguments]
        kept = [self.ffi.new("char[]", v) if isinstance(v, bytes) else v for v in given]
        status: int = getattr(self.vfs, name)(self.vfs, *kept, self.error)
        return status

    def check(self, name: str, *arguments: Any) -> None:
        status = self.call(name, *arguments)
        assert status == self.lib.RMQ_OK, self.detail

    @property
    def detail(self) -> str:
        return bytes(self.ffi.string(self.error.detail)).decode()

    def open(self, path: Path, flags: int = WRITE | CREATE) -> int:
        fd = self.ffi.new("int *")
        self.check("open", path, flags, fd)
        return int(fd[0])

    def read(self, fd: int, size: int, at: int) -> bytes:
        buffer, got = self.ffi.new("uint8_t[]", size), self.ffi.new("size_t *")
        self.check("read", fd, buffer, size, at, got)
        return bytes(self.ffi.buffer(buffer, got[0]))

    def number(self, name: str, *arguments: Any) -> int:
        out = self.ffi.new("int64_t *")
        self.check(name, *arguments, out)
        return int(out[0])

    def map(self, fd: int, size: int, *, writable: bool) -> Any:
        base = self.ffi.new("uint8_t **")
        self.check("map", fd, size, writable, base)
        return base[0]

    def names(self, path: Path, *, stop_with: int = 0) -> tuple[int, dict[str, bool]]:
        found: dict[str, bool] = {}

        def visit(context: Any, name: Any, is_directory: bool) -> int:
            found[self.ffi.string(name).decode()] = is_directory
            return stop_with

        callback = self.ffi.callback("rmq_list_visit", visit)
        return self.call("list", path, callback, self.ffi.NULL), found


@pytest.fixture(params=["posix", "fault", "record"])
def door(core: Any, request: pytest.FixtureRequest) -> Iterator[Door]:
    """Return each door in turn: the faulty one, not armed, and the recording one must behave like
    the real one.
    """
    _, lib = core
    if request.param == "posix":
        yield Door(core, lib.rmq_vfs_posix())
        return
    if request.param == "record":
        vfs = lib.rmq_vfs_record_new(lib.rmq_vfs_posix())
        yield Door(core, vfs)
        lib.rmq_vfs_record_free(vfs)
        return
    vfs = lib.rmq_vfs_fault_new()
    yield Door(core, vfs)
    lib.rmq_vfs_fault_free(vfs)


@pytest.fixture
def fault(core: Any) -> Iterator[Door]:
    _, lib = core
    vfs = lib.rmq_vfs_fault_new()
    yield Door(core, vfs)
    lib.rmq_vfs_fault_free(vfs)


# ---- files ----


def test_written_bytes_are_read_back_up_to_the_end_of_the_file(door: Door, tmp_path: Path) -> None:
    fd = door.open(tmp_path / "f")
    door.check("write", fd, b"hello", 5, 3)
    assert door.read(fd, 100, 0) == b"\0\0\0hello"
    assert door.read(fd, 2, 4) == b"el"
    assert door.read(fd, 10, 99) == b""
    door.check("sync", fd)
    door.check("close", fd)
    assert (tmp_path / "f").read_bytes() == b"\0\0\0hello"


def test_descriptors_do_not_reach_other_programs(door: Door, tmp_path: Path) -> None:
    fd = door.open(tmp_path / "f")
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    door.check("close", fd)


def test_missing_names_are_not_found(door: Door, tmp_path: Path) -> None:
    gone = tmp_path / "no" / "f"
    fd, info = door.ffi.new("int *"), door.ffi.new("struct rmq_file_info *")

    calls: list[tuple[Any, ...]] = [
        ("open", gone, WRITE | CREATE, fd),
        ("open", tmp_path / "f", WRITE, fd),
        ("stat", gone, info),
        ("unlink", gone),
        ("rename", gone, tmp_path / "f"),
        ("remove_directory", gone),
        ("sync_directory", gone),
    ]

    for name, *arguments in calls:
        assert door.call(name, *arguments) == door.lib.RMQ_NOT_FOUND, name
        assert (door.error.status, door.error.os_errno) == (door.lib.RMQ_NOT_FOUND, errno.ENOENT)

    assert door.names(gone)[0] == door.lib.RMQ_NOT_FOUND
    assert str(gone) in door.detail


def test_exclusive_creation_refuses_a_file_that_is_there(door: Door, tmp_path: Path) -> None:
    flags = WRITE | CREATE | EXCLUSIVE
    door.check("close", door.open(tmp_path / "f", flags))
    assert door.call("open", tmp_path / "f", flags, door.ffi.new("int *")) == door.lib.RMQ_IO
    assert door.error.os_errno == errno.EEXIST


def test_read_only_descriptor_refuses_a_write_and_names_the_place(
    door: Door, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"x")
    fd = door.open(tmp_path / "f", 0)
    assert door.call("write", fd, b"y", 1, 17) == door.lib.RMQ_IO
    assert (door.error.os_errno, door.error.at_offset) == (errno.EBADF, 17)
    assert door.detail == f"write 1 bytes at 17 of {tmp_path}/f: Bad file descriptor"
    door.check("close", fd)


def test_full_device_is_no_space(door: Door, tmp_path: Path) -> None:
    # The door opens regular files only: a device takes the number of one.
    fd = door.open(tmp_path / "f")
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, fd)
    os.close(full)
    assert door.call("write", fd, b"y", 1, 0) == door.lib.RMQ_NO_SPACE
    door.check("close", fd)


@pytest.mark.parametrize("flags", [0, WRITE])
def test_what_is_no_regular_file_is_refused_by_name(door: Door, tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        fd = door.ffi.new("int *")
        status = door.call("open", path, flags, fd)
        assert (status, fd[0]) == (door.lib.RMQ_CORRUPT, -1)


def test_stat_tells_size_kind_and_time(door: Door, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_999_999))
    info = door.ffi.new("struct rmq_file_info *")
    door.check("stat", tmp_path / "f", info)
    assert (info.size, info.modified_ms, info.is_directory) == (5, 1_700_000_000_123, False)
    door.check("stat", tmp_path, info)
    assert info.is_directory


def test_resize_cuts_and_extends_with_zeros(door: Door, tmp_path: Path) -> None:
    fd = door.open(tmp_path / "f")
    door.check("write", fd, b"hello", 5, 0)
    door.check("resize", fd, 2)
    door.check("resize", fd, 4)
    assert door.read(fd, 10, 0) == b"he\0\0"
    door.check("close", fd)


def test_allocation_takes_blocks_and_changes_no_byte(door: Door, tmp_path: Path) -> None:
    fd = door.open(tmp_path / "f")
    size = 64 * PAGE
    door.check("resize", fd, size)
    door.check("write", fd, b"data", 4, 10)
    door.check("allocate", fd, PAGE, size - PAGE)
    door.check("allocate", fd, PAGE, 0)
    status = os.fstat(fd)
    assert status.st_size == size
    assert status.st_blocks * 512 >= size
    assert door.read(fd, size, 0) == bytes(10) + b"data" + bytes(size - 14)
    door.check("close", fd)


def test_zeroed_range_reads_as_zeros_and_its_neighbours_stay(door: Door, tmp_path: Path) -> None:
    fd = door.open(tmp_path / "f")
    data = os.urandom(8 * PAGE)
    door.check("write", fd, data, len(data), 0)
    door.check("zero", fd, 100, 5 * PAGE)
    door.check("zero", fd, 8 * PAGE - 1, 10 * PAGE)
    end = 100 + 5 * PAGE
    assert door.read(fd, 20 * PAGE, 0) == (
        data[:100] + bytes(5 * PAGE) + data[end : 8 * PAGE - 1] + b"\0"
    )
    door.check("close", fd)


def test_data_behind_a_hole_is_found(door: Door, tmp_path: Path) -> None:
    fd = door.open(tmp_path / "f")
    size = 1 << 22
    door.check("resize", fd, size)
    door.check("write", fd, b"x", 1, 1 << 21)
    assert 0 <= door.number("next_data", fd, 0) <= 1 << 21
    assert door.number("next_data", fd, 1 << 21) == 1 << 21
    assert door.number("next_data", fd, size) == size
    door.check("zero", fd, 0, size)
    assert door.number("next_data", fd, 5) in (5, size)
    door.check("close", fd)


# ---- mappings ----


def test_stores_through_a_mapping_reach_the_file(door: Door, tmp_path: Path) -> None:
    fd = door.open(tmp_path / "f")
    door.check("resize", fd, 2 * PAGE)
    base = door.map(fd, 2 * PAGE, writable=True)
    door.check("close", fd)
    door.ffi.memmove(base + PAGE - 2, b"abcd", 4)
    door.check("sync_map", base, 2 * PAGE)
    assert (tmp_path / "f").read_bytes()[PAGE - 2 : PAGE + 2] == b"abcd"
    door.check("unmap", base, 2 * PAGE)


@pytest.mark.parametrize(
    "advice", ["WILL_NEED", "SEQUENTIAL", "DONT_NEED", "POPULATE_WRITE", "LOCK", "UNLOCK"]
)
def test_advice_on_an_unaligned_range_keeps_the_bytes(
    door: Door, tmp_path: Path, advice: str
) -> None:
    fd = door.open(tmp_path / "f")
    data = os.urandom(4 * PAGE)
    door.check("write", fd, data, len(data), 0)
    base = door.map(fd, len(data), writable=True)
    door.check("advise", base + 100, 2 * PAGE, getattr(door.lib, f"RMQ_ADVISE_{advice}"))
    assert bytes(door.ffi.buffer(base, len(data))) == data
    door.check("unmap", base, len(data))
    door.check("close", fd)


# ---- folders ----


def test_folders_are_made_with_their_parents(door: Door, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    door.check("make_directory", deep)
    door.check("make_directory", deep)
    door.check("make_directory", bytes(tmp_path) + b"/a//d/")
    door.check("sync_directory", deep)
    assert deep.is_dir()
    assert (tmp_path / "a" / "d").is_dir()


def test_folder_without_a_sync_needs_its_parent(door: Door, tmp_path: Path) -> None:
    made = tmp_path / "a" / "b"
    assert door.call("make_unsynced_directory", made) == door.lib.RMQ_NOT_FOUND
    door.check("make_unsynced_directory", made.parent)
    door.check("make_unsynced_directory", made)
    door.check("make_unsynced_directory", made)
    assert made.is_dir()


def test_relative_folders_are_made(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    door.check("make_directory", b"x/y")
    assert (tmp_path / "x" / "y").is_dir()


@pytest.mark.parametrize("below", ["f", "f/g"])
def test_folder_in_place_of_a_file_is_refused(door: Door, tmp_path: Path, below: str) -> None:
    (tmp_path / "f").write_bytes(b"")
    for call in ("make_directory", "make_unsynced_directory"):
        assert door.call(call, tmp_path / below) == door.lib.RMQ_IO
        assert door.error.os_errno in (errno.EEXIST, errno.ENOTDIR)


def test_too_long_a_folder_name_is_refused(door: Door) -> None:
    assert door.call("make_directory", b"/" + b"x/" * 3000) == door.lib.RMQ_IO
    assert door.error.os_errno == errno.ENAMETOOLONG


def test_only_empty_folders_are_removed(door: Door, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert door.call("remove_directory", tmp_path / "a") == door.lib.RMQ_IO
    door.check("remove_directory", tmp_path / "a" / "b")
    door.check("remove_directory", tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_list_names_every_entry_once_and_follows_links(door: Door, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    status, found = door.names(tmp_path)
    assert status == door.lib.RMQ_OK
    assert found == {"folder": True, "file": False, "link": True, "dangling": False}


def test_visit_that_fails_ends_the_list(door: Door, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"")
    status, found = door.names(tmp_path, stop_with=door.lib.RMQ_NO_MEMORY)
    assert (status, len(found)) == (door.lib.RMQ_NO_MEMORY, 1)


def test_rename_replaces_and_unlink_removes(door: Door, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    door.check("rename", tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"a"
    door.check("unlink", tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_disk_usage_is_that_of_the_system(door: Door, tmp_path: Path) -> None:
    usage = door.ffi.new("struct rmq_disk_usage *")
    door.check("disk_usage", tmp_path, usage)
    system = os.statvfs(tmp_path)
    assert usage.total_bytes == system.f_blocks * system.f_frsize
    assert 0 <= usage.free_bytes <= usage.total_bytes


# ---- the lock ----


def test_lock_of_another_process_is_refused_with_its_pid(door: Door, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"")

    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        fd = door.open(path)
        holder = door.ffi.new("int64_t *")
        assert door.call("lock", fd, holder) == door.lib.RMQ_LOCKED
        assert holder[0] == other.pid
        assert str(other.pid) in door.detail
        other.communicate()

    door.check("lock", fd, holder)
    door.check("close", fd)


def test_lock_is_seen_by_other_processes_until_the_descriptor_is_closed(
    door: Door, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    fd = door.open(path)
    door.check("lock", fd, door.ffi.new("int64_t *"))
    attempt = (
        "import fcntl, os, sys\n"
        "fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
    )
    command = [sys.executable, "-c", attempt, str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    held = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert b"BlockingIOError" in held.stderr
    door.check("close", fd)
    assert subprocess.run(command, check=False, env=environment).returncode == 0


# ---- planned faults ----


def arm(door: Door, call: str, first: int, count: int, number: int, short: int = 0) -> None:
    kind = getattr(door.lib, f"RMQ_CALL_{call}")
    door.lib.rmq_vfs_fault_arm(door.vfs, kind, first, count, number, short)


def counted(door: Door, call: str) -> int:
    return int(door.lib.rmq_vfs_fault_count(door.vfs, getattr(door.lib, f"RMQ_CALL_{call}")))


def test_only_the_chosen_calls_fail(fault: Door, tmp_path: Path) -> None:
    fd = fault.open(tmp_path / "f")
    arm(fault, "WRITE", 1, 2, errno.EIO)
    statuses = [fault.call("write", fd, b"ab", 2, 0) for _ in range(4)]
    io = fault.lib.RMQ_IO
    assert statuses == [0, io, io, 0]
    assert (fault.error.status, fault.error.os_errno) == (io, errno.EIO)
    assert fault.detail.startswith("planned failure of write")
    fault.check("sync", fd)
    assert (counted(fault, "WRITE"), counted(fault, "SYNC"), counted(fault, "ANY")) == (4, 1, 5)
    arm(fault, "SYNC", 0, 1, errno.ENOSPC)
    assert counted(fault, "WRITE") == 0
    fault.check("write", fd, b"ab", 2, 0)
    assert fault.call("sync", fd) == fault.lib.RMQ_NO_SPACE
    fault.check("close", fd)


@pytest.mark.parametrize(("short", "stored"), [(0, b""), (2, b"ab"), (9, b"abcd")])
def test_failing_write_stores_its_first_bytes(
    fault: Door, tmp_path: Path, short: int, stored: bytes
) -> None:
    fd = fault.open(tmp_path / "f")
    arm(fault, "WRITE", 0, 1, errno.EIO, short)
    assert fault.call("write", fd, b"abcd", 4, 0) == fault.lib.RMQ_IO
    assert fault.read(fd, 10, 0) == stored
    fault.check("close", fd)


def test_any_call_can_be_the_one_that_fails(fault: Door, tmp_path: Path) -> None:
    path = tmp_path / "f"

    def steps() -> list[int]:
        fd = fault.ffi.new("int *", -1)
        statuses = [fault.call("open", path, WRITE | CREATE, fd)]
        if fd[0] >= 0:
            statuses.append(fault.call("resize", fd[0], 10))
            statuses.append(fault.call("allocate", fd[0], 0, 10))
            statuses.append(fault.call("sync", fd[0]))
            fault.check("close", fd[0])
        return [*statuses, fault.call("sync_directory", tmp_path)]

    arm(fault, "ANY", 0, 0, 0)
    assert steps() == [0, 0, 0, 0, 0]
    total = counted(fault, "ANY")
    assert total == 5
    failed = []
    for number in range(total):
        arm(fault, "ANY", number, 1, errno.EIO)
        failed.append([status != 0 for status in steps()].index(True))
    assert failed == [0, 1, 2, 3, 4]


def test_planned_missing_file_is_not_found(fault: Door, tmp_path: Path) -> None:
    arm(fault, "OPEN", 0, 1, errno.ENOENT)
    fd = fault.ffi.new("int *")
    assert fault.call("open", tmp_path / "f", WRITE | CREATE, fd) == fault.lib.RMQ_NOT_FOUND
    assert fault.error.status == fault.lib.RMQ_NOT_FOUND
