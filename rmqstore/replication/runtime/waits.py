"""Waits for values that change without an event: the loop evaluates the conditions of tasks."""

from __future__ import annotations

from collections.abc import Callable

from rmqstore.errors import StoreTimeout
from rmqstore.net.runtime import Event, Runtime, Timer

__all__ = ["Waits"]

Condition = Callable[[], bool]

_POLL_S = 0.005


class _Wait:
    """One wait for a condition."""

    __slots__ = ("condition", "error", "over")

    def __init__(self, condition: Condition, over: Event) -> None:
        self.condition = condition
        self.over = over
        """Set once the condition holds, or once the wait has an error."""
        self.error: Exception | None = None


class Waits:
    """All conditions that tasks of one replica wait for. *refresh* is called before they are
    evaluated because time has passed: it notes what no event reports."""

    def __init__(self, runtime: Runtime, *, refresh: Callable[[], None]) -> None:
        self._runtime = runtime
        self._refresh = refresh
        self._waiting: dict[_Wait, None] = {}
        """In the order of their beginning."""
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, condition: Condition, timeout: float, subject: str) -> None:
        """Return when *condition* holds, which is evaluated here, every few milliseconds and at
        every `look`. Raises StoreTimeout, which names *subject*, and the error of the condition."""
        wait = _Wait(condition, self._runtime.event())
        self._waiting[wait] = None
        try:
            self.look()
            self._poll()
            if not await wait.over.wait(timeout):
                raise StoreTimeout(f"waited {timeout} s for {subject}")
            if wait.error is not None:
                raise wait.error
        finally:
            self._waiting.pop(wait, None)

    def _poll(self) -> None:
        """While callers wait, look at values that change without an event on this loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._refresh()
        self.look()
        if self._waiting:
            self._timer = self._runtime.later(_POLL_S, self._poll)

    def look(self) -> None:
        """Evaluate every condition again."""
        for wait in list(self._waiting):
            try:
                if wait.condition():
                    self._end(wait, None)
            except Exception as error:
                self._end(wait, error)

    def end(self, error: Exception) -> None:
        """Let every wait end with *error*."""
        if self._timer is not None:
            self._timer.cancel()
        for wait in list(self._waiting):
            self._end(wait, error)

    def _end(self, wait: _Wait, error: Exception | None) -> None:
        # A condition that looks at a side may have ended other waits.
        if wait in self._waiting:
            del self._waiting[wait]
            wait.error = error
            wait.over.set()
