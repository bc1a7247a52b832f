"""Fixtures that tests of this folder share."""

from tests.support.broker_core import core
from tests.support.small_store import store

__all__ = ["core", "store"]
