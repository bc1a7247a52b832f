"""A writer killed without warning loses nothing it acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqstore
from tests.crash import writer
from tests.crash.agreement import FILES, check_agreement

SEED = int(os.environ.get("RMQ_CRASH_SEED", "20240229"))
ROUNDS = 100
KEPT_FILES = 40


class Acknowledged(NamedTuple):
    topic: str
    queue: int
    queue_offset: int
    physical_offset: int
    number: int


def run_and_kill(
    directory: Path, *, seed: int, number: int, rng: random.Random
) -> list[Acknowledged]:
    """Let a writer run for a random while, kill it, return what it had acknowledged."""
    during_recovery = rng.random() < 0.2
    command = [sys.executable, writer.__file__, str(directory), str(seed), str(number)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        began = process.stdout.readline()
        if not during_recovery:
            began = process.stdout.readline()
        timer = threading.Timer(rng.uniform(0, 0.02 if during_recovery else 0.1), process.kill)
        timer.start()
        printed = process.stdout.read()
        timer.join()
        complaint = process.stderr.read()
    assert process.returncode == -signal.SIGKILL, f"{began}{printed[-200:]}\n{complaint}"
    lines = printed[: printed.rfind("\n") + 1].splitlines()
    fields = [line.split() for line in lines if line != "open"]
    return [Acknowledged(topic, *map(int, numbers)) for topic, *numbers in fields]


def check_acknowledged(store: rmqstore.Store, acknowledged: list[Acknowledged]) -> None:
    for each in acknowledged:
        record = store.get(each.topic, queue=each.queue, offset=each.queue_offset)
        expected = writer.message(each.number)
        assert record.physical_offset == each.physical_offset, each
        assert record.body == expected.body, each
        assert (record.tags, tuple(record.keys)) == (expected.tags, expected.keys), each


@pytest.mark.parametrize("part", range(4))
def test_everything_acknowledged_survives_a_kill(part: int, tmp_path: Path) -> None:
    seed = SEED + part
    print(f"RMQ_CRASH_SEED={SEED} part {part}")
    rng = random.Random(seed)
    directory = tmp_path / "store"
    acknowledged: list[Acknowledged] = []
    rmqstore.open(directory, **FILES).close()
    for number in range(ROUNDS // 4):
        first = (acknowledged[-1].number if acknowledged else 0) + 1000
        latest = run_and_kill(directory, seed=rng.getrandbits(32), number=first, rng=rng)
        acknowledged += latest
        with rmqstore.open(directory) as store:
            assert not (latest and store.recovery.was_closed)
            check_acknowledged(store, latest if number % 10 else acknowledged)
            if number % 5 == 0:
                check_agreement(store)
            store.expire_files(max(0, len(store._files()) - KEPT_FILES))
            acknowledged = [e for e in acknowledged if e.physical_offset >= store.start_offset]
            if rng.random() < 0.7:
                store._abandon()
    with rmqstore.open(directory) as store:
        check_acknowledged(store, acknowledged)
        check_agreement(store)
    assert len(acknowledged) > 100
