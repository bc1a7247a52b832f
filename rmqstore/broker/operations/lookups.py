"""Lookups of a broker: messages by key, tag or physical offset, and the bounds of queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore._native.core import Record
from rmqstore.broker.operations.core import Core, ViewOf, refuse_negative
from rmqstore.errors import (
    CorruptionError,
    NotFoundError,
    OffsetOutOfRange,
    RequestRefused,
    UnsupportedStoreError,
)
from rmqstore.remoting.codes import ResponseCode

__all__ = ["FoundMessages", "KeyQuery", "LookupOperations"]

_UNIQUE_KEY_MESSAGES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """A query for the messages of a topic with a key or a tag."""

    topic: str
    word: str
    """The key, the unique key, or the tag."""
    messages_max: int
    begin_ms: int
    """First store time."""
    end_ms: int
    """Last store time."""
    is_tag: bool = False
    is_unique_key: bool = False
    """Whether the limit for messages with one unique key holds instead of *messages_max*."""


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """What a query found."""

    records: Sequence[Record]
    """Oldest first."""
    indexed_offset: int
    """The physical offset before which messages are in the index."""


class LookupOperations:
    """Looks up messages and offsets."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)

    # -- Messages.

    async def query(self, query: KeyQuery) -> FoundMessages:
        """Return the newest messages of a query. Raises RequestRefused without an index."""
        store = self._core.store.store
        if not store.config.index_file_read_enable:
            raise RequestRefused(
                "keys cannot be looked up: indexFileReadEnable is false on this broker",
                code=ResponseCode.SYSTEM_ERROR,
            )
        limit = max(min(query.messages_max, store.config.index_query_count_max), 1)
        if query.is_unique_key:
            limit = _UNIQUE_KEY_MESSAGES
        try:
            found = await self._core.runtime.in_thread(
                self._view().query,
                query.topic,
                query.word,
                query.is_tag,
                query.begin_ms,
                query.end_ms,
                limit,
            )
        except UnsupportedStoreError as error:
            raise RequestRefused(str(error), code=ResponseCode.SYSTEM_ERROR) from None
        return FoundMessages(found, store.dispatched_offset)

    def message_at(self, physical_offset: int) -> Record:
        """Return the message at a physical offset. Raises RequestRefused where there is none that
        consumers may see."""
        try:
            # An unconfirmed message may still be cut, so readers do not see it.
            is_visible = 0 <= physical_offset < self._core.store.store.confirm_offset
            record = self._view().record_at(physical_offset, True) if is_visible else None
        except (OffsetOutOfRange, CorruptionError, NotFoundError):
            record = None
        if record is None:
            raise RequestRefused(
                f"can not find message by the offset, {physical_offset}",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return record

    # -- Queues. An unknown queue is an empty one; a negative number raises RequestRefused.

    async def offset_at(
        self, topic: str, queue: int, time_ms: int, *, is_upper: bool = False
    ) -> int:
        """Return the offset of the first message of a store time, or of the last one if *is_upper*,
        as `Queue.offset_at` does."""
        refuse_negative(queue)
        try:
            return await self._core.runtime.in_thread(
                self._view().offset_by_time, topic, queue, time_ms, is_upper
            )
        except NotFoundError:
            return 0

    def start_of(self, topic: str, queue: int) -> int:
        """Return the offset of the first message of a queue."""
        return self._bounds(topic, queue)[0]

    def end_of(self, topic: str, queue: int) -> int:
        """Return the offset after the last message that consumers may see."""
        return self._bounds(topic, queue)[1]

    def next_offset_of(self, topic: str, queue: int) -> int:
        """Return the offset that the next message gets, after those that consumers must not see
        yet."""
        refuse_negative(queue)
        return self._view().next_offset(topic, queue)

    def earliest_ms_of(self, topic: str, queue: int) -> int | None:
        """Return the store time of the first message of a queue, None for an empty one."""
        start, end = self._bounds(topic, queue)
        record = self._view().record_in(topic, queue, start) if start < end else None
        return None if record is None else record.store_timestamp

    def _bounds(self, topic: str, queue: int) -> tuple[int, int]:
        refuse_negative(queue)
        return self._view().bounds(topic, queue) or (0, 0)
