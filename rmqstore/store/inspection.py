"""The inner interface of a store that checks and listings use.

The public class of a store is `rmqstore.Store`. Checks and listings also read its files, and
the units of its queues, as they are on the disk.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.store.store import Store

__all__ = ["InspectionView", "LogFilePlace", "StoredUnit"]


class LogFilePlace(NamedTuple):
    """A file of the commit log that a store has open."""

    path: str
    start_offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """The physical offset after the file."""
        return self.start_offset + self.size


class StoredUnit(NamedTuple):
    """A unit of a consume queue."""

    queue_offset: int
    physical_offset: int
    """-1 for a unit that only fills the queue."""

    size: int
    tags_code: int
    message_count: int
    """More than 1 for an inner batch."""

    extension_address: int | None
    bit_map: bytes


class InspectionView:
    """A store as checks and listings read it; any number of them for one store.

    Every method may be called from any thread, and raises StoreClosedError once the store is
    closed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def log_files(self) -> list[LogFilePlace]:
        """Return the files of the commit log, oldest first."""
        return [LogFilePlace(*each) for each in self._store._files()]

    def index_files_skipped(self) -> int:
        """Return how many index files a read-only store leaves out, because their size is not the
        configured one."""
        return self._store._index_files_skipped()

    def queue_names(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of each queue that has files, in no order."""
        return [(topic, queue_id) for topic, queue_id, *_ in self._store._queues()]

    def first_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that the queue holds, 0 for one that does not exist."""
        bounds = self._store._bounds(topic, queue_id)
        return bounds[0] if bounds else 0

    def units(self, topic: str, queue_id: int, offset: int, *, count: int) -> list[StoredUnit]:
        """Return up to *count* units of a queue, 256 at most, from the one that holds the queue
        offset *offset*; an empty list at the end of the queue."""
        return [StoredUnit(*each) for each in self._store._units(topic, queue_id, offset, count)]

    def show_whole_files(self) -> None:
        """Let the log of a read-only store end at the end of its last file, with any content.

        Must be called before anything else is read. Raises ArgumentError for a writable store.
        """
        self._store._see_whole_files()
