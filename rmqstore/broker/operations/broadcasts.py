"""Pulls of consumers that broadcast: what each of them has read, and where it goes on."""

from __future__ import annotations

from rmqstore.broker.broadcast_offsets import BroadcastOffsets, Reader, name_of_progress
from rmqstore.broker.clients import ClientTable
from rmqstore.broker.operations.core import Core, ViewOf

__all__ = ["Broadcasts"]


class Broadcasts:
    """The progress of the consumers in *clients* that broadcast."""

    def __init__(self, core: Core, clients: ClientTable) -> None:
        self._core = core
        self._clients = clients
        self._view = ViewOf(core)
        config = core.config
        self._offsets = BroadcastOffsets(
            offline_ms=config.broadcast_offline_s * 1000, online_ms=config.broadcast_online_s * 1000
        )

    def begun(self, reader: Reader, queue: int, offset: int) -> int | None:
        """Record that a consumer pulls from *offset*: it has everything before. Return where it
        goes on instead if it has no offset of its own, None otherwise."""
        moved = self._moved(reader, queue) if self._offsets.needs_offset(reader, offset) else offset
        self._offsets.pulled(reader, queue, moved, now_ms=self._core.now_ms())
        return None if moved == offset else moved

    def _moved(self, reader: Reader, queue: int) -> int:
        found = self._offsets.offset(reader, queue)
        if found is None:
            name = name_of_progress(reader.group)
            found = self._core.metadata.offsets.query(reader.topic, name, queue)
        if found is None:
            low, high = self._view().bounds(reader.topic, queue) or (0, 0)
            found = 0 if low == 0 else high
        return found

    def commit(self) -> None:
        """Commit the lowest progress of the clients of each group."""
        offsets = self._core.metadata.offsets
        lowest = self._offsets.lowest(self._clients.has_consumer, now_ms=self._core.now_ms())
        for topic, group, queues in lowest:
            if self._core.metadata.group(group) is None or self._core.metadata.topic(topic) is None:
                continue
            name = name_of_progress(group)
            for queue, offset in queues.items():
                if offsets.query(topic, name, queue) != offset:
                    offsets.commit(topic, name, queue, offset)
