"""Tasks on an event loop whose failures are always reported."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

__all__ = ["Supervisor", "TaskFailure"]

_FAILURES_KEPT = 16


class TaskFailure(NamedTuple):
    """A task that ended with an exception."""

    name: str
    error: BaseException


class Supervisor:
    """Starts tasks on the running loop and watches each one until it ends.

    A task that raises is logged with its traceback, is kept in `failures` (the last 16) and is
    passed to *on_failure*. Other tasks continue.
    """

    def __init__(
        self,
        name: str,
        *,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
        on_failure: Callable[[TaskFailure], None] | None = None,
    ) -> None:
        self._name = name
        self._log = log
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their start."""
        self.failures: deque[TaskFailure] = deque(maxlen=_FAILURES_KEPT)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks that run, sorted."""
        return tuple(sorted(task.get_name() for task in self._tasks))

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run *work* as a task. Its result or exception may be awaited too."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def join(self) -> None:
        """Return when every task has ended by itself."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Cancel every task and return when all have ended. Not to be called from one of the
        tasks."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(tuple(self._tasks))
            # The callbacks that remove ended tasks run in the next turn of the loop.
            await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        error: BaseException | None

        if not task.cancelled():
            error = task.exception()
        elif task.cancelling():
            error = None
        else:
            # The operation that the task awaited was cancelled, not the task.
            error = asyncio.CancelledError("an operation that the task awaited was cancelled")

        if error is None:
            return

        failure = TaskFailure(task.get_name(), error)
        self.failures.append(failure)
        self._log.error("%s: task %s failed", self._name, failure.name, exc_info=error)

        if self._on_failure is not None:
            self._on_failure(failure)
