"""Looks at messages that a group may pop, which hand out none of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.filters import ALL, Filter
from rmqstore.broker.operations.pop import CheckedPop, PopOperation
from rmqstore.broker.operations.queue_reads import (
    BYTES_MAX,
    TURNS_MAX,
    Found,
    QueueReads,
    goes_on,
)
from rmqstore.message import GetStatus

__all__ = ["Peeked", "PopLooks"]


@dataclass(slots=True)
class Peeked:
    """Messages that a group may pop."""

    records: list[bytes] = field(default_factory=list)
    count: int = 0
    rest_count: int = 0
    """Messages that may be popped, including those that were peeked."""


class PopLooks:
    """Looks at the queues of *pops*."""

    def __init__(self, core: Core, pops: PopOperation) -> None:
        self._core = core
        self._pops = pops
        self._view = ViewOf(core)
        self._reads = QueueReads(core)

    async def has_messages(self, checked: CheckedPop) -> bool:
        """Return whether a pop may find a message. Raises StoreError."""
        for topic, queue, start in self._unread(checked):
            if checked.filter is ALL or await self._selects(checked.filter, topic, queue, start):
                return True
        return False

    def has_unfiltered(self, checked: CheckedPop) -> bool:
        """Return whether a pop of all messages may find one; False for a pop with a filter."""
        return checked.filter is ALL and any(True for _ in self._unread(checked))

    def _unread(self, checked: CheckedPop) -> Iterator[tuple[str, int, int]]:
        """Yields topic, queue and offset where a pop may find messages."""
        for topic, queue in self._pops.queues_of(checked):
            start, end = self._bounds(checked, topic, queue)
            if start < end and not self._pops.is_blocked(checked, topic, queue):
                yield topic, queue, start

    async def peek(self, checked: CheckedPop) -> Peeked:
        """Return messages without a change of anything. Raises StoreError."""
        peeked = Peeked()
        for topic, queue in self._pops.queues_of(checked):
            start, end = self._bounds(checked, topic, queue)
            peeked.rest_count += max(end - start, 0)
            room = checked.pop.messages_max - peeked.count
            size = BYTES_MAX - sum(map(len, peeked.records))
            if room <= 0 or size <= 0 or start >= end:
                continue
            status, _, _, _, count, records = await self._get(
                topic, queue, start, room, size, checked.filter
            )
            if status is GetStatus.FOUND:
                peeked.records.append(records)
                peeked.count += count
        return peeked

    def _bounds(self, checked: CheckedPop, topic: str, queue: int) -> tuple[int, int]:
        """Returns where a group goes on in a queue, and the end of the queue. A group without an
        offset goes on at the first message."""
        start, end = self._view().bounds(topic, queue) or (0, 0)
        committed = self._core.metadata.offsets.query(topic, checked.group.name, queue)
        return max(committed or 0, start, 0), end

    async def _selects(self, wanted: Filter, topic: str, queue: int, start: int) -> bool:
        """Returns whether a filter selects one of the next messages, or has not seen all of
        them."""
        for turn in range(TURNS_MAX):
            if turn:
                await self._core.runtime.sleep(0)
            status, start, _, end, _, _ = await self._get(topic, queue, start, 1, BYTES_MAX, wanted)
            if status is GetStatus.FOUND:
                return True
            if not goes_on(wanted, status, start, end):
                return False
        return True

    async def _get(
        self, topic: str, queue: int, start: int, messages_max: int, bytes_max: int, wanted: Filter
    ) -> Found:
        place = topic, queue, start, messages_max, bytes_max, wanted
        if self._reads.is_far_behind(topic, queue, start):
            return await self._core.runtime.in_thread(self._reads.get, *place)
        return self._reads.get(*place)
