"""Numbered messages put by a thread, so that a replica group has something to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.errors import (
    InSyncReplicasNotEnough,
    PageCacheBusy,
    ReplicaTimeout,
    StoreError,
    StoreTimeout,
)
from rmqstore.message import Durability, Message
from rmqstore.store import Store

__all__ = ["MESSAGE", "Counts", "Traffic", "body_of"]

MESSAGE = "message %09d "
"""A body is this text with its number, again and again, up to its size."""

_BATCH = 64
_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class Counts:
    """What became of the messages so far."""

    acknowledged: int = 0
    late: int = 0
    """Stored, but not copied in time."""
    refused: int = 0
    """Puts that were refused and tried again."""


def body_of(number: int, *, size_bytes: int) -> bytes:
    """Return the body of message *number*."""
    text = (MESSAGE % number).encode()
    return (text * (size_bytes // len(text) + 1))[:size_bytes]


class Traffic:
    """Puts messages until there are *total*, or forever where that is 0."""

    def __init__(
        self,
        store: Store,
        *,
        total: int,
        size_bytes: int,
        topic: str,
        rate: int,
        durability: Durability,
        ready: Callable[[float], None],
    ) -> None:
        """*rate* is messages a second, 0 for no limit.

        *ready* is called with seconds to wait, again and again until it does not raise
        StoreTimeout, before the first put.
        """
        self.counts = Counts()
        self.failure: StoreError | None = None
        self._store = store
        self._total = total
        self._size_bytes = size_bytes
        self._topic = topic
        self._rate = rate
        self._durability = durability
        self._ready = ready
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rmqstore-traffic")
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be put."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ask the thread to end; a put that is waiting ends first."""
        self._stop.set()

    def join(self) -> None:
        """Return when the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._wait_ready()
            self._put_all()
        except StoreError as error:
            if not self._stop.is_set():
                self.failure = error

    def _wait_ready(self) -> None:
        while not self._stop.is_set():
            try:
                self._ready(_AGAIN_SECONDS)
            except StoreTimeout:
                continue
            return

    def _put_all(self) -> None:
        done, began = 0, time.monotonic()
        while not self._stop.is_set() and (not self._total or done < self._total):
            if self._rate:
                self._stop.wait(began + done / self._rate - time.monotonic())
            stop = min(done + self._batch(), self._total or done + _BATCH)
            done = self._put(done, stop)

    def _batch(self) -> int:
        return max(1, min(_BATCH, self._rate // 10)) if self._rate else _BATCH

    def _put(self, start: int, stop: int) -> int:
        """Puts the messages from *start* to *stop* and returns where to go on."""
        messages = (
            Message(
                self._topic,
                body_of(number, size_bytes=self._size_bytes),
                keys=(f"n{number}",),
            )
            for number in range(start, stop)
        )
        try:
            self._store.put_many(messages, durability=self._durability)
        except ReplicaTimeout:
            self.counts.late += stop - start
        except (InSyncReplicasNotEnough, PageCacheBusy):
            self.counts.refused += stop - start
            self._stop.wait(_AGAIN_SECONDS)
            return start
        else:
            self.counts.acknowledged += stop - start
        return stop
