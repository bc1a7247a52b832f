"""The logger of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqstore.net.identity_log import IdentityLog

__all__ = ["log"]


def log() -> IdentityLog:
    """Return the logger of stores; it names the server that the store belongs to."""
    # Opening a store is fast without the import of logging.
    from rmqstore.net.identity_log import IdentityLog

    return IdentityLog("rmqstore")
