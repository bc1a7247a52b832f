"""Random schedules of frames, cuts, stalls and hand-overs, by machines alone and with a pump.

Either way the peer sees the same stretches of the log under the same labels, or the same
acknowledgements. Log, epochs, confirm offset, what counts as acknowledged, and the reason of each
end are the same too. RMQ_SEED gives the schedules another beginning.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.service.master_schedules import Masters
from tests.service.pump_schedules import KINDS
from tests.service.pumps import Bench
from tests.service.slave_schedules import Slaves
from tests.support.effort import rounds

SEED = int(os.environ.get("RMQ_SEED", "0"))
GROUPS = rounds(32, 1000)
"""Groups of schedules; each has stores of its own."""
CONNECTIONS = 32
"""Schedules of a group, one after another on the same stores; each is one connection's."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


@pytest.mark.parametrize("group", range(GROUPS))
def test_masters_say_and_count_the_same_with_a_pump(bench: Bench, group: int) -> None:
    dice = random.Random(f"master {SEED} {group}")
    masters = Masters(bench, dice, KINDS[group % len(KINDS)])
    for _ in range(CONNECTIONS):
        masters.connection()


@pytest.mark.parametrize("group", range(GROUPS))
def test_slaves_hold_and_acknowledge_the_same_with_a_pump(bench: Bench, group: int) -> None:
    dice = random.Random(f"slave {SEED} {group}")
    slaves = Slaves(bench, dice, KINDS[group % len(KINDS)])
    for _ in range(CONNECTIONS):
        if slaves.is_over:
            break
        slaves.connection()
