"""Pops held on an event loop: a message wakes one of them, and the next one while there are more.

Requests are held by "TOPIC@GROUP" and the number of a queue, -1 for any. At most one pop of such a
key is made again at a time: it takes what there is, and the others could take nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from rmqstore.broker.held_requests import HeldRequests, Round
from rmqstore.broker.holds import Hold, Holds, Queue
from rmqstore.broker.operations.message_rules import LIGHT_QUEUES
from rmqstore.errors import StoreError
from rmqstore.net.runtime import Runtime
from rmqstore.store.store import Store

__all__ = ["HeldPops"]

_SCANNED_MAX = 1 << 20
"""Bytes of the log in which topics are looked for that have grown; after more, any may have."""


class HeldPops(HeldRequests):
    """The held pops of one broker.

    *attempt* makes a pop of a hold again; it answers and returns whether there are more messages,
    or returns None where it found nothing. *give_up* answers a hold whose time has ended, or which
    this broker does not serve any more. *stored* returns how many messages the queues of a hold
    ever had. *pairs_of* returns the pairs "TOPIC@GROUP" that a retry topic may be of.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        attempt: Callable[[Hold], Awaitable[bool | None]],
        give_up: Callable[[Hold], None],
        stored: Callable[[Hold], int],
        pairs_of: Callable[[str], Iterable[str]],
        holds: Holds,
    ) -> None:
        super().__init__(runtime, holds)
        self._attempt = attempt
        self._end = give_up
        self._stored = stored
        self._tasks = runtime.tasks("held pops")
        self._busy: dict[Queue, bool] = {}
        """The keys with a pop that is made again, and whether the next one is to follow."""
        self._pairs_of = pairs_of
        self._looked: dict[Queue, int] = {}
        """By key, the messages that its queues had when a pop was last made again."""

    async def close(self) -> None:
        """End the watch, and answer every hold."""
        self.stop()
        await self._tasks.close()
        self._busy.clear()
        for hold in self._holds.all():
            self._holds.remove(hold)
            self._end(hold)
        self._looked.clear()

    def hold(self, hold: Hold, *, is_late: bool) -> bool:
        """Hold a pop, whose `offset` is the number of messages that its queues had before it; make
        it again at once where *is_late*. Return False where too many wait already."""
        if not self.add(hold):
            return False
        if is_late:
            self.wake(hold.queue)
        return True

    def count(self, key: Queue) -> int:
        """Return the number of pops of a key."""
        return self._holds.count(key)

    def wake_all(self, name: str, queue_count: int) -> None:
        """Make pops of "TOPIC@GROUP" again, for any queue and for each."""
        for number in range(-1, queue_count):
            self.wake((name, number))

    def wake(self, key: Queue) -> None:
        """Make a pop of a key again, or another one after the present one."""
        if key in self._busy:
            self._busy[key] = True
        elif self._next(key) is not None:
            self._busy[key] = False
            self._tasks.start(self._serve(key), name=f"pops of {key[0]} {key[1]}")

    def _next(self, key: Queue) -> Hold | None:
        return self._holds.first(key, is_wanted=lambda hold: hold.connection.is_writable)

    async def _serve(self, key: Queue) -> None:
        try:
            while (hold := self._next(key)) is not None:
                self._busy[key] = False
                self._looked[key] = self._stored(hold)
                self._holds.remove(hold)
                try:
                    is_more = await self._attempt(hold)
                except BaseException:
                    self._end(hold)
                    raise
                if is_more is None:
                    self._hold_on(hold)
                if not (is_more or self._busy[key]):
                    return
        finally:
            del self._busy[key]

    def _hold_on(self, hold: Hold) -> None:
        """Holds a pop that found nothing once more."""
        again = Hold(hold.queue, hold.offset, hold.deadline_ms, hold.connection, hold.pull)
        if not self.add(again) and hold.connection.is_open:
            self._end(hold)

    def _look(self, store: Store, since: int) -> Round:
        is_unread = False
        grown = self._grown(store, since)
        for key in self._holds.queues():
            if grown is not None and grown.isdisjoint((key[0], key[0].partition("@")[0])):
                continue
            hold = self._next(key)
            if hold is None:
                is_unread = True
            elif self._stored(hold) != self._looked.get(key, hold.offset):
                self.wake(key)
        self._forget()
        return Round(is_unread)

    def _grown(self, store: Store, since: int) -> set[str] | None:
        """Returns the topics, and the pairs with retries, that have grown since a physical offset;
        None where they may be any."""
        end = store.dispatched_offset
        if not 0 < end - since <= _SCANNED_MAX:
            return None
        grown: set[str] = set()
        try:
            for record in store.scan_log(since, end, check_crc=False):
                if record.topic not in grown:
                    grown |= {record.topic, *self._pairs_of(record.topic)}
                if LIGHT_QUEUES in record.properties_text:
                    return None
        except StoreError:
            return None
        return grown

    def _forget(self) -> None:
        """Drops the counts of keys that no pop waits for."""
        if len(self._looked) > 2 * self._holds.queue_count + 64:
            waiting = set(self._holds.queues())
            self._looked = {key: each for key, each in self._looked.items() if key in waiting}

    def _give_up(self, hold: Hold) -> None:
        self._end(hold)
