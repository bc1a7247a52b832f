"""Clients whose listener fails, in a group of Java's broker and ours: Java's is killed first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.clients import RETRYING, Program, java_program, play_through_kill
from tests.support import go, java
from tests.support.mixed_cluster import OURS, Controllers, MixedCluster
from tests.support.releases import BEFORE, NEW

MESSAGES = 10


def go_program() -> Program:
    go.need()
    return go.command


@pytest.mark.java
@pytest.mark.parametrize(
    ("topic", "made"),
    [
        pytest.param("GoDying", go_program, id="go"),
        pytest.param("JavaDying", lambda: java_program(BEFORE), id=BEFORE),
    ],
)
def test_messages_of_a_java_master_become_dead_letters_of_ours(
    tmp_path: Path, topic: str, made: Callable[[], Program]
) -> None:
    java.need(NEW)
    program = made()
    cluster = MixedCluster(
        NEW,
        tmp_path,
        controllers=Controllers.OURS,
        programs=(NEW, OURS, OURS),
        settings=RETRYING,
    )
    try:
        master = cluster.member(cluster.wait_whole().master_id)
        assert master.runs_java
        cluster.change_metadata(master, topic)

        def kill() -> None:
            # A slave asks a Java master for its tables now and then only.
            cluster.wait_equal_metadata([topic], master=master)
            master.kill()

        found = play_through_kill(program, cluster.namesrv, MESSAGES, after="tried", kill=kill)
        assert found["tried"] == MESSAGES
        assert found["dead"] >= MESSAGES
        assert found["fewest tries"] >= 3
    finally:
        cluster.close()
