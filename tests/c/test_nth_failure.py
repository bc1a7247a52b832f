"""Every public call of the core with its first, second, third ... inner call failing, until none
is left to fail: requests for memory, threads and mappings, and every call of the file door.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from tests.c.every_call import ACTS, STATES, Act, History
from tests.c.more_calls import Store, body_of
from tests.c.store_calls import ANY, MAP, OPEN, RESIZE, SYNC, WRITE, Failed, FaultyDoor
from tests.support.effort import is_long

CALLS_MAX = 1000
"""More inner calls than any act makes."""
MANY = 1 << 40


class Plan(Protocol):
    """Makes chosen inner calls of the core fail."""

    vfs: Any

    def arm(self, first: int) -> None: ...
    def disarm(self) -> None: ...
    def count(self) -> int: ...


class MemoryPlan:
    """Requests for memory, mappings and threads, one or all from the first on."""

    def __init__(self, core: Any, count: int) -> None:
        self.ffi, self.lib = core
        self.failing = count
        self.vfs = None

    def arm(self, first: int) -> None:
        self.lib.failing_memory_arm(first, self.failing)

    def disarm(self) -> None:
        self.lib.failing_memory_arm(0, 0)

    def count(self) -> int:
        return int(self.lib.failing_memory_count())


class DoorPlan:
    """Calls of the file door of one kind."""

    def __init__(self, door: FaultyDoor, call: int, os_errno: int, count: int) -> None:
        self.door = door
        self.call, self.os_errno, self.failing = call, os_errno, count
        self.vfs = door.vfs

    def arm(self, first: int) -> None:
        self.door.arm(self.call, first, self.os_errno, count=self.failing, short=SHORT_BYTES)

    def disarm(self) -> None:
        self.door.disarm()

    def count(self) -> int:
        return self.door.count(self.call)


class Held(NamedTuple):
    """What the core holds of the machine."""

    blocks: int
    mappings: int
    descriptors: int


def held(core: Any, root: Path) -> Held:
    _, lib = core
    descriptors = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors += os.readlink(f"/proc/self/fd/{name}").startswith(str(root))
        except FileNotFoundError:
            continue  # The descriptor of the listing itself.
    return Held(lib.failing_memory_blocks(), lib.failing_memory_mappings(), descriptors)


@pytest.fixture(scope="module")
def states(
    failing_core: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, History]]:
    folder = tmp_path_factory.mktemp("states")
    return {
        name: (folder / name, make(failing_core, folder / name)) for name, make in STATES.items()
    }


@pytest.fixture
def door(failing_core: Any) -> Iterator[FaultyDoor]:
    made = FaultyDoor(failing_core)
    yield made
    made.free()


def check_clear(failure: Failed) -> None:
    """A reader of the error can tell what was refused, and where."""
    assert failure.detail
    assert failure.status != 0


def check_usable(store: Store, history: History, *, read_only: bool) -> None:
    """Calls no longer fail: the store continues, or reports its failure.

    A thread of the store can meet its failure during the act and report it during any call here.
    """
    body = body_of(90)
    try:
        history.add([store.put(body)])
        store.wait_flushed(store.end_offset)
        history.check(store.check_agreement())
    except Failed as failure:
        lib = store.lib
        check_clear(failure)
        refusals = lib.RMQ_READ_ONLY if read_only else lib.RMQ_NOT_WRITABLE
        assert failure.status == refusals, failure  # noqa: PT017 - going on is right too


def check_reopened(core: Any, root: Path, history: History) -> None:
    """Everything acknowledged is there, nothing is half there, and the store goes on."""
    store = Store(core, root)
    history.check(store.check_agreement())
    history.add([store.put(body_of(91))])
    rows = store.check_agreement()
    assert rows[-1].body == body_of(91)
    store.close()
    store = Store(core, root, read_only=True)
    assert store.walk() == rows
    store.close()


class Trial:
    """One run of an act on a store of its own, with one inner call failing."""

    def __init__(self, core: Any, act: Act, plan: Plan, root: Path, history: History) -> None:
        self.core, self.act, self.plan = core, act, plan
        self.root, self.history = root, history
        self.store: Store | None = None
        self.failure: Failed | None = None
        self.was_reached = False

    def open(self) -> Store:
        self.store = Store(self.core, self.root, self.plan.vfs, **self.act.settings)
        return self.store

    def run(self, first: int) -> None:
        """Do the act with inner call number *first* failing, go on, and close."""
        before = held(self.core, self.root)
        try:
            self._fail(first)
            if self.failure is not None:
                assert self.was_reached, self.failure
                check_clear(self.failure)
            self._go_on()
        finally:
            # Threads of a store must not outlive the door it was opened through.
            if self.store is not None and self.store.is_open:
                self.store.abandon()
        assert held(self.core, self.root) == before

    def _fail(self, first: int) -> None:
        if not self.act.opens:
            store = self.open()
            if self.act.before:
                self.act.before(store, self.history)
        self.plan.arm(first)
        try:
            store = self.store or self.open()
            store.has_failed = lambda: self.plan.count() > first
            self.act.run(store, self.history)
        except Failed as failed:
            self.failure = failed
        finally:
            self.was_reached = self.plan.count() > first
            self.plan.disarm()
            if self.store is not None:
                self.store.has_failed = lambda: False

    def _go_on(self) -> None:
        if self.store is None or not self.store.is_open:
            return
        read_only = bool(self.act.settings.get("read_only"))
        check_usable(self.store, self.history, read_only=read_only)
        try:
            self.store.close()
        except Failed as failed:
            assert self.was_reached
            check_clear(failed)


SHORT_PLANS: dict[str, tuple[int | None, int, int]] = {
    "memory once": (None, 0, 1),
    "any call once, EIO": (ANY, errno.EIO, 1),
    "any call from then on, ENOSPC": (ANY, errno.ENOSPC, MANY),
}
LONG_PLANS: dict[str, tuple[int | None, int, int]] = {
    "memory from then on": (None, 0, MANY),
    "any call from then on, EIO": (ANY, errno.EIO, MANY),
    "any call once, ENOSPC": (ANY, errno.ENOSPC, 1),
    "any call once, EINTR": (ANY, errno.EINTR, 1),
    "any call once, EROFS": (ANY, errno.EROFS, 1),
    "map once, ENOMEM": (MAP, errno.ENOMEM, 1),
    "open once, EMFILE": (OPEN, errno.EMFILE, 1),
    "resize from then on, ENOSPC": (RESIZE, errno.ENOSPC, MANY),
    "write once, EIO": (WRITE, errno.EIO, 1),
    "sync once, ENOSPC": (SYNC, errno.ENOSPC, 1),
}
PLANS = {**SHORT_PLANS, **(LONG_PLANS if is_long() else {})}
SHORT_BYTES = 13
"""Of a write that fails, so much reaches the file."""


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_act_survives_the_failure_of_each_inner_call(
    act: Act,
    plan: str,
    failing_core: Any,
    door: FaultyDoor,
    states: dict[str, tuple[Path, History]],
    tmp_path: Path,
) -> None:
    call, os_errno, count = PLANS[plan]
    made: Plan = (
        MemoryPlan(failing_core, count) if call is None else DoorPlan(door, call, os_errno, count)
    )
    template, start = states[act.start]
    for first in range(CALLS_MAX):
        root = tmp_path / str(first)
        shutil.copytree(template, root)
        trial = Trial(failing_core, act, made, root, start.copy())
        trial.run(first)
        check_reopened(failing_core, root, trial.history)
        shutil.rmtree(root)
        if not trial.was_reached:
            return
    pytest.fail(f"{act.name} makes more than {CALLS_MAX} calls")
