"""Fixtures that tests of this folder share."""

from __future__ import annotations

import pytest

from tests.scenarios.controller_cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Return a controller without brokers."""
    return Cluster()
