"""Groups of three brokers, Java's and ours, under our controller and under Java's.

Java's client sends while the master is killed back and forth between the two kinds. All members of
the sync-state set acknowledge a message, so none may be lost; in the end all have the same log,
topics, groups and offsets. `make test` runs brokers of both releases in one group, and JRaft of
Java's controllers; `make soak` also groups of each release, and DLedger.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.interop.faults import FEW, killed
from tests.support import java
from tests.support.effort import is_long, rounds
from tests.support.mixed_cluster import OURS, Controllers, MixedCluster
from tests.support.releases import NEW, OLD

_MIXES = [
    (Controllers.OURS, (OLD, NEW, OURS)),
    (Controllers.JRAFT, (NEW, OURS, OURS)),
    *(
        (
            *((Controllers.OURS, (release, release, OURS)) for release in (OLD, NEW)),
            (Controllers.OURS, (OLD, OURS, OURS)),
            (Controllers.DLEDGER, (NEW, NEW, OURS)),
        )
        if is_long()
        else ()
    ),
]


@pytest.fixture(
    params=[pytest.param(each, marks=pytest.mark.java) for each in _MIXES],
    ids=lambda param: f"{param[0].value}: {', '.join(param[1])}",
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    """Return a running group, its servers and a client."""
    controllers, programs = request.param
    for release in {*programs} - {OURS} | {NEW}:
        java.need(release)
    root = tmp_path_factory.mktemp("mixed")
    made = MixedCluster(NEW, root, controllers=controllers, programs=programs)
    yield made
    made.close()


def test_master_is_killed_back_and_forth_and_all_brokers_end_equal(cluster: MixedCluster) -> None:
    made: list[str] = []
    kinds = set()
    with cluster.producing("back-and-forth"):
        for number in itertools.count():
            before = cluster.wait_whole()
            master = cluster.member(before.master_id)
            kinds.add(master.runs_java)
            made.append(f"made-{number}")
            cluster.change_metadata(master, made[-1])
            # A slave of RocketMQ asks for the tables every few seconds only.
            cluster.wait_equal_metadata(made, master=master)
            cluster.wait_acknowledged(FEW)
            if number >= rounds(2, 30) and len(kinds) == 2:
                break
            with killed(master):
                assert cluster.wait_successor(before.master_id), "a member of the set leads"
                cluster.wait_acknowledged(FEW)
    whole = cluster.wait_whole()
    # Before any read: a Java slave of 5.5.0 takes no offsets of a Java master from which a pull
    # consumer has read.
    cluster.wait_equal_metadata(made, master=cluster.member(whole.master_id))
    cluster.wait_readable()
    cluster.wait_equal_logs()
