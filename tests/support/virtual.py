"""A process in virtual time, for tests of what runs over a runtime."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import Client
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.runtime import VirtualRuntime
from rmqstore.sim.virtual_loop import VirtualLoop

__all__ = ["VirtualProcess"]

T = TypeVar("T")

_LOG = IdentityLog("rmqstore.test")


class VirtualProcess:
    """One process, its loop and its runtime; *client* makes its calls."""

    def __init__(self, client: Client | Any = None, *, drift_ppm: int = 0) -> None:
        self.timeline = Timeline()
        self.clock = MachineClock(self.timeline, begin_ms=5_000, drift_ppm=drift_ppm)
        self.failures: list[dict[str, Any]] = []
        """What no task took."""
        self.loop = VirtualLoop(self, failed=self.failures.append)  # type: ignore[abstract]
        self.runtime: VirtualRuntime
        self.loop.run(lambda: self._begin(client))

    def _begin(self, client: Client) -> None:
        self.runtime = VirtualRuntime(log=_LOG, clock=self.clock, client=client)

    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        self.timeline.at(self.clock.world_us(when_ms), action)

    def pass_time(self, seconds: float) -> None:
        """Run everything that is planned for the next *seconds*."""
        self.timeline.run(self.timeline.now_us + int(seconds * 1_000_000))
        assert not self.failures, self.failures

    def run(self, work: Coroutine[Any, Any, T], *, limit_s: float = 60.0) -> T:
        """Return the result of *work*, which takes at most *limit_s* of virtual time."""
        done: list[Any] = []
        self.loop.run(lambda: done.append(self.loop.create_task(work)))
        for _ in range(int(limit_s * 1000)):
            if done[0].done():
                return done[0].result()  # type: ignore[no-any-return]
            self.pass_time(0.001)
        raise AssertionError(f"not done after {limit_s} s of virtual time")
