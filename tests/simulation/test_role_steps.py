"""Each step of a role change is needed, and at its place: without it, or with the next one before
it, a seed of the simulator, a power loss or a scenario fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqstore import NotWritable, sim
from rmqstore.replication import Master, ReplicatedStore, Slave
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.group.roles import Change, RoleMachine
from tests.c import library
from tests.c.store_calls import Failed
from tests.crash.test_role_change import lose_power
from tests.scenarios.ha_model import ModelLog
from tests.scenarios.store_logs import open_store
from tests.support.role_changes import done
from tests.support.waiting import spin_until

SEEDS = range(1, 60)


@dataclass(frozen=True)
class Seeds:
    """Worlds of which one fails."""

    faults: sim.Faults | None = None
    are_slow: bool = False
    """Disks are, and masters send in small pieces."""

    def show(self, path: Path) -> None:
        for seed in SEEDS:
            shape = sim.Shape.drawn(Random(seed), replicas=3)
            if self.are_slow:
                pieces = {"batch_bytes": 50, "window_bytes": 200, "bytes_per_second": 0}
                shape = replace(shape, sync_ms=100, options=replace(shape.options, **pieces))
            outcome = sim.run(seed, faults=self.faults, shape=shape)
            assert outcome.is_sound, outcome.violation


@dataclass(frozen=True)
class PowerLoss:
    """A change of tests/crash/test_role_change.py."""

    name: str

    def show(self, path: Path) -> None:
        lose_power(self.name, library.load(), path, states_each=12)


@dataclass(frozen=True)
class Scenario:
    """A function that plays with a store."""

    play: Callable[[Path], None]

    def show(self, path: Path) -> None:
        self.play(path)


def puts_wait_for_the_dispatcher(path: Path) -> None:
    with (
        open_store(path / "store") as store,
        ReplicatedStore(store, broker_id=1) as replica,
        pytest.MonkeyPatch.context() as patch,
    ):
        puts = []

        def wait(*_: object, **__: object) -> None:
            try:
                store.put("orders", b"early")
            except NotWritable:
                puts.append("refused")
            else:
                puts.append("accepted")

        patch.setattr(store, "wait_dispatched", wait)
        replica.become_master(1)
        assert puts == ["refused"]


def puts_wait_for_the_next_epoch(path: Path) -> None:
    """A master that becomes master of a later epoch accepts none of them meanwhile."""
    with (
        open_store(path / "store") as store,
        ReplicatedStore(store, broker_id=1) as replica,
        pytest.MonkeyPatch.context() as patch,
    ):
        replica.become_master(1)
        puts = []

        def wait(*_: object, **__: object) -> None:
            try:
                store.put("orders", b"between")
            except NotWritable:
                puts.append("refused")

        patch.setattr(store, "wait_flushed", wait)
        replica.become_master(2)
        assert puts == ["refused"]


def an_order_binds_the_present_connection(path: Path) -> None:
    with (
        open_store(path / "a") as one,
        open_store(path / "b") as two,
        Master(one, listen="127.0.0.1:0", broker_id=1, epoch=1) as master,
    ):
        assert master.address is not None
        with Slave(two, master=master.address, broker_id=2) as slave:
            master.wait_in_sync(2)
            slave.become_slave(master.address, epoch=2)

            def is_left() -> bool:
                status = slave.master_status
                return status is not None and "replaced" in status.last_error

            spin_until(is_left, "a master of an older epoch is left", timeout=2)


ELECTED, ELECTED_AGAIN = PowerLoss("elected"), PowerLoss("elected after a kill")
DEPOSED, FOLLOWED, ORDERED = PowerLoss("deposed"), PowerLoss("followed"), PowerLoss("ordered")
DISPATCH = Scenario(puts_wait_for_the_dispatcher)
LATER = Scenario(puts_wait_for_the_next_epoch)
ORDER = Scenario(an_order_binds_the_present_connection)
SLOW = Seeds(replace(sim.Faults.none(), election=2, slow_reader=3, mean_gap_ms=100), are_slow=True)
ANY = Seeds()

NEEDED = {
    ("to master", "RefusePuts"): LATER,
    ("to master", "Settle"): ANY,
    ("to master", "PromiseConfirm"): ELECTED,
    ("to master", "SaveEpochState"): ELECTED_AGAIN,
    ("to master", "FlushLog"): ELECTED_AGAIN,
    ("to master", "SaveEpochs"): ANY,
    ("to master", "Serve"): ANY,
    ("to master", "AwaitDispatch"): DISPATCH,
    ("to master", "AcceptPuts"): ANY,
    ("to no role", "RefusePuts"): ANY,
    ("to no role", "EndSide"): ANY,
    ("to no role", "FlushLog"): DEPOSED,
    ("to no role", "SaveEpochState"): DEPOSED,
    ("to slave", "SaveEpochState"): FOLLOWED,
    ("to slave", "Gate"): FOLLOWED,
    ("to slave", "Follow"): ANY,
    ("to order", "SaveEpochState"): ORDERED,
    ("to order", "Reorder"): ORDER,
}
"""What fails without a step."""

ORDERED_PAIRS = {
    ("to master", "EndSide", "Settle"): SLOW,
    ("to master", "SaveEpochState", "SaveEpochs"): ELECTED_AGAIN,
    ("to master", "FlushLog", "SaveEpochs"): ELECTED_AGAIN,
    ("to master", "SaveEpochs", "Serve"): ANY,
    ("to master", "Serve", "AcceptPuts"): ANY,
    ("to master", "AwaitDispatch", "AcceptPuts"): DISPATCH,
    ("to no role", "RefusePuts", "EndSide"): ANY,
    ("to no role", "FlushLog", "SaveEpochState"): DEPOSED,
    ("to slave", "SaveEpochState", "SaveEpochState"): DEPOSED,
    ("to slave", "Gate", "Follow"): FOLLOWED,
    ("to order", "SaveEpochState", "Reorder"): ORDERED,
}
"""What fails where two steps, most of them neighbours, are taken in the other order."""

FREE_PAIRS = {
    ("to master", "RefusePuts", "SaveEpochState"): "the log's end is read after both",
    ("to master", "Settle", "PromiseConfirm"): "neither reads what the other one changes",
    ("to master", "Settle", "SaveEpochState"): "neither reads what the other one changes",
    ("to master", "PromiseConfirm", "SaveEpochState"): "only serving needs the two, both of them",
    ("to master", "SaveEpochState", "FlushLog"): "only the epoch list needs the two, both of them",
    ("to master", "Serve", "AwaitDispatch"): "only puts need the two, both of them",
    ("to no role", "EndSide", "FlushLog"): "puts have ended, and nothing else of a master appends",
    ("to slave", "EndSide", "SaveEpochState"): "the order binds the last side, too",
    ("to slave", "EndSide", "Gate"): "the bound of the last side stays",
    ("to slave", "SaveEpochState", "Gate"): "only following needs the two, both of them",
}
"""Neighbours that may be taken in either order, and why."""

WAYS = {
    "to master": "_to_master",
    "to slave": "_to_slave",
    "to order": "_to_order",
    "to no role": "end",
}


def changed(
    way: str, change: Callable[[Change[Any]], Change[Any]], patch: pytest.MonkeyPatch
) -> None:
    """Let the machine take a way as *change* makes it."""
    make = getattr(RoleMachine, WAYS[way])

    def make_changed(self: RoleMachine[Any], *args: Any, **options: Any) -> Change[Any]:
        return change(make(self, *args, **options))

    patch.setattr(RoleMachine, WAYS[way], make_changed)


def without(name: str, effects: Change[Any]) -> Change[Any]:
    return (each for each in effects if type(each).__name__ != name)


def swapped(first: str, second: str, effects: Change[Any]) -> Change[Any]:
    """Yield *effects*, those named *first* only after the next one named *second*."""
    held = []
    for effect in effects:
        name = type(effect).__name__
        if held and name == second:
            yield effect
            yield from held
            held.clear()
        elif name == first:
            held.append(effect)
        else:
            yield effect
    yield from held


@pytest.mark.parametrize(("way", "step"), NEEDED)
def test_a_step_is_needed(
    way: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(way, lambda effects: without(step, effects), monkeypatch)
    with pytest.raises((AssertionError, Failed)):
        NEEDED[way, step].show(tmp_path)


@pytest.mark.parametrize(("way", "first", "second"), ORDERED_PAIRS)
def test_a_step_is_at_its_place(
    way: str, first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(way, lambda effects: swapped(first, second, effects), monkeypatch)
    with pytest.raises((AssertionError, Failed)):
        ORDERED_PAIRS[way, first, second].show(tmp_path)


@pytest.mark.parametrize("scenario", [DISPATCH, ORDER])
def test_nothing_fails_with_all_steps_at_their_places(scenario: Scenario, tmp_path: Path) -> None:
    scenario.show(tmp_path)


def ways_taken() -> Iterator[tuple[str, list[str]]]:
    """Yield the ways that there are between roles, with the names of their steps."""

    def names(change: Change[str]) -> list[str]:
        return [type(each).__name__ for each in done(log, change)]

    log = ModelLog().begin(1).put("abc")
    log.is_gated = True
    roles: RoleMachine[str] = RoleMachine(
        log, quorum=Quorum(in_sync=2), mode=Mode.PLAIN, place="here"
    )
    yield "to master", names(roles.become_master(2))
    yield "to master", names(roles.become_master(3))
    yield "to master", names(roles.become_master(4, members=[1]))
    yield "to slave", names(roles.become_slave("b", 5))
    yield "to slave", names(roles.become_slave("c", 6))
    yield "to slave", names(roles.become_slave("d", None))
    yield "to order", names(roles.become_slave("d", 7))
    yield "to master", names(roles.become_master(8))
    yield "to no role", names(roles.end(is_clean=True))


def test_every_step_and_every_pair_of_neighbours_is_looked_at() -> None:
    known = {*ORDERED_PAIRS, *FREE_PAIRS}
    inner = {way: {step for other, step in NEEDED if other == way} for way in WAYS}
    for way, steps in ways_taken():
        for step in steps:
            assert step in inner[way] | inner["to no role"], (way, step)
        for pair in pairwise(steps):
            assert {(way, *pair), ("to no role", *pair)} & known, (way, pair)
