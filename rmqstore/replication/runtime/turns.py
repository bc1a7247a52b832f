"""The order of the changes of one replica's role: one change after another.

A change runs in a task of its own. A caller that is cancelled gives its change up: the step that
has begun is completed first, because half a step would leave the disk, the board and the machines
in different states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

__all__ = ["Turn", "Turns"]

T = TypeVar("T")


class Turn:
    """A change, as its steps see it."""

    __slots__ = ("is_given_up",)

    def __init__(self) -> None:
        self.is_given_up = False
        """The caller was cancelled."""

    def check(self) -> None:
        """Raise CancelledError where the change was given up; called between two steps."""
        if self.is_given_up:
            raise asyncio.CancelledError("the change of the role was cancelled")


class Turns:
    """The changes of one replica, in the order of the calls; all calls on *loop*."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def is_taken(self) -> bool:
        """Whether a change is in progress."""
        return self._lock.locked()

    async def take(self, change: Callable[[Turn], Coroutine[object, object, T]]) -> T:
        """Carry out *change* after all earlier changes; return its result or raise its error.

        Where the caller is cancelled, the change is given up, and has ended when this raises. A
        caller that is cancelled again does not wait for that; the next change does.
        """
        turn = Turn()
        task = self.begin(change, turn)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            turn.is_given_up = True
            if not task.done():
                await asyncio.wait([task])
            raise

    def begin(
        self, change: Callable[[Turn], Coroutine[object, object, T]], turn: Turn | None = None
    ) -> asyncio.Task[T]:
        """Let *change* have its turn, and do not wait for it."""
        task = self._loop.create_task(self._run(change, turn or Turn()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, change: Callable[[Turn], Coroutine[object, object, T]], turn: Turn) -> T:
        async with self._lock:
            turn.check()
            return await change(turn)
