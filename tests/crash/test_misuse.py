"""A store that is held by another process, closed, inherited, or not writable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import (
    Boundary,
    ConfigError,
    DiskError,
    NotFoundError,
    NotWritable,
    StoreClosedError,
    StoreLockedError,
)
from tests.support.agreement import FILES, check_agreement

HOLD = """
import sys
import rmqstore
store = rmqstore.open(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
store.close()
"""
FORK = """
import os, sys
import rmqstore
from rmqstore import Durability
from tests.support.agreement import FILES
store = rmqstore.open(sys.argv[1], **FILES)
store.put("orders", b"from the parent", keys=["k"])
calls = [
    lambda: store.put("orders", b"from the child"),
    lambda: store.put("orders", b"from the child", durability=Durability.DISK),
    lambda: store.put_many([b"from the child"], topic="orders"),
    lambda: store.get("orders", offset=0),
    lambda: store.get_many("orders", offset=0),
    lambda: store.find("orders", "k"),
    lambda: store.record_at(0),
    lambda: store.flush(),
    lambda: store.truncate_to(0),
    lambda: store.expire_files(1),
    lambda: store.wait_dispatched(),
    lambda: store.wait_flushed(),
]
sys.stdout.flush()
child = os.fork()
if child == 0:
    for number, call in enumerate(calls):
        try:
            call()
        except rmqstore.StoreClosedError as error:
            assert "fork" in str(error), error
        else:
            print("call", number, "went through", flush=True)
            os._exit(1)
    store.close()
    try:
        rmqstore.open(sys.argv[1])
    except rmqstore.StoreLockedError:
        os._exit(0)
    print("the lock was lost", flush=True)
    os._exit(1)
_, status = os.waitpid(child, 0)
store.put("orders", b"and again", durability=Durability.DISK)
store.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""

FORK_AND_EXIT = """
import os, sys
import rmqstore
from tests.support.agreement import FILES
store = rmqstore.open(sys.argv[1], **FILES)
store.put("orders", b"from the parent")
child = os.fork()
if child == 0:
    del store
    sys.exit(0)
_, status = os.waitpid(child, 0)
for _ in range(30):
    store.put("orders", bytes(5000))
store.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""

FORK_WHILE_A_PUT_WAITS = """
import os, select, sys, threading
import rmqstore
from rmqstore.replication import Master, Quorum
from tests.support.agreement import FILES
from tests.support.waiting import WAIT_S, wait_until
store = rmqstore.open(sys.argv[1], **FILES)
master = Master(store, listen="127.0.0.1:0", quorum=Quorum(in_sync=2, timeout_ms=60000))
def put():
    try:
        store.put("orders", b"x", copies=2)
    except rmqstore.ReplicaTimeout:
        pass
waiting = threading.Thread(target=put)
waiting.start()
wait_until(master, lambda: store._board.waiting, "a put that waits")
child = os.fork()
if child == 0:
    master.close()
    store.close()
    os._exit(0)
if not select.select([os.pidfd_open(child)], [], [], WAIT_S)[0]:
    print("the child hangs", flush=True)
    os.kill(child, 9)
_, status = os.waitpid(child, 0)
store.close()
waiting.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(script: str, directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with rmqstore.open(path, **FILES) as store:
        store.put("orders", b"first", keys=["k"])
    return path


def test_store_held_by_another_process_names_it_and_is_left_alone(directory: Path) -> None:
    with run(HOLD, directory) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match="open it read-only") as caught:
            rmqstore.open(directory)
        assert caught.value.process_id == holder.pid
        assert str(holder.pid) in str(caught.value)
        assert str(directory) in str(caught.value)
        with rmqstore.open(directory, read_only=True) as store:
            assert store.get("orders", offset=0).body == b"first"
        holder.stdin.close()
        holder.stdout.read()
    with rmqstore.open(directory) as store:
        assert store.recovery.was_closed


def test_store_held_by_this_process_names_it(directory: Path) -> None:
    with rmqstore.open(directory) as store:
        with pytest.raises(StoreLockedError) as caught:
            rmqstore.open(directory)
        assert caught.value.process_id == os.getpid()
        assert store.put("orders", b"still mine").queue_offset == 1


def test_lock_is_free_after_an_opening_that_failed(directory: Path) -> None:
    foreign = directory / "commitlog" / "notes.txt"
    foreign.write_text("")
    with pytest.raises(rmqstore.CorruptionError):
        rmqstore.open(directory)
    foreign.unlink()
    rmqstore.open(directory).close()


def test_every_call_after_fork_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with run(FORK, directory) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
    assert process.returncode == 0, printed
    with rmqstore.open(directory) as store:
        assert store.recovery.was_closed
        bodies = [each.body for each in check_agreement(store)]
        assert bodies == [b"from the parent", b"and again"]


def test_child_that_drops_an_inherited_store_and_exits_harms_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with run(FORK_AND_EXIT, directory) as process:
        printed, _ = process.communicate(timeout=30)
    assert process.returncode == 0, printed
    with rmqstore.open(directory) as store:
        assert store.recovery.was_closed
        assert len(check_agreement(store)) == 31


def test_child_closes_a_store_whose_puts_waited_at_the_fork(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with run(FORK_WHILE_A_PUT_WAITS, directory) as process:
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0, printed
    with rmqstore.open(directory, keep_confirm_offset=False) as store:
        assert store.recovery.was_closed
        assert len(check_agreement(store)) == 1


AFTER_CLOSE: dict[str, Callable[[rmqstore.Store], Any]] = {
    "put": lambda store: store.put("orders", b"x"),
    "put_many": lambda store: store.put_many([b"x"], topic="orders"),
    "get": lambda store: store.get("orders", offset=0),
    "get_many": lambda store: store.get_many("orders", offset=0),
    "find": lambda store: store.find("orders", "k"),
    "get_by_id": lambda store: store.get_by_id("0A0A0A0A00002A9F0000000000000000"),
    "record_at": lambda store: store.record_at(0),
    "scan_log": lambda store: list(store.scan_log()),
    "records": lambda store: list(store.queue("orders").records()),
    "offset_at": lambda store: store.queue("orders").offset_at(0, Boundary.LOWER),
    "queues": lambda store: store.queues(),
    "flush": lambda store: store.flush(),
    "truncate_to": lambda store: store.truncate_to(0),
    "expire_files": lambda store: store.expire_files(1),
    "clean": lambda store: store.clean(),
    "refresh": lambda store: store.refresh(),
    "read_raw": lambda store: store.read_raw(0, 10),
    "append_raw": lambda store: store.append_raw(0, b"x"),
    "wait_dispatched": lambda store: store.wait_dispatched(),
    "wait_flushed": lambda store: store.wait_flushed(),
    "start_offset": lambda store: store.start_offset,
    "end_offset": lambda store: store.end_offset,
    "failure": lambda store: store.failure,
}


@pytest.mark.parametrize("name", AFTER_CLOSE)
def test_use_after_close_is_refused_with_the_path(name: str, directory: Path) -> None:
    store = rmqstore.open(directory)
    store.close()
    store.close()
    assert store.closed
    with pytest.raises(StoreClosedError, match=str(directory)):
        AFTER_CLOSE[name](store)


def test_iterators_of_a_closed_store_end_with_an_error(directory: Path) -> None:
    store = rmqstore.open(directory)
    log, queue = store.scan_log(), store.queue("orders").records()
    store.close()
    with pytest.raises(StoreClosedError):
        next(log)
    with pytest.raises(StoreClosedError):
        next(queue)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.put("orders", b"x"),
        lambda store: store.put_many([b"x"], topic="orders"),
        lambda store: store.append_raw(store.end_offset, b"x"),
        lambda store: store.truncate_to(0),
        lambda store: store.flush(),
        lambda store: store.expire_files(0),
    ],
)
def test_read_only_store_refuses_to_write(
    call: Callable[[rmqstore.Store], Any], directory: Path
) -> None:
    before = sorted(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    with rmqstore.open(directory, read_only=True) as store:
        with pytest.raises(NotWritable, match="read-only"):
            call(store)
    assert sorted(p.read_bytes() for p in directory.rglob("*") if p.is_file()) == before


def test_read_only_opening_of_nothing_names_the_path(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFoundError, match=str(path)):
            rmqstore.open(path, read_only=True)


@contextmanager
def without_write_permission(directory: Path, scratch: Path) -> Iterator[Path]:
    """The directory where this process may not write: by its mode, or for root by its mount."""
    if os.geteuid() != 0:
        for path in (directory, *directory.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield directory
        return

    scratch.mkdir()
    bind = ["mount", "--bind", str(directory), str(scratch)]
    protect = ["mount", "-o", "remount,bind,ro", str(scratch)]

    done = subprocess.run(bind, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no bind mount can be made here: {done.stderr.strip()}")

    try:
        subprocess.run(protect, capture_output=True, check=True)
        yield scratch
    finally:
        subprocess.run(["umount", "-l", str(scratch)], check=True)


def test_directory_that_is_not_writable_is_said_and_reads_read_only(
    directory: Path, tmp_path: Path
) -> None:
    with without_write_permission(directory, tmp_path / "mounted") as protected:
        with pytest.raises(DiskError, match=str(protected)):
            rmqstore.open(protected)
        with rmqstore.open(protected, read_only=True) as store:
            assert store.get("orders", offset=0).body == b"first"
            assert len(store.find("orders", "k")) == 1


def test_directory_that_is_a_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(DiskError, match=str(path)):
        rmqstore.open(path)


def test_wrong_settings_are_all_named_by_their_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        rmqstore.open(tmp_path / "store", index_slot_count=0, flush_commit_log_interval_ms=0)
    assert "maxHashSlotNum" in str(caught.value)
    assert "flushIntervalCommitLog" in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_store_opened_twice_in_one_process_is_told_so(tmp_path: Path) -> None:
    with (
        rmqstore.open(tmp_path, **FILES),
        pytest.raises(StoreLockedError, match="open in this process already") as caught,
    ):
        rmqstore.open(tmp_path)
    assert caught.value.process_id == os.getpid()


def test_put_after_the_log_folder_was_deleted_raises_a_put_error(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, **FILES) as store:
        store.put("orders", b"x")
        # Renamed first: the store may make its next file while the folder is emptied.
        shutil.rmtree((tmp_path / "commitlog").rename(tmp_path / "deleted"))
        bodies = [bytes(1000)] * (2 * FILES["commit_log_file_size_bytes"] // 1000)
        with pytest.raises(rmqstore.PutError) as caught:
            store.put_many(bodies, topic="orders", durability=rmqstore.Durability.DISK)
        assert caught.value.status == "CREATE_MAPPED_FILE_FAILED"
        store.abandon()
