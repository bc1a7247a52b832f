"""Waits for values that change without an event: the loop evaluates the conditions of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmqstore.errors import StoreTimeout

__all__ = ["Waits"]

Condition = Callable[[], bool]


class Waits:
    """All conditions that tasks of *loop* wait for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], Condition] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, condition: Condition) -> asyncio.Future[None]:
        """Return a wait for *condition*, which is evaluated here and at every `look`."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[future] = condition
        self.look()
        return future

    async def wait(self, future: asyncio.Future[None], timeout: float, subject: str) -> None:
        """Wait. Raises StoreTimeout, which names *subject*, and the error of the condition."""
        try:
            if (await asyncio.wait([future], timeout=timeout))[1]:
                raise StoreTimeout(f"waited {timeout} s for {subject}")
            future.result()
        finally:
            self._waiting.pop(future, None)
            future.cancel()

    def look(self) -> None:
        """Evaluate every condition again."""
        for future, condition in list(self._waiting.items()):
            try:
                if condition():
                    self._end(future, None)
            except Exception as error:
                self._end(future, error)

    def end(self, error: Exception) -> None:
        """Let every wait end with *error*."""
        for future in list(self._waiting):
            self._end(future, error)

    def _end(self, future: asyncio.Future[None], error: Exception | None) -> None:
        # A condition that looks at a side may have ended other waits.
        if self._waiting.pop(future, None) is None:
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
