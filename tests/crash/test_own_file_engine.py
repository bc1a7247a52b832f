"""Promises of the engine for one node about its files: power loss, full and failing disks, damage.

Kills are in `test_controller_engines`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.controller.engines.engine import Leadership, Outcome
from rmqstore.controller.engines.files import OsDirectory
from rmqstore.controller.engines.own_file import OwnFileEngine
from rmqstore.errors import CorruptionError, DiskError, StoreLockedError
from tests.support.disk_model import Disk, State
from tests.support.effort import rounds
from tests.support.engine_files import ModelDirectory
from tests.support.engine_history import History, commit

SEED = int(os.environ.get("RMQ_SEED", "20261122"))
COMPACTION = 200


def run(directory: ModelDirectory, *, snapshot_entries: int = COMPACTION) -> History:
    """Return the state that a start on *directory* finds."""

    async def find() -> History:
        history, engine = History(), OwnFileEngine(directory, snapshot_entries=snapshot_entries)
        await history.start(engine)
        await engine.close()
        return history

    return asyncio.run(find())


def test_power_loss_at_every_moment_keeps_what_was_acknowledged() -> None:
    directory = ModelDirectory()
    acknowledged: list[tuple[int, int]] = []
    """Effects so far, and commands that were acknowledged by then."""

    async def write() -> None:
        history, engine = History(), OwnFileEngine(directory, snapshot_entries=5)
        await history.start(engine)
        for number in range(0, 24, 2):
            pair = (commit(engine, f"{each:>700}") for each in (number, number + 1))
            places = await asyncio.gather(*pair)
            acknowledged.append((len(directory.effects), max(places)))
        await engine.close()

    asyncio.run(write())
    rng, disk = random.Random(SEED), Disk()
    least, states = 0, 0
    for count, effect in enumerate(directory.effects, 1):
        disk.apply(effect)
        least = max((held for at, held in acknowledged if at <= count), default=0)
        for state in disk.crash_states(rounds(6, 40), rng):
            _check_after_power_loss(state, least)
            states += 1
    assert least == 24
    assert states > len(directory.effects) > 24


def _check_after_power_loss(state: State, least: int) -> None:
    if "log" not in state:
        assert least == 0
        return
    restarted = ModelDirectory(state)
    history = run(restarted, snapshot_entries=5)
    numbers = [int(each) for each in history.commands]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= least
    # Another start finds the same commands: the recovery is durable.
    assert run(ModelDirectory(dict(restarted.files))).commands == history.commands


def test_failed_operation_loses_nothing_whichever_it_is() -> None:
    for number in range(60):
        if not _fail_once(number, errno.ENOSPC):
            break
    else:
        pytest.fail("there are fewer operations")
    assert number > 20


def _fail_once(number: int, code: int) -> bool:
    """Let operation *number* fail; return whether there was an operation of that number."""
    count = -1
    failed = ""

    def before(act: str) -> None:
        nonlocal count, failed
        count += 1
        if count == number:
            failed = act
            raise OSError(code, os.strerror(code))

    directory = ModelDirectory(before=before)
    held: set[str] = set()

    async def write() -> None:
        history, engine = History(), OwnFileEngine(directory, snapshot_entries=5)

        try:
            await history.start(engine)
        except DiskError:
            return

        for each in range(12):
            try:
                outcome, _ = await engine.propose(str(each).encode(), timeout=30)
            except DiskError:
                assert failed == "write"
                continue

            if outcome is Outcome.COMMITTED:
                held.add(str(each))

        if engine.failure is None:
            assert len(held) >= 11
        else:
            assert failed in ("sync", "open", "truncate", "replace")
            assert not engine.leadership().is_leader

        await engine.close()

    asyncio.run(write())
    after = run(ModelDirectory(dict(directory.files)))
    assert held <= set(after.commands)
    return bool(failed)


def test_full_disk_refuses_commands_and_takes_them_again_when_there_is_room() -> None:
    is_full = False

    def before(act: str) -> None:
        if is_full and act == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def fill() -> list[str]:
        nonlocal is_full
        history, engine = History(), OwnFileEngine(ModelDirectory(before=before))
        await history.start(engine)
        await commit(engine, "a")
        is_full = True
        with pytest.raises(DiskError, match="make room"):
            await engine.propose(b"b", timeout=30)
        assert engine.leadership().is_leader
        is_full = False
        await commit(engine, "c")
        await engine.close()
        return history.commands

    assert asyncio.run(fill()) == ["a", "c"]


def test_failed_sync_ends_the_engine_and_is_not_tried_again() -> None:
    acts: list[str] = []

    def before(act: str) -> None:
        acts.append(act)
        if act == "sync" and acts.count("sync") == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def write() -> None:
        seen: list[Leadership] = []
        history, engine = History(), OwnFileEngine(ModelDirectory(before=before))
        engine.watch(seen.append)
        await history.start(engine)
        await commit(engine, "a")
        assert await engine.propose(b"b", timeout=30) == (Outcome.UNKNOWN, None)
        assert await engine.propose(b"c", timeout=30) == (Outcome.NOT_LEADER, None)
        assert await engine.read_barrier(timeout=30) is None
        assert "syncing the log of the controller failed" in str(engine.failure)
        assert [each.is_leader for each in seen] == [True, False]
        await engine.close()

    asyncio.run(write())
    assert acts.count("sync") == 3


def _written(commands: int) -> bytes:
    directory = ModelDirectory()

    async def write() -> None:
        history, engine = History(), OwnFileEngine(directory)
        await history.start(engine)
        for each in range(commands):
            await commit(engine, str(each))
        await engine.close()

    asyncio.run(write())
    return directory.files["log"]


def test_log_that_ends_at_any_byte_of_its_last_record_loses_that_record_alone() -> None:
    shorter, log = _written(3), _written(4)
    assert log.startswith(shorter)
    for end in range(len(shorter) + 1, len(log)):
        directory = ModelDirectory({"log": log[:end]})
        assert run(directory).commands == ["0", "1", "2"], end
        assert directory.files[f"torn-{len(shorter)}"] == log[len(shorter) : end]


def test_damage_before_the_last_record_refuses_to_start() -> None:
    shorter, log = _written(3), _written(4)
    for at in range(len(shorter)):
        damaged = log[:at] + bytes([log[at] ^ 0x10]) + log[at + 1 :]
        with pytest.raises(CorruptionError, match="restore the directory from a copy"):
            run(ModelDirectory({"log": damaged}))


def test_command_that_contains_a_record_is_not_taken_for_one() -> None:
    log = _written(3)
    directory = ModelDirectory()

    async def write() -> None:
        engine = OwnFileEngine(directory)
        await engine.start(lambda *_: b"", lambda: b"", lambda _: None)
        await engine.propose(log, timeout=30)
        await engine.close()

    asyncio.run(write())
    torn = directory.files["log"][:-1]
    assert run(ModelDirectory({"log": torn})).commands == []


@pytest.mark.parametrize("broken", ["snapshot", "no log", "older snapshot"])
def test_damaged_snapshot_or_missing_file_refuses_to_start(broken: str) -> None:
    directory = ModelDirectory()
    kept: list[dict[str, bytes]] = []

    async def write() -> None:
        history, engine = History(), OwnFileEngine(directory, snapshot_entries=3)
        await history.start(engine)
        for each in range(9):
            await commit(engine, str(each))
            kept.append(dict(directory.files))
        await engine.close()

    asyncio.run(write())
    files = dict(directory.files)
    assert run(ModelDirectory(dict(files))).commands == [str(each) for each in range(9)]
    if broken == "snapshot":
        files["snapshot"] = files["snapshot"][:-1] + b"?"
    elif broken == "no log":
        del files["log"]
    else:
        files["snapshot"] = next(each["snapshot"] for each in kept if "snapshot" in each)
    with pytest.raises(CorruptionError, match="restore the directory from a copy"):
        run(ModelDirectory(dict(files)))


def test_each_start_begins_a_higher_term(tmp_path: Path) -> None:
    async def term() -> int:
        history, engine = History(), OwnFileEngine(tmp_path / "log")
        await history.start(engine)
        found = engine.leadership().term
        await engine.close()
        return found

    assert [asyncio.run(term()) for _ in range(3)] == [1, 2, 3]


def test_directory_in_use_is_refused_and_names_the_process(tmp_path: Path) -> None:
    first = OsDirectory(tmp_path / "log")
    try:
        with pytest.raises(StoreLockedError, match="controllerStorePath") as caught:
            OsDirectory(tmp_path / "log")
        assert caught.value.process_id == os.getpid()
    finally:
        first.close()
    OsDirectory(tmp_path / "log").close()


def test_failure_of_apply_ends_the_engine() -> None:
    async def write() -> None:
        def apply(index: int, term: int, command: bytes) -> bytes:
            raise ValueError("a fault")

        engine = OwnFileEngine(ModelDirectory())
        await engine.start(apply, lambda: b"", lambda _: None)
        assert await engine.propose(b"a", timeout=30) == (Outcome.UNKNOWN, None)
        assert "a fault" in str(engine.failure)
        await engine.close()

    asyncio.run(write())


def test_proposal_that_takes_too_long_is_unknown_and_may_be_committed() -> None:
    async def write(hold: Callable[[], None]) -> list[str]:
        def before(act: str) -> None:
            if act == "write" and history.commands:
                hold()

        history = History()
        engine = OwnFileEngine(ModelDirectory(before=before))
        await history.start(engine)
        await commit(engine, "a")
        assert await engine.propose(b"b", timeout=0.01) == (Outcome.UNKNOWN, None)
        released.set()
        await commit(engine, "c")
        await engine.close()
        return history.commands

    released = threading.Event()
    assert asyncio.run(write(lambda: bool(released.wait(60)) and None)) == ["a", "b", "c"]


def test_defect_10_log_does_not_grow_with_the_number_of_commands() -> None:
    sizes: list[int] = []

    async def write() -> None:
        directory = ModelDirectory()
        engine = OwnFileEngine(directory, snapshot_entries=10)
        await engine.start(lambda *_: b"", lambda: b"state", lambda _: None)
        for _ in range(300):
            await engine.propose(b"x" * 50, timeout=30)
            sizes.append(sum(map(len, directory.files.values())))
        await engine.close()

    asyncio.run(write())
    assert max(sizes) < 3000
