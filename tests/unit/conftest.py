"""Fixtures that tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from tests.c.segments import File, files_of
from tests.crash.agreement import FILES
from tests.golden import GoldenCases


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rmqstore.Store]:
    """Return a new store of small files."""
    with rmqstore.open(tmp_path / "store", **FILES) as made:
        yield made


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
