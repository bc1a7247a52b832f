"""Requests that found no message and wait for one.

    arrival      the queue grew: its requests look again, from where they last looked
    deadline     the time that the request named has ended: it is answered with what there is
    release      its connection ended

A request is held by its queue and by its connection, and in the order of the deadlines. The number
of all requests, of one connection, and of one queue is bounded. Time comes in as *now_ms*.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rmqstore.remoting.requests import Peer

__all__ = ["Hold", "Holds"]

Queue = tuple[str, int]
"""Topic and number of a queue; of pops "TOPIC@GROUP" and the number, -1 for any queue."""


@dataclass(slots=True, eq=False)
class Hold:
    """One request that waits."""

    queue: Queue
    offset: int
    """Where it looks for messages: below there are none for it."""
    deadline_ms: int
    connection: Peer
    pull: Any
    """What is needed to answer it."""
    is_over: bool = field(default=False, init=False)


class Holds:
    """All requests of one kind that wait at one broker.

    *holds_max* of them may wait at once, *holds_max_each* of one connection, and
    *holds_max_of_queue* for one queue.
    """

    def __init__(
        self,
        *,
        holds_max: int = 100_000,
        holds_max_each: int = 10_000,
        holds_max_of_queue: int = 100_000,
    ) -> None:
        self._holds_max = holds_max
        self._holds_max_each = holds_max_each
        self._holds_max_of_queue = holds_max_of_queue
        self._by_queue: dict[Queue, dict[Hold, None]] = {}
        self._by_connection: dict[Peer, dict[Hold, None]] = {}
        self._deadlines: list[tuple[int, int, Hold]] = []
        self._numbers = itertools.count()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def queue_count(self) -> int:
        """Queues that requests wait for."""
        return len(self._by_queue)

    def add(self, hold: Hold) -> bool:
        """Hold a request; return False, and hold nothing, where too many wait already."""
        of_connection = self._by_connection.get(hold.connection, {})
        if self._count >= self._holds_max or len(of_connection) >= self._holds_max_each:
            return False
        if len(self._by_queue.get(hold.queue, {})) >= self._holds_max_of_queue:
            return False
        self._by_connection.setdefault(hold.connection, {})[hold] = None
        self._by_queue.setdefault(hold.queue, {})[hold] = None
        heapq.heappush(self._deadlines, (hold.deadline_ms, next(self._numbers), hold))
        self._count += 1
        return True

    def remove(self, hold: Hold) -> None:
        """End a hold that is answered. A second call does nothing."""
        if hold.is_over:
            return
        hold.is_over = True
        self._count -= 1
        for table, key in ((self._by_queue, hold.queue), (self._by_connection, hold.connection)):
            holds = table[key]  # type: ignore[index]
            del holds[hold]
            if not holds:
                del table[key]  # type: ignore[arg-type]
        self._drop_ended()

    def release(self, connection: Peer) -> int:
        """End the holds of a connection that is gone; return how many."""
        held = tuple(self._by_connection.get(connection, ()))
        for hold in held:
            self.remove(hold)
        return len(held)

    def grown(self, end_of: Callable[[Queue], int]) -> Iterator[Hold]:
        """Iterate over the holds of queues whose end, by *end_of*, is above the hold's offset, in
        the order in which they came. The current hold may be removed."""
        for queue in tuple(self._by_queue):
            holds = self._by_queue.get(queue)
            if holds is None:
                continue
            end = end_of(queue)
            for hold in tuple(holds):
                if hold.offset < end and not hold.is_over:
                    yield hold

    def count(self, queue: Queue) -> int:
        """Return the number of requests that wait for a queue."""
        return len(self._by_queue.get(queue, ()))

    def queues(self) -> tuple[Queue, ...]:
        """Return the queues that requests wait for."""
        return tuple(self._by_queue)

    def first(self, queue: Queue, *, is_wanted: Callable[[Hold], bool]) -> Hold | None:
        """Return the hold of a queue that came first, of those that *is_wanted* returns True for;
        None without any."""
        return next(filter(is_wanted, self._by_queue.get(queue, ())), None)

    def due(self, now_ms: int) -> Iterator[Hold]:
        """Iterate over the holds whose time has ended, and end them."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            hold = self._deadlines[0][2]
            if hold.is_over:
                heapq.heappop(self._deadlines)
                continue
            self.remove(hold)
            yield hold

    def all(self) -> tuple[Hold, ...]:
        """Return all holds."""
        return tuple(hold for holds in self._by_queue.values() for hold in holds)

    def next_deadline_ms(self) -> int | None:
        """Return when the next hold is due, None without holds."""
        while self._deadlines and self._deadlines[0][2].is_over:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _drop_ended(self) -> None:
        # Ended holds keep their place among the deadlines; they are at most half of them.
        if len(self._deadlines) > 64 and len(self._deadlines) > 2 * self._count:
            self._deadlines = [each for each in self._deadlines if not each[2].is_over]
            heapq.heapify(self._deadlines)
