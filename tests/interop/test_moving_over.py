"""A running group of Java brokers is moved to ours node by node, and back, under load.

docs/operations.md, "Moving a group over". Each broker keeps its file and its directory. `make test`
moves one release under our controller, and one over without a controller. `make soak` moves both
releases, also under Java's controller, with masters that wait for their slave and that do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.golden import RELEASES
from tests.interop.faults import FEW
from tests.support import java
from tests.support.classic_group import ClassicGroup
from tests.support.effort import is_long
from tests.support.mixed_cluster import Controllers, MixedCluster

_MOVES = [
    (Controllers.OURS, RELEASES[-1]),
    *(((Controllers.OURS, RELEASES[0]), (Controllers.JRAFT, RELEASES[-1])) if is_long() else ()),
]
_WAITS, _WAITS_NOT = "SYNC_MASTER", "ASYNC_MASTER"
_CLASSIC_MOVES = [
    (_WAITS, RELEASES[-1]),
    *(
        ((_WAITS, RELEASES[0]), *((_WAITS_NOT, release) for release in RELEASES))
        if is_long()
        else ()
    ),
]


@pytest.fixture(
    params=[pytest.param(each, marks=pytest.mark.java) for each in _MOVES],
    ids=lambda param: f"{param[0].value}-{param[1]}",
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    """Return a running group of two Java brokers, its servers and a client."""
    controllers, release = request.param
    java.need(release)
    root = tmp_path_factory.mktemp("moved")
    made = MixedCluster(release, root, controllers=controllers, programs=(release, release))
    yield made
    made.close()


def test_running_group_is_moved_over_and_back(cluster: MixedCluster) -> None:
    made: list[str] = []
    with cluster.producing("moved"):
        for is_java in (False, True):
            for _ in cluster.members:
                before = cluster.wait_whole()
                master = cluster.member(before.master_id)
                made.append(f"made-{len(made)}")
                cluster.change_metadata(master, made[-1])
                cluster.wait_equal_metadata(made, master=master)
                cluster.wait_acknowledged(FEW)

                # A slave first: the master serves on.
                others = [each for each in cluster.members if each is not master]
                moved = next(each for each in (*others, master) if each.runs_java is not is_java)
                moved.stop()
                moved.is_java = is_java
                if moved is master:
                    assert cluster.wait_successor(before.master_id)
                    cluster.wait_acknowledged(FEW)
                moved.start()
            assert [each.runs_java for each in cluster.members] == [is_java, is_java]
    whole = cluster.wait_whole()
    cluster.wait_readable()
    cluster.wait_equal_metadata(made, master=cluster.member(whole.master_id))
    cluster.wait_equal_logs()


@pytest.fixture(
    params=[pytest.param(each, marks=pytest.mark.java) for each in _CLASSIC_MOVES],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def classic(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClassicGroup]:
    """Return a running Java master and slave, a nameserver and a client."""
    master_role, release = request.param
    java.need(release)
    root = tmp_path_factory.mktemp("classic")
    made = ClassicGroup(release, root, master_role=master_role)
    made.wait_known()
    yield made
    made.close()


def test_running_group_without_a_controller_is_moved_over_and_back(classic: ClassicGroup) -> None:
    made: list[str] = []
    for is_java in (False, True) if is_long() else (False,):
        with classic.producing(f"moved-{is_java}"):
            classic.wait_acknowledged(FEW)
            made.append(f"made-{len(made)}")
            classic.change_metadata(classic.master, made[-1])
            classic.slave.stop()
            if not classic.waits_for_slave:
                classic.wait_acknowledged(FEW)
            classic.slave.is_java = is_java
            classic.slave.start()
            classic.wait_acknowledged(FEW)
        classic.wait_caught_up()
        classic.wait_equal_logs()
        classic.master.stop()
        classic.master.is_java = is_java
        classic.master.start()
        classic.wait_caught_up()
        if not is_java:
            classic.wait_readable()
        assert [each.runs_java for each in classic.members] == [is_java, is_java]
    with classic.producing("moved"):
        classic.wait_acknowledged(FEW)
    # Java's slave takes the tables over every minute; its 5.5.0 takes no offsets of a Java master
    # from which a pull consumer has read.
    classic.wait_equal_metadata(made, master=classic.master)
    classic.wait_readable()
    classic.wait_equal_logs()
