"""The benchmark of the controller in a small run: its figures are there; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks import bench_controller
from rmqstore.controller.engines.raft import is_built

SMALL = ["--groups", "3", "--calls", "4", "--seconds", "0.05", "--json"]


def test_a_small_run_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_controller.main(SMALL) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures) == 9
    assert all(value >= 0 for value in figures.values())
    assert figures["elect_p50_ms"] > 0
    assert figures["heartbeats_per_s"] == pytest.approx(9, rel=0.5)


@pytest.mark.skipif(not is_built(), reason="built without libraft")
def test_the_leader_of_three_nodes_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_controller.main([*SMALL, "--nodes", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["elect_p50_ms"] > 0


def test_an_address_needs_a_process_id() -> None:
    with pytest.raises(SystemExit):
        bench_controller.main(["--address", "127.0.0.1:9878"])
