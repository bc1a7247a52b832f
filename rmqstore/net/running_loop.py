"""The event loop that runs a caller, as other threads see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from typing import Any

__all__ = ["RunningLoop"]

_ALIVE_S = 1.0


class RunningLoop:
    """The loop that runs where this is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    @property
    def is_running(self) -> bool:
        """Whether the loop runs."""
        return self._loop.is_running()

    def run(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine that *begin* makes, on the loop; return when it has ended, or the loop.

        Raises its exception. Called on another thread, while the loop runs.
        """
        done = asyncio.run_coroutine_threadsafe(begin(), self._loop)
        while wait([done], _ALIVE_S).not_done:
            if not (self._loop.is_running() or done.done()):
                return
        done.result()
