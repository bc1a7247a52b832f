"""Copies of what is cut off a log, in the folder `cut` of its store."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.c.store_calls import LOG_FILE_SIZE, Calls, Failed, FaultyDoor

CALLS_MAX = 100


@pytest.fixture
def store(core: Any, door: FaultyDoor, tmp_path: Path) -> Iterator[Calls]:
    made = Calls(core, tmp_path, door.vfs)
    for number in range(60):
        made.put(b"%d" % number * 100)
    yield made
    door.disarm()
    made.abandon()


def copy(store: Calls, start: int, stop: int) -> str:
    path = store.ffi.new("char[]", int(store.lib.RMQ_CUT_PATH_SIZE))
    store.check(store.lib.rmq_store_copy_cut(store.store, start, stop, path, store.error))
    found: bytes = store.ffi.string(path)
    return found.decode()


def log_bytes(root: Path, start: int, stop: int) -> bytes:
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[start:stop]


def test_copy_holds_the_bytes_of_several_files_and_is_named_after_the_first(
    store: Calls, tmp_path: Path
) -> None:
    start, stop = LOG_FILE_SIZE - 700, store.end_offset
    assert stop > LOG_FILE_SIZE
    assert copy(store, start, stop) == f"cut/{start:020}"
    assert (tmp_path / f"cut/{start:020}").read_bytes() == log_bytes(tmp_path, start, stop)


def test_copy_of_the_same_bytes_is_not_made_again_and_of_others_never_replaces_one(
    store: Calls, tmp_path: Path
) -> None:
    names = [copy(store, 0, size) for size in (500, 700, 500, 700, 500)]
    first, second = f"cut/{0:020}", f"cut/{0:020}.1"
    assert names == [first, second, first, second, first]
    assert [(tmp_path / name).stat().st_size for name in (first, second)] == [500, 700]
    assert len(list((tmp_path / "cut").iterdir())) == 2


@pytest.mark.parametrize(("start", "stop"), [(-1, 10), (10, 10), (20, 10), (0, 1 << 40)])
def test_range_that_the_log_does_not_hold_is_refused(store: Calls, start: int, stop: int) -> None:
    with pytest.raises(Failed, match="the log holds 0 to"):
        copy(store, start, stop)


@pytest.mark.parametrize("call", ["OPEN", "WRITE", "RESIZE", "SYNC", "RENAME", "DIRECTORY"])
def test_call_that_fails_leaves_no_copy_or_a_whole_one(
    store: Calls, door: FaultyDoor, tmp_path: Path, call: str
) -> None:
    stop = store.end_offset
    # Otherwise the flusher may meet the failure first.
    store.wait_dispatched(stop)
    store.flush()
    door.arm(getattr(store.lib, f"RMQ_CALL_{call}"), 0, errno.ENOSPC, count=CALLS_MAX)
    with pytest.raises(Failed):
        copy(store, 0, stop)
    assert [each.name for each in (tmp_path / "cut").glob("*")] == []
    door.disarm()
    name = copy(store, 0, stop)
    assert (tmp_path / name).read_bytes() == log_bytes(tmp_path, 0, stop)


def test_copy_that_a_crash_cut_short_is_made_again(store: Calls, tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / f"cut/{0:020}.part").write_bytes(b"x" * 5000)
    assert (tmp_path / copy(store, 0, 500)).read_bytes() == log_bytes(tmp_path, 0, 500)
    assert len(list((tmp_path / "cut").iterdir())) == 1
