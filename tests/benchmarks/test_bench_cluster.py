"""The benchmark of groups in a small run without Java: its figures are there."""

from __future__ import annotations

import json

import pytest

from benchmarks import bench_cluster, java


def test_a_small_run_has_every_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "missing", lambda: "it is left out")
    small = ["--kinds", "our brokers, ours x1, tuned", "--rounds", "1", "--kills", "1", "--json"]
    assert bench_cluster.main([*small, "--count", "512", "--idle", "0.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first, second = (json.loads(line) for line in lines[:2])
    assert first.pop("of") == "our brokers, ours x1, tuned"
    assert first.keys() == {"route_s", "acknowledged_s"}
    assert second.pop("of") == "our"
    assert second.keys() >= {"send_core_us", "sync_send_p50_us", "pulled_mb_per_core_s"}
    assert all(value >= 0 for value in (*first.values(), *second.values()))
    assert lines[2].startswith("seconds from SIGKILL")
