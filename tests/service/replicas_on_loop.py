"""Replicas on the loop of a test, their stores, and steps of their disk that are held."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Store
from rmqstore.replication import Replica
from rmqstore.store.replica_view import ReplicaView
from tests.support.agreement import FILES
from tests.support.service_group import HERE, QUICK
from tests.support.waiting import POLL_S, WAIT_S

HELD_S = 10.0
"""Shorter than a step is held, longer than a loaded machine keeps a loop from running."""


def of(store: Store, broker_id: int, **options: Any) -> Replica:
    """Return a replica of *store*, not open yet, with intervals that are short."""
    options = {"listen": HERE, "options": QUICK} | options
    return Replica(store, broker_id=broker_id, **options)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """Yield a function that opens a store by name; all stores are closed at the end."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(rmqstore.open(tmp_path / name, **FILES))


@asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """Yield the times at which a task of the loop ran, every few milliseconds while the loop
    does."""
    beats = [time.monotonic()]

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(POLL_S)

    task = asyncio.create_task(beat())
    try:
        yield beats
    finally:
        task.cancel()
        beats.append(time.monotonic())
    longest = max(after - before for before, after in itertools.pairwise(beats))
    assert longest < HELD_S, f"the loop was held for {longest} s"


class Held:
    """A step of a replica's disk, named by a method of ReplicaView, that is held for one store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str, path: str | None = None) -> None:
        self._release = threading.Event()
        self._real = getattr(ReplicaView, step)
        self.path = path
        self.reached = 0
        monkeypatch.setattr(ReplicaView, step, lambda *given, **named: self._run(*given, **named))

    def _run(self, view: ReplicaView, *given: Any, **named: Any) -> Any:
        if view.path == self.path:
            self.reached += 1
            assert self._release.wait(WAIT_S)
        return self._real(view, *given, **named)

    def go_on(self) -> None:
        self._release.set()
