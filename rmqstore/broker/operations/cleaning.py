"""The removal of files that are not needed any more, at the request of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore.broker.metadata.topics import is_system
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.store.inspection import InspectionView
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["CleaningOperations", "UnknownTopics"]


@dataclass(frozen=True, slots=True)
class UnknownTopics:
    """The topics that have queues, and no settings."""

    removed: Sequence[str]
    """Those without messages."""
    kept: Sequence[str]
    """Those with messages."""


class CleaningOperations:
    """Removes expired files of the log, and the queues of unknown topics."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)

    async def remove_expired(self) -> int:
        """Remove the log files that are older than fileReservedTime, at any hour, with the files of
        queues and index that point into them; return the number of log files."""
        decision = await self._core.runtime.in_thread(self._core.store.store.clean)
        self._core.log.info("%d expired log files are removed by a request", len(decision.delete))
        return len(decision.delete)

    async def remove_unknown(self) -> UnknownTopics:
        """Remove the queues of unknown topics that have no message, here and at the slaves.

        Unknown topics with messages stay: a topic can be missing although its messages count.
        """
        store, metadata = self._core.store.store, self._core.metadata
        names = await self._core.runtime.in_thread(InspectionView(store).queue_names)
        counts: dict[str, int] = {}
        for topic, number in names:
            if not (metadata.topic(topic) or is_system(topic) or topic.startswith(LIGHT_PREFIX)):
                # Messages count that consumers do not see yet.
                next_offset = self._view().next_offset(topic, number)
                count = next_offset - store.queue(topic, number).start
                counts[topic] = counts.get(topic, 0) + count

        removed = []
        for topic in sorted(topic for topic, count in counts.items() if count == 0):
            if metadata.topic(topic) is None:  # It may have been made meanwhile.
                await metadata.delete_topic(topic)
                removed.append(topic)
        self._core.log.info(
            "queues of unknown topics are removed: %s", ", ".join(removed) or "none"
        )
        return UnknownTopics(removed, sorted(topic for topic, count in counts.items() if count))
