"""The Java replicas answer, fail and end as the tests with them count on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.ha_case import chunks, has_all
from tests.support.java_replica import Replicas
from tests.support.java_store import PeerError
from tests.support.releases import OLD, with_release


@with_release(OLD)
def test_two_java_replicas_have_one_log_and_a_kill_ends_them(
    java_replica: Replicas, tmp_path: Path
) -> None:
    master = java_replica.java("autoswitch-master", tmp_path / "master")
    end = chunks(master, count=20)
    slave = java_replica.java("autoswitch-slave", tmp_path / "slave", master=master.address)
    slave.wait_state(has_all(end), "all of the log")
    assert slave.ask("hash")["sha256"] == master.ask("hash")["sha256"]
    assert slave.ask("queues") | {"ms": 0} == master.ask("queues") | {"ms": 0}
    with pytest.raises(PeerError, match="unknown command"):
        slave.ask("dance")
    master.kill()
    with pytest.raises(PeerError, match="ended"):
        master.wait_state(lambda state: state["maxOffset"] > end, "more of the log")
    java_replica.stop()
    assert slave.process.returncode is not None
