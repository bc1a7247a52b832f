"""The store of a simulated broker: the handlers' interface over the model of a log."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rmqstore.errors import PutError
from rmqstore.message import Durability, GetStatus, PutStatus, decode_properties
from rmqstore.sim.coroutines import Pause, Resume
from rmqstore.sim.replica import Replica
from rmqstore.sim.witness import Put

__all__ = ["BrokerStore", "Sends", "records_in"]

_RECORD = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class _Receipt:
    """The place and the size of a stored message, for answers and statistics."""

    topic: str
    size: int
    message_id: str
    queue: int
    queue_offset: int


def records_in(body: bytes) -> list[tuple[int, int]]:
    """Return queue offset and put number of each record that a pull returned."""
    return list(_RECORD.iter_unpack(body))


class Sends(Protocol):
    """Takes the messages that clients send."""

    def new_put(self, *, key: str, queue: int, size: int) -> Put:
        """Return the put of a message, with a new number."""


class BrokerStore:
    """The store of the broker of *replica*."""

    def __init__(self, replica: Replica, sends: Sends) -> None:
        self._replica = replica
        self._sends = sends
        self._topics: dict[int, str] = {}
        """The topics of puts that are about to be appended, by number."""
        self._waiting: dict[int, Resume] = {}
        # Not called by the handlers of a simulated broker.
        self._put_encoded_batch = self._takes_batches = self._next_offset = None
        self._known_bounds: tuple[tuple[int, int], dict[int, tuple[int, int]]] | None = None
        self._offset_by_time = self._get_one = self._record_at = self._query = None

    @property
    def store(self) -> BrokerStore:
        """The store behind the handlers' view."""
        return self

    @property
    def start_offset(self) -> int:
        """Start of the log."""
        return self._replica.log.start_offset

    @property
    def end_offset(self) -> int:
        """End of the log."""
        return self._replica.log.end_offset

    def answered(self, put: Put) -> None:
        """Continue the request that made *put*."""
        resume = self._waiting.pop(put.number, None)
        if resume is not None:
            resume(put.status)

    def forget(self) -> None:
        """Drop the requests of a process that has ended."""
        self._waiting.clear()

    async def append(self, put: Callable[[], Put], durability: Durability | None) -> Any:
        """Store a message; return its offsets once it is acknowledged. Raises PutError."""
        one = put()
        topic = self._topics.pop(one.number)
        one.durability = durability or Durability.REPLICATED

        def begin(resume: Resume) -> None:
            self._waiting[one.number] = resume
            self._replica.put([one])

        status = await Pause(begin)
        record = one.record
        receipt = None
        if record is not None:
            key = f"{one.number:032X}"
            receipt = _Receipt(topic, one.size, key, one.queue, record.queue_offset)
        if status is PutStatus.PUT_OK:
            return receipt
        raise PutError(f"not acknowledged: {status}", status=str(status), receipt=receipt)

    def _put_encoded(
        self, topic: str, body: bytes, text: bytes, *, queue: int, **envelope: Any
    ) -> Put:
        key = decode_properties(text.decode())["UNIQ_KEY"]
        put = self._sends.new_put(key=key, queue=queue, size=len(body))
        self._topics[put.number] = topic
        return put

    def _get_raw(
        self, topic: str, queue: int, offset: int, messages_max: int, *limits: Any
    ) -> tuple[GetStatus, int, int, int, int, bytes]:
        log = self._replica.log
        records = [
            (each.queue_offset, each.number)
            for each in log.records(log.start_offset, self._replica.visible_end)
            if each.queue == queue
        ]
        if not records:
            return GetStatus.OFFSET_FOUND_NULL, offset, offset, offset, 0, b""
        low, high = records[0][0], records[-1][0] + 1
        if offset < low:
            return GetStatus.OFFSET_TOO_SMALL, low, low, high, 0, b""
        if offset >= high:
            is_next = offset == high
            status = GetStatus.OFFSET_OVERFLOW_ONE if is_next else GetStatus.OFFSET_OVERFLOW_BADLY
            return status, high, low, high, 0, b""
        found = records[offset - low : offset - low + messages_max]
        body = b"".join(_RECORD.pack(*each) for each in found)
        return GetStatus.FOUND, offset + len(found), low, high, len(found), body

    def _bounds(self, topic: str, queue: int) -> tuple[int, int] | None:
        """Return the first offset that readers see of a queue, and the one after the last."""
        log = self._replica.log
        seen = log.start_offset, self._replica.visible_end
        if self._known_bounds is None or self._known_bounds[0] != seen:
            bounds: dict[int, tuple[int, int]] = {}
            for each in log.records(*seen):
                low, _ = bounds.get(each.queue, (each.queue_offset, 0))
                bounds[each.queue] = low, each.queue_offset + 1
            self._known_bounds = seen, bounds
        return self._known_bounds[1].get(queue)

    def _units(self, topic: str, queue: int, offset: int, count: int) -> list[Any]:
        raise AssertionError("the model of a log is in memory")
