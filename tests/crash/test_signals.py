"""Signals that come while the main thread waits inside of the core: their handlers run at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from tests.house import tree
from tests.support.agreement import FILES
from tests.support.stalled_disk import StalledDisk
from tests.support.waiting import WAIT_S, spin_until

STALLED_DISPATCH = ("wait_dispatched", "get")
"""The dispatcher hangs in the sync of a new queue file."""
STALLED = ("disk", "wait_flushed", "slow", "flush", "close", *STALLED_DISPATCH)
SLOW_SYNC_S = 0.2
"""Four times the duration from which the store reports a sync as slow."""
VERBS = (
    *STALLED,
    "copies",
    "copies many",
    "queue.wait",
    "follow",
    "raw",
    "wait_in_sync",
    "wait_confirmed",
    "wait_caught_up",
)
PROGRAM = """
import json, os, signal, sys, threading, time
import rmqstore
from rmqstore import Durability
from rmqstore.config import FlushDiskType
from rmqstore.replication import Master, Quorum, Slave
from tests.support.agreement import FILES
from tests.support.boards import board_of

directory, verb, act = sys.argv[1:]
LONG_S = 600
UNITS = FILES["consume_queue_file_size_bytes"] // 20
is_sync = verb in ("queue.wait", "follow")
flush = FlushDiskType.SYNC_FLUSH if is_sync else FlushDiskType.ASYNC_FLUSH
store = rmqstore.open(directory + "/a", **FILES, flush_disk_type=flush,
                      flush_commit_log_interval_ms=3_600_000,
                      flush_commit_log_thorough_interval_ms=3_600_000,
                      flush_consume_queue_interval_ms=3_600_000,
                      flush_consume_queue_thorough_interval_ms=3_600_000)
store.put("t", b"x")
store.flush()


def report(*words):
    print(json.dumps(words), flush=True)


def handler(number, frame):
    report("handled")
    if act == "raise":
        raise SystemExit(5)
    if act == "close":
        store.close()
    if act == "acknowledge":
        board.ack(slots[0], store.end_offset)


def lead():
    # On another thread: who leads a sync is inside of it.
    leader = threading.Thread(target=put_disk, daemon=True)
    leader.start()
    return leader.native_id


def put_disk():
    try:
        store.put("t", b"led", durability=Durability.DISK, timeout=LONG_S)
    except rmqstore.StoreError:
        pass


def half():
    raw = store.record_at(0).raw
    store.append_raw(store.end_offset, raw[: len(raw) // 2])


def ready(*what):
    report("ready", *what)
    sys.stdin.readline()


if verb in ("wait_dispatched", "get"):
    # The next message needs a new queue file.
    for _ in range(UNITS - 1):
        store.put("t", b"x")
    store.wait_dispatched()
board, slots = None, []
if verb.startswith("copies"):
    board, slots = board_of(store)
if verb in ("wait_in_sync", "wait_confirmed"):
    master = Master(store, listen="127.0.0.1:0", quorum=Quorum(in_sync=2))
    store.put("t", b"x")
if verb == "wait_caught_up":
    other = rmqstore.open(directory + "/b", **FILES)
    slave = Slave(other, master=("127.0.0.1", 9))
ready("stall")
if verb in ("disk", "wait_flushed"):
    ready("sync", lead())
if verb == "flush" or verb == "close" or is_sync:
    store.put("t", b"y", durability=Durability.MEMORY)
if verb in ("wait_dispatched", "get"):
    store.put("t", b"y")
if verb == "raw":
    half()
if verb == "slow":
    # The first slow sync is led by this thread, the next is not.
    store.put("t", b"slow", durability=Durability.DISK, timeout=LONG_S)
    ready("stall again")
ready("signal")
queue = store.queue("t")
WAITS = {
    "copies": lambda: store.put("t", b"y", copies=2, timeout=LONG_S),
    "copies many": lambda: store.put_many([b"y"], topic="t", copies=2, timeout=LONG_S),
    "disk": lambda: store.put("t", b"y", durability=Durability.DISK, timeout=LONG_S),
    "slow": lambda: store.put("t", b"y", durability=Durability.DISK, timeout=LONG_S),
    "wait_flushed": lambda: store.wait_flushed(timeout=LONG_S),
    "wait_dispatched": lambda: store.wait_dispatched(timeout=LONG_S),
    "get": lambda: store.get("t", offset=UNITS),
    "queue.wait": lambda: queue.wait(1, timeout=LONG_S),
    "follow": lambda: next(queue.follow(start=1)),
    "raw": lambda: store.put("t", b"y"),
    "flush": lambda: store.flush(),
    "close": lambda: store.close(),
    "wait_in_sync": lambda: master.wait_in_sync(2, timeout=LONG_S),
    "wait_confirmed": lambda: master.wait_confirmed(timeout=LONG_S),
    "wait_caught_up": lambda: slave.wait_caught_up(timeout=LONG_S),
}
signal.signal(signal.SIGTERM, handler)
try:
    report("waits")
    found = WAITS[verb]()
    report("returned", getattr(found, "copies", None))
except SystemExit as error:
    report("raised", error.code)
except rmqstore.PutError as error:
    report("failed", type(error).__name__, error.stored, store.closed)
sys.stdin.readline()
if not store.closed:
    store.close()
report("closed")
os._exit(0)
"""


class Child:
    """A process whose main thread waits."""

    def __init__(self, disk: StalledDisk, directory: Path, verb: str, act: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(directory), verb, act],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**disk.environment, "PYTHONPATH": str(tree.ROOT)},
            text=True,
        )

    def answer(self) -> list[Any]:
        """Return what the child says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait()}"
        found: list[Any] = json.loads(line)
        return found

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def until_asleep(self) -> None:
        number = self.process.pid
        stat = Path(f"/proc/{number}/task/{number}/stat")

        def sleeps() -> bool:
            # Longer than another thread keeps the interpreter's lock.
            return all(stat.read_text().rpartition(")")[2].split()[0] == "S" for _ in range(1000))

        spin_until(sleeps, "the main thread sleeps")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def disk(stack: ExitStack, tmp_path: Path) -> StalledDisk:
    made = StalledDisk(tmp_path)
    stack.callback(made.go_on)
    return made


def waiting(verb: str, act: str, stack: ExitStack, disk: StalledDisk, directory: Path) -> Child:
    """Return a child whose main thread waits, and has just been sent a signal."""
    child = Child(disk, directory, verb, act)
    stack.callback(child.end)
    assert child.answer() == ["ready", "stall"]

    if verb in STALLED:
        disk.stall()
    child.go_on()

    if verb in ("disk", "wait_flushed"):
        said, what, leader = child.answer()
        assert (said, what) == ("ready", "sync")
        spin_until(lambda: leader in disk.waiting, "the sync of another thread hangs")
        child.go_on()

    if verb == "slow":
        spin_until(lambda: child.process.pid in disk.waiting, "the first sync hangs")
        begun = time.monotonic()
        spin_until(lambda: time.monotonic() > begun + SLOW_SYNC_S, "the sync lasts long")
        disk.go_on()
        assert child.answer() == ["ready", "stall again"]
        disk.stall()
        child.go_on()

    assert child.answer() == ["ready", "signal"]
    if verb in STALLED_DISPATCH:
        spin_until(lambda: disk.waiting, "the sync of the dispatcher hangs")

    child.go_on()
    assert child.answer() == ["waits"]
    child.until_asleep()
    child.process.terminate()

    return child


@pytest.mark.parametrize("verb", VERBS)
def test_handler_that_raises_ends_every_kind_of_wait_at_once(
    verb: str, stack: ExitStack, disk: StalledDisk, tmp_path: Path
) -> None:
    child = waiting(verb, "raise", stack, disk, tmp_path)
    assert child.answer() == ["handled"]
    assert child.answer() == ["raised", 5]
    disk.go_on()
    child.go_on()
    assert child.answer() == ["closed"]
    assert child.process.wait(WAIT_S) == 0
    with rmqstore.open(tmp_path / "a", **FILES) as store:
        # The process may have ended before the closing that was interrupted; and half a record at
        # its end is what a crash leaves.
        assert store.recovery.was_closed or verb in ("close", "raw")


def test_handler_that_returns_lets_the_wait_go_on(
    stack: ExitStack, disk: StalledDisk, tmp_path: Path
) -> None:
    child = waiting("copies", "acknowledge", stack, disk, tmp_path)
    assert child.answer() == ["handled"]
    assert child.answer() == ["returned", 2]


@pytest.mark.parametrize(
    ("verb", "error"),
    [("copies", "ReplicaTimeout"), ("copies many", "ReplicaTimeout"), ("slow", "FlushTimeout")],
)
def test_handler_may_close_the_store_under_the_put_that_it_interrupts(
    verb: str, error: str, stack: ExitStack, disk: StalledDisk, tmp_path: Path
) -> None:
    child = waiting(verb, "close", stack, disk, tmp_path)
    assert child.answer() == ["handled"]
    disk.go_on()
    assert child.answer() == ["failed", error, True, True]
    child.go_on()
    assert child.answer() == ["closed"]
    with rmqstore.open(tmp_path / "a", **FILES) as store:
        assert store.recovery.was_closed
        assert len(store.queue("t")) == (3 if verb == "slow" else 2)
