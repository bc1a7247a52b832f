"""The checkpoint and the abort marker."""

from __future__ import annotations

import errno
import os
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from tests.golden import GoldenCases, every_case
from tests.reference import checkpoint as reference
from tests.reference.checkpoint import Checkpoint

FIELDS = (
    "physic_timestamp",
    "logics_timestamp",
    "index_timestamp",
    "master_flushed_offset",
    "confirm_offset",
    "logics_physical_offset",
    "flushed_offset",
)
SAMPLE = Checkpoint(
    physic_timestamp=1_700_000_000_001,
    logics_timestamp=1_700_000_000_002,
    index_timestamp=1_700_000_000_003,
    master_flushed_offset=-4,
    confirm_offset=(1 << 62) + 5,
    logics_physical_offset=6,
    flushed_offset=7,
)


def read(core: Any, path: Path) -> Checkpoint | None:
    ffi, lib = core
    native = ffi.new("struct rmq_checkpoint *")
    error = ffi.new("struct rmq_error *")
    found = ffi.new("bool *")
    status = lib.rmq_checkpoint_read(lib.rmq_vfs_posix(), bytes(path), native, found, error)
    assert status == 0, ffi.string(error.detail)
    values = Checkpoint(**{name: getattr(native, name) for name in FIELDS})
    if not found[0]:
        assert values == Checkpoint()
        return None
    return values


def write(core: Any, path: Path, checkpoint: Checkpoint, *, vfs: Any = None) -> int:
    ffi, lib = core
    native = ffi.new("struct rmq_checkpoint *", astuple(checkpoint))
    error = ffi.new("struct rmq_error *")
    status: int = lib.rmq_checkpoint_write(vfs or lib.rmq_vfs_posix(), bytes(path), native, error)
    return status


def abort(core: Any, name: str, path: Path) -> None:
    ffi, lib = core
    error = ffi.new("struct rmq_error *")
    status = getattr(lib, f"rmq_abort_{name}")(lib.rmq_vfs_posix(), bytes(path), error)
    assert status == 0, ffi.string(error.detail)


def abort_exists(core: Any, path: Path) -> bool:
    ffi, lib = core
    exists = ffi.new("bool *")
    assert lib.rmq_abort_exists(lib.rmq_vfs_posix(), bytes(path), exists, ffi.NULL) == 0
    return bool(exists[0])


def test_written_checkpoint_is_the_bytes_of_the_reference(core: Any, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert write(core, path, SAMPLE) == 0
    assert path.read_bytes() == SAMPLE.encode()
    assert read(core, path) == SAMPLE


def test_missing_checkpoint_is_not_found_and_all_zero(core: Any, tmp_path: Path) -> None:
    assert read(core, tmp_path / "checkpoint") is None
    assert read(core, tmp_path / "folder" / "checkpoint") is None


@pytest.mark.parametrize("size", [0, 1, 47])
def test_cut_checkpoint_counts_as_missing_and_is_made_whole_by_the_next_write(
    core: Any, tmp_path: Path, size: int
) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(SAMPLE.encode()[:size])
    assert read(core, path) is None
    assert write(core, path, SAMPLE) == 0
    assert path.read_bytes() == SAMPLE.encode()


def test_bytes_behind_the_fields_stay(core: Any, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(Checkpoint().encode()[:48] + b"\7" * 5000)
    assert write(core, path, SAMPLE) == 0
    assert path.read_bytes() == SAMPLE.encode()[:60] + b"\7" * 4988
    assert write(core, path, replace(SAMPLE, flushed_offset=-1)) == 0
    assert path.read_bytes() == SAMPLE.encode()[:48] + bytes(12) + b"\7" * 4988


@pytest.mark.parametrize("at", range(60))
def test_mark_counts_as_missing_once_any_byte_before_it_was_written_by_another(
    core: Any, tmp_path: Path, at: int
) -> None:
    path = tmp_path / "checkpoint"
    data = bytearray(SAMPLE.encode())
    data[at] ^= 1
    path.write_bytes(data)
    found = read(core, path)
    assert found is not None
    assert found.flushed_offset == -1
    assert found == reference.decode(bytes(data))


def test_folder_in_place_of_the_checkpoint_is_named(core: Any, tmp_path: Path) -> None:
    ffi, lib = core
    path = tmp_path / "checkpoint"
    path.mkdir()
    native = ffi.new("struct rmq_checkpoint *")
    error = ffi.new("struct rmq_error *")
    status = lib.rmq_checkpoint_write(lib.rmq_vfs_posix(), bytes(path), native, error)
    assert status == lib.RMQ_CORRUPT
    assert b"checkpoint is a folder" in ffi.string(error.detail)


def test_published_checkpoint_needs_a_file_and_no_sync(core: Any, tmp_path: Path) -> None:
    ffi, lib = core
    path = tmp_path / "checkpoint"
    native = ffi.new("struct rmq_checkpoint *", astuple(SAMPLE))
    error = ffi.new("struct rmq_error *")
    publish = lib.rmq_checkpoint_publish
    assert publish(lib.rmq_vfs_posix(), bytes(path), native, error) == lib.RMQ_NOT_FOUND
    assert not path.exists()
    path.write_bytes(bytes(4096))
    vfs = lib.rmq_vfs_fault_new()
    try:
        lib.rmq_vfs_fault_arm(vfs, lib.RMQ_CALL_SYNC, 0, 1, errno.EIO, 0)
        assert publish(vfs, bytes(path), native, error) == 0
    finally:
        lib.rmq_vfs_fault_free(vfs)
    assert path.read_bytes() == SAMPLE.encode()


def test_failing_sync_is_reported(core: Any, tmp_path: Path) -> None:
    _, lib = core
    path = tmp_path / "checkpoint"
    vfs = lib.rmq_vfs_fault_new()
    try:
        assert write(core, path, SAMPLE, vfs=vfs) == 0
        lib.rmq_vfs_fault_arm(vfs, lib.RMQ_CALL_SYNC, 0, 1, errno.EIO, 0)
        assert write(core, path, Checkpoint(), vfs=vfs) == lib.RMQ_IO
        lib.rmq_vfs_fault_arm(vfs, lib.RMQ_CALL_WRITE, 0, 1, errno.ENOSPC, 0)
        assert write(core, path, SAMPLE, vfs=vfs) == lib.RMQ_NO_SPACE
    finally:
        lib.rmq_vfs_fault_free(vfs)


@every_case()
def test_golden_checkpoint_is_read_and_written_again(
    core: Any, golden_cases: GoldenCases, tmp_path: Path, release: str, case_name: str
) -> None:
    path = golden_cases.copy(release, case_name, into=tmp_path).root / "checkpoint"
    before = path.read_bytes()
    values = read(core, path)
    assert values == reference.decode(before)
    assert values.flushed_offset == -1
    assert write(core, path, replace(SAMPLE, flushed_offset=-1)) == 0
    assert write(core, path, values) == 0
    assert path.read_bytes() == before


def test_abort_marker_comes_and_goes_and_holds_the_process_id(core: Any, tmp_path: Path) -> None:
    path = tmp_path / "abort"
    assert not abort_exists(core, path)
    abort(core, "create", path)
    assert abort_exists(core, path)
    assert path.read_bytes() == str(os.getpid()).encode()
    abort(core, "remove", path)
    assert not abort_exists(core, path)
    abort(core, "remove", path)


@pytest.mark.parametrize("before", [b"", b"123456789012"])
def test_abort_marker_of_another_process_is_overwritten(
    core: Any, tmp_path: Path, before: bytes
) -> None:
    path = tmp_path / "abort"
    path.write_bytes(before)
    abort(core, "create", path)
    assert path.read_bytes() == str(os.getpid()).encode()
