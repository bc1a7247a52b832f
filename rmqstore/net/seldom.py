"""Log messages that peers cause, at a limited rate: no peer can fill the log."""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqstore.net.identity_log import IdentityLog

__all__ = ["Seldom"]


class Seldom:
    """Writes at most *count_max* messages in *interval_s* seconds to *log*.

    The first message after an interval follows one with the number of those that were left out.
    """

    def __init__(
        self,
        log: IdentityLog,
        *,
        count_max: int = 5,
        interval_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._count_max = count_max
        self._interval_s = interval_s
        self._clock = clock
        self._end = clock()
        self._count = 0

    def info(self, text: str, *values: object) -> None:
        """Write a message of level INFO, unless there were too many."""
        if self._may_write():
            self._log.info(text, *values)

    def warning(self, text: str, *values: object) -> None:
        """Write a warning, unless there were too many."""
        if self._may_write():
            self._log.warning(text, *values)

    def _may_write(self) -> bool:
        now = self._clock()
        if now >= self._end:
            left_out = self._count - self._count_max
            if left_out > 0:
                self._log.info("%d further messages about connections were left out", left_out)
            self._end, self._count = now + self._interval_s, 0
        self._count += 1
        return self._count <= self._count_max
