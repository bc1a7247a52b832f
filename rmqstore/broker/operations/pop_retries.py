"""Messages that were popped and not acknowledged, appended to be popped again."""

from __future__ import annotations

from collections.abc import Coroutine

from rmqstore._native.core import Receipt
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.deliveries import WaitingMessage
from rmqstore.broker.operations.message_rules import DELAY_ORIGIN
from rmqstore.broker.operations.pop_puts import PopPuts
from rmqstore.broker.operations.records import appended, copied
from rmqstore.broker.operations.timer_rules import TIMER_ORIGIN
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.pop_records import PopCheckPoint
from rmqstore.broker.pop_revive import put_again
from rmqstore.errors import MessageRejected, PutError
from rmqstore.message import Durability, PutStatus
from rmqstore.permissions import PERM_READ_WRITE
from rmqstore.store.metadata import TopicConfig
from rmqstore.topic_names import RetryKind, pop_retry_topic, popped_from, retry_kind

__all__ = ["PopRetries"]

_FIRST_POP, _ORIGIN_GROUP = "1ST_POP_TIME", "ORIGIN_GROUP"


class PopRetries:
    """Appends revived messages, which are not awaited: the caller counts them when safe."""

    def __init__(self, core: Core, waiting: WaitingPlaces) -> None:
        self._core = core
        self._view = ViewOf(core)
        self._puts = PopPuts(core, waiting)

    @property
    def queue_count(self) -> int:
        """The number of revive queues."""
        return self._puts.queue_count

    async def topic_of(self, point: PopCheckPoint) -> str | None:
        """Return the topic that messages of a check point come again in, which members have too;
        None where no consumer can pop them: their topic or group is deleted.

        Raises RequestRefused for a topic that cannot be made, PutError for one that a fail-over may
        lose.
        """
        metadata, group = self._core.metadata, point.group
        origin = point.topic
        if retry_kind(point.topic) is not RetryKind.NONE:
            parsed = next(popped_from(point.topic, lambda name: name == group), None)
            origin = point.topic if parsed is None else parsed[1]
        if metadata.topic(origin) is None or await metadata.group_for(group) is None:
            return None
        name = point.topic
        if retry_kind(name) is RetryKind.NONE:
            kind = RetryKind.V2 if self._core.config.pop_retries_v2 else RetryKind.V1
            name = pop_retry_topic(name, group, kind)

        if metadata.topic(name) is None:
            await metadata.change_topic(TopicConfig(name, 1, 1, PERM_READ_WRITE))
            if metadata.offsets.query(name, group, 0) is None:
                metadata.offsets.commit(name, group, 0, 0)
        wait = metadata.wait_of(name, 0)
        if wait is not None:
            status, reason = await metadata.kept(wait, with_members=True)
            if status is not PutStatus.PUT_OK:
                raise PutError(f"a fail-over may lose the topic {name}: {reason}", status=status)
        return name

    async def deliver(self, point: PopCheckPoint, record: WaitingMessage, topic: str) -> int:
        """Append a message of a check point to *topic*; return its end in the log. Raises
        MessageRejected for a message that does not fit there, and PutError."""
        properties = record.properties
        for name in (DELAY_ORIGIN, TIMER_ORIGIN):
            properties.pop(name, None)
        times = record.reconsume_times
        if times == 0 or _FIRST_POP not in properties:
            properties[_FIRST_POP] = str(point.pop_time_ms)
        named = {**properties, _ORIGIN_GROUP: point.group}
        times += not point.is_suspended
        for each in (named, properties, record.properties):
            put = copied(self._view(), record, topic, 0, each, reconsume_times=times)
            try:
                return (await appended(self._core, put)).end_offset
            except MessageRejected as error:
                # Without what the broker adds it is no longer than it was.
                rejected = error
        raise rejected

    async def put_again(self, point: PopCheckPoint, offset: int, revive_queue: int) -> int:
        """Append a check point of one message, which is looked at again later; return its end in
        the log. Raises PutError."""
        again = put_again(point, offset, self._core.runtime.wall_ms())
        try:
            found = self._puts.put(again, revive_queue, again.due_ms, Durability.MEMORY)
            receipt = await found if isinstance(found, Coroutine) else found
        except PutError as error:
            if not isinstance(error.receipt, Receipt):
                raise
            receipt = error.receipt
        return receipt.end_offset
