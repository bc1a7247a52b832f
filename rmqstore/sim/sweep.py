"""Many seeds, shared among processes.

A run depends on nothing but its arguments, so it goes the same way in any process, and outcomes
come in the order of their seeds however many processes there are.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Self

from rmqstore.sim import Outcome, run

__all__ = ["Workers", "cores"]

_BLOCK = 5
"""Seeds that a process is given at a time: under a second of work, so that an end comes soon."""


def cores() -> int:
    """Return how many processes this one may run at once."""
    return len(os.sched_getaffinity(0))


class Workers:
    """Up to *jobs* processes that run seeds; with 1 the process itself does.

    Leaving the context ends them, once each has finished what it is at. They end, too, when the
    process that made them does, however that comes about. They begin as new interpreters, so a
    script that uses them needs its `if __name__ == "__main__":`.
    """

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise ValueError(f"{jobs} processes can run nothing; give 1 or more")
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            # Not by fork: the caller may have threads.
            self._pool = ProcessPoolExecutor(
                jobs, mp_context=get_context("spawn"), initializer=_begin
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes. Twice is harmless."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(
        self,
        seeds: Iterable[int],
        *,
        replicas: int = 3,
        steps: int = 100,
        cluster: bool = False,
    ) -> Iterator[Outcome]:
        """Yield the outcome of each of *seeds*, in their order; they may be without end.

        Seeds are taken a few blocks ahead of what was yielded.
        """
        remaining = iter(seeds)
        if self._pool is None:
            for seed in remaining:
                yield run(seed, replicas=replicas, steps=steps, cluster=cluster)
            return

        ahead: deque[Future[list[Outcome]]] = deque()
        try:
            while True:
                while len(ahead) < 2 * self._jobs and (block := list(islice(remaining, _BLOCK))):
                    ahead.append(self._pool.submit(_run, block, replicas, steps, cluster))
                if not ahead:
                    return
                yield from ahead.popleft().result()
        finally:
            for each in ahead:
                each.cancel()


def _run(seeds: list[int], replicas: int, steps: int, cluster: bool) -> list[Outcome]:
    return [run(seed, replicas=replicas, steps=steps, cluster=cluster) for seed in seeds]


def _begin() -> None:
    """Prepare a process that runs seeds."""
    # Ctrl-C goes to all of a terminal's processes; the one that made this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "made by multiprocessing"
    parent.join()
    os._exit(1)
