"""The benchmark of the nameserver in a small run: its figures are there; speed is not checked."""

from __future__ import annotations

import json

import pytest

from benchmarks import bench_nameserver


def test_a_small_run_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--brokers", "3", "--topics", "5", "--seconds", "0.05", "--rounds", "2", "--json"]
    assert bench_nameserver.main(small) == 0
    rounds = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each.pop("round") for each in rounds] == [1, 2]
    for figures in rounds:
        assert len(figures) == 13
        assert all(value >= 0 for value in figures.values())
        assert figures["routes_per_s"] > 0
        assert figures["rss_after_MiB"] > 1


def test_an_address_needs_a_process_id() -> None:
    with pytest.raises(SystemExit):
        bench_nameserver.main(["--address", "127.0.0.1:9876"])
