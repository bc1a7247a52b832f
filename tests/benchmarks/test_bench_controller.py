"""The benchmark of the controller in a small run: its figures are there; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks import bench_controller


def test_a_small_run_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--groups", "3", "--calls", "4", "--seconds", "0.05", "--json"]
    assert bench_controller.main(small) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures) == 9
    assert all(value >= 0 for value in figures.values())
    assert figures["elect_p50_ms"] > 0
    assert figures["heartbeats_per_s"] == pytest.approx(9, rel=0.5)


def test_an_address_needs_a_process_id() -> None:
    with pytest.raises(SystemExit):
        bench_controller.main(["--address", "127.0.0.1:9878"])
