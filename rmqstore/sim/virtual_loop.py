"""An asyncio loop in virtual time: production's coroutines run on it unchanged, one process each.

A loop belongs to one life of a process. It runs in turns that the process gives it: callbacks that
are ready run in the order in which they became ready, so a seed repeats a run event by event. When
the process dies, its coroutines are closed at once, not at a later moment that the garbage
collector chooses. Their `finally` blocks start nothing: a loop that is over runs no callback.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, Protocol, TypeGuard, TypeVarTuple

__all__ = ["Process", "ProcessEnded", "VirtualLoop"]

Ts = TypeVarTuple("Ts")

_STEPS_MAX = 100_000
_TASKS_KEPT = 64
_WAITS_MAX = 100


class Process(Protocol):
    """The process that a loop belongs to, in one life."""

    def now_ms(self) -> int:
        """Return the time of the machine's monotonic clock."""

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        """Run *action* in a turn of this life when the clock shows *when_ms* or more. A turn in the
        past is the next one."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop of *process*.

    *failed* gets the context of an exception that no task or callback took, as
    `call_exception_handler` describes it.
    """

    def __init__(self, process: Process, *, failed: Callable[[dict[str, Any]], None]) -> None:
        self._process = process
        self._failed = failed
        self._ready: deque[asyncio.Handle] = deque()
        self._is_planned = False
        self._is_in_turn = False
        self._is_over = False
        self._tasks: list[tuple[asyncio.Task[Any], Context]] = []
        self._tasks_max = _TASKS_KEPT
        self._readers: dict[int, asyncio.Handle] = {}

    # ---- the process

    def run(self, action: Callable[[], object]) -> None:
        """Run *action*, and all that becomes ready by it, as a turn of the process."""
        self.call_soon(action)
        if not self._is_in_turn:
            self._turn()

    def end(self) -> None:
        """End with the process, and close its coroutines where they wait; one that runs now ends at
        its next wait."""
        self._is_over = True
        self._ready.clear()
        if not self._is_in_turn:
            self._close_tasks()

    def _close_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for task, context in tasks:
                if not task.done():
                    context.run(_close, task)
        finally:
            asyncio._set_running_loop(outer)

    def _turn(self) -> None:
        self._is_planned = False
        if self._is_over:
            return
        self._is_in_turn = True
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for _ in range(_STEPS_MAX):
                if not self._ready:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
            raise AssertionError("a turn of a process never ends")
        finally:
            asyncio._set_running_loop(outer)
            self._is_in_turn = False
            if self._is_over:
                self._close_tasks()

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled() and not self._is_over:
            self._ready.append(handle)
            self._turn()

    # ---- what asyncio calls

    def time(self) -> float:
        return self._process.now_ms() / 1000

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._is_over:
            return handle
        self._ready.append(handle)
        if not (self._is_in_turn or self._is_planned):
            self._is_planned = True
            self._process.at(self._process.now_ms(), self._turn)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        # A whole number of ms that is a little above itself as a float stays what it is.
        when_ms = math.ceil(when * 1000 - 1e-6)
        self._process.at(when_ms, lambda: self._due(handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the handle is looked at when its time comes."""

    def add_reader(
        self,
        fd: int,  # type: ignore[override]
        callback: Callable[[*Ts], object],
        *args: *Ts,
    ) -> None:
        """Call *callback* each time that a model makes the descriptor `readable`."""
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        return self._readers.pop(fd, None) is not None

    def readable(self, fd: int) -> None:
        """Call the reader of the descriptor *fd*, if there is one."""
        if fd in self._readers:
            self.call_soon(self._notify, fd)

    def _notify(self, fd: int) -> None:
        reader = self._readers.get(fd)
        if reader is not None:
            reader._run()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],  # type: ignore[override]
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        context = copy_context() if context is None else context
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if self._is_over:
            _drop(coro)
            return task
        if len(self._tasks) >= self._tasks_max:
            self._tasks = [each for each in self._tasks if not each[0].done()]
            self._tasks_max = max(_TASKS_KEPT, 2 * len(self._tasks))
        self._tasks.append((task, context))
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_in_turn

    def is_closed(self) -> bool:
        return self._is_over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_over:
            self._failed(context)


class ProcessEnded(BaseException):
    """The process of a coroutine has ended: nothing that handles errors may go on."""


def _close(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    assert coroutine is not None, "tasks of this loop are not eager"
    if _is_unstarted(coroutine):
        _drop(coroutine)
        return
    for _ in range(_WAITS_MAX):
        try:
            # Unlike `close`, this reaches the innermost coroutine again if a `finally` block waits.
            coroutine.throw(ProcessEnded())
        except (StopIteration, Exception, asyncio.CancelledError, ProcessEnded):
            return
    raise AssertionError("a coroutine waits in spite of the end of its process")


def _is_unstarted(value: object) -> TypeGuard[CoroutineType[Any, Any, Any]]:
    if not isinstance(value, CoroutineType):
        return False
    return inspect.getcoroutinestate(value) == inspect.CORO_CREATED


def _drop(coroutine: object) -> None:
    """Close a coroutine that nothing started, and those that it was to await: Python warns of a
    coroutine that is neither awaited nor closed."""
    if _is_unstarted(coroutine):
        for each in inspect.getcoroutinelocals(coroutine).values():
            _drop(each)
        coroutine.close()
