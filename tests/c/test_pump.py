"""A master's pump and a slave's whose connections break again and again, under each sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.c import library
from tests.support.effort import rounds

MESSAGES_PER_WRITER = rounds(2_000, 100_000)
CONNECTIONS = rounds(30, 2000)


@pytest.fixture(params=library.SANITIZED_PROGRAMS)
def pump(request: pytest.FixtureRequest) -> Path:
    return library.program(
        Path(__file__).with_name("pump.c"), library.SANITIZED_PROGRAMS[request.param]
    )


def test_connections_that_break_leave_no_race_and_equal_logs(pump: Path, tmp_path: Path) -> None:
    """The program gives up by itself what takes longer than any load can make it take."""
    stores = [str(tmp_path / "master"), str(tmp_path / "slave")]
    command = [str(pump), *stores, str(MESSAGES_PER_WRITER), str(CONNECTIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=library.PROGRAM_S)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"
    assert int(done.stdout) > 3 * MESSAGES_PER_WRITER * 300
