"""A replica that dies, or whose power goes, anywhere in a change of its log: after it is opened
again log, epoch list, queues and index agree.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.replication.epoch import EpochEntry, EpochList, epoch_at
from tests.c import library
from tests.c.store_calls import ANY, LOG_FILE_SIZE, Failed, FaultyDoor
from tests.crash.disk_model import Disk, Kind, Recorder, State
from tests.crash.driven_store import QUEUES, TOPIC, Driven, Record, Seen
from tests.crash.power_loss import HEAD_SIZE, digest, materialise
from tests.effort import rounds
from tests.scenarios.store_logs import entries

EPOCH_FILE = "epochFileCheckpoint"
CALLS_MAX = 400
MANY = 1 << 40
DURABLE = (Kind.SYNC, Kind.SYNC_DIRECTORY, Kind.MAKE_DIRECTORY, Kind.RENAME, Kind.UNLINK)


class Replica:
    """A store whose bytes come raw from an imaginary master, behind a file door of choice.

    *written* is every record that was ever in the log, with the epoch it was written in.
    """

    def __init__(self, core: Any, root: Path, vfs: Any) -> None:
        self.core, self.root, self.vfs = core, root, vfs
        self.store = Driven(core, root, vfs)
        self.written: list[tuple[Record, int]] = []
        self.epoch = 1
        self.numbers = 0
        self.offsets = [0] * QUEUES

    # ---- the effects that machines ask for

    def save(self, epochs: EpochList) -> None:
        epochs.save(self)

    def read(self, name: str) -> str | None:
        path = self.root / (EPOCH_FILE + name)
        return path.read_text() if path.exists() else None

    def replace(self, name: str, text: str) -> None:
        lib, data = self.core[1], text.encode()
        file_name = (EPOCH_FILE + name).encode()
        self.store.check(
            lib.rmq_small_file_replace(
                self.vfs, bytes(self.root), file_name, data, len(data), self.store.error
            )
        )

    def remove(self, name: str) -> None:
        file_name = (EPOCH_FILE + name).encode()
        self.store.check(
            self.core[1].rmq_small_file_remove(
                self.vfs, bytes(self.root), file_name, self.store.error
            )
        )

    def restart(self, offset: int) -> None:
        self.store.check(self.core[1].rmq_store_restart(self.store.store, offset, self.store.error))

    def settle(self, whole_end: int) -> None:
        self.store.check(
            self.core[1].rmq_store_settle(self.store.store, whole_end, self.store.error)
        )

    def confirm(self, offset: int) -> None:
        self.store.check(
            self.core[1].rmq_store_set_confirm_offset(self.store.store, offset, self.store.error)
        )

    # ---- what comes from the master

    def receive(self, count: int, *, cut: int = 0) -> None:
        """Append *count* records, the last one without its last *cut* bytes."""
        for left in range(count, 0, -1):
            at = max(self.store.end_offset, 0)
            record, data = self._next(at)
            self.written.append((record, self.epoch))
            self.store.append_raw(at, data[: len(data) - (cut if left == 1 else 0)])

    def _next(self, at: int) -> tuple[Record, bytes]:
        self.numbers += 1
        number = self.numbers
        queue_id = number % QUEUES
        body = b"%06d" % number + bytes((number % 255,)) * 300
        properties = b"KEYS\x01k%d all\x02" % number
        size = HEAD_SIZE + len(body) + 1 + len(TOPIC) + 2 + len(properties)
        left = LOG_FILE_SIZE - at % LOG_FILE_SIZE
        blank = b""
        if size > left - 8:
            blank = left.to_bytes(4, "big") + 0xCBD43194.to_bytes(4, "big") + bytes(left - 8)
        place = at + len(blank)
        record = Record(place, size, queue_id, self.offsets[queue_id], body, properties)
        self.offsets[queue_id] += 1
        return record, blank + self.store.encode(record, number)

    def put(self) -> None:
        """Take a message oneself."""
        self.numbers += 1
        number = self.numbers
        body, properties = b"%06d own" % number, b"KEYS\x01k%d all\x02" % number
        (record,) = self.store.put_messages([(number, body, properties)])
        self.written.append((record, self.epoch))

    def flush(self) -> None:
        self.store.wait_dispatched(self.store.end_offset)
        self.store.flush()

    def record(self, index: int) -> Record:
        return self.written[index][0]


def begun(replica: Replica) -> None:
    """Two epochs over three log files, everything on the disk."""
    replica.save(EpochList(entries((1, 0))))
    replica.receive(14)
    replica.flush()
    replica.epoch = 2
    replica.save(EpochList(entries((1, 0), (2, replica.store.end_offset))))
    replica.receive(12)
    replica.flush()


def cut(replica: Replica) -> None:
    """TruncateTo and SaveEpochs, over the beginning of an epoch; then the bytes of epoch 3."""
    point = replica.record(9).physical_offset
    replica.store.truncate(point)
    epochs = EpochList(entries((1, 0))).truncate_to(point)
    replica.save(epochs)
    replica.offsets = [replica.store.next_offset(queue_id) for queue_id in range(QUEUES)]
    replica.epoch = 3
    replica.save(epochs.append(EpochEntry(3, point)))
    replica.receive(6)
    replica.flush()


def restart(replica: Replica) -> None:
    """Restart and SaveEpochs; then bytes of a later place and epoch."""
    begin = 9 * LOG_FILE_SIZE
    replica.restart(begin)
    replica.epoch = 5
    replica.save(EpochList(entries((5, begin - 100))))
    replica.offsets = [each + 30 for each in replica.offsets]
    replica.receive(9)
    replica.flush()


def settle(replica: Replica) -> None:
    """From slave with half a record behind unconfirmed ones to master."""
    replica.confirm(replica.store.end_offset)
    replica.receive(5, cut=40)
    whole = replica.written.pop()[0].physical_offset
    replica.settle(whole)
    replica.store.wait_flushed(whole)
    replica.epoch = 4
    replica.save(EpochList(entries((1, 0), (2, replica.record(14).physical_offset), (4, whole))))
    for _ in range(5):
        replica.put()
    replica.confirm(replica.store.end_offset)
    replica.flush()


def emptied(replica: Replica) -> None:
    """The list alone: it grows, and goes with the whole log."""
    end = replica.store.end_offset
    second = replica.record(14).physical_offset
    for epoch in (3, 4):
        replica.save(EpochList(entries((1, 0), (2, second), (epoch, end))))
    replica.store.truncate(0)
    replica.save(EpochList())


CHANGES: dict[str, Callable[[Replica], None]] = {
    "cut": cut,
    "restart": restart,
    "settle": settle,
    "emptied": emptied,
}


def check_opened(core: Any, root: Path, written: list[tuple[Record, int]]) -> Seen:
    """Open what a crash left; log, queues and index agree, and the epoch list tells who wrote."""
    replica = Replica(core, root, core[1].rmq_vfs_posix())
    try:
        seen = replica.store.look()
        epochs = EpochList.load(replica).restored(log_end=max(seen.end_offset, 0))
        known = {(record, epoch) for record, epoch in written}
        for record in seen.records:
            entry = epoch_at(epochs.entries, record.physical_offset)
            assert entry is not None, f"no epoch tells who wrote {record}"
            assert (record, entry.epoch) in known, (entry, record)
        # Whoever is master next gives no queue offset that a record has.
        for number in (1000, 1001):
            properties = b"KEYS\x01k%d all\x02" % number
            (after,) = replica.store.put_messages([(number, b"after", properties)])
            assert after.queue_offset == seen.next_offsets[after.queue_id]
        replica.store.look()
    finally:
        replica.store.close()
    return seen


@pytest.fixture(scope="module")
def core() -> tuple[Any, Any]:
    return library.load()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: nothing here needs a real disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


def is_after(seen: Seen, name: str, replica: Replica) -> bool:
    """Tell whether a store shows all that the change led to."""
    shown = list(seen.records)
    wanted = [record for record, epoch in replica.written if epoch > 2]
    return shown[len(shown) - len(wanted) :] == wanted and (name != "emptied" or not shown)


@pytest.mark.parametrize("name", CHANGES)
def test_replica_agrees_with_itself_wherever_the_power_goes(
    name: str, core: Any, folder: Path
) -> None:
    root = folder / "store"
    root.mkdir()
    recorder = Recorder(core, root)
    replica = Replica(core, root, recorder.vfs)
    begun(replica)
    since = recorder.mark()
    CHANGES[name](replica)
    until = recorder.mark()
    effects = list(recorder.effects())
    replica.store.abandon()
    recorder.free()

    chance = random.Random(f"{name} 6")
    disk, done, seen_before = Disk(), 0, set()
    moments = [n for n in range(since, until) if effects[n].kind in DURABLE] + [until]
    for moment in moments:
        for effect in effects[done:moment]:
            disk.apply(effect)
        done = moment
        for state in disk.crash_states(rounds(6, 40), chance):
            key = digest(state)
            if key not in seen_before:
                seen_before.add(key)
                check_state(core, folder / "state", state, replica, moment)
    seen = check_state(core, folder / "state", next(disk.crash_states(1, chance)), replica, until)
    assert is_after(seen, name, replica)
    assert len(seen_before) > len(moments) / 2


def check_state(core: Any, root: Path, state: State, replica: Replica, moment: int) -> Seen:
    materialise(state, root)
    try:
        return check_opened(core, root, replica.written)
    except (AssertionError, Failed) as failure:
        raise AssertionError(f"power lost after {moment} effects: {failure}") from failure


@pytest.mark.parametrize("name", CHANGES)
def test_replica_agrees_with_itself_when_it_dies_at_any_file_operation(
    name: str, core: Any, folder: Path
) -> None:
    """From the n-th operation on none works, and the process ends without another one."""
    for first in range(0, CALLS_MAX, rounds(2, 1)):
        root = folder / "store"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        door = FaultyDoor(core)
        replica = Replica(core, root, door.vfs)
        begun(replica)
        has_failed = False
        door.arm(ANY, first, errno.EIO, count=MANY)
        try:
            CHANGES[name](replica)
        except Failed:
            has_failed = True
        replica.store.abandon()
        door.disarm()
        door.free()
        seen = check_opened(core, root, replica.written)
        if not has_failed:
            assert first > 0
            assert is_after(seen, name, replica)
            return
    pytest.fail(f"{name} takes more than {CALLS_MAX} operations")


@pytest.mark.parametrize("name", CHANGES)
def test_operation_that_fails_once_is_said_and_the_replica_can_be_opened_again(
    name: str, core: Any, folder: Path
) -> None:
    """A full disk at the n-th operation; the store may refuse to go on, and closes."""
    for first in range(0, CALLS_MAX, rounds(3, 1)):
        root = folder / "store"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        door = FaultyDoor(core)
        replica = Replica(core, root, door.vfs)
        begun(replica)
        has_failed = False
        door.arm(ANY, first, errno.ENOSPC)
        try:
            CHANGES[name](replica)
        except Failed:
            has_failed = True
        try:
            replica.store.close()
        except Failed:
            has_failed = True
        over = door.count(ANY) <= first
        door.disarm()
        door.free()
        seen = check_opened(core, root, replica.written)
        if over:
            assert not has_failed
            assert is_after(seen, name, replica)
            return
    pytest.fail(f"{name} takes more than {CALLS_MAX} operations")
