"""Opening: after a clean stop, after a crash, and after one that left no checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rmqstore
from benchmarks.conftest import Measure
from rmqstore import Store

ROUNDS = 5


@pytest.mark.parametrize("kind", ["clean", "crash", "crash without checkpoint"])
def bench_open(bounded: Measure, prepared: Path, tmp_path: Path, kind: str) -> None:
    checkpoint, saved = prepared / "checkpoint", tmp_path / "checkpoint"
    shutil.copyfile(checkpoint, saved)
    opened: list[Store] = []

    def prepare() -> None:
        while opened:
            opened.pop().close()
        shutil.copyfile(saved, checkpoint)
        if kind != "clean":
            (prepared / "abort").touch()
        if kind == "crash without checkpoint":
            checkpoint.unlink()

    bounded(lambda: opened.append(rmqstore.open(prepared)), setup=prepare, rounds=ROUNDS)
    assert opened[0].recovery.was_closed == (kind == "clean")
    opened.pop().close()
