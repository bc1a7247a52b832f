"""Many threads on one store, under each sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.c.library import COMPILER, SOURCES, WARNINGS
from tests.effort import rounds

MESSAGES_PER_WRITER = rounds(20_000, 400_000)
CUTS = rounds(50, 2000)
# The thread sanitizer does not understand fences; they only spare sleepers a wait of bounded time.
FLAGS = (
    "-std=c11",
    "-O1",
    "-g",
    "-D_GNU_SOURCE",
    "-UNDEBUG",
    "-pthread",
    "-fno-sanitize-recover=all",
)
SANITIZERS = {
    "threads": ("-fsanitize=thread", "-Wno-tsan"),
    "memory": ("-fsanitize=address,undefined",),
}


@pytest.fixture(params=SANITIZERS)
def stress(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    program = tmp_path / "stress"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    sources += [str(path) for path in sorted(Path(__file__).parent.glob("stress*.c"))]
    command = [*COMPILER, *FLAGS, *WARNINGS, *SANITIZERS[request.param], f"-I{SOURCES}"]
    done = subprocess.run(
        [*command, "-o", str(program), *sources],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return program


def test_every_verb_at_once_leaves_no_race_and_no_gap(stress: Path, tmp_path: Path) -> None:
    """The program gives up by itself what takes longer than any load can make it take."""
    command = [str(stress), str(tmp_path / "store"), str(MESSAGES_PER_WRITER), str(CUTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"
    read, walked, read_beside, acknowledged = map(int, done.stdout.split())
    assert min(read, walked, read_beside, acknowledged) > 0
