"""The logger of replication."""

from __future__ import annotations

from rmqstore.net.identity_log import IdentityLog

__all__ = ["log"]


def log() -> IdentityLog:
    """Return the logger of replication; it names the server that the replica belongs to."""
    return IdentityLog("rmqstore.replication")
