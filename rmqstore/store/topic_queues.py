"""The queues of topics for inner batches, for a broker, which keeps the topics itself."""

from __future__ import annotations

from rmqstore.store.metadata import TopicConfig
from rmqstore.store.store import Store

__all__ = ["declare_queues"]


def declare_queues(store: Store, topic: TopicConfig) -> None:
    """Make the queues of a topic for inner batches, before anything is put to them; other topics
    need nothing. Raises UnsupportedStoreError for too many queues."""
    store._declare(topic)
