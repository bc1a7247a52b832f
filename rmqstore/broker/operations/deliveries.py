"""Copies of messages that waited for their time, appended where they belong."""

from __future__ import annotations

from typing import Protocol

from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.records import StoredMessage, appended, copied
from rmqstore.errors import MessageRejected

__all__ = ["Deliverer", "WaitingMessage"]


class WaitingMessage(StoredMessage, Protocol):
    """A message that waits for its time."""

    @property
    def properties(self) -> dict[str, str]:
        """All properties."""

    @property
    def unique_key(self) -> str | None:
        """Its unique key."""

    @property
    def queue_offset(self) -> int:
        """Its place in the queue where it waits."""

    @property
    def store_timestamp(self) -> int:
        """When it was stored."""

    @property
    def reconsume_times(self) -> int:
        """How often consuming it failed."""


class Deliverer:
    """Appends deliveries, which are not awaited: the caller counts them when they are safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)

    async def deliver(
        self,
        record: WaitingMessage,
        topic: str,
        queue: int,
        properties: dict[str, str],
        *,
        origin: tuple[str, str],
    ) -> int:
        """Append the copy of a message, with *origin* as a property; return its end in the log."""
        name, value = origin
        properties[name] = value
        try:
            return await self._append(record, topic, queue, properties)
        except MessageRejected:
            # The properties have no room for the origin; without it a crash may deliver twice.
            del properties[name]
            return await self._append(record, topic, queue, properties)

    async def _append(
        self, record: WaitingMessage, topic: str, queue: int, properties: dict[str, str]
    ) -> int:
        times = record.reconsume_times
        put = copied(self._view(), record, topic, queue, properties, reconsume_times=times)
        return (await appended(self._core, put)).end_offset
