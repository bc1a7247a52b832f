"""A replica that dies, or whose power goes, anywhere in a change of its role or its log: when it is
opened again, log, epochs, queues and index agree, and it knows what it was.

The role machine leads from role to role; what a slave's machine asks for follows it.
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

from rmqstore.epochs import EpochEntry, EpochList, epoch_at
from rmqstore.errors import ArgumentError
from rmqstore.replication.group.epoch_state import EpochState
from rmqstore.replication.group.roles import AcceptPuts, Follow, Reorder, Serve
from rmqstore.replication.protocol.events import SaveEpochState
from tests.c import library
from tests.c.store_calls import ANY, LOG_FILE_SIZE, Failed, FaultyDoor
from tests.crash.driven_replica import Replica
from tests.crash.driven_store import QUEUES, Seen
from tests.crash.power_loss import digest, materialise
from tests.scenarios.store_logs import entries
from tests.support.disk_model import Disk, Kind, Recorder, State
from tests.support.effort import rounds

CALLS_MAX = 400
MANY = 1 << 40
DURABLE = (Kind.SYNC, Kind.SYNC_DIRECTORY, Kind.MAKE_DIRECTORY, Kind.RENAME, Kind.UNLINK)


def begun(replica: Replica) -> None:
    """Two epochs over three log files, everything on the disk; master of the second one."""
    replica.carry_out(SaveEpochState(EpochState(has_replicas=True).begin(2)))
    replica.save(EpochList(entries((1, 0))))
    replica.receive(14)
    replica.flush()
    replica.epoch = 2
    replica.save(EpochList(entries((1, 0), (2, replica.store.end_offset))))
    replica.receive(12)
    replica.flush()


def followed(replica: Replica) -> None:
    """A slave follows; the cut goes over the beginning of an epoch."""
    replica.become_slave(7)
    cut(replica, 7, at=9)


def cut(replica: Replica, epoch: int, *, at: int) -> None:
    """TruncateTo and SaveEpochs; then the bytes of the master of *epoch*."""
    replica.take_from_master(epoch)
    point = replica.record(at).physical_offset
    replica.truncate(point)
    epochs = EpochList(replica.epochs).truncate_to(point)
    replica.save(epochs)
    replica.offsets = [replica.store.next_offset(queue_id) for queue_id in range(QUEUES)]
    replica.save(epochs.append(EpochEntry(epoch, point)))
    replica.receive(6)
    replica.flush()


def restart(replica: Replica) -> None:
    """Restart and SaveEpochs; then bytes of a later place and epoch."""
    begin = 9 * LOG_FILE_SIZE
    replica.become_slave(5)
    replica.take_from_master(5)
    replica.restart(begin)
    replica.save(EpochList(entries((5, begin - 100))))
    replica.offsets = [each + 30 for each in replica.offsets]
    replica.receive(9)
    replica.flush()


def elected(replica: Replica) -> None:
    """From slave with a part of a record after unconfirmed ones to master, and to another epoch."""
    replica.confirm(replica.end_offset)
    replica.receive(5, cut=40)
    replica.written.pop()
    replica.become_master(4)
    for _ in range(5):
        replica.put()
    replica.become_master(6)
    for _ in range(3):
        replica.put()
    replica.confirm(replica.end_offset)
    replica.flush()


def elected_after_a_kill(replica: Replica) -> None:
    """A master that was killed becomes master again, with records that are not on the disk."""
    assert replica.epoch_state.master_epoch == 2
    replica.confirm(replica.end_offset)
    replica.receive(3)
    replica.become_master(4)
    for _ in range(5):
        replica.put()
    replica.confirm(replica.end_offset)
    replica.flush()


def deposed(replica: Replica) -> None:
    """From master to slave: puts that are not on the disk, then the new master's cut and bytes."""
    replica.become_master(4)
    for _ in range(5):
        replica.put()
    replica.become_slave(7)
    cut(replica, 7, at=28)


def ordered(replica: Replica) -> None:
    """A slave is ordered to follow its master in a later epoch, of which bytes come then."""
    replica.become_slave(3)
    replica.become_slave(5)
    replica.take_from_master(5)
    replica.save(EpochList((*replica.epochs, EpochEntry(5, replica.end_offset))))
    replica.receive(6)
    replica.flush()


def emptied(replica: Replica) -> None:
    """The list alone: it grows, and goes with the whole log."""
    end = replica.store.end_offset
    replica.take_from_master(4)
    second = replica.record(14).physical_offset
    for epoch in (3, 4):
        replica.save(EpochList(entries((1, 0), (2, second), (epoch, end))))
    replica.truncate(0)
    replica.save(EpochList())


CHANGES: dict[str, Callable[[Replica], None]] = {
    "elected": elected,
    "elected after a kill": elected_after_a_kill,
    "deposed": deposed,
    "followed": followed,
    "ordered": ordered,
    "restart": restart,
    "emptied": emptied,
}


def check_opened(core: Any, root: Path, replica: Replica, *, moment: int = MANY) -> Seen:
    """Open what a crash left; log, queues and index agree, the epoch list says who wrote, and what
    the role machine did by that *moment* holds."""
    opened = Replica(core, root, core[1].rmq_vfs_posix())
    try:
        check_roles(opened, replica, moment)
        seen = opened.store.look()
        epochs = EpochList(opened.epochs).restored(log_end=max(seen.end_offset, 0))
        known = set(replica.written)
        for record in seen.records:
            entry = epoch_at(epochs.entries, record.physical_offset)
            assert entry is not None, f"no epoch says who wrote {record}"
            assert (record, entry.epoch) in known, (entry, record)
        # The next master gives no queue offset that a record has.
        for number in (1000, 1001):
            properties = b"KEYS\x01k%d all\x02" % number
            (after,) = opened.store.put_messages([(number, b"after", properties)])
            assert after.queue_offset == seen.next_offsets[after.queue_id]
        opened.store.look()
    finally:
        opened.store.close()
    return seen


def check_roles(opened: Replica, replica: Replica, moment: int) -> None:
    """Look whether the disk says of roles what it has to."""
    state, end = opened.epoch_state, opened.end_offset
    is_own = moment <= replica.taken_mark
    has_led = False
    for step in replica.steps:
        if step.mark > moment:
            break
        match step.effect:
            case Follow() | Reorder():
                assert opened.roles.known_epoch >= step.epoch, "an order is forgotten"
                assert not (is_own and has_led) or state.master_end >= 0, "a clean end is forgotten"
            case Serve(epoch):
                has_led = True
                assert state.master_epoch >= epoch, "a master that does not know that it was one"
                assert opened.is_promised, "what this master confirms is a promise"
            case AcceptPuts():
                assert not is_own or end >= step.end_offset, "what was elected is not on the disk"
    if not is_own:
        return

    late = [each for each in opened.epochs if each.start_offset > end]
    assert not late, f"RocketMQ would believe in {late}; the log ends at {end}"
    if state.master_end >= 0:
        assert state.master_end <= end, "a role that ended with more than there is"
    else:
        assert is_interrupted(opened), "a killed master forgets that it may lack messages"


def is_interrupted(opened: Replica) -> bool:
    try:
        opened.roles.become_master(99)
    except ArgumentError as error:
        return "was not closed cleanly" in str(error)
    return False


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
    if name == "emptied":
        return not shown
    wanted = [record for record, epoch in replica.written if epoch == replica.epoch]
    return shown[len(shown) - len(wanted) :] == wanted


@pytest.mark.parametrize("name", CHANGES)
def test_replica_agrees_with_itself_wherever_the_power_goes(
    name: str, core: Any, folder: Path
) -> None:
    lose_power(name, core, folder, states_each=rounds(6, 40))


def lose_power(name: str, core: Any, folder: Path, *, states_each: int) -> None:
    """Take the power before every durable effect and after every step of a change, with some states
    of the disk for each."""
    root = folder / "store"
    root.mkdir()
    recorder = Recorder(core, root)
    replica = Replica(core, root, recorder.vfs, mark=recorder.mark)
    try:
        begun(replica)
        since = recorder.mark()
        CHANGES[name](replica)
        until = recorder.mark()
        effects = list(recorder.effects())
    finally:
        replica.store.abandon()
        recorder.free()

    chance = random.Random(f"{name} 6")
    disk, done, seen_before = Disk(), 0, set()
    moments = {n for n in range(since, until) if effects[n].kind in DURABLE}
    moments.update((*(step.mark for step in replica.steps), until))
    for moment in sorted(moments):
        for effect in effects[done:moment]:
            disk.apply(effect)
        done = moment
        for state in disk.crash_states(states_each, chance):
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
        return check_opened(core, root, replica, moment=moment)
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
        seen = check_opened(core, root, replica)
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
        seen = check_opened(core, root, replica)
        if over:
            assert not has_failed
            assert is_after(seen, name, replica)
            return
    pytest.fail(f"{name} takes more than {CALLS_MAX} operations")
