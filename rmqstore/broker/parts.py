"""What a broker is made of that reaches the world: its server, its store, its replica, its files.

The simulator gives others, on a simulated network and disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from rmqstore._native.core import TimerIndex
from rmqstore.aio import AsyncStore
from rmqstore.config import Configuration
from rmqstore.net.boot import boot_id
from rmqstore.remoting.server import RemotingServer
from rmqstore.replication.runtime.replica import Replica
from rmqstore.store.folder import DiskFolder, Folder

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
    timer_index: Callable[..., TimerIndex] = TimerIndex
    folder: Callable[[str | os.PathLike[str]], Folder] = DiskFolder
    """Returns the folder at a path."""
    boot: Callable[[], str] = boot_id
    """Returns the id of the present boot of the machine, and may block."""
