"""A walk checked by a second thread finds what a plain one finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore

FILE_SIZE = 1 << 20
FILES = 5
BODY = 3000
EVERYTHING = (1 << 63) - 1
CHECK_CRC_AND_PLACE = 1 | 8

Found = tuple[list[int], int, int, str]


@pytest.fixture(scope="module")
def whole_log(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a log of some megabytes, over the bound from which a thread is made."""
    root = tmp_path_factory.mktemp("store")
    body = random.Random(1).randbytes(BODY)
    with rmqstore.open(root, commit_log_file_size_bytes=FILE_SIZE) as store:
        while store.end_offset < FILE_SIZE * FILES - FILE_SIZE // 2:
            store.put_many([body] * 10, topic="t")
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


@contextmanager
def opened(core: Any, path: Path) -> Iterator[Any]:
    ffi, lib = core
    error = ffi.new("struct rmq_error *")
    name = ffi.new("char[]", bytes(path))
    options = ffi.new("struct rmq_file_queue_options *")
    directories = ffi.new("char *[1]", [name])

    options.vfs = lib.rmq_vfs_posix()
    options.directories = ffi.cast("const char *const *", directories)
    options.directory_count = 1
    options.file_size = FILE_SIZE
    options.window = 4096
    options.read_only = True

    files = ffi.new("struct rmq_file_queue *")
    assert lib.rmq_file_queue_open(files, options, error) == 0, ffi.string(error.detail)

    try:
        yield files
    finally:
        lib.rmq_file_queue_close(files)


def walk_plainly(core: Any, files: Any, start: int) -> Found:
    ffi, lib = core
    scan = ffi.new("struct rmq_scan *")
    record, error = ffi.new("struct rmq_record *"), ffi.new("struct rmq_error *")
    lib.rmq_scan_begin(scan, files, start, EVERYTHING, CHECK_CRC_AND_PLACE)
    offsets = []
    while lib.rmq_scan_next(scan, record, error) == 0:
        offsets.append(record.physical_offset)
    found = offsets, scan.offset, scan.verdict, bytes(ffi.string(scan.error.detail)).decode()
    lib.rmq_scan_finish(scan)
    return found


def walk_ahead(core: Any, files: Any, start: int, *, is_repeated: bool = False) -> Found:
    ffi, lib = core
    ahead = ffi.new("struct rmq_scan_ahead *")
    record, error = ffi.new("struct rmq_record *"), ffi.new("struct rmq_error *")
    end = files.end_offset
    lib.rmq_scan_ahead_begin(ahead, files, start, end, CHECK_CRC_AND_PLACE, is_repeated)
    assert ahead.has_thread == (end - start >= 64 << 10)
    offsets = []
    while lib.rmq_scan_ahead_next(ahead, record, error) == 0:
        offsets.append(record.physical_offset)
    scan = ahead.scan
    found = offsets, scan.offset, scan.verdict, bytes(ffi.string(scan.error.detail)).decode()
    lib.rmq_scan_ahead_finish(ahead)
    return found


@pytest.mark.parametrize("start", [0, FILE_SIZE, FILE_SIZE * FILES - 4096])
def test_whole_log_is_walked_to_its_end(
    core: Any, tmp_path: Path, whole_log: dict[str, bytes], start: int
) -> None:
    for name, data in whole_log.items():
        (tmp_path / name).write_bytes(data)
    with opened(core, tmp_path) as files:
        assert walk_ahead(core, files, start) == walk_plainly(core, files, start)


@pytest.mark.parametrize("seed", range(20))
def test_walk_ends_at_the_same_damage_with_the_same_words(
    core: Any, tmp_path: Path, whole_log: dict[str, bytes], seed: int
) -> None:
    chance = random.Random(seed)
    victim = chance.choice(sorted(whole_log)[:-1])
    for name, data in whole_log.items():
        if name == victim:
            at = chance.randrange(len(data) - BODY)
            data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        (tmp_path / name).write_bytes(data)
    with opened(core, tmp_path) as files:
        assert walk_ahead(core, files, 0) == walk_plainly(core, files, 0)


def test_walk_given_up_in_the_middle_ends_its_thread(
    core: Any, tmp_path: Path, whole_log: dict[str, bytes]
) -> None:
    ffi, lib = core
    for name, data in whole_log.items():
        (tmp_path / name).write_bytes(data)
    with opened(core, tmp_path) as files:
        ahead = ffi.new("struct rmq_scan_ahead *")
        record, error = ffi.new("struct rmq_record *"), ffi.new("struct rmq_error *")
        lib.rmq_scan_ahead_begin(ahead, files, 0, files.end_offset, CHECK_CRC_AND_PLACE, False)
        assert lib.rmq_scan_ahead_next(ahead, record, error) == 0
        lib.rmq_scan_ahead_finish(ahead)
        assert ahead.scan.file == ffi.NULL
        assert ahead.front.file == ffi.NULL


def mapped_kb(path: Path) -> int:
    """Return how much of a file is in the page tables of this process."""
    lines = iter(Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(each.split()[1]) for each in lines if each.startswith("Rss:"))
    raise LookupError(path)


@pytest.mark.parametrize("is_repeated", [True, False])
def test_pages_stay_mapped_only_for_a_walk_that_follows(
    core: Any, tmp_path: Path, whole_log: dict[str, bytes], is_repeated: bool
) -> None:
    for name, data in whole_log.items():
        (tmp_path / name).write_bytes(data)
    with opened(core, tmp_path) as files:
        walk_ahead(core, files, 0, is_repeated=is_repeated)
        sizes = [mapped_kb(tmp_path / name) for name in whole_log]
        assert all(size > 0 for size in sizes) if is_repeated else not any(sizes)
