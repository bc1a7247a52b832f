"""The contents of all messages of a world.

A record of a model log holds the number of its message and the number of its queue. What they stand
for never changes, so it is kept once for all replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Content", "Contents"]


@dataclass(frozen=True, slots=True)
class Content:
    """A message as its client sent it, with the properties that the broker added."""

    topic: str
    queue: int
    body: bytes
    properties: Mapping[str, str]
    reconsume_times: int = 0
    sys_flag: int = 0
    prepared_transaction_offset: int = 0

    @property
    def key(self) -> str:
        """The unique key, which records of a broker's own do not have."""
        return self.properties.get("UNIQ_KEY", "")

    @property
    def words(self) -> tuple[str, ...]:
        """The keys by which the message is found."""
        return self.key, *self.properties.get("KEYS", "").split()


class Contents:
    """The contents by the number of the message, and the numbers of queues."""

    def __init__(self) -> None:
        self._contents: dict[int, Content] = {}
        self._queues: dict[tuple[str, int], int] = {}
        self._names: list[tuple[str, int]] = []

    def add(self, number: int, content: Content) -> None:
        """Record that *number* is the message *content*."""
        self._contents[number] = content

    def of(self, number: int) -> Content:
        """Return the message *number*."""
        return self._contents[number]

    def queue_number(self, topic: str, queue: int) -> int:
        """Return the number of a queue of a topic, a new one for a new queue."""
        found = self._queues.get((topic, queue))
        if found is None:
            found = self._queues[topic, queue] = len(self._names)
            self._names.append((topic, queue))
        return found

    def queue_named(self, number: int) -> tuple[str, int]:
        """Return topic and queue of a number."""
        return self._names[number]
