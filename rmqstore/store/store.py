"""A store and its queues: open, put, get, iterate, cut, clean.

A Store is built on four native classes (`rmqstore/_native`): StoreHandle opens, closes and has
the offsets; LogHandle appends and cuts raw bytes; StoreWriter puts; StoreReader reads. The verbs of
applications are all declared here.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rmqstore import arguments, forks
from rmqstore._native import core
from rmqstore._native.core import LogScan, PutHandle, Receipt, Record
from rmqstore.config import BrokerRole
from rmqstore.errors import (
    ArgumentError,
    DiskError,
    NotWritable,
    StoreClosedError,
    StoreError,
    StoreTimeout,
    UnsupportedStoreError,
)
from rmqstore.message import Durability, Message, SysFlag, checked_batch, parse_message_id
from rmqstore.store import arrow
from rmqstore.store.cleaning import Cleaner
from rmqstore.store.delay import scheduled
from rmqstore.store.interface import GetResult, StoreInterface
from rmqstore.store.logger import log
from rmqstore.store.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    OffsetTable,
    TopicConfig,
    TopicTable,
    batch_queue_count,
    offsets_key,
)
from rmqstore.store.native import native
from rmqstore.store.places import no_record, past_the_end
from rmqstore.store.queue import Queue
from rmqstore.store.recovery import Recovery
from rmqstore.store.retention import RetentionDecision
from rmqstore.store.settings import ConfigLike, configure, native_settings, remember
from rmqstore.store.watchers import Watchers

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["GetResult", "Queue", "Recovery", "Store"]

_VISIBLE_TIMEOUT_MS = 30_000
_CLOSE_PATIENCE = 1.0
"""Seconds that closing waits for room on a full disk."""
_MAX_TIME_MS = 2**63 - 1
_READ_ONLY_POLL = 0.05
_ON_CORRUPT = ("fail", "skip", "stop")


def open(
    path: str | os.PathLike[str] | None = None,
    config: ConfigLike | None = None,
    *,
    read_only: bool = False,
    retention: bool = False,
    keep_confirm_offset: bool | None = None,
    **settings: Any,
) -> Store:
    """Return the store at *path*, made when it is not there.

    `~` in a path is not expanded. `from rmqstore import *` leaves the builtin open as it is: call
    rmqstore.open by this name.

    *config* is a Configuration, a StoreConfig or the path of a RocketMQ broker's file; *settings*
    change single fields of it by name. Without a config, the file sizes of a store already there
    are found out. Without a *path* it is the storePathRootDir of the config. Replication of this
    store starts from the configuration as well (`Store.replica_config`).
    *read_only* takes no lock and writes nothing, so that it may be used beside a running broker;
    `refresh` then shows what the writer did since. *retention* deletes old files by the rules of
    the configuration, which no read-only store does; without it nothing is ever deleted.

    *keep_confirm_offset*: records past the checkpoint's confirm offset, which other replicas
    may lack, stay unseen until replication confirms them. None: where there is an epoch list, so
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


class Store(StoreInterface):
    """A durable, ordered, indexed message store in a directory, in Apache RocketMQ's format.

    Safe to use from any thread. A context manager: leaving it flushes and closes. After a fork the
    child must open its own.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        config: ConfigLike | None = None,
        *,
        read_only: bool = False,
        retention: bool = False,
        keep_confirm_offset: bool | None = None,
        **settings: Any,
    ) -> None:
        arguments.boolean("read_only", read_only)
        if arguments.boolean("retention", retention) and read_only:
            raise ArgumentError(
                "retention is True with read_only; a store opened read-only deletes nothing"
            )

        if keep_confirm_offset is not None:
            arguments.boolean("keep_confirm_offset", keep_confirm_offset)

        root, configuration, facts = configure(path, config, settings, read_only=read_only)
        self.config = configuration.store
        """The settings of this store."""
        self.replica_config = configuration.replica
        """The settings that a replica of this store starts from."""
        self.directory = facts

        self._cleaner: Cleaner | None = None
        self._replica_view: object | None = None
        self.watchers = Watchers(self)

        if keep_confirm_offset is None:
            keep_confirm_offset = facts.has_epochs
        self._open(
            root,
            native_settings(
                self.config,
                facts,
                read_only=read_only,
                keep_confirm_offset=keep_confirm_offset and not read_only,
                replica=self.replica_config,
            ),
        )

        forks.watch(self, Store._disown)
        self.body_size_max = self.config.message_size_bytes_max
        if self.config.broker_role is BrokerRole.SLAVE and not read_only:
            self._refuse("role")

        self.recovery = Recovery(**self._recovery())
        for part in facts.left_alone:
            log().warning("%s: %s: left alone", root, part)
        if not facts.dledger_folder:
            # Queues that point into another log say nothing about the end of this one.
            self.recovery.warn(root, read_only=read_only, is_new=not facts.is_store)

        try:
            if not read_only and not facts.is_store:
                remember(root, self.config)
            self._load_metadata()
            self._cleaner = Cleaner(self, deletes=retention)
            if not read_only:
                self._cleaner.start()
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

        A second call does nothing. Raises ViewsOpenError while memoryviews of scanned records live;
        DiskError when the last flush failed: the store is closed nevertheless, and its next start
        recovers it. Where queues find no room on the disk, closing tries for a second, warns, and
        leaves the rest to the next start.
        """
        if not self.closed:
            self.watchers.notify("closed", True)
        if self._cleaner is not None and not self.closed:
            self._cleaner.stop()
        self._warn_of_full_disk()
        super().close()

    def _warn_of_full_disk(self) -> None:
        # A child of the process that opened the store may close it, and ask it nothing.
        with contextlib.suppress(StoreClosedError):
            # Whether queues find room is known once their records were tried.
            if not self.read_only:
                with contextlib.suppress(DiskError, NotWritable, StoreTimeout):
                    self.wait_dispatched(timeout=_CLOSE_PATIENCE)
            if isinstance(obstacle := self.failure, DiskError):
                log().warning("closing %s: %s; the next start goes on there", self.path, obstacle)

    def abandon(self) -> None:
        """End as a process that dies does: nothing more is saved, and the next start recovers."""
        self.watchers.notify("closed", False)
        if self._cleaner is not None:
            self._cleaner.stop()
        super().abandon()

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

    # -- putting

    @native(core.StoreReader.put)
    def put(  # type: ignore[empty-body]
        self,
        topic: str | Message,
        body: Buffer | None = None,
        *,
        queue: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        unique_key: str | None = None,
        flag: int = 0,
        born_timestamp: int | None = None,
        durability: Durability | None = None,
        copies: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Store one message and return its Receipt.

        *topic* is a name, with *body* any object with the buffer protocol, or a whole `Message`,
        which has the other fields itself. *keys* is a list or a text of keys separated by spaces.
        Empty *tags*, *keys* and *unique_key* are left out, as is a property whose value is None.
        *durability* None is the store's own: REPLICATED with brokerRole SYNC_MASTER and
        inSyncReplicas above 1, DISK with flushDiskType SYNC_FLUSH, else MEMORY. *copies*, this
        store's own included, asks for REPLICATED with that number in place of the quorum's; a store
        that flushes every message waits for its own disk as well. *timeout* is in seconds and
        bounds the wait for durability.

        Raises MessageRejected (too large, out of range, reserved characters), ArgumentError,
        NotWritable, PageCacheBusy, InSyncReplicasNotEnough; FlushTimeout and ReplicaTimeout
        (stored).
        """

    @native(core.StoreReader.put_async)
    def put_async(  # type: ignore[empty-body]
        self,
        topic: str | Message,
        body: Buffer | None = None,
        *,
        queue: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        unique_key: str | None = None,
        flag: int = 0,
        born_timestamp: int | None = None,
        durability: Durability | None = None,
        copies: int | None = None,
    ) -> PutHandle:
        """Store one message and return a handle to wait with, later and for many at once.

        The message is in the log on return: `handle.receipt` has its offsets. `wait` gives it the
        durability that was asked for; nothing is acknowledged before. Arguments as put, which also
        describes the errors. A handle may be dropped: its message stays.
        """

    @native(core.StoreReader.wait)
    def wait(  # type: ignore[empty-body]
        self, handles: Iterable[PutHandle], *, timeout: float | None = None
    ) -> list[Receipt]:
        """Return the Receipts of *handles*, in their order, once all are as durable as asked.

        One sync, and one wait for copies, serves all of them. Raises the error of the first handle
        that has one; each handle keeps its own outcome, `done`, `status` and `result`. After
        FlushTimeout and ReplicaTimeout the handle is still pending and may be waited for again. A
        failed sync raises NotWritable, a cut of the log after the put PutError, for good. *timeout*
        is in seconds; None stands for syncFlushTimeout, then for the limit of copies. Raises
        StoreClosedError where a handle was pending when the store closed.
        """

    def put_many(
        self,
        messages: Iterable[Message | Buffer],
        *,
        topic: str | None = None,
        queue: int = 0,
        durability: Durability | None = None,
        copies: int | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Store messages in order under one lock and return their Receipts; one wait for durability
        covers all.

        *messages* holds Message objects or, with *topic*, bodies as well, which go to *queue* of
        that topic. All are validated first: MessageRejected means that none was stored. When the
        disk fails in between, the error's `receipt` is the list of those stored.
        """
        return self._put_all(messages, topic, queue, durability, copies, timeout, False)

    def put_batch(
        self,
        messages: Iterable[Message],
        *,
        durability: Durability | None = None,
        copies: int | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Store messages of one topic and queue side by side in one commit log file, as RocketMQ
        stores a batch.

        In a topic of batch queues (`create_topic` with queue.type BatchCQ) they become one record,
        an inner batch; the receipts then share its physical offset. Raises MessageRejected for an
        empty batch, for several queues, and for messages with a transaction or a delay level.
        Otherwise as put_many.
        """
        batch = checked_batch(messages, body_size_max=self.body_size_max)
        topic, queue = batch[0].topic, batch[0].queue
        if not self._takes_batches(topic, queue):
            return self._put_all(batch, None, 0, durability, copies, timeout, True)
        record = Message(
            topic,
            self._encode_batch(batch),
            queue=queue,
            sys_flag=SysFlag.INNER_BATCH,
            properties={"INNER_NUM": str(len(batch))},
        )
        (first,) = self._put_all([record], None, 0, durability, copies, timeout, False)
        return [first._of_batch(number) for number in range(len(batch))]

    def _stored_form(self, message: Message) -> Message:
        # The native put_many calls this for every Message.
        if message.delay_level <= 0 or message.transaction:
            return message
        return scheduled(message, level_max=len(self.config.delay_levels_ms))

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
        status, _, low, high, records = self._get(topic, queue, offset, 1, 1, None, True)
        if records and records[0].queue_offset <= offset:
            return records[0]
        if obstacle is not None and offset >= high:
            raise obstacle
        following = records[0].queue_offset if records else None
        raise no_record(topic, queue, offset, status, low=low, high=high, following=following)

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
            topic, queue, offset, max_count, max_bytes, tags, True
        )
        return GetResult(status, records, next_offset, low, high)

    def find(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _MAX_TIME_MS,
        max_count: int | None = None,
    ) -> list[Record]:
        """Return the newest *max_count* records with *key*, as unique key or among its keys, oldest
        first; None stands for maxMsgsNumBatch, 64 by default.

        Looked up in the index, among records whose store time is at or after *begin_ms* and at or
        before *end_ms*. Raises UnsupportedStoreError without an index.
        """
        return self._find(topic, key, False, begin_ms, end_ms, max_count)

    def find_tag(
        self,
        topic: str,
        tag: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _MAX_TIME_MS,
        max_count: int | None = None,
    ) -> list[Record]:
        """As find, for records with *tag*, in a store whose index holds tags (RocketMQ 5.5)."""
        return self._find(topic, tag, True, begin_ms, end_ms, max_count)

    def _find(
        self,
        topic: str,
        word: str,
        is_tag: bool,
        begin_ms: int,
        end_ms: int,
        max_count: int | None,
    ) -> list[Record]:
        if not self.config.index_file_read_enable:
            raise UnsupportedStoreError(
                f"{self.path}: indexFileReadEnable is false, so keys cannot be looked up; set it "
                "to true"
            )
        self._settle()
        limit = self.config.index_query_count_max if max_count is None else max_count
        return self._query(topic, word, is_tag, begin_ms, end_ms, limit)

    def get_by_id(self, message_id: str) -> Record:
        """Return the record an offset message id names.

        Raises ArgumentError, OffsetOutOfRange, CorruptionError.
        """
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
    ) -> arrow.ArrowStream:
        """Return the records of the commit log as Arrow columns; see `arrow.scan`."""
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
        self._offset_table = OffsetTable(ConsumerOffsets.load(self.path))
        self.delay_offsets = DelayOffsets.load(self.path)
        if not self.read_only:
            for topic in self.topics.topics.values():
                self._declare(topic)

    @property
    def consumer_offsets(self) -> ConsumerOffsets:
        """The committed offsets of this moment."""
        return self._offset_table.snapshot()

    @consumer_offsets.setter
    def consumer_offsets(self, offsets: ConsumerOffsets) -> None:
        self._offset_table.replace(offsets)

    def _declare(self, topic: TopicConfig) -> None:
        for number in range(batch_queue_count(topic)):
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
        table = self.topics.with_topic(made, now_ms=time.time_ns() // 1_000_000)
        table.to_json()  # What cannot be written raises before anything changes.
        self._declare(made)
        table.save(self.path)
        self.topics = table
        return made

    def commit_offset(self, group: str, topic: str, *, queue: int = 0, offset: int) -> None:
        """Remember that *group* has consumed *queue* below *offset*; `save_offsets` makes it
        durable."""
        self._offset_table.commit(
            offsets_key(arguments.utf8("topic", topic), arguments.utf8("group", group)),
            arguments.integer("queue", queue, low=0, high=arguments.INT32_MAX),
            arguments.integer("offset", offset, low=0),
            now_ms=time.time_ns() // 1_000_000,
        )

    def committed_offset(self, group: str, topic: str, *, queue: int = 0) -> int | None:
        """Return the offset *group* goes on at, None when it has committed none."""
        of_group = self._offset_table.of(
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
        if self._cleaner is None:
            raise StoreClosedError(f"store {self.path} was not opened")
        return self._cleaner.round_now(self, hour=hour, now_ms=now_ms)

    def expire_files(self, count: int) -> None:
        """Remove the first *count* commit log files (never the last) and what points into them."""
        self._expire(arguments.integer("count", count, low=0))
        self.watchers.notify("expired")


def _milliseconds(timeout: float | None, default_ms: int) -> int:
    return default_ms if timeout is None else int(arguments.seconds("timeout", timeout) * 1000)
