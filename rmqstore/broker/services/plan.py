"""When a service starts and stops: a machine without I/O, with the time as an argument."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

from rmqstore.broker.membership.roles import Role, Standing

__all__ = ["PAUSE_MS", "PAUSE_MS_MAX", "Plan", "Start", "Stop"]

PAUSE_MS = 1000
"""From the first failure of a start or stop to the next try; it doubles with each failure."""
PAUSE_MS_MAX = 30_000


@dataclass(frozen=True, slots=True)
class Start:
    """Start the service in *role*."""

    role: Role


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the service."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of the service."""

    term: Hashable
    is_sound: bool = True
    """Whether its start has not failed."""


class Plan:
    """The plan of one service, which runs in *standings*, each run in one *term*.

    The owner carries out what `next` returns, one step at a time, and reports its end.
    """

    def __init__(self, standings: Collection[Standing], term: Callable[[Role], Hashable]) -> None:
        self._standings = standings
        self._term = term
        self._role: Role | None = None
        self._run: _Run | None = None
        """The present run; also one that starts or stops."""
        self._is_starting = False
        self._pause_ms = PAUSE_MS
        self._start_ms: int | None = None
        """Before that time no start is tried again."""
        self._stop_ms: int | None = None
        """Before that time no stop is tried again."""
        self.trouble = ""
        """Why the last start or stop failed; empty after one that did not."""

    def take(self, role: Role | None) -> None:
        """Take the present role; None when the broker closes."""
        if role != self._role:
            self._role = role
            # A failure in another role says nothing of this one.
            self._start_ms = self._stop_ms = None
            self._pause_ms = PAUSE_MS

    @property
    def _wanted(self) -> _Run | None:
        role = self._role
        if role is None or role.standing not in self._standings:
            return None
        return _Run(self._term(role))

    @property
    def is_running(self) -> bool:
        """Whether the service was started, and not stopped since."""
        return self._run is not None and self._run.is_sound and not self._is_starting

    @property
    def is_stop_due(self) -> bool:
        """Whether a run goes on that the present role must not have."""
        return self._run is not None and self._run != self._wanted

    @property
    def is_begun(self) -> bool:
        """Whether the service runs as the present role wants, or has failed to."""
        return not self._is_starting and (bool(self.trouble) or self._run == self._wanted)

    @property
    def retry_ms(self) -> int | None:
        """When `next` returns a step that failed again; None where only another role brings
        one."""
        if self._run == self._wanted:
            return None
        return self._start_ms if self._run is None else self._stop_ms

    def next(self, now_ms: int) -> Start | Stop | None:
        """Return the step that is due, None without one."""
        retry_ms = self.retry_ms
        if self._run == self._wanted or (retry_ms is not None and now_ms < retry_ms):
            return None
        if self._run is not None:
            return Stop()
        assert self._role is not None, "a wanted run has a role"
        return Start(self._role)

    def begins(self, step: Start | Stop) -> None:
        """Record that *step* is being carried out."""
        if isinstance(step, Start):
            self._run, self._is_starting = _Run(self._term(step.role)), True

    def is_obsolete(self, step: Start | Stop) -> bool:
        """Return whether a step that is being carried out is to be given up: a start for a role
        that has ended."""
        return isinstance(step, Start) and self._run != self._wanted

    def done(self, step: Start | Stop) -> None:
        """Record that *step* was carried out."""
        if isinstance(step, Start):
            self.trouble, self._pause_ms = "", PAUSE_MS
            self._is_starting = False
            return
        self._run = self._stop_ms = None
        if self._wanted is None:
            self.trouble = ""

    def failed(self, step: Start | Stop, now_ms: int, why: str) -> None:
        """Record that *step* failed. It is tried again after a pause; a start that failed is
        stopped before."""
        self.trouble = why
        retry_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
        if isinstance(step, Stop):
            self._stop_ms = retry_ms
            return
        assert self._run is not None, "it was begun"
        self._run, self._is_starting = replace(self._run, is_sound=False), False
        self._start_ms = retry_ms
