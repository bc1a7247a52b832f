"""Many threads on one store, under each sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.c.library import COMPILER, SOURCES, WARNINGS

MESSAGES_PER_WRITER = 20_000
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
    command = [*COMPILER, *FLAGS, *WARNINGS, *SANITIZERS[request.param], f"-I{SOURCES}"]
    done = subprocess.run(
        [*command, "-o", str(program), str(Path(__file__).with_name("stress.c")), *sources],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return program


def test_writers_readers_flusher_expirer_and_cutter_leave_no_race_and_no_gap(
    stress: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [str(stress), str(tmp_path / "store"), str(MESSAGES_PER_WRITER)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert int(done.stdout.split()[0]) > 0
