"""A group of three brokers under load, whose processes and links fail one after another.

What was acknowledged can be read from the master after each round, and in the end all three logs
are the same. Messages that are acknowledged from memory may be lost with a master: how many were is
printed. `make test` runs ten rounds, `make soak` two hundred; RMQ_SEED repeats their order.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.check import Level, verify
from tests.crash.group_faults import FAULTS
from tests.support.effort import is_long, rounds
from tests.support.our_group import LIMIT_S, OurGroup
from tests.support.waiting import spin_until

SEED = int(os.environ.get("RMQ_SEED", "20240229"))
ROUNDS = int(os.environ.get("RMQ_GROUP_ROUNDS", rounds(10, 200))) // 2
FEW = 20
KEPT = 3
COPIES = {
    "two copies": {"inSyncReplicas": 2},
    "all members": {"inSyncReplicas": 2, "allAckInSyncStateSet": "true"},
}


def faults_of(copies: str) -> Iterator[str]:
    """Yield the names of ROUNDS faults."""
    names = list(FAULTS)
    if not is_long():
        yield from names[list(COPIES).index(copies) : 10 : 2]
        return
    order = random.Random(f"{SEED} {copies}")
    for number in range(ROUNDS):
        if number % len(names) == 0:
            order.shuffle(names)
        yield names[number % len(names)]


class Rounds:
    """Rounds of one group, with the numbers of what was acknowledged in them."""

    def __init__(self, group: OurGroup) -> None:
        self.group = group
        self.acknowledged: dict[str, set[int]] = {}
        self.loose: dict[str, set[int]] = {}
        """Those that were acknowledged from memory."""

    def play(self, name: str) -> None:
        """Play a round with the fault of that name."""
        group, fault = self.group, FAULTS[name]
        number = len(self.acknowledged)
        topic = f"round-{number}"
        group.wait_whole()
        with group.sending(f"loose-{number}", waits=False) as loose:
            with group.sending(topic) as client:

                def wait_few() -> None:
                    wanted = len(client.acknowledged) + FEW
                    spin_until(
                        lambda: len(client.acknowledged) >= wanted,
                        f"round {number}, {name}: {wanted} acknowledged messages",
                        timeout=LIMIT_S,
                    )

                wait_few()
                with fault.begin(group):
                    if fault.serves:
                        wait_few()
                    else:
                        group.wait_state(lambda state: len(state.in_sync) == 1, "a set of one")
                group.wait_whole()
                wait_few()
        self.acknowledged[topic] = client.acknowledged
        self.loose[f"loose-{number}"] = loose.acknowledged
        for recent in list(self.acknowledged)[-KEPT:]:
            group.wait_readable(recent, self.acknowledged[recent])

    def finish(self) -> str:
        """Compare all of it in the end; return what was seen, in a line."""
        group = self.group
        group.wait_whole()
        group.wait_equal_logs()
        for topic, wanted in self.acknowledged.items():
            group.wait_readable(topic, wanted)
        sent = sum(map(len, self.acknowledged.values()))
        loose = sum(map(len, self.loose.values()))
        lost = sum(len(wanted - group.read(topic)) for topic, wanted in self.loose.items())
        return (
            f"{len(self.acknowledged)} rounds, {len(group.masters)} masters, {sent} acknowledged "
            f"messages of which none is lost, {loose} acknowledged from memory of which {lost} are"
        )


@pytest.mark.parametrize("copies", COPIES)
def test_nothing_acknowledged_is_lost_in_any_round(
    copies: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = OurGroup(tmp_path, COPIES[copies])
    try:
        played = Rounds(group)
        for name in faults_of(copies):
            print(f"round {len(played.acknowledged)}: {name}", flush=True)
            played.play(name)
        seen = played.finish()
    finally:
        group.close()
    with capsys.disabled():
        print(f"\n{copies}, RMQ_SEED={SEED}: {seen}", file=sys.stderr)
    for broker in group.brokers:
        report = verify(broker.store)
        assert not [each for each in report.findings if each.level is Level.DAMAGE]
