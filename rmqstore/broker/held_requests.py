"""Pulls held on an event loop: read again when the log grows, answered when their time ends.

The log is watched only while a pull waits, so an idle broker does nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqstore._native.core import LogWatch
from rmqstore.broker.holds import Hold, Holds, Queue
from rmqstore.net.runtime import Runtime, Timer
from rmqstore.remoting.requests import Peer
from rmqstore.store.store import Store

__all__ = ["HeldPulls"]

_LOOK_S = 4e-6
"""Pause after a round, for each queue that pulls wait for: a round takes a quarter of it."""
_PAUSE_MIN_S = 1e-3
_UNREAD_PAUSE_S = 0.02
"""Pause before pulls are answered whose client does not read now."""


class HeldPulls:
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
        self._runtime = runtime
        self._holds = Holds() if holds is None else holds
        self._look = look
        self._give_up = give_up
        self._end_of = end_of
        self._store: Store | None = None
        self._watch: LogWatch | None = None
        self._is_armed = False
        self._seen = 0
        self._signal: Timer | None = None
        self._round: Timer | None = None
        self._alarm: Timer | None = None
        self._alarm_ms = 0
        self._connections: set[Peer] = set()

    def __len__(self) -> int:
        return len(self._holds)

    def start(self, store: Store) -> None:
        """Watch the open *store*."""
        self._store = store
        self._watch = store.watchers.subscribe("dispatched")
        self._signal = self._runtime.when_readable(self._watch, self._log_moved)
        if self._holds:
            self._set_alarm()
            self._look_round()

    def stop(self) -> None:
        """End the watch and the timers; pulls stay held until the next start. A second call does
        nothing."""
        for timer in (self._signal, self._round, self._alarm):
            if timer is not None:
                timer.cancel()
        self._signal = self._round = self._alarm = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
            self._is_armed = False

    def add(self, hold: Hold) -> bool:
        """Hold a pull of an open connection; return False where too many wait already."""
        connection = hold.connection
        if self._watch is None or not connection.is_open or not self._holds.add(hold):
            return False
        if connection not in self._connections:
            self._connections.add(connection)
            connection.on_close(self._connection_closed)
        self._set_alarm()
        self._arm()
        return True

    def look_at_all(self) -> None:
        """Look at every hold, as when the role of the broker has changed."""
        for hold in self._holds.all():
            self._try(hold)

    def _connection_closed(self, connection: Peer) -> None:
        self._connections.discard(connection)
        self._holds.release(connection)

    # -- Growth.

    def _arm(self) -> None:
        """Be notified of what is dispatched after the last round."""
        if self._is_armed or self._round is not None or self._watch is None or not self._holds:
            return
        self._is_armed = True
        if self._watch.arm(self._seen):
            self._runtime.later(0, self._log_moved)

    def _log_moved(self) -> None:
        if self._watch is None or not self._is_armed:
            return
        self._is_armed = False
        self._watch.clear()
        self._look_round()

    def _look_round(self) -> None:
        self._round = None
        if self._watch is None or self._store is None or self._store.closed:
            return
        self._seen = self._store.dispatched_offset
        is_unread = is_behind = False
        for hold in self._holds.grown(self._end_of):
            if not hold.connection.is_writable:
                is_unread = True
                continue
            self._try(hold)
            is_behind |= not hold.is_over and hold.offset < self._end_of(hold.queue)
        pause_s = self._holds.queue_count * _LOOK_S
        if is_unread:
            pause_s = max(pause_s, _UNREAD_PAUSE_S)
        if is_behind or pause_s > _PAUSE_MIN_S:
            self._round = self._runtime.later(pause_s, self._look_round)
        else:
            self._arm()

    def _try(self, hold: Hold) -> None:
        if self._look(hold):
            self._holds.remove(hold)

    # -- Time.

    def _set_alarm(self) -> None:
        due_ms = self._holds.next_deadline_ms()
        if due_ms is None or (self._alarm is not None and self._alarm_ms <= due_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = due_ms
        delay_s = max(due_ms - self._runtime.now_ms(), 0) / 1000
        self._alarm = self._runtime.later(delay_s, self._time_over)

    def _time_over(self) -> None:
        self._alarm = None
        # The clock is in whole milliseconds: a hold is due no later than it said.
        for hold in self._holds.due(max(self._runtime.now_ms(), self._alarm_ms)):
            self._give_up(hold)
        self._set_alarm()
