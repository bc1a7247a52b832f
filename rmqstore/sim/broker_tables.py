"""The tables of a simulated broker: production code, with files that survive the process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Protocol

from rmqstore.broker.metadata.shared import Broker, SharedTables
from rmqstore.broker.metadata.tables import Tables
from rmqstore.broker.metadata.topics import TEMPLATE_TOPIC
from rmqstore.errors import DiskError
from rmqstore.sim.coroutines import Pause, Resume
from rmqstore.store.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    GroupConfig,
    GroupTable,
    RequestModes,
    TopicConfig,
    TopicTable,
)

__all__ = ["READERS", "BrokerTables", "Owner", "TableFiles"]

READERS = "readers"
"""The group of all consumers."""
_QUEUES = 2
_TEMPLATE_PERM = 7
"""Read, write, and be the model of topics that messages make."""
_FIRST_TOPICS = ("orders", "refunds")


class TableFiles:
    """The files of one machine. A save replaces a file durably, or not at all."""

    def __init__(self) -> None:
        topics = {each: TopicConfig(each, _QUEUES, _QUEUES) for each in _FIRST_TOPICS}
        topics[TEMPLATE_TOPIC] = TopicConfig(TEMPLATE_TOPIC, _QUEUES, _QUEUES, _TEMPLATE_PERM)
        self._tables: dict[str, Any] = {
            "topic": TopicTable(topics),
            "group": GroupTable({READERS: GroupConfig(READERS)}),
            "offset": ConsumerOffsets(),
            "delay": DelayOffsets(),
            "mode": RequestModes(),
        }

    def replace(self, name: str, table: Any) -> None:
        """Replace the content of the file *name* by *table*."""
        self._tables[name] = table

    def copy(self) -> TableFiles:
        """Return a copy of the files."""
        copied = TableFiles()
        copied._tables = dict(self._tables)
        return copied

    def put_back(self, copied: TableFiles) -> None:
        """Replace the files by an earlier copy."""
        self._tables = dict(copied._tables)

    def read(self, *, wall_ms: Callable[[], int]) -> Tables:
        """Return the tables in the files, as a new process reads them."""
        found = self._tables
        return Tables(
            topics=found["topic"],
            groups=found["group"],
            offsets=found["offset"],
            delays=found["delay"],
            modes=found["mode"],
            wall_ms=wall_ms,
        )


class Owner(Broker, Protocol):
    """The broker of the tables, in one life of its process."""

    def later(self, ms: int, action: Callable[..., None], *args: Any) -> None:
        """Run *action* in a turn of this process, unless it ends before."""

    async def sync(self) -> None:
        """Return when a file is on the disk. Raises DiskError on a full disk."""

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        """Run a coroutine in the turns of this process."""


class BrokerTables(SharedTables):
    """The tables of one life of a broker."""

    def __init__(self, broker: Owner, files: TableFiles, *, process: str) -> None:
        super().__init__(broker, process=process)
        self._owner = broker
        self._files = files
        self._waiting: list[Resume] = []
        self.tables = files.read(wall_ms=broker.wall_ms)

    async def save_offsets(self) -> None:
        """Save the offsets, if the disk has room."""
        await self.failure_of("offset", "delay")

    # ---- the environment of the tables

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            self._owner.later(0, resume, None)

    async def _change_within(self, limit_ms: int) -> None:
        is_over = False

        def begin(resume: Resume) -> None:
            def once(value: None) -> None:
                nonlocal is_over
                if not is_over:
                    is_over = True
                    resume(None)

            self._waiting.append(once)
            self._owner.later(max(limit_ms, 1), once, None)

        await Pause(begin)

    def _begin_saving(self, *names: str) -> Awaitable[DiskError | None]:
        return self._owner.start(self.failure_of(*names))

    async def _save(self, *names: str) -> None:
        tables = self.tables
        read: dict[str, Callable[[], Any]] = {
            "topic": tables.topic_table,
            "group": tables.group_table,
            "offset": tables.offsets.table.snapshot,
            "mode": tables.mode_table,
            "delay": tables.delay_table,
        }
        for name in names:
            table = read[name]()
            await self._owner.sync()
            self._files.replace(name, table)

    async def save_timer(self, checkpoint: bytes, metrics: bytes) -> None:
        """Do nothing: masters of this library have no timer."""

    def _declare_queues(self, topic: TopicConfig) -> None:
        """Do nothing: the model of a log has one kind of queue."""

    def _log_end(self) -> int:
        return 0

    def dispatched_offset(self) -> int:
        """Return 0: the model of a log has no queues."""
        return 0

    async def remove_queues(self, topics: Collection[str], log_offset: int) -> None:
        """Do nothing: the model of a log has no queues."""
