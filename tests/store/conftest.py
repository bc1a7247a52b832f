"""Fixtures that tests of this folder share."""

from tests.support.small_store import store

__all__ = ["store"]
