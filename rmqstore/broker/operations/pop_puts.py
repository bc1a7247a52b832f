"""Check points and acknowledgements of POP as a broker appends them: as timer messages of the
revive topic."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from rmqstore._native.core import Receipt
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.records import packed_host, property_text
from rmqstore.broker.operations.timer_rules import DELIVER_MS, UNIQUE_KEY
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.pop_records import PopAck, PopCheckPoint
from rmqstore.message import Durability
from rmqstore.store.delay import REAL_TOPIC
from rmqstore.topic_names import revive_topic

__all__ = ["PopPuts"]


class PopPuts:
    """Appends the records of POP."""

    def __init__(self, core: Core, waiting: WaitingPlaces) -> None:
        self._core = core
        self._view = ViewOf(core)
        self._waiting = waiting
        self._topic = revive_topic(core.config.cluster_name)

    @property
    def queue_count(self) -> int:
        """The number of revive queues that records may be in."""
        known = self._core.metadata.topic(self._topic)
        own = self._core.config.revive_queue_count
        return own if known is None else max(known.write_queue_count, own)

    def put(
        self,
        record: PopCheckPoint | PopAck,
        queue: int,
        due_ms: int,
        durability: Durability | None = None,
    ) -> Receipt | Coroutine[Any, Any, Receipt]:
        """Append a record, which comes into a revive queue at its time; return its receipt, or a
        coroutine that returns it once the record is as durable as asked.

        Raises RequestRefused for a time that is too far ahead, and PutError.
        """
        # In RocketMQ's order.
        properties = {
            REAL_TOPIC: self._topic,
            DELIVER_MS: str(due_ms),
            UNIQUE_KEY: record.unique_key,
            "TAGS": record.tag,
        }
        place = self._waiting.place_of(self._topic, queue, properties)
        if place is None:
            del properties[REAL_TOPIC]
            place = self._topic, queue
        store = self._core.store.store.config
        put = partial(
            self._view().put,
            place[0],
            record.encode(),
            property_text(properties),
            queue=place[1],
            flag=0,
            sys_flag=0,
            born_timestamp=self._core.runtime.wall_ms(),
            born_host=packed_host((store.store_host_address, store.store_host_port)),
            reconsume_times=0,
        )
        return self._core.store.append(put, durability)
