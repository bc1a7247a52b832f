"""The world of a simulated server: `rmqstore.net.runtime.Runtime` in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import AsyncioRuntime, Client
from rmqstore.net.supervisor import TaskFailure

__all__ = ["Clock", "VirtualRuntime"]

T = TypeVar("T")


class Clock(Protocol):
    """The clocks of a machine."""

    def monotonic_ms(self) -> int:
        """Return the time since an arbitrary moment."""

    def wall_ms(self) -> int:
        """Return the time of day."""


class VirtualRuntime(AsyncioRuntime):
    """The world of one life of a process, on its `VirtualLoop`.

    *disk_ms* is how long a function on the disk's thread takes. It has its effect at the end of
    that time, or never: a process that dies before leaves the files as they were.
    """

    def __init__(
        self,
        *,
        log: IdentityLog,
        clock: Clock,
        client: Client | None = None,
        disk_ms: int = 1,
        on_failure: Callable[[TaskFailure], None] | None = None,
    ) -> None:
        super().__init__(log=log, client=client, on_failure=on_failure)
        self._clock = clock
        self.disk_ms = disk_ms
        self._on_disk: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        """Functions that wait for the disk, and the one that runs."""

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def on_disk(self, function: Callable[[], T]) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._on_disk.append((future, function))
        if len(self._on_disk) == 1:
            self.later(self.disk_ms / 1000, self._run_on_disk)
        return await future

    def _run_on_disk(self) -> None:
        future, function = self._on_disk[0]
        value, failure = None, None
        try:
            value = function()
        except Exception as error:
            failure = error

        if not future.done():
            if failure is None:
                future.set_result(value)
            else:
                future.set_exception(failure)
        self._on_disk.popleft()
        if self._on_disk:
            self.later(self.disk_ms / 1000, self._run_on_disk)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        await asyncio.sleep(self.disk_ms / 1000)
        return function(*args)

    async def addresses_of(self, place: str, *, limit_s: float) -> Sequence[str]:
        return [place]

    def close(self) -> None:
        """Do nothing: no thread was begun."""
