"""Wrong arguments of every public verb: an exception of the package, and nothing stored.

The calls are made in a process of their own (checked_calls.py), which would take this one with it.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store import checked_calls, wrong_calls

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("group", wrong_calls.GROUPS)
def test_no_wrong_argument_crashes_leaves_the_tree_or_is_taken_silently(
    group: str, tmp_path: Path
) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.store.checked_calls", group, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=300,
        check=False,
    )

    lines = process.stdout.splitlines()
    faults = [
        f"{call}: {line}" for call, line in itertools.pairwise(lines) if line.startswith("fault: ")
    ]

    assert faults == []
    assert process.returncode == 0, f"{lines[-1:]} ended the process: {process.stderr[-2000:]}"
    assert lines[-1].startswith("done: ")
    assert process.stderr == ""


@pytest.mark.parametrize("group", checked_calls.COVERED)
def test_every_public_verb_and_parameter_is_called(group: str, tmp_path: Path) -> None:
    assert checked_calls.missing(group, tmp_path) == []
