"""A group of a Java broker and one of ours, under our controller and under Java's.

Java's client sends while the master is killed back and forth between the two. All members of the
sync-state set acknowledge a message, so none may be lost; in the end both have the same log,
topics, groups and offsets. Of Java's controllers `make test` runs JRaft, `make soak` DLedger, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.golden import RELEASES
from tests.interop.faults import FEW, killed
from tests.support import java
from tests.support.effort import is_long, rounds
from tests.support.mixed_cluster import Controllers, MixedCluster

_MIXES = [
    *((Controllers.OURS, release) for release in RELEASES),
    (Controllers.JRAFT, RELEASES[-1]),
    *([(Controllers.DLEDGER, RELEASES[-1])] if is_long() else []),
]


@pytest.fixture(
    params=[pytest.param(each, marks=pytest.mark.java) for each in _MIXES],
    ids=lambda param: f"{param[0].value}-{param[1]}",
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    """Return a running group, its servers and a client."""
    controllers, release = request.param
    java.need(release)
    made = MixedCluster(release, tmp_path_factory.mktemp("mixed"), controllers=controllers)
    yield made
    made.close()


def test_master_is_killed_back_and_forth_and_both_brokers_end_equal(cluster: MixedCluster) -> None:
    made: list[str] = []
    masters = set()
    with cluster.producing("back-and-forth"):
        for number in itertools.count():
            before = cluster.wait_whole()
            master = cluster.member(before.master_id)
            masters.add(master)
            made.append(f"made-{number}")
            cluster.change_metadata(master, made[-1])
            # A slave of RocketMQ asks for the tables every few seconds only.
            cluster.wait_equal_metadata(made, master=master)
            cluster.wait_acknowledged(FEW)
            if number >= rounds(2, 30) and len(masters) == 2:
                break
            with killed(master):
                assert cluster.wait_successor(before.master_id), "a slave that was in the set leads"
                cluster.wait_acknowledged(FEW)
    whole = cluster.wait_whole()
    cluster.wait_readable()
    cluster.wait_equal_metadata(made, master=cluster.member(whole.master_id))
    cluster.wait_equal_logs()
