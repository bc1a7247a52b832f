"""The queues that pops read: one pop of a group at a time, from its read until what it hands out is
remembered."""

from __future__ import annotations

__all__ = ["PopLocks"]

_Key = tuple[str, str, int]
"""Topic, group and number of a queue."""


class PopLocks:
    """The locks of all queues and groups of a broker."""

    def __init__(self) -> None:
        self._held: dict[_Key, bool] = {}
        """Whether another pop was turned away."""
        self.releases = 0
        """Locks that were released after another pop was turned away."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, topic: str, group: str, queue: int) -> bool:
        """Lock a queue for a pop of a group; return False where another pop has it."""
        key = topic, group, queue
        if key in self._held:
            self._held[key] = True
            return False
        self._held[key] = False
        return True

    def release(self, topic: str, group: str, queue: int) -> bool:
        """Release a lock; return whether another pop was turned away meanwhile."""
        is_wanted = self._held.pop((topic, group, queue))
        self.releases += is_wanted
        return is_wanted
