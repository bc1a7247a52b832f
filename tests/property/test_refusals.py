"""Random histories of stores with every kind of queue: what opening refuses, `verify` finds and
`repair` fixes; a refusal changes no file; a history without damage is never refused."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreError
from rmqstore.check import verify
from rmqstore.check.repair import apply, plan
from tests.support.effort import rounds
from tests.support.every_file import BATCHES, SETTINGS, tree

LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
STEPS = 9


class History:
    """One store and what happened to it."""

    def __init__(self, directory: Path, seed: int, *, is_damaged: bool) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.is_damaged = is_damaged
        self.steps: list[str] = []
        self.refusals = 0
        self.store = rmqstore.open(directory, **SETTINGS)
        self.store.create_topic(
            BATCHES, read_queue_count=1, write_queue_count=1, attributes={"queue.type": "BatchCQ"}
        )

    def put(self) -> None:
        topic = self.rng.choice(["quiet", "busy", "busy", "busy"])
        for _ in range(self.rng.choice([1, 3, 30])):
            size = self.rng.choice([0, 20, 300])
            tags, light = self.rng.choice([None, "A"]), self.rng.choice([{}, {}, LIGHT])
            self.store.put(Message(topic, bytes(size), tags=tags, keys=["k"], properties=light))

    def put_batches(self) -> None:
        for _ in range(self.rng.choice([1, 2, 12])):
            count = self.rng.choice([1, 2, 5])
            self.store.put_batch([Message(BATCHES, bytes(20)) for _ in range(count)])

    def expire(self) -> None:
        self.store.wait_dispatched()
        self.store.expire_files(self.rng.choice([1, 1, 2, 9]))

    def truncate(self) -> None:
        records = [record.physical_offset for record in self.store.scan_log()]
        if records[1:]:
            self.store.truncate_to(self.rng.choice([*records[1:], *records[1:][-3:]]))

    def close(self) -> None:
        self.store.close()
        self.reopen()

    def crash(self) -> None:
        if self.rng.random() < 0.5:
            self.store.wait_dispatched()
        if self.rng.random() < 0.3:
            self.store.flush()
        self.store.abandon()
        self.reopen()

    def reopen(self) -> None:
        if self.is_damaged and self.rng.random() < 0.5:
            self.damage()
        before = tree(self.directory)
        try:
            self.store = rmqstore.open(self.directory, **SETTINGS)
        except StoreError as error:
            self.steps.append(f"refused: {error}")
            assert self.is_damaged, self.steps
            assert tree(self.directory) == before, self.steps
            self.refusals += 1
            self.repair()
        self.check()

    def repair(self) -> None:
        report = verify(self.directory, full=True)
        assert not report.is_sound, self.steps
        outcome = apply(plan(self.directory))
        assert outcome.report.is_sound, (self.steps, outcome.report.damage)
        self.store = rmqstore.open(self.directory, **SETTINGS)

    def damage(self) -> None:
        files = sorted(
            path
            for path in self.directory.rglob("*")
            if path.is_file()
            and path.relative_to(self.directory).parts[0] not in ("cut", "config", "lock", "abort")
        )

        path = self.rng.choice(files)
        kind = self.rng.choice(["flip", "zero", "delete", "shorten", "empty", "foreign", "skip"])
        if path.parent.name == "commitlog" and len(list(path.parent.iterdir())) < 3:
            kind = "flip"  # Without a log there is nothing to repair a store from.

        self.steps.append(f"damage: {kind} {path.relative_to(self.directory)}")
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0"))

        if kind == "flip" and used:
            data[self.rng.randrange(used)] ^= 1 << self.rng.randrange(8)
        elif kind == "zero" and used:
            at = self.rng.randrange(used)
            data[at : at + self.rng.choice([20, 400])] = bytes(min(20, len(data) - at))
            data = data[: path.stat().st_size].ljust(path.stat().st_size, b"\0")
        elif kind == "shorten":
            del data[len(data) // 2 :]
        elif kind == "empty":
            data.clear()

        if kind == "delete":
            path.unlink()
        elif kind == "foreign":
            (path.parent / self.rng.choice(["stray.txt", "17"])).write_bytes(b"stray")
        elif kind == "skip" and path.name.isdecimal() and len(path.name) == 20:
            size = len(data)
            (path.parent / f"{int(path.name) + 2 * size:020}").write_bytes(data)
        else:
            path.write_bytes(data)

    def check(self) -> None:
        """Every message of the log is where it says."""
        self.store.wait_dispatched()
        if self.is_damaged:
            return
        for record in self.store.scan_log():
            offset = record.queue_offset
            found = self.store.get(record.topic, queue=record.queue, offset=offset)
            assert found.physical_offset == record.physical_offset, self.steps

    def run(self) -> None:
        moves: list[Callable[[], None]] = [
            self.put,
            self.put,
            self.put_batches,
            self.expire,
            self.truncate,
            self.close,
            self.crash,
        ]

        for _ in range(STEPS):
            move = self.rng.choice(moves)
            self.steps.append(move.__name__)
            move()

        self.store.put("busy", b"last")
        self.steps.append("close")
        self.close()
        self.store.close()

        if not self.is_damaged:
            report = verify(self.directory, full=True)
            assert report.is_sound, (self.steps, report.damage)


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound", "damaged"])
def test_what_opening_refuses_is_found_and_repaired(tmp_path: Path, is_damaged: bool) -> None:
    refusals = 0
    for seed in range(rounds(25, 3000)):
        directory = tmp_path / str(seed)
        history = History(directory, seed, is_damaged=is_damaged)
        try:
            history.run()
        except BaseException as error:
            error.add_note(f"seed {seed}: {history.steps}")
            raise
        refusals += history.refusals
        shutil.rmtree(directory)
    assert (refusals > 0) == is_damaged
