"""The metadata of one broker: read at once, changed durably, and spread to its slaves."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from rmqstore.aio import AsyncStore
from rmqstore.broker.metadata import groups as group_rules
from rmqstore.broker.metadata.consumer_filters import ConsumerFilters
from rmqstore.broker.metadata.files import SavedTable, TimerFiles
from rmqstore.broker.metadata.large_file import LargeTableFile
from rmqstore.broker.metadata.queue_starts import QueueStart
from rmqstore.broker.metadata.shared import Broker, SharedTables
from rmqstore.broker.metadata.shared_table import LargeTable, SharedTable
from rmqstore.broker.metadata.tables import Tables
from rmqstore.broker.parts import Parts
from rmqstore.errors import DiskError, StoreError
from rmqstore.filters import Bloom
from rmqstore.net.runtime import Runtime
from rmqstore.store.folder import Folder
from rmqstore.store.metadata import FilterTable, TopicConfig
from rmqstore.store.topic_queues import declare_queues

__all__ = ["Host", "Metadata"]

_SAVE_OFFSETS_S = 5.0
"""RocketMQ's flushConsumerOffsetInterval."""
_BEHIND_S = 1.0
"""Longest time that a small file lacks a change of its journal."""
_BEHIND_PAUSES = 20
"""Times that the writing of a large file takes, from one to the next: it shares the processor with
requests."""


class Host(Broker, Protocol):
    """What the metadata needs of its broker."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""

    @property
    def parts(self) -> Parts:
        """What reaches the world."""

    @property
    def store(self) -> AsyncStore:
        """The store, open."""

    @property
    def service_tables(self) -> Sequence[SharedTable]:
        """The tables of the services."""


class Metadata(SharedTables):
    """The tables of a broker, in the files of its store.

    An async context manager: entering loads the files, leaving saves them.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host, process=f"{id(self):x}")
        self._host = host
        self._runtime = host.runtime
        self._changed = self._runtime.event()
        self._saving = self._runtime.tasks("saving of offsets")
        self._begun = self._runtime.tasks("saves of metadata")
        """Saves in progress; the files are whole at the close."""
        self._has_filters = False
        """Whether there was an expression of a consumer group, so that its file is kept."""
        self._closing = self._runtime.event()
        self._behind: set[str] = set()
        """The tables whose files cannot be brought up to their journals, which is reported once."""
        self._is_open = False

    async def __aenter__(self) -> Metadata:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Load the files. Raises CorruptionError, DiskError."""
        store = self._host.store.store
        root = self._host.parts.folder(store.path)
        self._store = store
        self.timer_files = TimerFiles(root)
        self.removals = 0
        """How often queues of deleted topics were removed."""
        tables = self.tables = Tables(
            wall_ms=self._host.wall_ms,
            has_light_queues=self._host.config.light_queues,
            of_services=self._host.service_tables,
        )
        self._large = {
            each.name: LargeTableFile(root, each, self._runtime)
            for each in tables.all
            if isinstance(each, LargeTable)
        }
        small = [each for each in tables.all if each.name not in self._large]
        self._files: Mapping[str, SavedTable | LargeTableFile] = {
            **self._large,
            **{each.name: SavedTable(root, each.saved, self._runtime) for each in small},
            "filter": SavedTable(root, self._filter_table, self._runtime),
        }
        await self._runtime.on_disk(lambda: self._load(root, small))
        tables.add_system(self._rules.all(), group_rules.PREDEFINED)
        self._saving.start(self._save_regularly(), name="saving of offsets")
        self._begun.start(self._write_behind(), name="saving of topics and groups")
        self._is_open = True

    def _load(self, root: Folder, small: Sequence[SharedTable]) -> None:
        for file in self._large.values():
            file.load()
        for table in small:
            table.load(root)
        self.filters = self._load_filters(root)

    def _load_filters(self, root: Folder) -> ConsumerFilters:
        config = self._host.config
        bloom = Bloom(config.filter_error_percent, config.filter_consumers)
        return ConsumerFilters(FilterTable.load(root), bloom, now_ms=self._host.wall_ms())

    def _filter_table(self) -> FilterTable:
        kept_ms = self._host.config.filter_kept_ms
        return self.filters.table(now_ms=self._host.wall_ms(), kept_ms=kept_ms)

    async def close(self) -> None:
        """Save what has changed, and end the waits of slaves and changes."""
        if not self._is_open:
            return
        self._is_open = False
        self._closing.set()
        await self._saving.close()
        await self._begun.join()
        self._changes_id = ""
        self._wake()
        try:
            await self._save(*self._regular())
        except DiskError as error:
            self._host.log.error("the offsets are not saved: %s", error)
        await self._bring_up_files()

    # -- the surroundings of the tables

    def _begin_saving(self, *names: str) -> Awaitable[DiskError | None]:
        # A send does not await it.
        return self._begun.start(self.failure_of(*names), name=f"save of {', '.join(names)}")

    def _declare_queues(self, topic: TopicConfig) -> None:
        declare_queues(self._store, topic)

    def _log_end(self) -> int:
        return self._store.end_offset

    def dispatched_offset(self) -> int:
        """Return the physical offset before which records are in their queues."""
        return self._store.dispatched_offset

    async def remove_queues(self, topics: Collection[str], log_offset: int) -> None:
        """Remove the queues of deleted topics, as far as records before *log_offset* are in them.

        What cannot be removed stays, and is reported: it takes room, and does no harm.
        """
        for topic in topics:
            remove = partial(self._store._remove_queues, topic, log_offset)
            try:
                await self._runtime.on_disk(remove)
            except StoreError as error:
                self._host.log.error("the queues of the topic %s stay: %s", topic, error)
        self.removals += 1

    @property
    def log_cuts(self) -> int:
        """The number of cuts and restarts of the log."""
        return self._store._cuts

    def empty_queues(self) -> Mapping[str, Sequence[int]]:
        """Return by topic the queues without messages, where the log begins after 0."""
        if self._store.start_offset <= 0:
            return {}
        bounds = self._store._bounds
        found = {}
        for topic in self.tables.topics.values():
            count = max(topic.read_queue_count, topic.write_queue_count)
            each = [(queue, bounds(topic.name, queue)) for queue in range(count)]
            empty = [queue for queue, of in each if of is None or of[0] == of[1]]
            if empty:
                found[topic.name] = empty
        return found

    def begin_queues(self, starts: Sequence[QueueStart]) -> None:
        """Let queues without messages continue at offsets, durably. Raises StoreError."""
        if starts:
            self._store._begin_queues(starts)

    async def _save(self, *names: str) -> None:
        for name in names:
            await self._files[name].save()

    async def _save_regularly(self) -> None:
        while True:
            await self._runtime.sleep(_SAVE_OFFSETS_S)
            unsaved = (name for name, file in self._files.items() if file.has_failed)
            await self.failure_of(*self._regular(), *unsaved)

    async def _write_behind(self) -> None:
        """Brings the files of large tables up to their journals, for RocketMQ to read. It ends by
        itself: the thread that writes a file would go on beside the last save."""
        runtime = self._runtime
        while not self._closing.is_set:
            began_ms = runtime.now_ms()
            await self._bring_up_files()
            took_s = (runtime.now_ms() - began_ms) / 1000
            await self._closing.wait(max(_BEHIND_S, took_s * _BEHIND_PAUSES))

    async def _bring_up_files(self) -> None:
        for name, file in self._large.items():
            try:
                await file.write_behind()
                self._behind.discard(name)
            except DiskError as error:
                if name not in self._behind:
                    self._behind.add(name)
                    self._host.log.error("%s; its journal has what it lacks", error)

    def _regular(self) -> tuple[str, ...]:
        """Returns the tables that are saved from time to time."""
        self._has_filters |= len(self.filters) > 0
        names = [each.name for each in self.tables.all if not each.is_urgent]
        return (*names, "filter") if self._has_filters else tuple(names)

    async def save_timer(self, checkpoint: bytes, metrics: bytes) -> None:
        """Save the timer state of a master of RocketMQ. Raises OSError."""
        await self._runtime.on_disk(lambda: self.timer_files.save(checkpoint, metrics))

    def _wake(self) -> None:
        changed, self._changed = self._changed, self._runtime.event()
        changed.set()

    async def _change_within(self, limit_ms: int) -> None:
        await self._changed.wait(max(limit_ms, 1) / 1000)
