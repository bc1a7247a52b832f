"""A thread that runs blocking functions for an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

__all__ = ["WorkThread"]

T = TypeVar("T")


class WorkThread:
    """A daemon thread *name* that runs functions for *loop*, one at a time, in the order of the
    calls.

    The first function starts the thread. All calls come from the loop's thread. The exit of the
    process waits neither for the thread nor for its present function.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Return a future of the result of *function*, which runs in the caller's context.
        Cancelling the future does not stop the function."""
        assert not self._is_stopped, "a stopped thread runs no function"
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((future, partial(contextvars.copy_context().run, function)))
        return future

    def stop(self) -> None:
        """End the thread after the functions that already wait; do not wait for the thread."""
        self._is_stopped = True
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            value, failure = None, None
            try:
                value = function()
            except BaseException as error:
                failure = error
            # After the loop is closed, no caller waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, future, value, failure)
            del job, future, function, value, failure


def _settle(future: asyncio.Future[Any], value: object, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(value)
    else:
        future.set_exception(failure)
