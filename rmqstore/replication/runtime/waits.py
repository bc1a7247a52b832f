"""Waits for values that change without an event: the loop evaluates the conditions of tasks."""

from __future__ import annotations

from collections.abc import Callable

from rmqstore.errors import StoreTimeout
from rmqstore.net.runtime import Event, Runtime

__all__ = ["Wait", "Waits"]

Condition = Callable[[], bool]


class Wait:
    """One wait for a condition."""

    __slots__ = ("condition", "error", "over")

    def __init__(self, condition: Condition, over: Event) -> None:
        self.condition = condition
        self.over = over
        """Set once the condition holds, or once the wait has an error."""
        self.error: Exception | None = None


class Waits:
    """All conditions that tasks of one replica wait for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Wait, None] = {}
        """In the order of their beginning."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, condition: Condition) -> Wait:
        """Return a wait for *condition*, which is evaluated here and at every `look`."""
        wait = Wait(condition, self._runtime.event())
        self._waiting[wait] = None
        self.look()
        return wait

    async def wait(self, wait: Wait, timeout: float, subject: str) -> None:
        """Wait. Raises StoreTimeout, which names *subject*, and the error of the condition."""
        try:
            if not await wait.over.wait(timeout):
                raise StoreTimeout(f"waited {timeout} s for {subject}")
            if wait.error is not None:
                raise wait.error
        finally:
            self._waiting.pop(wait, None)

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
        for wait in list(self._waiting):
            self._end(wait, error)

    def _end(self, wait: Wait, error: Exception | None) -> None:
        # A condition that looks at a side may have ended other waits.
        if wait in self._waiting:
            del self._waiting[wait]
            wait.error = error
            wait.over.set()
