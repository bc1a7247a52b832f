"""What a process of the command line answers: exit codes, closed streams, interrupts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Run

INTERRUPTED_IMPORT = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "rmqstore.cli.app":
            raise KeyboardInterrupt

from rmqstore.cli.main import main
sys.meta_path.insert(0, Interrupt())
main()
"""
WITHOUT_TYPER = """
import sys
sys.modules["typer"] = None
from rmqstore.cli.main import main
main()
"""


def python(*arguments: object, closed: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the interpreter with the descriptors *closed* closed."""

    def close() -> None:
        for descriptor in closed:
            os.close(descriptor)

    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=close,
    )


@pytest.mark.parametrize("command", ["verify", "repair", "epoch", "ls", "info"])
@pytest.mark.parametrize("kind", ["file", "loop", "missing"])
def test_what_is_no_directory_cannot_be_opened(
    kind: str, command: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / kind
    if kind == "file":
        path.write_text("x")
    elif kind == "loop":
        path.symlink_to(path)
    answer = run(command, path)
    assert answer.code == 3, answer.err
    assert str(path) in answer.err


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_closed_standard_streams_leave_the_exit_code_alone(
    closed: tuple[int, ...], small: Path, tmp_path: Path
) -> None:
    answer = python("-m", "rmqstore", "ls", small, closed=closed)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert python("-m", "rmqstore", "ls", tmp_path / "none", closed=closed).returncode == 3


def test_interrupt_while_the_commands_are_imported_is_silent() -> None:
    answer = python("-c", INTERRUPTED_IMPORT)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")


def test_missing_extra_is_wrong_usage_and_not_damage() -> None:
    answer = python("-c", WITHOUT_TYPER)
    assert answer.returncode == 2
    assert "rmqstore[cli]" in answer.stderr


def test_damage_met_on_the_way_is_answered_with_the_path_given(run: Run, small: Path) -> None:
    answer = run("get", small, "--at", "3")
    assert answer.code == 1
    assert answer.err.rstrip().endswith(f"rmqstore verify {small}")


def test_repair_always_prints_json_where_that_is_asked_for(
    run: Run, small: Path, tmp_path: Path
) -> None:
    assert run("repair", "--json", small).json[-1]["sound"] is True
    refused = run("repair", "--json", tmp_path / "none")
    assert refused.code == 3
    assert refused.json[-1]["type"] == "error"
    assert str(tmp_path / "none") in refused.json[-1]["text"]


def test_version_lists_the_parts_that_were_built(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("--version")
    assert shown.code == 0
    assert shown.lines[0].startswith("rmqstore")
    assert [line.rpartition(": ")[0] for line in shown.lines[1:]] == [
        "core",
        "C-Raft (groups of controllers)",
        "reader in Spark's JVM",
    ]

    monkeypatch.setitem(sys.modules, "rmqstore._native.raft", None)
    monkeypatch.delattr("rmqstore._native.raft", raising=False)
    monkeypatch.setattr("rmqstore.cli.parts.find_spec", lambda name: None)
    monkeypatch.setattr("rmqstore.spark.jvm.jar_path", lambda: None)
    states = [line.rpartition(": ")[2] for line in run("--version").lines[1:]]
    assert states == ["built", "not built", "not built"]
    monkeypatch.setattr("rmqstore.cli.parts.find_spec", lambda name: name)
    assert "built, but cannot be loaded: " in run("--version").lines[2]
