"""A store for one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from tests.support.agreement import FILES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rmqstore.Store]:
    """Return a new store of small files."""
    with rmqstore.open(tmp_path / "store", **FILES) as made:
        yield made
