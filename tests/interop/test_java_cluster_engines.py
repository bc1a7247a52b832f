"""A group of Java brokers under three controllers of ours, whose leader fails with the master.

`make test` runs one release with each engine of the controller's log, `make soak` both.
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

_needs_raft = pytest.mark.skipif(not is_built(), reason="built without libraft")
_topics = (f"leaders-{number}" for number in itertools.count())


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((engine, release), marks=[pytest.mark.java, *marks])
        for engine, marks in ((Engine.ETCD, [needs_etcd]), (Engine.RAFT, [_needs_raft]))
        for release in (RELEASES if is_long() else RELEASES[-1:])
    ],
    ids=lambda param: f"{param[0].value}-{param[1]}",
)
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
    ("of_leader", "of_master"), [(killed, paused), (paused, cut_off), (killed, killed)]
)
def test_nothing_acknowledged_is_lost_with_a_leader_and_a_master(
    cluster: JavaCluster, of_leader: Fault, of_master: Fault
) -> None:
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
