"""Promises that every controller engine keeps: nothing acknowledged is lost, all nodes have one
history, whatever is killed, stopped or cut off, while a snapshot is taken every 200 entries.

What an engine promises about its own files is in `test_own_file_engine`.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.crash.engine_groups import ENGINES, REPLICATED, Group
from tests.support.effort import rounds

SEED = int(os.environ.get("RMQ_SEED", "20261122"))
ROUNDS = rounds(1, 50)
ENTRIES = 150
"""Commands of each step: a snapshot falls into most rounds, at any of their moments."""


@pytest.mark.parametrize("make", ENGINES)
def test_all_killed_at_once_have_every_acknowledged_command(
    make: type[Group], tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    with make(tmp_path) as group:
        for _ in range(rounds(2, 50)):
            group.start()
            group.progress(rng.randrange(1, 2 * ENTRIES))
            group.kill_all()
            group.settle()


@pytest.mark.parametrize("make", REPLICATED)
def test_leader_killed_loses_nothing_and_another_leads(make: type[Group], tmp_path: Path) -> None:
    with make(tmp_path) as group:
        for _ in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            group.kill(group.leader())
            group.progress(ENTRIES)
            group.settle()


@pytest.mark.parametrize("hears", [False, True], ids=["both ways", "one way"])
@pytest.mark.parametrize("make", REPLICATED)
def test_leader_cut_off_loses_nothing_and_another_leads(
    make: type[Group], hears: bool, tmp_path: Path
) -> None:
    with make(tmp_path) as group:
        for _ in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            former = group.leader()
            group.cut(former, hears=hears)
            group.progress(ENTRIES, besides=[former])
            group.settle()


@pytest.mark.parametrize("make", REPLICATED)
def test_follower_cut_off_does_not_hold_up_the_others_and_catches_up(
    make: type[Group], tmp_path: Path
) -> None:
    with make(tmp_path) as group:
        for number in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            leader = group.leader()
            slow = next(name for name in group.names if name != leader)
            group.cut(slow, hears=bool(number % 2))
            group.progress(3 * ENTRIES)
            group.settle()


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("make", REPLICATED)
def test_stopped_node_goes_on_without_a_loss_when_it_is_continued(
    make: type[Group], role: str, tmp_path: Path
) -> None:
    with make(tmp_path) as group:
        for _ in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            leader = group.leader()
            stopped = next(name for name in group.names if (name == leader) == (role == "leader"))
            group.nodes[stopped].send(signal.SIGSTOP)
            try:
                group.progress(3 * ENTRIES, besides=[stopped])
            finally:
                group.nodes[stopped].send(signal.SIGCONT)
            group.settle()
