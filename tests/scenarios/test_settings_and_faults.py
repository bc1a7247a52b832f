"""The table "Settings and faults" of docs/durability.md, its rows with controllers.

Messages up to 100 were acknowledged; replicas that puts did not wait for hold the log up to 60, and
so does the disk of a replica that acknowledges from memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from rmqstore.controller.commands import Terms
from tests.scenarios.controller_cluster import Cluster

ACKNOWLEDGED, FLUSHED = 100, 60
REPLICAS = (1, 2, 3)
"""Broker 1 is the master."""


@dataclass(frozen=True)
class Setting:
    """What puts waited for, and the replicas that held all acknowledged messages."""

    terms: Terms
    holders: tuple[int, ...]


SETTINGS = {
    "one copy": Setting(Terms(1, 1, False, 1000), (1,)),
    "two copies": Setting(Terms(2, 2, False, 1000), (1, 2)),
    "all": Setting(Terms(2, 2, True, 1000), (1, 2, 3)),
    "no lease": Setting(Terms(2, 2, True, 0), (1, 2, 3)),
}


@dataclass(frozen=True)
class Fault:
    """The replicas whose process dies and returns last, whose machine loses its power, and who
    never return."""

    killed: tuple[int, ...] = ()
    powerless: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()


FAULTS = {
    "process": Fault(killed=(1,)),
    "power of one": Fault(powerless=(1,)),
    "power and process": Fault(powerless=(2,), killed=(1,)),
    "power of all": Fault(powerless=(1, 2, 3)),
    "links": Fault(lost=(1,)),
    "disk": Fault(lost=(1,)),
}
"""A master whose links are cut is, for the others, one that does not return."""


@dataclass(frozen=True)
class Outcome:
    """The master before the killed processes returned, and after it."""

    early: int | None
    late: int | None
    is_kept: bool
    """Whether the last master holds all acknowledged messages."""
    is_told: bool
    """Whether the election named a risk."""


def outcome(setting: Setting, fault: Fault, *, is_flushed: bool) -> Outcome:
    """Return what becomes of a group under *fault*."""
    cluster, terms = Cluster(), setting.terms
    logs = {each: ACKNOWLEDGED if each in setting.holders else FLUSHED for each in REPLICAS}
    common: dict[str, Any] = {"terms": terms, "acks_flushed": is_flushed}
    cluster.booted_group(*REPLICAS, **common)
    for each in REPLICAS:
        cluster.booted(each, logs[each], **common)

    hit = (*fault.killed, *fault.powerless, *fault.lost)
    cluster.lose(*hit)
    returned: dict[str, Any] = {"life": 2, "former_lives": (1,), "synced_epoch": -1, **common}
    for each in fault.powerless:
        logs[each] = logs[each] if is_flushed else min(logs[each], FLUSHED)

    def report(*numbers: int) -> None:
        for _ in range(2):
            for each in numbers:
                refused = {"refused": 1} if each == 1 and each in hit else {}
                if each in fault.powerless:
                    cluster.booted(each, logs[each], boot=2, **returned, **refused)
                elif each in fault.killed:
                    cluster.booted(each, logs[each], **returned, **refused)
                else:
                    cluster.booted(each, logs[each], synced_epoch=1, **common)

    report(*(each for each in REPLICAS if each not in (*fault.killed, *fault.lost)))
    early = cluster.group.master_id
    if early is None and fault.killed:
        report(*fault.killed, *(each for each in REPLICAS if each not in fault.killed))
    late = cluster.group.master_id
    is_kept = late is None or logs[late] >= ACKNOWLEDGED
    return Outcome(early, late, is_kept, bool(cluster.leader.risk("g")))


WAITS = Outcome(None, None, is_kept=True, is_told=False)


def kept(early: int | None, late: int | None) -> Outcome:
    return Outcome(early, late, is_kept=True, is_told=False)


def told(late: int) -> Outcome:
    return Outcome(late, late, is_kept=False, is_told=True)


@pytest.mark.parametrize(
    ("setting", "fault", "in_memory", "on_disk"),
    [
        ("one copy", "process", kept(None, 1), kept(None, 1)),
        ("one copy", "power of one", told(2), kept(1, 1)),
        ("one copy", "power and process", replace(kept(None, 1), is_told=True), kept(None, 1)),
        ("one copy", "power of all", told(1), kept(1, 1)),
        ("one copy", "links", WAITS, WAITS),
        ("one copy", "disk", WAITS, WAITS),
        ("two copies", "process", kept(2, 2), kept(2, 2)),
        ("two copies", "power of one", kept(2, 2), kept(1, 1)),
        ("two copies", "power and process", kept(None, 1), kept(2, 2)),
        ("two copies", "power of all", told(1), kept(1, 1)),
        ("two copies", "links", kept(2, 2), kept(2, 2)),
        ("two copies", "disk", kept(2, 2), kept(2, 2)),
        ("all", "process", kept(2, 2), kept(2, 2)),
        ("all", "power of one", kept(2, 2), kept(1, 1)),
        ("all", "power and process", kept(3, 3), kept(2, 2)),
        ("all", "power of all", told(1), kept(1, 1)),
        ("all", "links", kept(2, 2), kept(2, 2)),
        ("all", "disk", kept(2, 2), kept(2, 2)),
        ("no lease", "process", kept(2, 2), kept(2, 2)),
        ("no lease", "power of one", kept(2, 2), kept(1, 1)),
        ("no lease", "power and process", kept(3, 3), kept(2, 2)),
        ("no lease", "power of all", told(1), kept(1, 1)),
        ("no lease", "links", kept(2, 2), kept(2, 2)),
        ("no lease", "disk", kept(2, 2), kept(2, 2)),
    ],
)
def test_outcome(setting: str, fault: str, in_memory: Outcome, on_disk: Outcome) -> None:
    found = [
        outcome(SETTINGS[setting], FAULTS[fault], is_flushed=is_flushed)
        for is_flushed in (False, True)
    ]
    assert found == [in_memory, on_disk]
