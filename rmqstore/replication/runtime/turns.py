"""The order of the changes of one replica's role: one change after another.

A change runs in a task of its own. A caller that is cancelled gives its change up: the step that
has begun is completed first, because half a step would leave the disk, the board and the machines
in different states.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeVar

from rmqstore.net.runtime import Runtime
from rmqstore.replication.runtime.shielded import Shielded

__all__ = ["ChangeGivenUp", "Turn", "Turns"]

T = TypeVar("T")

_NAME = "change of the role"


class ChangeGivenUp(Exception):
    """The caller of a change was cancelled. The caller does not get this exception."""


class Turn:
    """A change, as its steps see it."""

    __slots__ = ("is_given_up",)

    def __init__(self) -> None:
        self.is_given_up = False
        """The caller was cancelled."""

    def check(self) -> None:
        """Raise ChangeGivenUp where the change was given up; called between two steps."""
        if self.is_given_up:
            raise ChangeGivenUp("the change of the role was cancelled")


class Turns:
    """The changes of one replica, in the order of the calls."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._tasks = runtime.tasks("roles")
        self.is_taken = False
        """Whether a change is in progress."""

    async def take(self, change: Callable[[Turn], Coroutine[object, object, T]]) -> T:
        """Carry out *change* after all earlier changes; return its result or raise its error.

        Where the caller is cancelled, the change is given up, and has ended when this raises. A
        caller that is cancelled again does not wait for that; the next change does.
        """
        turn = Turn()
        run = partial(self._run, change, turn)
        work = Shielded(self._runtime, self._tasks, run, name=_NAME)
        try:
            return await work.result()
        except BaseException:
            turn.is_given_up = True
            if not work.is_over:
                await work.ended()
            raise

    def begin(self, change: Callable[[Turn], Coroutine[object, object, None]]) -> None:
        """Let *change* have its turn, and do not wait for it. Its error is logged."""
        self._tasks.start(self._run(change, Turn()), name=_NAME)

    async def _run(self, change: Callable[[Turn], Coroutine[object, object, T]], turn: Turn) -> T:
        async with self._lock:
            turn.check()
            self.is_taken = True
            try:
                return await change(turn)
            finally:
                self.is_taken = False
