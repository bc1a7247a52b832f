"""What the tests of the command line share."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Message

pytest.importorskip("typer", reason="the command line needs the extra cli")

import typer.main
from typer.testing import CliRunner

from rmqstore.cli.app import app
from tests.cli.served_broker import Served

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Told:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


Run = Callable[..., Told]


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    """Typer builds all commands whenever one is run, for a twentieth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        kept = functools.cache(typer.main.get_command)
        patch.setattr("typer.testing._get_command", kept, raising=False)
        yield


@pytest.fixture
def run() -> Run:
    """Return a function that runs a command in this process."""

    def call(*arguments: object, stdin: bytes | None = None) -> Told:
        result = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Told(result.exit_code, result.stdout, result.stderr)

    return call


class Process(subprocess.Popen[bytes]):
    """A process that does not outlive its `with`, whatever the test found."""

    def __exit__(self, *raised: Any) -> None:
        self.kill()
        super().__exit__(*raised)


@pytest.fixture
def spawn() -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts a command as a process, output in pipes."""

    def start(*arguments: object, code: Sequence[str] = ("-m", "rmqstore")) -> Any:
        return Process(
            [sys.executable, *code, *(str(each) for each in arguments)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    return start


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a closed store: topic `orders` with two queues, ten messages each, one second apart
    in born time."""
    path = tmp_path / "small.store"
    with rmqstore.open(path, commit_log_file_size_bytes=1 << 20) as store:
        for number in range(20):
            store.put(
                Message(
                    "orders",
                    f"body {number}".encode(),
                    queue=number % 2,
                    tags="eu" if number % 3 else "us",
                    keys=(f"o-{number}", "all"),
                    born_timestamp=1_700_000_000_000 + number * 1000,
                )
            )
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return a running broker."""
    made = Served(tmp_path)
    yield made
    made.close()
