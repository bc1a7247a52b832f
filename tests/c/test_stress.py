"""Many threads on one store, under each sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.c import library
from tests.support.effort import rounds

MESSAGES_PER_WRITER = rounds(12_000, 400_000)
CUTS = rounds(50, 2000)


@pytest.fixture(params=library.SANITIZED_PROGRAMS)
def stress(request: pytest.FixtureRequest) -> Path:
    sources = sorted(Path(__file__).parent.glob("stress*.c"))
    return library.program(sources[0], library.SANITIZED_PROGRAMS[request.param], sources[1:])


def test_every_verb_at_once_leaves_no_race_and_no_gap(stress: Path, tmp_path: Path) -> None:
    """The program gives up by itself what takes longer than any load can make it take."""
    command = [str(stress), str(tmp_path / "store"), str(MESSAGES_PER_WRITER), str(CUTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=library.PROGRAM_S)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"
    read, walked, read_beside, acknowledged = map(int, done.stdout.split())
    assert min(read, walked, read_beside, acknowledged) > 0
