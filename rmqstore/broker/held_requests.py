"""Requests held on an event loop: looked at when the log grows, answered when their time ends.

The log is watched only while a request waits, so an idle broker does nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from rmqstore._native.core import LogWatch
from rmqstore.broker.holds import Hold, Holds
from rmqstore.net.runtime import Runtime, Timer
from rmqstore.remoting.requests import Peer
from rmqstore.store.store import Store

__all__ = ["HeldRequests", "Round"]

_LOOK_S = 4e-6
"""Pause after a round, for each queue that requests wait for: a round takes a quarter of it."""
_PAUSE_MIN_S = 1e-3
_UNREAD_PAUSE_S = 0.02
"""Pause before requests are answered whose client does not read now."""


class Round(NamedTuple):
    """What a look at the holds found."""

    is_unread: bool = False
    """Whether a client with messages does not read now."""
    is_behind: bool = False
    """Whether there may be more messages for the holds."""


class HeldRequests(ABC):
    """The held requests of one kind at one broker."""

    def __init__(self, runtime: Runtime, holds: Holds) -> None:
        self._runtime = runtime
        self._holds = holds
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

    @abstractmethod
    def _look(self, store: Store, since: int) -> Round:
        """Look at the holds whose queues have grown; the holds were looked at when the queues had
        the messages before the physical offset *since*."""

    @abstractmethod
    def _give_up(self, hold: Hold) -> None:
        """Answer a hold whose time has ended, and which is held no more."""

    def start(self, store: Store) -> None:
        """Watch the open *store*."""
        self._store = store
        self._watch = store.watchers.subscribe("dispatched")
        self._signal = self._runtime.when_readable(self._watch, self._log_moved)
        if self._holds:
            self._set_alarm()
            self._look_round()

    def stop(self) -> None:
        """End the watch and the timers; requests stay held until the next start. A second call does
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
        """Hold a request of an open connection; return False where too many wait already."""
        connection = hold.connection
        if self._watch is None or not connection.is_open or not self._holds.add(hold):
            return False
        if connection not in self._connections:
            self._connections.add(connection)
            connection.on_close(self._connection_closed)
        self._set_alarm()
        self._arm()
        return True

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
        since, self._seen = self._seen, self._store.dispatched_offset
        found = self._look(self._store, since)
        pause_s = self._holds.queue_count * _LOOK_S
        if found.is_unread:
            pause_s = max(pause_s, _UNREAD_PAUSE_S)
        if found.is_behind or pause_s > _PAUSE_MIN_S:
            self._round = self._runtime.later(pause_s, self._look_round)
        else:
            self._arm()

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
