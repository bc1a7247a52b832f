"""The logger of replication, and the clock of its timers."""

from __future__ import annotations

import time

from rmqstore.net.identity_log import IdentityLog

__all__ = ["log", "now_ms"]


def log() -> IdentityLog:
    """Return the logger of replication; it names the server that the replica belongs to."""
    return IdentityLog("rmqstore.replication")


def now_ms() -> int:
    """Return a clock that never goes back, the one of all timers and leases of replication."""
    return time.monotonic_ns() // 1_000_000
