"""A group of three Java brokers whose puts wait for two copies, with Java's own client.

The puts wait for any slave, and not for all members of the sync-state set. An acknowledged message
is on the master and on one of the slaves. Each fault begins while both slaves are members, so one
member that is left has the message. The controller gets the reports of both before it elects, and
the longest log wins: nothing acknowledged is lost with the master alone.

`make test` kills the master of the later release, `make soak` has all faults and both releases: a
slave that registers before its new master learns the address of this at its next registration,
which is ten seconds later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.golden import RELEASES
from tests.interop.faults import FEW, Fault, cut_off, killed, paused
from tests.support import java
from tests.support.effort import is_long, rounds
from tests.support.java_cluster import JavaCluster

_topics = (f"quorum-{number}" for number in itertools.count())
_QUORUM = {
    "allAckInSyncStateSet": "false",
    "inSyncReplicas": 2,
    "minInSyncReplicas": 2,
    # A copy on a slave that is no member counts in RocketMQ, and such a slave is not elected: both
    # slaves stay members, however loaded the machine is.
    "haMaxTimeSlaveNotCatchup": 60000,
    "haHousekeepingInterval": 20000,
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(release, marks=pytest.mark.java)
        for release in (RELEASES if is_long() else RELEASES[-1:])
    ],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaCluster]:
    """Return a running group of three, its servers and a client."""
    java.need(request.param)
    root = tmp_path_factory.mktemp("cluster")
    made = JavaCluster(request.param, root, brokers=3, settings=_QUORUM)
    yield made
    made.close()


@pytest.mark.parametrize("fault", [killed, paused, cut_off] if is_long() else [killed])
def test_nothing_that_two_copies_acknowledged_is_lost_with_a_master(
    cluster: JavaCluster, fault: Fault
) -> None:
    for _ in range(rounds(1, 67)):
        before = cluster.wait_whole()
        with cluster.producing(next(_topics)):
            cluster.wait_acknowledged(FEW)
            with fault(cluster.broker(before.master_id)):
                assert cluster.wait_successor(before.master_id)
                cluster.wait_readable()
                if fault is not paused:
                    # Java's slave waits for the answer to its handshake without a limit. It may
                    # have got the address of a paused master, if it was quicker to register at the
                    # nameserver than the new one. Puts then lack the second copy.
                    cluster.wait_acknowledged(FEW)
                    cluster.wait_readable()
            cluster.wait_whole()
            cluster.wait_acknowledged(FEW)
        cluster.wait_readable()
    cluster.wait_equal_logs()
