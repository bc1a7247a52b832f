"""One queue of a topic, as an object: bounds, get, iterate, follow, search by time, columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from rmqstore import arguments
from rmqstore._native.core import Record, RecordIterator, StoreReader
from rmqstore.errors import ArgumentError, StoreClosedError, missing_file
from rmqstore.message import Boundary, GetStatus
from rmqstore.store import arrow
from rmqstore.store.interface import GetResult, StoreInterface
from rmqstore.store.places import past_the_end

__all__ = ["Queue", "follow_start"]

# A wait is cut into slices, so that closing the store from another thread is noticed.
_WAIT_SLICE = 0.1
_FOLLOW_BATCH = 256


class Queue:
    """One queue of a topic: an ordered run of messages, numbered from 0.

    A light object; it holds nothing but the store and the name.
    """

    __slots__ = ("number", "store", "topic")

    def __init__(self, store: StoreInterface, topic: str, number: int) -> None:
        arguments.instance("store", store, StoreReader, wanted="a Store")
        self.store = store
        self.topic = arguments.text("topic", topic)
        self.number = arguments.integer("queue", number, low=0, high=arguments.INT32_MAX)

    def __repr__(self) -> str:
        return f"<rmqstore.Queue {self.topic}/{self.number} of {self.store.path!r}>"

    def _bounds(self) -> tuple[int, int]:
        self.store._settle()
        return self.store._bounds(self.topic, self.number) or (0, 0)

    @property
    def start(self) -> int:
        """Offset of the first message kept."""
        return self._bounds()[0]

    @property
    def end(self) -> int:
        """Offset after the last message; everything put before the call counts."""
        return self._bounds()[1]

    def __len__(self) -> int:
        start, end = self._bounds()
        return end - start

    def get(self, offset: int) -> Record:
        """Return the record at *offset*; see Store.get."""
        return self.store.get(self.topic, queue=self.number, offset=offset)

    def get_many(
        self,
        offset: int,
        *,
        max_count: int = 32,
        max_bytes: int = 4 << 20,
        tags: str | Sequence[str] | None = None,
    ) -> GetResult:
        """Return up to *max_count* records from *offset* on; see Store.get_many."""
        return self.store.get_many(
            self.topic,
            queue=self.number,
            offset=offset,
            max_count=max_count,
            max_bytes=max_bytes,
            tags=tags,
        )

    def records(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        tags: str | Sequence[str] | None = None,
        check_crc: bool = True,
    ) -> RecordIterator:
        """Iterate over the records from *start* (None: the first kept) to before *stop* (None: the
        end at the call).

        Each record owns its bytes. Raises OffsetOutOfRange for a *start* past the end, as `get`
        does, and when retention overtakes the iteration; CorruptionError. At the end itself there
        is nothing to iterate over.
        """
        return self._iterate(start, stop, tags, False, check_crc)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    @contextmanager
    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        tags: str | Sequence[str] | None = None,
        check_crc: bool = True,
    ) -> Iterator[Iterator[Record]]:
        """As records, without copying: each record looks into the mapped file, which it pins while
        it lives.

        A context manager: leaving the block lets go of what was read ahead. While a `body_view`
        lives, the store neither closes nor truncates.
        """
        iterator = self._iterate(start, stop, tags, True, check_crc)
        try:
            yield iterator
        finally:
            iterator.close()

    def _iterate(
        self,
        start: int | None,
        stop: int | None,
        tags: str | Sequence[str] | None,
        zero_copy: bool,
        check_crc: bool,
    ) -> RecordIterator:
        low, high = self._bounds()
        first = low if start is None else arguments.integer("start", start, low=0)
        last = high if stop is None else min(arguments.integer("stop", stop, low=0), high)
        if first > high:
            raise past_the_end(f"queue {self.topic}/{self.number}", first, low, high)
        return RecordIterator(
            self.store, self.topic, self.number, first, last, tags, zero_copy, check_crc
        )

    def wait(self, offset: int, *, timeout: float | None = None) -> bool:
        """Return whether the message at *offset* is there, waiting up to *timeout* seconds for it,
        None forever."""
        offset = arguments.integer("offset", offset)
        deadline = None
        if timeout is not None:
            deadline = time.monotonic() + arguments.seconds("timeout", timeout)
        while True:
            seen = self.store.dispatched_offset
            if (self.store._bounds(self.topic, self.number) or (0, 0))[1] > offset:
                return True
            left = (
                _WAIT_SLICE if deadline is None else min(_WAIT_SLICE, deadline - time.monotonic())
            )
            if left <= 0:
                return False
            self.store._await_change(seen, left)

    def follow(
        self,
        start: int | Literal["start", "end"] = "end",
        *,
        tags: str | Sequence[str] | None = None,
    ) -> Iterator[Record]:
        """Iterate over the records from *start* on, waiting for new ones; it ends when the store is
        closed.

        "start" is the first record kept, "end" begins with the next one put. An offset past the
        end is waited for.
        """
        tags = None if tags is None else arguments.texts("tags", tags)
        return self._follow(follow_start(start, self._bounds), tags)

    def _follow(self, offset: int, tags: Sequence[str] | None) -> Iterator[Record]:
        while not self.store.closed:
            try:
                found = self.get_many(offset, max_count=_FOLLOW_BATCH, tags=tags)
                if found.status is GetStatus.OFFSET_FOUND_NULL:
                    raise missing_file(f"queue {self.topic}/{self.number}", offset)
                if not found.records and found.next_offset <= offset:
                    self.wait(offset, timeout=_WAIT_SLICE)
                    continue
            except StoreClosedError:
                return
            yield from found.records
            offset = found.next_offset

    def offset_at(self, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the offset of a store time.

        LOWER: the first message at or after it, `end` when there is none. UPPER: the last one at
        or before it, `start` when there is none. Raises NotFoundError when there is no such queue.
        """
        boundary = arguments.word("boundary", boundary, Boundary)
        self.store._settle()
        return self.store._offset_by_time(
            self.topic, self.number, timestamp_ms, boundary is Boundary.UPPER
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        start: int | None = None,
        stop: int | None = None,
        **options: Any,
    ) -> arrow.ArrowStream:
        """Return the records as Arrow columns; see `rmqstore.store.arrow.queue`."""
        return arrow.queue(self, columns=columns, start=start, stop=stop, **options)


def follow_start(start: object, bounds: Callable[[], tuple[int, int]]) -> int:
    """Return the offset that *start*, an offset or a word, stands for in a queue with *bounds*."""
    if isinstance(start, str):
        if start not in ("start", "end"):
            raise ArgumentError(
                f'start is {arguments.shown(start)}; give an offset, "start" or "end"'
            )
        return bounds()[start == "end"]
    return arguments.integer("start", start, low=0)
