"""The events of a slave, one after another.

An effect that may wait for the disk must not block the loop: it is carried out on the thread for
files. Until it is done the side reads neither from its connection nor from its pump; other events
wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from rmqstore.net.runtime import Runtime, Task
from rmqstore.replication.protocol.events import Effect, Event

__all__ = ["EventQueue", "Events", "Work"]

T = TypeVar("T")

Events = Callable[[], list[Event]]
"""Returns events when it is their turn."""
Work = Generator[Effect, None, T]
"""Yields effects that may wait for the disk; goes on when they are done."""


class EventQueue:
    """Hands events to *handle*, and the effects that its work yields to *carry_out*, on the thread
    for files. *listen* is called with whether the side may read, each time that this changes."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        handle: Callable[[Events], Work[None]],
        carry_out: Callable[[Effect], None],
        listen: Callable[[bool], None],
    ) -> None:
        self._runtime = runtime
        self._tasks = runtime.tasks("events of a slave")
        self._handle = handle
        self._carry_out = carry_out
        self._listen = listen
        self._waiting: deque[Events] = deque()
        self._working: Task[None] | None = None
        self._is_handling = self._is_held = self._is_over = False
        self.is_listening = True
        """Whether the side may read."""

    @property
    def is_working(self) -> bool:
        """Whether an effect waits for the disk."""
        return self._working is not None

    def add(self, events: Events) -> None:
        """Handle *events* after all that wait; before the return, unless an effect waits for the
        disk."""
        if not self._is_over:
            self._waiting.append(events)
            self.handle_waiting()

    def add_first(self, events: Events) -> None:
        """Let *events* be next; called while events are handled."""
        self._waiting.appendleft(events)

    async def hold(self) -> None:
        """Let all events wait until `go_on`; return when no earlier one waits for the disk."""
        self._is_held = True
        self._update()
        await self.settled()

    async def go_on(self) -> None:
        """Handle events again; return when those that waited are handled."""
        self._is_held = False
        self.handle_waiting()
        await self.settled()

    def stop(self) -> None:
        """Handle no more events."""
        self._is_over = True
        self._waiting.clear()
        self._update()

    async def settled(self) -> None:
        """Return when no effect waits for the disk."""
        while self._working is not None:
            await self._runtime.ended(self._working)

    def handle_waiting(self) -> None:
        """Handle the events that wait, unless they must."""
        # Effects may lead back here.
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._waiting and self._working is None and not self._is_held:
                self._advance(self._handle(self._waiting.popleft()))
        finally:
            self._is_handling = False
        self._update()

    def _advance(self, work: Work[None], failure: Exception | None = None) -> None:
        """Go on with *work* until it waits for the disk, or is done."""
        try:
            slow = next(work) if failure is None else work.throw(failure)
        except StopIteration:
            return
        self._working = self._tasks.start(self._work(work, slow), name="effect on the disk")

    async def _work(self, work: Work[None], slow: Effect) -> None:
        failure: Exception | None = None
        try:
            await self._runtime.on_disk(partial(self._carry_out, slow))
        except Exception as error:
            failure = error
        finally:
            self._working = None

        if self._is_over:
            work.close()
            return
        self._is_handling = True
        try:
            self._advance(work, failure)
        finally:
            self._is_handling = False
        self.handle_waiting()

    def _update(self) -> None:
        is_listening = not (self._is_over or self._is_held or self._working is not None)
        if is_listening != self.is_listening:
            self.is_listening = is_listening
            self._listen(is_listening)
