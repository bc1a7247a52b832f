"""Topics whose last change a fail-over could undo: their messages would be unreadable then.

A topic that is made, or gets more queues to read, is here until the file of this broker has the
change and no member of the sync-state set lacks it. A message to a queue that was there before the
change waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.store.metadata import TopicConfig

__all__ = ["Change", "Unkept"]


@dataclass(slots=True)
class Change:
    """The last change that added queues to a topic."""

    topic: str
    number: int
    """Its number in the log of changes."""
    safe_queues: int
    """Queues below this number were readable everywhere before the change."""
    is_saved: bool = False
    failure: str = ""
    """Why the file of this broker lacks the change; empty while no save has failed."""


class Unkept:
    """The changes of the topics of one master that are not yet kept, by topic."""

    def __init__(self) -> None:
        self._changes: dict[str, Change] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def changed(self, topic: TopicConfig, former: TopicConfig | None, number: int) -> None:
        """Record the change *number*, which made *topic* of the *former* one; None for a new
        topic."""
        safe = 0 if former is None else former.read_queue_count
        if former is not None and topic.read_queue_count <= safe:
            return
        known = self._changes.get(topic.name)
        if known is not None:
            safe = min(safe, known.safe_queues)
        self._changes[topic.name] = Change(topic.name, number, safe)

    def deleted(self, topic: str) -> None:
        """Record that a topic was deleted: none of its messages is to be read."""
        self._changes.pop(topic, None)

    def clear(self) -> None:
        """Forget all changes: every member of a new epoch joins with all topics."""
        self._changes.clear()

    def saved(self, number: int) -> None:
        """Record that the file has all changes up to *number*."""
        for each in self._changes.values():
            if each.number <= number:
                each.is_saved, each.failure = True, ""

    def not_saved(self, number: int, reason: str) -> None:
        """Record that the changes up to *number* could not be saved."""
        for each in self._changes.values():
            if each.number <= number and not each.is_saved:
                each.failure = reason

    def of(self, topic: str, queue: int) -> Change | None:
        """Return the change that a message of this queue depends on, None for none. *queue* is
        negative for one that the broker chooses."""
        change = self._changes.get(topic)
        if change is None or 0 <= queue < change.safe_queues:
            return None
        return change

    def settle(self, is_held: Callable[[int], bool]) -> None:
        """Drop the changes that are saved, and that no member lacks by *is_held* of their
        number."""
        kept = [each for each in self._changes.values() if each.is_saved and is_held(each.number)]
        for each in kept:
            del self._changes[each.topic]
