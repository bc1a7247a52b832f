"""A writer killed without warning loses nothing it acknowledged, whatever it was doing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqstore
from rmqstore import OffsetOutOfRange
from tests.crash import writer
from tests.support.agreement import FILES, check_agreement
from tests.support.effort import rounds

SEED = int(os.environ.get("RMQ_SEED", "20240229"))
PARTS = 4
ROUNDS = rounds(60, 1000) // PARTS
NUMBERS_A_ROUND = writer.NUMBERS * writer.THREADS
# The act a kill is aimed at, with None for any; the writer tells when it begins.
AIMS = (None, None, "opening", "closing", "cutting", "expiring")


class Acknowledged(NamedTuple):
    topic: str
    queue: int
    queue_offset: int
    physical_offset: int
    number: int


class Fate:
    """What the store must hold, by the lines that its writers printed."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}
        """By physical offset."""

        self.doubtful: dict[int, Acknowledged] = {}
        """Behind a cut that was begun and perhaps not made."""

        self.gone: list[Acknowledged] = []
        """Cut in the last run."""

        self.may_be_closed = False
        self.act = ""

    def begin_run(self) -> None:
        self.gone = []
        self.doubtful = {}
        # A writer that is killed before it opens the store leaves it as it was.
        self.may_be_closed = True

    def learn(self, line: str) -> None:
        act, *fields = line.split()
        if act == "put":
            each = Acknowledged(fields[0], *map(int, fields[1:]))
            self.acknowledged[each.physical_offset] = each
            return
        self.act = act
        self.may_be_closed = act in ("closing", "closed", "opening")
        if act == "cutting":
            at = int(fields[0])
            self.doubtful = {k: v for k, v in self.acknowledged.items() if k >= at}
            self.acknowledged = {k: v for k, v in self.acknowledged.items() if k < at}
        elif act == "cut":
            self.gone += self.doubtful.values()
            self.doubtful = {}

    def check(self, store: rmqstore.Store, *, whole: bool) -> None:
        """What was acknowledged is there, all of it or a part; what was cut is not."""
        start, end = store.start_offset, store.end_offset
        self.acknowledged = {k: v for k, v in self.acknowledged.items() if k >= start}
        chosen = list(self.acknowledged.values())
        for each in chosen if whole else chosen[-2000:]:
            check_there(store, each)
        for each in self.doubtful.values():
            if start <= each.physical_offset < end:
                check_there(store, each)
                self.acknowledged[each.physical_offset] = each
        for each in self.gone[-200:]:
            check_gone(store, each)


def check_there(store: rmqstore.Store, each: Acknowledged) -> None:
    record = store.get(each.topic, queue=each.queue, offset=each.queue_offset)
    expected = writer.message(each.number)
    assert record.physical_offset == each.physical_offset, each
    assert record.body == expected.body, each
    assert (record.tags, tuple(record.keys)) == (expected.tags, expected.keys), each


def check_gone(store: rmqstore.Store, each: Acknowledged) -> None:
    try:
        found = store.get(each.topic, queue=each.queue, offset=each.queue_offset)
    except OffsetOutOfRange:
        return
    assert not found.body.startswith(b"%d:" % each.number), f"{each} came back"


def lines_until_killed(
    process: subprocess.Popen[str], *, aim: str | None, rng: random.Random
) -> Iterator[str]:
    """Yield what a writer prints; some time after it began the act *aim*, kill it."""
    assert process.stdout is not None
    timer = threading.Timer(rng.uniform(0, 0.1 if aim is None else 0.004), process.kill)
    deadline = threading.Timer(10, process.kill)
    deadline.start()

    is_open = is_aimed = False
    to_pass = rng.randrange(3) if aim in ("closing", "cutting") else 0

    try:
        for line in process.stdout:
            if not line.endswith("\n"):
                break
            act = line.split(maxsplit=1)[0]
            is_open |= act == "open"
            if not is_aimed and (act == aim if aim else is_open):
                if to_pass:
                    to_pass -= 1
                else:
                    is_aimed = True
                    timer.start()
            yield line
    finally:
        process.kill()
        deadline.cancel()
        if is_aimed:
            timer.join()


def run_and_kill(directory: Path, fate: Fate, *, number: int, rng: random.Random) -> None:
    """Let a writer run for a random while, kill it, learn what it had acknowledged."""
    command = [sys.executable, writer.__file__, str(directory), str(rng.getrandbits(32))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    fate.begin_run()

    with subprocess.Popen(
        [*command, str(number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stderr is not None
        for line in lines_until_killed(process, aim=rng.choice(AIMS), rng=rng):
            fate.learn(line)
        complaint = process.stderr.read()

    assert process.returncode == -signal.SIGKILL, complaint
    assert not complaint


@pytest.mark.parametrize("part", range(PARTS))
def test_everything_acknowledged_survives_a_kill(part: int, tmp_path: Path) -> None:
    seed = SEED + part
    print(f"RMQ_SEED={seed - part} part {part}")
    rng = random.Random(seed)

    directory = tmp_path / "store"
    fate = Fate()
    acts: Counter[str] = Counter()

    rmqstore.open(directory, **FILES).close()
    for number in range(ROUNDS):
        run_and_kill(directory, fate, number=number * NUMBERS_A_ROUND, rng=rng)
        acts[fate.act] += 1

        with rmqstore.open(directory) as store:
            assert fate.may_be_closed or not store.recovery.was_closed, number
            fate.check(store, whole=number % 10 == 0)
            if number % 5 == 0:
                check_agreement(store)

            store.expire_files(max(0, len(store._files()) - writer.KEPT_FILES))
            if rng.random() < 0.7:
                store.abandon()

    with rmqstore.open(directory) as store:
        fate.begin_run()
        fate.check(store, whole=True)
        check_agreement(store)

    print(dict(acts))
    assert len(fate.acknowledged) > 100
    assert len(acts) > 3
