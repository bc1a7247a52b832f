"""Fixtures of the tests with live Java replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import RELEASES
from tests.support import java
from tests.support.java_replica import Replicas


@pytest.fixture(
    scope="session", params=[pytest.param(release, marks=pytest.mark.java) for release in RELEASES]
)
def java_release(request: pytest.FixtureRequest) -> str:
    """Return a release whose replica is built; each test runs with every one."""
    release: str = request.param
    java.need(release)
    return release


@pytest.fixture
def java_replica(java_release: str, tmp_path: Path) -> Iterator[Replicas]:
    """Return what starts replicas, Java's and ours, and ends them with the test."""
    replicas = Replicas(java_release, tmp_path)
    yield replicas
    replicas.stop()
