"""Many seeds, shared among processes.

A run depends only on its arguments, so it is equal in any process. Outcomes are in the order of
their seeds, with any number of processes.
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

from rmqstore.sim import Hazards, Outcome, run

__all__ = ["Workers", "cores"]

_BLOCK = 5
"""Seeds that a process gets at a time: less than a second of work, so that it can end soon."""


def cores() -> int:
    """Return the number of processes that may run in parallel."""
    return len(os.sched_getaffinity(0))


class Workers:
    """Up to *jobs* processes that run seeds; with 1, this process runs them.

    Leaving the context ends them, after their present block of seeds. They also end when the parent
    process ends for any reason. They start as new interpreters, so a script that uses them needs
    `if __name__ == "__main__":`.
    """

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise ValueError(f"{jobs} processes cannot run seeds; give 1 or more")
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
        """End the processes. A second call does nothing."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(
        self,
        seeds: Iterable[int],
        *,
        replicas: int = 3,
        steps: int = 100,
        cluster: bool = False,
        hazards: Hazards | None = None,
    ) -> Iterator[Outcome]:
        """Yield the outcome of each of *seeds*, in order; *seeds* may be infinite. *hazards*
        replace those that each seed would draw.

        Seeds are taken a few blocks ahead of the yielded outcomes.
        """
        remaining = iter(seeds)
        if self._pool is None:
            for seed in remaining:
                yield run(seed, replicas=replicas, steps=steps, cluster=cluster, hazards=hazards)
            return

        ahead: deque[Future[list[Outcome]]] = deque()
        try:
            while True:
                while len(ahead) < 2 * self._jobs and (block := list(islice(remaining, _BLOCK))):
                    ahead.append(self._pool.submit(_run, block, replicas, steps, cluster, hazards))
                if not ahead:
                    return
                yield from ahead.popleft().result()
        finally:
            for each in ahead:
                each.cancel()


def _run(
    seeds: list[int], replicas: int, steps: int, cluster: bool, hazards: Hazards | None
) -> list[Outcome]:
    return [
        run(seed, replicas=replicas, steps=steps, cluster=cluster, hazards=hazards)
        for seed in seeds
    ]


def _begin() -> None:
    """Prepare a process that runs seeds."""
    # Ctrl-C goes to all processes of a terminal; the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "made by multiprocessing"
    parent.join()
    os._exit(1)
