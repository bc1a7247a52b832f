"""Programs that tests run do not keep them, whatever they start and leave."""

from __future__ import annotations

import subprocess

import pytest

from tests.support import programs
from tests.support.programs import run_program
from tests.support.waiting import spin_until


def has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("how", ["ends", "waits"])
def test_what_a_program_leaves_with_its_pipes_is_ended(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_LEFT_S", 5.0)
    leaves = "sleep 1000 & echo $!"
    if how == "ends":
        done = run_program(["sh", "-c", leaves], timeout=300)
        assert done.returncode == 0
        said = done.stdout
    else:
        with pytest.raises(subprocess.TimeoutExpired) as told:
            run_program(["sh", "-c", f"{leaves}; wait"], timeout=5)
        said = told.value.stdout
    spin_until(lambda: has_ended(int(said)), "the process that was left ends")
