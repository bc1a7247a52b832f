"""A store and its queues: open, put, get, iterate, cut, clean.

The verbs that move bytes are native (`rmqstore._native.core`); here is what stands around them:
topics, retention, and the life of a store.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from rmqstore import arguments, forks
from rmqstore._native import core
from rmqstore._native.core import LogScan, Record
from rmqstore.config import StoreConfig
from rmqstore.directory import Directory
from rmqstore.errors import (
    ArgumentError,
    DiskError,
    NotFoundError,
    NotWritable,
    OffsetOutOfRange,
    StoreClosedError,
    StoreError,
    UnsupportedStoreError,
    disk_errors,
)
from rmqstore.message import GetStatus, Message
from rmqstore.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    TopicConfig,
    TopicTable,
)
from rmqstore.queue import GetResult, Queue, past_the_end
from rmqstore.retention import (
    CommitLogFile,
    DiskUse,
    RetentionDecision,
    RetentionPolicy,
    RetentionTimer,
    decide,
)
from rmqstore.settings import adapt, native_settings, remember, remembered

if TYPE_CHECKING:
    import logging

    from rmqstore.arrow import ArrowStream

__all__ = ["GetResult", "Queue", "Recovery", "Store"]

_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_VISIBLE_TIMEOUT_MS = 30_000
_MAX_TIME_MS = 2**63 - 1
_READ_ONLY_POLL = 0.05
_BATCH_QUEUES_MAX = 65_536
_CLOCK_MS_MAX = 253_370_764_800_000
"""The year 9999, the last one that every C library breaks down."""
_ON_CORRUPT = ("fail", "skip", "stop")


class Recovery(NamedTuple):
    """What opening the store found."""

    was_closed: bool
    """Whether the store had been closed; False after a crash."""
    start_offset: int
    """Where the walk through the log began."""

    end_offset: int
    records: int
    """Records walked and checked."""

    cut_bytes: int
    """Bytes behind the last whole record that were dropped."""

    cut_path: str
    """Where whole records behind a bad one were copied to, below the store; "" when there were
    none."""

    milliseconds: int

    was_cut: bool
    """Whether RocketMQ had cut the log and left bytes or queue units of what it cut."""

    doubtful_offset: int
    """In a read-only store, the offset of bytes that are not a record, where either RocketMQ cut
    the log or records are damaged, and nothing tells which; else -1."""


class _Replication(Protocol):
    """What replicates a store, and ends before it does."""

    def close(self) -> None: ...

    def _abandon(self) -> None: ...


def open(
    path: str | os.PathLike[str],
    config: StoreConfig | str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    retention: bool = False,
    keep_confirm_offset: bool | None = None,
    **settings: Any,
) -> Store:
    """Return the store at *path*, made when it is not there.

    `~` in a path is not expanded. `from rmqstore import *` leaves the builtin open as it is: call
    rmqstore.open by this name.

    *config* is a StoreConfig or the path of a RocketMQ broker's file; *settings* change single
    fields of it by name. Without a config, the file sizes of a store already there are found out.
    *read_only* takes no lock and writes nothing, so that it may stand beside a running broker;
    `refresh` then shows what the writer did since. *retention* deletes old files by the rules of
    the configuration, which no read-only store does; without it nothing is ever deleted.

    *keep_confirm_offset*: what lies behind the checkpoint's confirm offset, which other replicas
    may lack, stays unseen until replication confirms it. None: where there is an epoch list, so
    that a replica that starts again shows nothing a later cut could take back. False shows all
    there is. A confirm offset of 0 was never set and holds nothing back.

    Raises StoreLockedError (names the process), CorruptionError (names place and cure),
    ConfigError, ArgumentError, DiskError.
    """
    return Store(
        path,
        config,
        read_only=read_only,
        retention=retention,
        keep_confirm_offset=keep_confirm_offset,
        **settings,
    )


class Store(core.Reader):
    """A durable, ordered, indexed message store in a directory, in Apache RocketMQ's format.

    Safe to use from any thread. A context manager: leaving it flushes and closes. After a fork the
    child must open its own.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: StoreConfig | str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        retention: bool = False,
        keep_confirm_offset: bool | None = None,
        **settings: Any,
    ) -> None:
        root = arguments.absolute_path("path", path)
        given = config is not None
        arguments.boolean("read_only", read_only)
        if arguments.boolean("retention", retention) and read_only:
            raise ArgumentError(
                "retention is True with read_only; a store opened read-only deletes nothing"
            )
        if keep_confirm_offset is not None:
            arguments.boolean("keep_confirm_offset", keep_confirm_offset)
        if config is None:
            config = remembered(root)
        elif not isinstance(config, StoreConfig):
            config = StoreConfig.from_properties(arguments.path("config", config))
        config = config.replace(**settings)
        facts = Directory.inspect(root, commit_log_paths=config.commit_log_paths)
        named = config.commit_log_paths if given else settings.get("commit_log_paths", ())
        if read_only:
            facts.require_store()
        else:
            facts.require_file_queues()
            facts.require_inside(config.commit_log_paths, named=named)
        if not given:
            config = adapt(config, facts, set(settings))
        self.config = config
        self.directory = facts
        self._retention: RetentionTimer | None = None
        self._writes_refused = False
        self._replication: _Replication | None = None
        self._after_expiry: Callable[[], object] | None = None
        """Called, from any thread, once files were removed from the log's beginning."""
        if keep_confirm_offset is None:
            keep_confirm_offset = facts.has_epochs
        self._open(
            root,
            native_settings(
                config,
                facts,
                read_only=read_only,
                keep_confirm_offset=keep_confirm_offset and not read_only,
            ),
        )
        forks.watch(self, Store._disown)
        self.body_size_max = config.message_size_bytes_max
        self.recovery = Recovery(**self._recovery())
        for part in facts.left_alone:
            _log().warning("%s: %s: left alone", root, part)
        if self.recovery.was_cut and not read_only:
            _log().warning("%s: the log ends where RocketMQ cut it: %s", root, self.recovery)
        if self.recovery.doubtful_offset >= 0:
            _log().warning(
                "%s: either RocketMQ cut the log at %d, or it is damaged there; nothing tells "
                "which, and records after that offset are read",
                root,
                self.recovery.doubtful_offset,
            )
        if not self.recovery.was_closed and not read_only and facts.is_store:
            _log().info("%s was not closed: %s", root, self.recovery)
        try:
            if not read_only and not facts.is_store:
                remember(root, config)
            self._load_metadata()
            if not read_only:
                self._start_retention(delete=retention)
        except BaseException:
            self.close()
            raise

    # -- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Dispatch and flush everything, write the checkpoint, let the directory go.

        Twice is harmless. Raises ViewsOpenError while memoryviews of scanned records live;
        DiskError when the last flush failed: the store is closed all the same, and its next start
        recovers it. Where queues find no room on the disk, closing tries for a second, warns, and
        leaves the rest to the next start.
        """
        if self._replication is not None:
            self._replication.close()
        if self._retention is not None and not self.closed:
            self._retention.stop()
        self._warn_of_full_disk()
        super().close()

    def _warn_of_full_disk(self) -> None:
        # A child of the process that opened the store may close it, and ask it nothing.
        with contextlib.suppress(StoreClosedError):
            if isinstance(obstacle := self.failure, DiskError):
                _log().warning("closing %s: %s; the next start goes on there", self.path, obstacle)

    def _abandon(self) -> None:
        if self._replication is not None:
            self._replication._abandon()
        if self._retention is not None:
            self._retention.stop()
        super()._abandon()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "read-only" if self.read_only else "open"
        return f"<rmqstore.Store {self.path!r} {state}>"

    @property
    def failure(self) -> StoreError | None:
        """What keeps the store from working, None while all is well.

        NotWritable: a failure made the store read-only for good. DiskError with ENOSPC: messages
        are stored that cannot be read yet, because their queues find no room on the disk; the store
        goes on when there is room.
        """
        return self._failure()

    # -- queues

    def queue(self, topic: str, queue: int = 0) -> Queue:
        """Return the queue object of *topic*; the queue itself may not exist yet."""
        return Queue(self, topic, queue)

    def queues(self, topic: str | None = None) -> list[Queue]:
        """Return every queue there is, of one *topic* or of all, in order."""
        self._settle()
        wanted = None if topic is None else arguments.text("topic", topic)
        found = sorted(
            (name, number) for name, number, *_ in self._queues() if wanted in (None, name)
        )
        return [Queue(self, name, number) for name, number in found]

    def get(self, topic: str, *, queue: int = 0, offset: int) -> Record:
        """Return the record at a queue offset, its CRC checked.

        Of an inner batch, the record that holds the offset. What was put before is there: the call
        waits until it is dispatched. Raises OffsetOutOfRange with the queue's bounds,
        CorruptionError; DiskError for a message that is stored, but cannot be read before there is
        room on the disk (`failure`).
        """
        record = self._get_one(topic, queue, offset)
        if record is not None:
            return record
        is_stored = offset < self._next_offset(topic, queue)
        obstacle = self._settle() if is_stored else None
        status, _, low, high, records = self._get(topic, queue, offset, 1, 1, None, False, True)
        if records and records[0].queue_offset <= offset:
            return records[0]
        if obstacle is not None and offset >= high:
            raise obstacle
        if records:
            raise OffsetOutOfRange(
                f"queue {topic}/{queue} has no message at offset {offset}; the next one is at "
                f"{records[0].queue_offset}",
                start=low,
                end=high,
                nearest=records[0].queue_offset,
            )
        if status is GetStatus.NO_MATCHED_LOGIC_QUEUE:
            raise NotFoundError(f"no queue {topic}/{queue}; see Store.queues()")
        raise OffsetOutOfRange(
            f"queue {topic}/{queue} holds the offsets {low} to {high - 1}, not {offset}"
            if low < high
            else f"queue {topic}/{queue} is empty; offset {offset} is not there",
            start=low,
            end=high,
            nearest=min(max(offset, low), max(high - 1, low)),
        )

    def get_many(
        self,
        topic: str,
        *,
        queue: int = 0,
        offset: int,
        max_count: int = 32,
        max_bytes: int = 4 << 20,
        tags: str | Sequence[str] | None = None,
    ) -> GetResult:
        """Return up to *max_count* records from *offset* on, with status and offsets as RocketMQ's
        store answers.

        At most 512 records a call. The first record always passes *max_bytes*. *tags* keeps records
        that have one of them.
        """
        status, next_offset, low, high, records = self._get(
            topic, queue, offset, max_count, max_bytes, tags, False, True
        )
        return GetResult(status, records, next_offset, low, high)

    def find(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _MAX_TIME_MS,
        max_count: int = 64,
    ) -> list[Record]:
        """Return the newest *max_count* records with *key*, as unique key or among its keys, oldest
        first.

        Looked up in the index, within a range of store times. Raises UnsupportedStoreError without
        an index.
        """
        self._settle()
        return self._query(topic, key, False, begin_ms, end_ms, max_count)

    def find_tag(
        self,
        topic: str,
        tag: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _MAX_TIME_MS,
        max_count: int = 64,
    ) -> list[Record]:
        """As find, for records with *tag*, in a store whose index holds tags (RocketMQ 5.5)."""
        self._settle()
        return self._query(topic, tag, True, begin_ms, end_ms, max_count)

    def get_by_id(self, message_id: str) -> Record:
        """Return the record an offset message id names.

        Raises ArgumentError, OffsetOutOfRange, CorruptionError.
        """
        from rmqstore.message import parse_message_id

        return self._record_at(parse_message_id(message_id).physical_offset, True)

    def record_at(self, physical_offset: int) -> Record:
        """Return the record that begins at a commit log offset, its CRC checked.

        Raises OffsetOutOfRange outside of the log, CorruptionError when no whole record begins
        there.
        """
        return self._record_at(physical_offset, True)

    def scan_log(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        check_crc: bool = True,
        zero_copy: bool = False,
        on_corrupt: str = "fail",
    ) -> LogScan:
        """Return the records of the commit log in stored order, between two physical offsets.

        *start* must be where a record begins; None is the first kept, *stop* None the end.
        *on_corrupt* says what becomes of bytes that are not a record: the iteration raises
        CorruptionError ("fail"), goes on at the next whole record ("skip") or ends there ("stop");
        see `LogScan`. Raises OffsetOutOfRange for a *start* past the end, and where a file was
        deleted.
        """
        if on_corrupt not in _ON_CORRUPT:
            text = f"on_corrupt is {arguments.shown(on_corrupt)}; give {' or '.join(_ON_CORRUPT)}"
            raise ArgumentError(text)
        low, high = max(self.start_offset, 0), self.end_offset
        first = low if start is None else arguments.integer("start", start, low=0)
        last = high if stop is None else arguments.integer("stop", stop, low=0)
        if first > high:
            raise past_the_end("the log", first, low, high)
        return LogScan(self, first, last, check_crc, zero_copy, on_corrupt)

    def scan_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        start: int | None = None,
        stop: int | None = None,
        **options: Any,
    ) -> ArrowStream:
        """Return the records of the commit log as Arrow columns; see `rmqstore.arrow.scan`."""
        from rmqstore import arrow

        return arrow.scan(self, columns=columns, start=start, stop=stop, **options)

    # -- waiting

    def wait_dispatched(self, offset: int | None = None, *, timeout: float | None = None) -> None:
        """Return when queues and index hold everything below a physical *offset*, None for all put
        before.

        Never waits for what may not be read yet (`confirm_offset`). Raises StoreTimeout after
        *timeout* seconds (30 by default), NotWritable when dispatching stopped for good, DiskError
        when it finds no room on the disk.
        """
        end = self.end_offset if offset is None else arguments.integer("offset", offset, low=0)
        self._wait_dispatched(end, _milliseconds(timeout, _VISIBLE_TIMEOUT_MS))

    def _settle(self) -> StoreError | None:
        """Waits until what was put can be read.

        Returns what keeps the rest from being read: a failure, or a full disk. What is dispatched
        already can be read.
        """
        try:
            self.wait_dispatched()
        except (NotWritable, DiskError) as error:
            return error
        return None

    def wait_flushed(self, offset: int | None = None, *, timeout: float | None = None) -> None:
        """Return when the log is on the disk below a physical *offset*, None for all put before.

        Raises FlushTimeout after *timeout* seconds (syncFlushTimeout by default), NotWritable when
        a sync failed.
        """
        end = self.end_offset if offset is None else arguments.integer("offset", offset, low=0)
        self._wait_flushed(end, _milliseconds(timeout, self.config.sync_flush_timeout_ms))

    def _await_change(self, seen: int, timeout: float) -> None:
        """Returns when there may be more to read than at the dispatched offset *seen*, or after
        *timeout* seconds."""
        if self.read_only:
            time.sleep(min(timeout, _READ_ONLY_POLL))
            self.refresh()
        else:
            # Readers that follow the queue go on when the disk has room again.
            with contextlib.suppress(DiskError):
                self._wait_progress(seen, max(int(timeout * 1000), 1))

    # -- topics and offsets under config/

    def _load_metadata(self) -> None:
        self.topics = TopicTable.load(self.path)
        """The topics of config/topics.json.

        Topics need no entry to be put to.
        """
        self.consumer_offsets = ConsumerOffsets.load(self.path)
        self.delay_offsets = DelayOffsets.load(self.path)
        if not self.read_only:
            for topic in self.topics.topics.values():
                self._declare(topic)

    def _declare(self, topic: TopicConfig) -> None:
        if (
            topic.attributes.get("queue.type") == "BatchCQ"
            or topic.attributes.get("+queue.type") == "BatchCQ"
        ):
            count = max(topic.write_queue_count, topic.read_queue_count)
            if count > _BATCH_QUEUES_MAX:
                raise UnsupportedStoreError(
                    f"topic {topic.name} has {count} batch queues; at most {_BATCH_QUEUES_MAX} are "
                    "supported"
                )
            for number in range(count):
                self._declare_batch_queue(topic.name, number)

    def create_topic(self, topic: TopicConfig | str, **members: Any) -> TopicConfig:
        """Write a topic to config/topics.json, over an older one of its name, and return it.

        *members* are fields of TopicConfig. Only topics for inner batches need this: attributes
        {"queue.type": "BatchCQ"}, before anything is put to them.
        """
        if isinstance(topic, TopicConfig):
            if members:
                raise ArgumentError(f"{', '.join(members)} beside a TopicConfig, which has its own")
            made = topic
        else:
            made = TopicConfig(topic, **members)
        version = self.topics.data_version.next(now_ms=_now_ms())
        table = replace(
            self.topics, topics={**self.topics.topics, made.name: made}, data_version=version
        )
        table.to_json()  # What cannot be written raises before anything changes.
        self._declare(made)
        table.save(self.path)
        self.topics = table
        return made

    def commit_offset(self, group: str, topic: str, *, queue: int = 0, offset: int) -> None:
        """Remember that *group* has consumed *queue* below *offset*; `save_offsets` makes it
        durable."""
        key = f"{arguments.utf8('topic', topic)}@{arguments.utf8('group', group)}"
        queue = arguments.integer("queue", queue, low=0, high=arguments.INT32_MAX)
        offset = arguments.integer("offset", offset, low=0)
        table = {**self.consumer_offsets.offsets.get(key, {}), queue: offset}
        self.consumer_offsets = replace(
            self.consumer_offsets,
            offsets={**self.consumer_offsets.offsets, key: table},
            data_version=self.consumer_offsets.data_version.next(now_ms=_now_ms()),
        )

    def committed_offset(self, group: str, topic: str, *, queue: int = 0) -> int | None:
        """Return the offset *group* goes on at, None when it has committed none."""
        of_group = self.consumer_offsets.of(
            arguments.text("topic", topic), arguments.text("group", group)
        )
        return of_group.get(arguments.integer("queue", queue, low=0, high=arguments.INT32_MAX))

    def save_offsets(self) -> None:
        """Write config/consumerOffset.json and config/delayOffset.json; they survive a power loss
        on return."""
        self.consumer_offsets.save(self.path)
        self.delay_offsets.save(self.path)

    # -- retention

    def clean(self, *, hour: int | None = None, now_ms: int | None = None) -> RetentionDecision:
        """Do one round of retention now and return what it decided and did.

        Files older than fileReservedTime go, and younger ones when the disk is over its forced
        ratio; the last file always stays. *hour* and *now_ms* stand in for the clock.
        """
        if hour is not None:
            hour = arguments.integer("hour", hour, low=0, high=23)
        if now_ms is not None:
            now_ms = arguments.integer("now_ms", now_ms, low=0, high=_CLOCK_MS_MAX)
        return self._round(delete=True, manual=True, hour=hour, now_ms=now_ms)

    def expire_files(self, count: int) -> None:
        """Remove the first *count* commit log files (never the last) and what points into them."""
        self._remove_files(arguments.integer("count", count, low=0))

    def _remove_files(self, count: int) -> None:
        self._expire(count)
        if self._after_expiry is not None:
            self._after_expiry()

    def _start_retention(self, *, delete: bool) -> None:
        # The timer must not keep a store alive that nobody else holds.
        reference = weakref.ref(self)
        path = self.path

        def round_of_timer() -> None:
            store = reference()
            if store is not None:
                store._round(delete=delete, manual=False, hour=None, now_ms=None)

        self._retention = RetentionTimer(
            round_of_timer,
            interval_ms=self.config.clean_interval_ms,
            on_error=lambda error: _log().error("%s: retention: %s", path, error),
        )
        weakref.finalize(self, self._retention.stop).atexit = False
        self._retention.start()

    def _round(
        self, *, delete: bool, manual: bool, hour: int | None, now_ms: int | None
    ) -> RetentionDecision:
        now_ms = _now_ms() if now_ms is None else now_ms
        with disk_errors("looking at the commit log's files"):
            files = [
                CommitLogFile(start, size, int(os.stat(path).st_mtime * 1000))
                for path, start, size in self._files()
            ]
        paths = self.config.commit_log_paths or (os.path.join(self.path, "commitlog"),)
        decision = decide(
            files,
            RetentionPolicy.from_config(self.config),
            now_ms=now_ms,
            hour=time.localtime(now_ms / 1000).tm_hour if hour is None else hour,
            commit_log_disks=[_disk_use(path) for path in paths],
            queue_disk=_disk_use(self.path),
            writes_refused=self._writes_refused,
            manual=manual,
            keep_from_offset=self.dispatched_offset,
        )
        if decision.refuse_writes != self._writes_refused:
            self._refuse("disk", decision.refuse_writes)
            self._writes_refused = decision.refuse_writes
            _log().warning(
                "%s: disk %s",
                self.path,
                "full, writes refused" if self._writes_refused else "has room",
            )
        if delete and decision.delete:
            self._remove_files(len(decision.delete))
        return decision

    # -- native hooks

    def _stored_form(self, message: Message) -> Message:
        """A delayed message as RocketMQ stores it: in the schedule topic, its own named by
        properties."""
        if message.delay_level <= 0 or message.transaction:
            return message
        level = min(message.delay_level, len(self.config.delay_levels_ms))
        properties = {
            **message.properties,
            "REAL_TOPIC": message.topic,
            "REAL_QID": str(message.queue),
        }
        return replace(
            message,
            topic=_SCHEDULE_TOPIC,
            queue=level - 1,
            delay_level=level,
            properties=properties,
        )


def _milliseconds(timeout: float | None, default_ms: int) -> int:
    return default_ms if timeout is None else int(arguments.seconds("timeout", timeout) * 1000)


def _log() -> logging.Logger:
    import logging

    return logging.getLogger("rmqstore")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _disk_use(path: str) -> DiskUse:
    import shutil

    existing = Path(path)
    try:
        usage = shutil.disk_usage(existing if existing.exists() else existing.parent)
    except OSError as error:
        raise DiskError(
            error.errno or 0, f"asking how full the disk of {path} is: {error}"
        ) from error
    return DiskUse(path, usage.used / usage.total if usage.total else -1.0)
