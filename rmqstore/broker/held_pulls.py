"""Pulls held on an event loop: read again when their queue grows, answered when their time ends."""

from __future__ import annotations

from collections.abc import Callable

from rmqstore.broker.held_requests import HeldRequests, Round
from rmqstore.broker.holds import Hold, Holds, Queue
from rmqstore.net.runtime import Runtime
from rmqstore.store.store import Store

__all__ = ["HeldPulls"]


class HeldPulls(HeldRequests):
    """The held pulls of one broker.

    *look* looks for messages of a hold again; it answers and returns True, or moves the hold's
    offset and returns False. *give_up* answers a hold whose time has ended. *end_of* returns the
    end of a queue.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        look: Callable[[Hold], bool],
        give_up: Callable[[Hold], None],
        end_of: Callable[[Queue], int],
        holds: Holds | None = None,
    ) -> None:
        super().__init__(runtime, Holds() if holds is None else holds)
        self._look_at = look
        self._end = give_up
        self._end_of = end_of

    def look_at_all(self) -> None:
        """Look at every hold, as when the role of the broker has changed."""
        for hold in self._holds.all():
            self._try(hold)

    def _look(self, store: Store, since: int) -> Round:
        is_unread = is_behind = False
        for hold in self._holds.grown(self._end_of):
            if not hold.connection.is_writable:
                is_unread = True
                continue
            self._try(hold)
            is_behind |= not hold.is_over and hold.offset < self._end_of(hold.queue)
        return Round(is_unread, is_behind)

    def _try(self, hold: Hold) -> None:
        if self._look_at(hold):
            self._holds.remove(hold)

    def _give_up(self, hold: Hold) -> None:
        self._end(hold)
