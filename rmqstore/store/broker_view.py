"""The inner interface of a store for a broker."""

from __future__ import annotations

from rmqstore.store.metadata import TopicConfig
from rmqstore.store.store import Store

__all__ = ["BrokerView"]


class BrokerView:
    """A store as a broker calls it, which keeps the topics itself."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def declare(self, topic: TopicConfig) -> None:
        """Make the queues of a topic for inner batches, before anything is put to them; other
        topics need nothing. Raises UnsupportedStoreError for too many queues."""
        self._store._declare(topic)
