"""Directories that RocketMQ cut: its truncation leaves what it cut in log, queues and index."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.golden import DIRECTORY

NAMES = tuple(sorted(each.name[: -len(".tar.xz")] for each in (DIRECTORY / "cut").iterdir()))


@dataclass(frozen=True, slots=True)
class CutCase:
    """A directory of a broker that was stopped cleanly, and what RocketMQ reports of it."""

    root: Path
    end: int
    """End of the log when RocketMQ opens the directory again."""
    queues: dict[int, tuple[int, int]]
    """Bounds of the queues of HaTopic when RocketMQ stopped."""


def unpack(name: str, into: Path) -> CutCase:
    """Return a private copy of a case below *into*."""
    with tarfile.open(DIRECTORY / "cut" / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    facts = json.loads((into / "facts.json").read_text())
    queues = {int(queue): tuple(bounds) for queue, bounds in facts["before"]["queues"].items()}
    return CutCase(into / "store", facts["again"]["end"], queues)


every_cut_case = pytest.mark.parametrize("name", NAMES)
