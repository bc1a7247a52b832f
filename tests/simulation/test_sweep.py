"""Seeds shared among processes: the outcomes of one process, in their order, and nobody left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest

from rmqstore import sim
from rmqstore.sim import sweep
from rmqstore.sim.__main__ import main
from rmqstore.sim.sweep import Workers
from tests.house import tree

ENDLESS = """
from itertools import count
from rmqstore.sim.sweep import Workers

if __name__ == "__main__":
    with Workers(2) as workers:
        for outcome in workers.run(count(1), steps=5):
            print(outcome.seed, flush=True)
"""


def test_outcomes_are_those_of_one_process_in_the_order_of_seeds() -> None:
    with Workers(2) as workers:
        shared = list(workers.run(range(1, 23), steps=10))
        again = list(workers.run([7], replicas=2, steps=10))
    assert shared == [sim.run(seed, steps=10) for seed in range(1, 23)]
    assert again == [sim.run(7, replicas=2, steps=10)]


def test_seeds_without_end_are_taken_as_outcomes_are() -> None:
    seeds = count(1)
    with Workers(2) as workers:
        found = [each.seed for each in islice(workers.run(seeds, steps=1), 12)]
    assert found == list(range(1, 13))
    assert next(seeds) < 100


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_one_that_made_it(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)

    with subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"1\n"
            process.send_signal(how)
            # All of them hold the pipe, so it ends with the last one.
            process.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    assert process.returncode != 0


def test_unsound_seeds_are_told_with_the_command_that_repeats_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = sim.run(1, steps=1)
    monkeypatch.setattr(
        sweep,
        "run",
        lambda seed, **_: replace(outcome, seed=seed, violation="odd" if seed % 2 else None),
    )
    arguments = ["--first", "6", "--count", "4", "--steps", "7", "--replicas", "5", "--jobs", "1"]
    assert main(arguments) == 1
    answer = capsys.readouterr().out.splitlines()
    assert answer[:2] == ["7: odd", "    python -m rmqstore.sim 7 --replicas 5 --steps 7"]
    assert answer[-1].startswith("4 seeds from 6 on")
    assert answer[-1].endswith("2 failed: 7 9")
