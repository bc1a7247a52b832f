"""Fixtures that tests of this folder share, and what none of them may start."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.c.segments import File, files_of
from tests.golden import GoldenCases


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse processes, threads and sockets: tests that need them have other folders."""

    def refuse(*_: object, **__: object) -> NoReturn:
        pytest.fail("a unit test starts no process, thread or socket; see tests/store and service")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(socket.socket, "__init__", refuse)


@pytest.fixture(scope="session")
def logs(
    golden_cases: GoldenCases, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[File]]:
    """Return a function from the name of a case to its files, of release 5.5.0."""
    into = tmp_path_factory.mktemp("segments")
    known: dict[str, list[File]] = {}

    def files(name: str) -> list[File]:
        if name not in known:
            known[name] = files_of(golden_cases.copy("5.5.0", name, into=into))
        return known[name]

    return files
