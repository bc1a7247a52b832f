"""Pulls held by a simulated broker: production's table of holds, watched in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from rmqstore.broker.holds import Hold, Holds, Queue
from rmqstore.remoting.requests import Peer

__all__ = ["HeldPulls", "Owner"]

_LOOK_MS = 10
"""Between two looks whether the log has grown, while a pull waits."""


class Owner(Protocol):
    """The broker, in one life of its process."""

    def later(self, ms: int, action: Callable[..., None]) -> None:
        """Do something in a turn of this process, unless it ends before."""


class HeldPulls:
    """The held pulls of one life of a broker; see `rmqstore.broker.held_pulls`."""

    def __init__(
        self,
        owner: Owner,
        *,
        look: Callable[[Hold], bool],
        give_up: Callable[[Hold], None],
        end_of: Callable[[Queue], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._owner = owner
        self._look = look
        self._give_up = give_up
        self._end_of = end_of
        self._now_ms = now_ms
        self._holds = Holds()
        self._is_watching = False
        self.woken = 0
        """Pulls that were answered before their time."""

    def add(self, hold: Hold) -> bool:
        """Hold a pull; return False where too many wait already."""
        if not self._holds.add(hold):
            return False
        if not self._is_watching:
            self._is_watching = True
            self._owner.later(_LOOK_MS, self._watch)
        return True

    def look_at_all(self) -> None:
        """Look at every hold: the role of the broker has changed."""
        self._try(self._holds.all())

    def release(self, connection: Peer) -> None:
        """End the holds of a connection that is gone."""
        self._holds.release(connection)

    def _watch(self) -> None:
        self._try(self._holds.grown(self._end_of))
        for hold in self._holds.due(self._now_ms()):
            self._give_up(hold)
        self._is_watching = len(self._holds) > 0
        if self._is_watching:
            self._owner.later(_LOOK_MS, self._watch)

    def _try(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            if self._look(hold):
                self.woken += 1
                self._holds.remove(hold)
