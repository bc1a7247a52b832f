"""A group of Java brokers under three controllers of ours, whose leader fails with the master.

`make test` runs the later release with each engine of the controller's log, and each pair of
faults once; `make soak` runs all of them together. After a switch a slave of 5.3.3 may look for its
master ten seconds longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from rmqstore.controller.engines.raft import is_built
from tests.golden import RELEASES
from tests.interop.faults import FEW, Fault, cut_off, killed, paused
from tests.support import java
from tests.support.effort import is_long, rounds
from tests.support.etcd_cluster import needs_etcd
from tests.support.java_cluster import Engine, JavaCluster
from tests.support.releases import NEW

_topics = (f"leaders-{number}" for number in itertools.count())
_MARKS = {
    Engine.ETCD: needs_etcd,
    Engine.RAFT: pytest.mark.skipif(not is_built(), reason="built without libraft"),
}
_ETCD, _RAFT = ((engine, NEW) for engine in _MARKS)
_DEATHS, _CUTS, _BOTH_KINDS = (killed, killed), (paused, cut_off), (killed, paused)
_SHORT = [(_ETCD, _CUTS), (_RAFT, _DEATHS), (_RAFT, _BOTH_KINDS)]
_LONG = itertools.product(
    [(engine, release) for engine in _MARKS for release in RELEASES], [_DEATHS, _CUTS, _BOTH_KINDS]
)


def _name_of(given: tuple[Engine, str] | tuple[Fault, Fault]) -> str:
    first, second = given
    if isinstance(first, Engine):
        return f"{first.value}-{second}"
    return f"{first.__name__}-{second.__name__}"


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaCluster]:
    """Return a running group under three controllers."""
    engine, release = request.param
    java.need(release)
    made = JavaCluster(release, tmp_path_factory.mktemp("cluster"), engine=engine)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("cluster", "faults"),
    [
        pytest.param(group, faults, marks=[pytest.mark.java, _MARKS[group[0]]])
        for group, faults in (_LONG if is_long() else _SHORT)
    ],
    indirect=["cluster"],
    scope="module",
    ids=_name_of,
)
def test_nothing_acknowledged_is_lost_with_a_leader_and_a_master(
    cluster: JavaCluster, faults: tuple[Fault, Fault]
) -> None:
    of_leader, of_master = faults
    for _ in range(rounds(1, 34)):
        before = cluster.wait_whole()
        with cluster.producing(next(_topics)):
            cluster.wait_acknowledged(FEW)
            with of_leader(cluster.leader()):
                cluster.wait_acknowledged(FEW)
                with of_master(cluster.broker(before.master_id)):
                    if cluster.wait_successor(before.master_id):
                        cluster.wait_acknowledged(FEW)
                cluster.wait_whole()
            cluster.wait_acknowledged(FEW)
        cluster.wait_readable()
