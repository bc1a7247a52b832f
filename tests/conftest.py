"""Fixtures that several folders of tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.golden import RELEASES, GoldenCase, GoldenCases
from tests.interop import peer

# The first example of a run pays for cold caches, and the machines that run this differ.
settings.register_profile("rmqstore", deadline=None, print_blob=True)
settings.load_profile("rmqstore")

# A shell that starts the tests in the background ignores Ctrl-C for them and all they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden_cases(tmp_path_factory: pytest.TempPathFactory) -> GoldenCases:
    return GoldenCases(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def golden_case(golden_cases: GoldenCases, tmp_path: Path) -> Callable[[str, str], GoldenCase]:
    """Return a function (release, name) that gives a private, writable copy of a golden case."""
    return lambda release, name: golden_cases.copy(release, name, into=tmp_path)


@pytest.fixture(
    scope="session", params=[pytest.param(release, marks=pytest.mark.java) for release in RELEASES]
)
def java_store(request: pytest.FixtureRequest) -> peer.JavaStore:
    """Return the real Java store, built, once for each release."""
    lacking = peer.missing()
    if lacking:
        pytest.skip(lacking)
    store = peer.JavaStore(request.param)
    store.build()
    return store
