"""The simulator knows exactly what is lost: with power, with a disk, by a bit that turned."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from rmqstore import sim
from rmqstore.replication.group.quorum import Quorum
from rmqstore.sim.disk import ModelLog, RotError
from rmqstore.sim.losses import Losses
from tests.support.effort import rounds

QUIET = sim.Faults.none()
IN_MEMORY = {"is_durable": False, "learners": 0, "flush_ms": 1000, "lease_ms": 600}


def filled(puts: int, *, checks_all: bool) -> ModelLog:
    log = ModelLog(file_size=1024, checks_all=checks_all)
    for number in range(1, puts + 1):
        log.put(number=number, epoch=1, queue=number % 2, size=100, wall_ms=0)
    log.flush()
    return log


def test_a_bit_in_any_field_goes_unnoticed_only_where_the_crc_covers_the_body_alone() -> None:
    unnoticed = {True: 0, False: 0}

    for checks_all in unnoticed:
        for seed in range(60):
            log = filled(20, checks_all=checks_all)
            written = log.read(0, log.end_offset)

            losses = Losses()
            rot = log.rot(Random(seed))
            assert rot is not None
            losses.rot(rot)
            log.crash()

            try:
                log.recover()
            except RotError:
                continue

            unnoticed[checks_all] += 1
            assert log.read(0, log.end_offset) != written
            assert losses.read(log, 0, log.end_offset) == written

    assert unnoticed[True] == 0
    assert 5 < unnoticed[False] < 50


def test_what_a_replica_once_held_is_known() -> None:
    losses = Losses()
    losses.remove(2, 100, b"abcdef")
    assert losses.had(2, 102, b"cd")
    assert not losses.had(2, 102, b"xx")
    assert not losses.had(2, 98, b"abcd")
    assert not losses.had(1, 102, b"cd")


@pytest.mark.parametrize("all_ack", [False, True])
def test_one_machine_that_loses_power_costs_nothing_that_others_acknowledged(all_ack: bool) -> None:
    quorum = Quorum(total=3, in_sync=2, min_in_sync=2, all_ack=all_ack, timeout_ms=1000)
    faults = replace(QUIET, power_loss=1, mean_gap_ms=2000)
    confirmed = 0
    for seed in range(rounds(5, 10)):
        shape = replace(
            sim.Shape.drawn(Random(seed), replicas=3).with_set(), quorum=quorum, **IN_MEMORY
        )
        world = sim.World(seed, faults=faults, shape=shape)
        outcome = world.run()
        assert outcome.violation is None
        assert not world.checker.is_void
        confirmed += outcome.confirmed
    assert confirmed > 500


def test_a_blackout_costs_what_was_in_memory_and_the_rest_is_checked_on() -> None:
    faults = replace(QUIET, blackout=1, mean_gap_ms=2000)
    has_lost = False
    for seed in range(14, rounds(21, 28)):
        shape = replace(sim.Shape.drawn(Random(seed), replicas=3).with_set(), **IN_MEMORY)
        world = sim.World(seed, faults=faults, shape=shape)
        outcome = world.run()
        assert outcome.violation is None
        assert not world.checker.is_void
        has_lost |= world.checker.has_lost
    assert has_lost
