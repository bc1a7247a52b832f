"""What a broker is made of that reaches the world: its server, its store and its replica.

The simulator gives others, on a simulated network and disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.aio import AsyncStore
from rmqstore.config import Configuration
from rmqstore.remoting.server import RemotingServer
from rmqstore.replication.runtime.replica import Replica

__all__ = ["Parts"]


def _store(config: Configuration) -> AsyncStore:
    return AsyncStore(config=config, retention=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The makers of the parts, each called as the class that it stands for."""

    server: Callable[..., RemotingServer] = RemotingServer
    store: Callable[[Configuration], AsyncStore] = _store
    """Returns the store of these settings; entering it opens it."""
    replica: Callable[..., Replica] = Replica
