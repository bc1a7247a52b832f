"""Fixtures of the tests with live Java replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import RELEASES
from tests.support import java
from tests.support.java_replica import Replicas


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file release by release: those of one release share a cluster.

    pytest sorts by the place of a release in the parameters of each test, which differ.
    """
    places = [at for at, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    chosen = [items[at] for at in places]
    files = list(dict.fromkeys(item.path for item in chosen))
    chosen.sort(key=lambda item: (files.index(item.path), _release_of(item)))
    for at, item in zip(places, chosen, strict=True):
        items[at] = item


def _release_of(item: pytest.Item) -> str:
    """Returns the release of a test with Java replicas, else nothing."""
    call = getattr(item, "callspec", None)
    return str(call.params.get("java_release", "")) if call is not None else ""


@pytest.fixture(
    scope="session", params=[pytest.param(release, marks=pytest.mark.java) for release in RELEASES]
)
def java_release(request: pytest.FixtureRequest) -> str:
    """Return a release whose replica is built; a test runs with every one unless it names some."""
    release: str = request.param
    java.need(release)
    return release


@pytest.fixture
def java_replica(java_release: str, tmp_path: Path) -> Iterator[Replicas]:
    """Return what starts replicas, Java's and ours, and ends them with the test."""
    replicas = Replicas(java_release, tmp_path)
    yield replicas
    replicas.stop()
