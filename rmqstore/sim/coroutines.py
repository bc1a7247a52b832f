"""Production coroutines in virtual time: they await a `Pause`, which an event ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from rmqstore.errors import RequestRefused

__all__ = ["Pause", "Resume", "Work", "run"]

Resume = Callable[[Any], None]
"""Ends a pause with its value."""


class Pause:
    """A wait of a coroutine: *begin* gets a function that ends the pause with its value."""

    def __init__(self, begin: Callable[[Resume], None]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[Pause, Any, Any]:
        return (yield self)


class Work:
    """A running coroutine, and the pauses that wait for its end."""

    def __init__(self) -> None:
        self.is_over = False
        self.value: Any = None
        self.waiting: list[Resume] = []

    def end(self, value: Any = None) -> None:
        """End the pauses, with the value that the coroutine returned."""
        self.is_over, self.value = True, value
        for resume in self.waiting:
            resume(value)

    def __await__(self) -> Generator[Pause, Any, Any]:
        if self.is_over:
            return self.value
        return (yield Pause(self.waiting.append))


def run(
    coroutine: Coroutine[Any, Any, Any],
    *,
    is_alive: Callable[[], bool],
    done: Callable[[Any], None],
    failed: Callable[[RequestRefused], None],
) -> None:
    """Run *coroutine* to its end, as long as *is_alive*; *done* gets its result."""

    def step(value: Any) -> None:
        if not is_alive():
            coroutine.close()
            return
        try:
            pause = coroutine.send(value)
        except StopIteration as end:
            done(end.value)
        except RequestRefused as error:
            failed(error)
        else:
            pause.begin(step)

    step(None)
