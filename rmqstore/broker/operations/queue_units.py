"""The units of queues, as an operator looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore.broker.operations.core import Core, ViewOf, refuse_negative
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.inspection import InspectionView, StoredUnit

__all__ = ["QueueUnitOperations", "QueueUnits"]

_UNITS_MAX = 10_000
_PART = 256
"""Units that are read at once."""


@dataclass(frozen=True, slots=True)
class QueueUnits:
    """A part of a queue."""

    start: int
    """The first offset of the queue."""
    end: int
    """The offset after its last message."""
    units: Sequence[StoredUnit]


class QueueUnitOperations:
    """Reads units of queues."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)

    async def read(self, topic: str, number: int, offset: int, count: int) -> QueueUnits:
        """Return at most *count* units of a queue from *offset* on, 10,000 at most. Raises
        RequestRefused for an unknown queue, and for an offset outside."""
        refuse_negative(number)
        store = self._core.store.store
        bounds = self._view().bounds(topic, number)
        if bounds is None:
            raise RequestRefused(f"{number}@{topic} is not exist!", code=ResponseCode.SYSTEM_ERROR)
        start, end = bounds
        if not start <= offset < max(end, start + 1):
            raise RequestRefused(
                f"Index {offset} of {number}@{topic} is not exist! The queue has {start} to {end}",
                code=ResponseCode.SYSTEM_ERROR,
            )
        view = InspectionView(store)

        def read() -> Sequence[StoredUnit]:
            found: list[StoredUnit] = []
            at, stop = offset, min(offset + max(min(count, _UNITS_MAX), 0), end)
            while at < stop:
                part = view.units(topic, number, at, count=min(_PART, stop - at))
                if not part:
                    break
                found += part
                at = part[-1].queue_offset + max(part[-1].message_count, 1)
            return found

        return QueueUnits(start, end, await self._core.runtime.in_thread(read))
