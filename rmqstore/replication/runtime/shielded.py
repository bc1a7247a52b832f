"""Work that goes on where those that wait for it are cancelled."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from rmqstore.net.runtime import Runtime
from rmqstore.net.supervisor import Supervisor

__all__ = ["Shielded"]

T = TypeVar("T")


class Shielded(Generic[T]):
    """Runs the coroutine that *begin* makes, as one of *tasks*. Its result and its exception are
    for those that ask."""

    def __init__(
        self,
        runtime: Runtime,
        tasks: Supervisor,
        begin: Callable[[], Coroutine[Any, Any, T]],
        *,
        name: str,
    ) -> None:
        self._runtime = runtime
        self._results: list[T] = []
        self._failure: Exception | None = None
        self._task = tasks.start(self._run(begin), name=name)

    @property
    def is_over(self) -> bool:
        """Whether the work has ended, in any way."""
        return self._task.done()

    async def ended(self) -> None:
        """Return when the work has ended, in any way."""
        await self._runtime.ended(self._task)

    async def result(self) -> T:
        """Return the result of the work, or raise its exception."""
        await self._runtime.ended(self._task)
        # Raises where the task was cancelled.
        self._task.result()
        if self._failure is not None:
            raise self._failure
        return self._results[0]

    async def _run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        try:
            self._results.append(await begin())
        except Exception as error:
            self._failure = error
