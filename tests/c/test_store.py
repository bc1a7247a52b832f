"""The store as a whole behind a file system that fails: every call, one after the other."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.c.library import is_sanitized
from tests.c.store_calls import (
    ALLOCATE,
    ANY,
    DIRECTORY,
    EVERY,
    LOG_FILE_SIZE,
    MAP,
    OPEN,
    RESIZE,
    SYNC,
    UNLINK,
    WRITE,
    ZERO,
    Calls,
    Failed,
    FaultyDoor,
    Put,
)
from tests.reference import checkpoint
from tests.support.waiting import WAIT_S, spin_until

CALLS_MAX = 2000
"""More calls of a kind than the scenario makes."""
STEP = 11 if is_sanitized() else 1
"""Every call fails in turn; the slow build is content with a part of them."""


ROUND_MS = 20
"""Between two rounds of the flusher, where a test has it at work."""
FEW = 8
"""Records that fill less than two log files: the flusher begins no round of its own for them."""


def body(number: int) -> bytes:
    return b"%08d" % number + bytes((number,)) * (number * 53 % 700)


class Scenario:
    """Puts, flushes, a cut, an expiry and a close, with what was acknowledged on the way."""

    def __init__(self, core: Any, root: Path, door: FaultyDoor) -> None:
        self.acknowledged: list[Put] = []
        self.failure: Failed | None = None
        self.was_closed = False

        try:
            self.store = Calls(core, root, door.vfs)
        except Failed as failure:
            self.failure = failure
            return

        try:
            self.run()
        except Failed as failure:
            self.failure = failure

        try:
            self.store.close()
            self.was_closed = True
        except Failed as failure:
            self.failure = self.failure or failure

    def put_flushed(self, numbers: range) -> None:
        puts = [self.store.put(body(number), queue_id=number % 2) for number in numbers]
        self.store.wait_flushed(puts[-1].end_offset)
        self.acknowledged += puts

    def run(self) -> None:
        self.put_flushed(range(12))
        self.store.flush()
        self.put_flushed(range(12, 24))
        cut = self.acknowledged[20].physical_offset
        kept, self.acknowledged = self.acknowledged[:20], self.acknowledged[:20]
        self.store.truncate(cut)
        self.put_flushed(range(30, 42))
        self.acknowledged = [put for put in self.acknowledged if put.physical_offset >= 4096]
        self.store.expire(1)
        self.store.flush()
        assert kept[0].physical_offset == 0


@pytest.mark.parametrize(
    ("call", "os_errno", "count"),
    [
        pytest.param(ANY, errno.EIO, 1, id="any call once"),
        pytest.param(ANY, errno.EIO, CALLS_MAX, id="every call from then on"),
        pytest.param(SYNC, errno.EIO, 1, id="sync"),
        pytest.param(WRITE, errno.EIO, 1, id="write"),
        pytest.param(MAP, errno.ENOMEM, 1, id="map"),
        pytest.param(OPEN, errno.EMFILE, 1, id="open"),
        pytest.param(RESIZE, errno.ENOSPC, 1, id="resize, no space"),
        pytest.param(ALLOCATE, errno.ENOSPC, 2, id="allocate, no space"),
        pytest.param(ZERO, errno.EIO, 1, id="zero"),
        pytest.param(UNLINK, errno.EACCES, 1, id="unlink"),
        pytest.param(DIRECTORY, errno.EIO, 1, id="directory"),
    ],
)
def test_store_survives_the_failure_of_each_call(
    call: int, os_errno: int, count: int, core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    """The failing call is named in the error; what was flushed before is there afterwards."""
    for number in range(0, CALLS_MAX, STEP):
        root = tmp_path / str(number)
        door.arm(call, number, os_errno, count=count)
        scenario = Scenario(core, root, door)
        was_reached = door.count(call) > number
        door.disarm()
        if scenario.failure is not None:
            assert was_reached, scenario.failure
            assert scenario.failure.detail
        store = Calls(core, root)
        store.check_holds(scenario.acknowledged)
        after = store.put(body(99))
        store.check_holds([after])
        store.close()
        if not was_reached:
            assert scenario.was_closed
            return
    pytest.fail(f"the scenario makes more than {CALLS_MAX} calls")


def test_confirm_offset_rises_while_the_disk_does_not_take_a_checkpoint(
    core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    store.set_confirm_offset(0)
    first, second = store.put(body(1)), store.put(body(2))
    store.set_confirm_offset(first.end_offset)
    store.wait_dispatched(first.end_offset)
    flusher = store.store.flusher
    with ThreadPoolExecutor() as threads:
        door.hold(WRITE)
        flushing = threads.submit(store.flush)
        spin_until(lambda: flusher.thorough_offset == first.physical_offset and door.held, "a save")
        rising = threads.submit(store.set_confirm_offset, second.end_offset)
        is_free = not wait([rising], timeout=WAIT_S).not_done
        door.release()
        flushing.result()
    assert is_free
    store.flush()
    assert flusher.written.confirm_offset == second.end_offset
    store.set_confirm_offset(None)
    store.close()


def test_confirm_offset_is_unset_then_a_bound_then_the_log_end_and_a_bound_again(
    core: Any, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path)
    lib = store.lib

    def present() -> tuple[int, int]:
        confirm = lib.rmq_store_confirm_bound(store.store)
        return confirm.mode, confirm.offset

    store.put(body(1))
    assert present() == (lib.RMQ_CONFIRM_UNSET, 0)

    store.set_confirm_offset(0)
    assert (present(), lib.rmq_store_confirmed(store.store)) == ((lib.RMQ_CONFIRM_BOUND, 0), 0)

    lib.rmq_store_confirm(store.store, {"mode": lib.RMQ_CONFIRM_LOG_END})
    lib.rmq_store_confirm(store.store, {"mode": lib.RMQ_CONFIRM_BOUND, "offset": 0})
    end = store.put(body(2)).end_offset
    assert present() == (lib.RMQ_CONFIRM_LOG_END, 0)
    assert lib.rmq_store_confirmed(store.store) == end

    assert lib.rmq_store_hold_confirmed(store.store) == end
    assert present() == (lib.RMQ_CONFIRM_BOUND, end)
    store.set_confirm_offset(None)
    assert present() == (lib.RMQ_CONFIRM_UNSET, 0)
    store.close()


def test_no_checkpoint_vouches_for_a_log_whose_restart_failed(
    core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    """A round of the flusher has begun to wait when the log is emptied and its sync fails."""
    store = Calls(core, tmp_path, door.vfs, **{"flush.log_interval_ms": ROUND_MS})
    store.put(body(1))
    store.wait_dispatched(store.end_offset)
    store.flush()
    flusher = store.store.flusher

    def restart() -> None:
        store.check(store.lib.rmq_store_restart(store.store, LOG_FILE_SIZE * 9, store.error))

    with ThreadPoolExecutor() as threads:
        door.hold(ZERO)
        restarting = threads.submit(restart)
        try:
            spin_until(lambda: door.held, "the log is emptied")
            flusher.is_hurried = True
            # A round that began to wait before that leaves it set.
            until = time.monotonic() + 20 * ROUND_MS / 1000
            spin_until(lambda: not flusher.is_hurried or time.monotonic() > until, "a round")
            door.arm(SYNC, 0, errno.EIO)
        finally:
            door.release()
        with pytest.raises(Failed, match="planned failure of sync"):
            restarting.result()
    door.disarm()
    with pytest.raises(Failed):
        store.flush()  # after the round
    store.abandon()

    store = Calls(core, tmp_path)
    assert store.recovery.records == 0
    store.close()


def hold_the_dispatcher(store: Calls, door: FaultyDoor) -> None:
    """Return once the dispatcher of *store* is held while it makes the folder of a queue."""
    store.wait_dispatched(store.put(body(0)).end_offset)
    door.hold(DIRECTORY)
    store.put(body(0), topic=b"first")
    spin_until(lambda: door.held, "the dispatcher makes a folder")


def test_put_to_a_new_queue_does_not_wait_for_the_folder_of_another(
    core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    with ThreadPoolExecutor() as threads:
        hold_the_dispatcher(store, door)
        putting = threads.submit(store.put, body(1), topic=b"second")
        is_free = not wait([putting], timeout=WAIT_S).not_done
        door.release()
        putting.result()
    assert is_free
    store.wait_dispatched(store.end_offset)
    store.close()


def test_wait_for_dispatching_that_begins_late_times_out_at_once(
    core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    with ThreadPoolExecutor() as threads:
        hold_the_dispatcher(store, door)
        waiting = threads.submit(store.wait_dispatched, store.end_offset, timeout_ms=-1_999)
        is_over = not wait([waiting], timeout=WAIT_S).not_done
        door.release()
        with pytest.raises(Failed, match="in -1999 ms"):
            waiting.result()
    assert is_over
    store.wait_dispatched(store.end_offset)
    store.close()


def test_bytes_in_the_place_of_a_lost_tail_that_was_confirmed_are_not_shown(
    core: Any, tmp_path: Path
) -> None:
    master, slave = Calls(core, tmp_path / "master"), Calls(core, tmp_path / "slave")
    kept, other = master.put(body(1)), master.put(body(2))
    data = master.ffi.new("uint8_t[]", other.size)
    at = other.physical_offset
    master.check(master.lib.rmq_store_copy(master.store, at, data, other.size, master.error))
    master.close()

    assert slave.put(body(1)).end_offset == kept.end_offset
    slave.flush()
    slave.abandon()

    path = tmp_path / "slave" / "checkpoint"
    fields = checkpoint.decode(path.read_bytes())
    path.write_bytes(replace(fields, confirm_offset=other.end_offset).encode())

    slave = Calls(core, tmp_path / "slave", keep_confirm_offset=True)
    slave.check(slave.lib.rmq_store_append_raw(slave.store, at, data, other.size, slave.error))
    slave.wait_dispatched(other.end_offset)
    assert slave.store.dispatcher.dispatched_offset == kept.end_offset
    slave.close()


@pytest.mark.parametrize("which", [1, 70, 110, 190])
def test_failing_sync_of_one_of_many_queues_ends_the_writing(
    which: int, core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    """100 files, then their folders; the log comes first."""
    store = Calls(core, tmp_path, door.vfs, log_file_size=1 << 20)
    for number in range(100):
        last = store.put(body(1), queue_id=number)
    store.wait_flushed(last.end_offset)
    store.wait_dispatched(last.end_offset)

    door.arm(SYNC if which <= 100 else DIRECTORY, which % 100, errno.EIO)
    with pytest.raises(Failed):
        store.flush()
    door.disarm()
    with pytest.raises(Failed, match="read-only after a failure"):
        store.put(body(2))
    with pytest.raises(Failed):
        store.close()
    assert checkpoint.decode((tmp_path / "checkpoint").read_bytes()).logics_physical_offset == 0


@pytest.mark.parametrize("how", ["flush", "wait"])
def test_failing_sync_turns_the_store_read_only_for_good(
    how: str, core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    safe = store.put(body(1))
    store.wait_flushed(safe.end_offset)
    unsafe = store.put(body(2))
    store.wait_dispatched(store.end_offset)

    door.arm(SYNC, 0, errno.EIO, count=EVERY)
    acts: dict[str, Callable[[], None]] = {
        "flush": store.flush,
        "wait": lambda: store.wait_flushed(unsafe.end_offset),
    }

    with pytest.raises(Failed) as caught:
        acts[how]()
    door.disarm()
    assert caught.value.status in (store.lib.RMQ_NOT_WRITABLE, store.lib.RMQ_IO)

    for _ in range(3):
        with pytest.raises(Failed, match="read-only after a failure") as caught:
            store.put(body(3))
        assert caught.value.status == store.lib.RMQ_NOT_WRITABLE
        with pytest.raises(Failed):
            store.wait_flushed(unsafe.end_offset)
        with pytest.raises(Failed):
            store.flush()

    store.check_holds([safe])
    with pytest.raises(Failed):
        store.close()
    assert (tmp_path / "abort").exists()

    store = Calls(core, tmp_path)
    assert not store.recovery.was_closed
    store.check_holds([safe])
    store.close()


def waiting(store: Calls) -> int:
    """Return how many callers are queued up behind the leader of a sync."""
    count, waiter = 0, store.store.flusher.waiters
    while waiter != store.ffi.NULL:
        count, waiter = count + 1, waiter.next
    return count


def test_waiter_whose_time_is_up_leaves_the_queue(core: Any, tmp_path: Path) -> None:
    store = Calls(core, tmp_path)
    put = store.put(body(1))
    store.store.flusher.syncing = True
    for _ in range(2):
        with pytest.raises(Failed, match="not flushed in 20 ms") as caught:
            store.wait_flushed(put.end_offset, timeout_ms=20)
        assert caught.value.status == store.lib.RMQ_FLUSH_TIMEOUT
        assert waiting(store) == 0
    store.store.flusher.syncing = False
    store.wait_flushed(put.end_offset)
    store.close()


@pytest.mark.parametrize("is_failing", [False, True])
def test_one_sync_ends_the_wait_of_everybody_who_queued_up(
    is_failing: bool, core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    puts = [store.put(body(number)) for number in range(8)]
    store.wait_dispatched(puts[-1].end_offset)
    flusher = store.ffi.addressof(store.store, "flusher")

    with store.no_rounds(), ThreadPoolExecutor(len(puts)) as pool:
        if is_failing:
            # Not the first alone: that one may be of the file that is made ahead.
            door.arm(SYNC, 0, errno.EIO, count=EVERY)
        store.store.flusher.syncing = True
        waits = [
            pool.submit(store.lib.rmq_flusher_wait, flusher, put.end_offset, 60_000, store.ffi.NULL)
            for put in puts
        ]

        spin_until(lambda: waiting(store) == len(puts), "every put waits")
        before = door.count(SYNC)
        store.store.flusher.syncing = False
        statuses = {store.lib.rmq_flusher_wait(flusher, store.end_offset, 60_000, store.ffi.NULL)}
        statuses |= {wait.result() for wait in waits}

    # Files made ahead are synced, too, whenever their thread comes to it.
    assert 1 <= door.count(SYNC) - before < len(puts) // 2
    assert statuses == {store.lib.RMQ_NOT_WRITABLE if is_failing else store.lib.RMQ_OK}
    assert waiting(store) == flusher.queued == 0
    assert flusher.expected == len(puts) + 1
    door.disarm()
    if is_failing:
        store.abandon()
    else:
        store.close()


def test_leader_waits_for_others_for_a_moment_only(core: Any, tmp_path: Path) -> None:
    store = Calls(core, tmp_path)
    flusher = store.store.flusher
    for limit_us in (0, 5000, 10**12):
        put = store.put(body(1))
        flusher.expected, flusher.sync_us = 99, limit_us
        store.wait_flushed(put.end_offset)
        assert store.store.flusher.expected == 1
        assert (flusher.gathered, flusher.queued) == (0, 0)
    store.close()


def test_checkpoint_of_a_store_whose_sync_failed_names_nothing_later(
    core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    for number in range(4):
        store.put(body(number))
    store.wait_dispatched(store.end_offset)

    store.flush()
    before = (tmp_path / "checkpoint").read_bytes()

    for number in range(4, 8):
        store.put(body(number))
    store.wait_dispatched(store.end_offset)

    # The warmer syncs a new file too, without a look at the outcome.
    warmer = store.store.log.warmer
    warmer.is_held = True
    spin_until(lambda: not warmer.is_busy, "the end of its round")

    # The sync of the log alone fails; syncs of the queues would succeed.
    door.arm(SYNC, 0, errno.EIO)
    with pytest.raises(Failed):
        store.flush()

    door.disarm()
    with pytest.raises(Failed):
        store.close()

    assert (tmp_path / "checkpoint").read_bytes() == before


@pytest.mark.parametrize("call", [RESIZE, ALLOCATE])
def test_log_that_cannot_grow_says_so_and_goes_on_once_there_is_space(
    call: int, core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    puts = [store.put(body(0))]

    door.arm(call, 0, errno.ENOSPC, count=EVERY)
    refused = None

    for number in range(1, 100):
        try:
            puts.append(store.put(body(number)))
        except Failed as failure:
            refused = failure
            break

    assert refused is not None
    assert refused.status == store.lib.RMQ_NO_SPACE
    assert refused.os_errno == errno.ENOSPC

    end = store.end_offset
    with pytest.raises(Failed):
        store.put(body(100))
    assert store.end_offset == end

    door.disarm()
    puts += [store.put(body(number)) for number in range(50, 60)]
    assert [put.queue_offset for put in puts] == list(range(len(puts)))
    store.check_holds(puts)
    store.close()

    store = Calls(core, tmp_path)
    assert store.recovery.was_closed
    store.check_holds(puts)
    store.close()


@pytest.mark.parametrize("queue_id", [pytest.param(0, id="old"), pytest.param(2, id="new")])
def test_store_goes_on_once_its_process_has_free_descriptors_again(
    queue_id: int, core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    store = Calls(core, tmp_path, door.vfs)
    puts = [store.put(body(1)), store.put(body(2), queue_id=1)]
    store.wait_dispatched(store.end_offset)

    door.arm(OPEN, 0, errno.EMFILE, count=EVERY)
    with pytest.raises(Failed) as unflushed:
        store.flush()
    assert unflushed.value.os_errno == errno.EMFILE
    # One put: once the dispatcher has met the lack, puts are refused.
    puts.append(store.put(body(3), queue_id=queue_id))
    with pytest.raises(Failed, match=r"once there is room.*Too many open files") as waiting:
        store.wait_dispatched(store.end_offset)
    assert waiting.value.status == store.lib.RMQ_NO_SPACE

    door.disarm()
    store.check_holds(puts)
    store.close()
    store = Calls(core, tmp_path)
    assert store.recovery.was_closed
    store.check_holds(puts)
    store.close()


def test_short_write_of_the_checkpoint_leaves_a_store_that_opens(
    core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    for short in (0, 1, 8, 20, 47):
        root = tmp_path / str(short)
        store = Calls(core, root, door.vfs)
        puts = [store.put(body(number)) for number in range(FEW)]
        store.flush()
        puts.append(store.put(body(FEW)))
        store.wait_dispatched(store.end_offset)
        door.arm(WRITE, 0, errno.EIO, count=EVERY, short=short)
        with pytest.raises(Failed):
            store.flush()
        door.disarm()
        with pytest.raises(Failed):
            store.close()
        store = Calls(core, root)
        store.check_holds(puts)
        store.close()


def test_checkpoint_that_finds_no_space_leaves_the_store_usable(
    core: Any, door: FaultyDoor, tmp_path: Path
) -> None:
    """An old checkpoint only makes the next recovery longer."""
    store = Calls(core, tmp_path, door.vfs)
    puts = [store.put(body(number)) for number in range(FEW)]
    store.wait_dispatched(store.end_offset)
    door.arm(WRITE, 0, errno.ENOSPC, count=EVERY)
    with pytest.raises(Failed) as caught:
        store.flush()
    assert caught.value.status == store.lib.RMQ_NO_SPACE
    door.disarm()
    puts.append(store.put(body(FEW)))
    store.flush()
    store.abandon()
    store = Calls(core, tmp_path)
    store.check_holds(puts)
    store.close()
