"""One life of a simulated program: its loop, its sockets, its pauses, and its end.

Everything that a program does happens in turns. During a pause (SIGSTOP) turns wait; they run in
their order when the pause ends. After the end of the life no turn runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.network import Network
from rmqstore.sim.transport import Sockets
from rmqstore.sim.virtual_loop import VirtualLoop

__all__ = ["Process"]


class Process:
    """A program on the machine *number*, from its start to its end.

    *failed* gets the context of an exception that nothing in the program took.
    """

    def __init__(
        self,
        number: int,
        *,
        timeline: Timeline,
        network: Network,
        clock: MachineClock,
        failed: Callable[[dict[str, Any]], None],
    ) -> None:
        self.number = number
        self.is_over = False
        self._timeline = timeline
        self._clock = clock
        self._paused_until_us = 0
        self._put_off: deque[Callable[[], object]] = deque()
        self.loop = VirtualLoop(self, failed=failed)  # type: ignore[abstract]
        self.sockets = Sockets(self, network)

    def now_ms(self) -> int:
        """Return the time of the machine's monotonic clock."""
        return self._clock.monotonic_ms()

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        """Run *action* in a turn when the clock shows *when_ms* or more."""
        self._timeline.at(self._clock.world_us(when_ms), self._enter, action)

    def run(self, action: Callable[[], object]) -> None:
        """Run *action* on the loop, in a turn: immediately, or after a pause."""
        self._enter(lambda: self.loop.run(action))

    def pause(self, ms: int) -> None:
        """Stop the program for *ms*. Its clock continues."""
        until_us = self._timeline.now_us + ms * 1000
        self._paused_until_us = max(self._paused_until_us, until_us)
        self._timeline.at(self._paused_until_us, self._resume)

    def end(self, *, loses_power: bool) -> None:
        """End the program. Other machines notice the end of their connections, unless this one
        *loses_power*."""
        self.is_over = True
        self._put_off.clear()
        self.sockets.drop(loses_power=loses_power)
        self.loop.end()

    def _enter(self, turn: Callable[[], object]) -> None:
        if self.is_over:
            return
        if self._put_off or self._timeline.now_us < self._paused_until_us:
            self._put_off.append(turn)
        else:
            turn()

    def _resume(self) -> None:
        while self._put_off and self._timeline.now_us >= self._paused_until_us:
            self._put_off.popleft()()
