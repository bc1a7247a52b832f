"""The metadata files of a broker, and their saving."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rmqstore.net.runtime import Runtime
from rmqstore.store.folder import FolderLike, folder_at
from rmqstore.store.metadata.table import Table
from rmqstore.store.metadata.timer_checkpoint import is_marked, marked

__all__ = ["SavedTable", "TimerFiles"]


class SavedTable:
    """One file, written on the thread for files. Saves that are requested while one runs share the
    next one."""

    def __init__(self, root: FolderLike, read: Callable[[], Table], runtime: Runtime) -> None:
        self._root = root
        self._read = read
        self._runtime = runtime
        self._lock = runtime.lock()
        self._requested = 0
        self._done = 0
        self._written: Table | None = None
        self.has_failed = False
        """Whether the last save failed: the file lacks changes that are in effect."""

    async def save(self) -> None:
        """Return when the file holds the table, as it is now or later, durably. Raises
        DiskError."""
        self._requested += 1
        own = self._requested
        async with self._lock:
            if self._done >= own:
                return
            covered, table = self._requested, self._read()
            if table != self._written:
                # No other process writes below an open store.
                is_own = self._written is not None
                self._written = None
                self.has_failed = True
                await self._runtime.on_disk(lambda: table.save(self._root, is_file_whole=is_own))
            self._written, self._done = table, covered
            self.has_failed = False


class TimerFiles:
    """timercheck and timermetrics, as a RocketMQ master has them, or for RocketMQ to read."""

    _CHECKPOINT_SIZE = 56
    _FILE_SIZE = 4096

    def __init__(self, root: FolderLike) -> None:
        self._folder = folder_at(root)

    def checkpoint(self) -> bytes:
        """Return the body of GET_TIMER_CHECK_POINT, empty without a file. Raises OSError."""
        return self._content("timercheck")[: self._CHECKPOINT_SIZE]

    def metrics(self) -> bytes:
        """Return the body of GET_TIMER_METRICS, empty without a file. Raises OSError."""
        return self._content("timermetrics")

    def is_of_rocketmq(self) -> bool:
        """Whether RocketMQ wrote the check point, or a master that runs it did. Raises OSError."""
        content = self._content("timercheck")
        return bool(content) and not is_marked(content)

    def save_own(self, checkpoint: bytes) -> None:
        """Write a check point of this broker; durable on return. Raises OSError."""
        self._folder.replace("config/timercheck", marked(checkpoint).ljust(self._FILE_SIZE, b"\0"))

    def save(self, checkpoint: bytes, metrics: bytes) -> None:
        """Write those that differ from the files, empty ones not; durable on return. Raises
        OSError."""
        checkpoint = checkpoint[: self._CHECKPOINT_SIZE]
        if checkpoint and checkpoint != self.checkpoint():
            content = checkpoint.ljust(self._FILE_SIZE, b"\0")
            self._folder.replace("config/timercheck", content)
        if metrics and metrics != self.metrics():
            self._folder.replace("config/timermetrics", metrics)

    def _content(self, name: str) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return self._folder.read(f"config/{name}")
        return b""
