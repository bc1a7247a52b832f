"""The Java replicas answer, fail and end as the tests with them count on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import ha_peer, peer
from tests.interop.ha_case import chunks, has_all


def test_missing_names_everything_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQ_PEER_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = ha_peer.missing()
    assert reason is not None
    assert all(what in reason for what in ("nowhere", "Java 17", "mvn", "bash"))


def test_two_java_replicas_have_one_log_and_a_kill_ends_them(
    java_replica: ha_peer.Replicas, tmp_path: Path
) -> None:
    master = java_replica.java("autoswitch-master", tmp_path / "master")
    end = chunks(master, count=20)
    slave = java_replica.java("autoswitch-slave", tmp_path / "slave", master=master.address)
    slave.wait_state(has_all(end), "all of the log")
    assert slave.ask("hash")["sha256"] == master.ask("hash")["sha256"]
    assert slave.ask("queues") | {"ms": 0} == master.ask("queues") | {"ms": 0}
    with pytest.raises(peer.PeerError, match="unknown command"):
        slave.ask("dance")
    master.kill()
    with pytest.raises(peer.PeerError, match="ended"):
        master.wait_state(lambda state: state["maxOffset"] > end, "more of the log")
    java_replica.stop()
    assert slave.process.returncode is not None
