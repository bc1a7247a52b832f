"""A store for each test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark says of each pandas from 3.0 on that it may not work; here it is put to the test."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:PySpark does not yet fully support pandas:FutureWarning"
                )
            )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where `store` lies."""
    return tmp_path / "a.store"


@pytest.fixture
def store(path: Path) -> Iterator[rmqstore.Store]:
    """Yield an open store of small files."""
    from tests.spark.streaming import open_store

    with open_store(path) as opened:
        yield opened
