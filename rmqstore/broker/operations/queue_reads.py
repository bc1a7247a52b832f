"""Reads of queues for consumers: which messages are looked at in one turn of the loop, and which
are taken to be on the disk alone."""

from __future__ import annotations

import time

from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.filters import Filter
from rmqstore.broker.operations.memory import bytes_in_memory
from rmqstore.message import GetStatus

__all__ = ["BYTES_MAX", "TURNS_MAX", "Found", "QueueReads", "goes_on"]

BYTES_MAX = 256 * 1024
"""Bytes of the messages of one answer, which has one message at least."""
TURNS_MAX = 16
"""Turns of a read that finds nothing; then its consumer goes on with another request."""
_LOOKED_MAX = 256
"""Messages that a filter by properties looks at in one turn of the loop."""
_COST_MAX = 2048
"""Messages times operators of the filter in one turn."""

Found = tuple[GetStatus, int, int, int, int, bytes]
"""Status, next offset, first offset and end of the queue, messages, and their records back to
back."""


class QueueReads:
    """Reads the queues of a broker's store."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)
        self._bytes_in_memory = bytes_in_memory()

    def get(
        self,
        topic: str,
        queue: int,
        offset: int,
        messages_max: int,
        bytes_max: int,
        wanted: Filter,
    ) -> Found:
        """Read the messages that a filter selects. Raises StoreError."""
        began = time.perf_counter()
        selector, view = wanted.selector, self._view()
        where = topic, queue, offset, messages_max, bytes_max
        found: Found
        if selector is None:
            found = view.get(*where, wanted.tags, True)
        else:
            looked_max = max(min(_LOOKED_MAX, _COST_MAX // selector.cost), 1)
            found = view.select(*where, looked_max, selector.names, selector.selects, True)
        self._core.traffic.read_took(time.perf_counter() - began)
        return found

    def is_far_behind(self, topic: str, queue: int, offset: int) -> bool:
        """Whether the message at an offset is taken to be on the disk alone."""
        limit = self._bytes_in_memory
        store = self._core.store.store
        if store.end_offset - max(store.start_offset, 0) <= limit or offset < 0:
            return False
        units = self._view().units(topic, queue, offset, 1)
        return bool(units) and 0 <= units[0][1] < store.end_offset - limit

    def is_whole_and_recent(self, topic: str, queue: int) -> bool:
        """Whether a queue has its first message, or none yet, and all of it is taken to be in
        memory: a group without an offset then begins at 0."""
        found = self._core.store.store.queue(topic, queue)
        return found.start <= 0 and (found.end == 0 or not self.is_far_behind(topic, queue, 0))


def goes_on(wanted: Filter, status: GetStatus, next_offset: int, end: int) -> bool:
    """Return whether a filter by properties has not looked at all messages, and selected none."""
    return (
        wanted.selector is not None and status is GetStatus.NO_MATCHED_MESSAGE and next_offset < end
    )
