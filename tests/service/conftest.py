"""Fixtures that tests of this folder share."""

from tests.service.replicas_on_loop import stores
from tests.support.small_store import store

__all__ = ["store", "stores"]
