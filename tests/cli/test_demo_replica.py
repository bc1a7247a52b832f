"""The steps of `demo` that replicas do: that they prove something, and leave nothing running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore.cli.demo import replica_steps
from tests.cli.conftest import ROOT

Step = tuple[str, int, float, str, bool]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_steps, "_ACKNOWLEDGED_BEFORE_KILL", 2_000)
    monkeypatch.setattr(replica_steps, "_ACKNOWLEDGED_AFTER", 500)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def _children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def _steps(folder: Path) -> dict[str, Step]:
    steps: list[Step] = []
    replica_steps.show(folder, lambda *step: steps.append(step))
    return {step[0]: step for step in steps}


def test_every_proof_holds_and_all_processes_are_gone(tmp_path: Path) -> None:
    before = _children()
    steps = _steps(tmp_path)
    assert len(steps) == 5
    assert all(is_proven for *_, is_proven in steps.values()), steps
    assert _children() == before
    held = steps["count in the three"][1]
    assert held >= 3 * 2_500
    for number in (1, 2, 3):
        with rmqstore.open(tmp_path / f"replica-{number}.store", read_only=True) as store:
            assert 3 * len(store.queue(replica_steps.TOPIC)) == held


def test_messages_that_are_not_there_fail_the_count_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_steps, "TOPIC", "another")
    steps = _steps(tmp_path)
    failed = [name for name, step in steps.items() if not step[-1]]
    assert failed == ["count in the three"]


def test_a_replica_ends_when_who_started_it_is_gone(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "rmqstore.cli.demo.replica_process",
        str(tmp_path / "store"),
        "1",
    ]

    answer = subprocess.run(
        command,
        input='{"do": "master", "epoch": 1}\n',
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (answer.returncode, answer.stderr) == (0, "")
    opened, master = map(json.loads, answer.stdout.splitlines())
    assert opened["epochs"] == []
    assert master["epochs"] == [[1, 0]]

    with rmqstore.open(tmp_path / "store") as store:
        assert store.recovery.was_closed
