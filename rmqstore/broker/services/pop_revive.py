"""The service that has popped messages come again, while the broker leads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.deliveries import WaitingMessage
from rmqstore.broker.operations.pop_retries import PopRetries
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.pop_records import ACK_TAG, BATCH_TAG, CHECK_POINT_TAG, PopAck, PopCheckPoint
from rmqstore.broker.pop_revive import Revival, ReviveQueue
from rmqstore.broker.services.service import Service
from rmqstore.broker.services.settling import is_closing, settled
from rmqstore.broker.services.timers import TimerMessages
from rmqstore.errors import (
    CorruptionError,
    MessageRejected,
    RemotingFrameError,
    RequestRefused,
    StoreError,
)
from rmqstore.net.metrics import Family, counter, gauge
from rmqstore.topic_names import REVIVE_GROUP, revive_topic

__all__ = ["PoppedMessages"]

_LOOK_MS = 200
"""Pause between looks at the revive queues."""
_UNCOUNTED_LOOK_MS = 50
_AGAIN_MS = 100
"""Pause after a failure."""
_READ_AT_ONCE = 512
_AT_ONCE = 64
"""Records and deliveries of one turn of the loop."""
_ENTRIES_MAX = 20_000
"""Records of a queue that are not passed, and wait for nothing but the disk and members; further
ones are not read until some are passed."""
_DISPATCH_S, _DISPATCH_LOOKS = 0.01, 50
_DELIVER_MS = "TIMER_DELIVER_MS"

_Read = tuple[PopCheckPoint | PopAck, int]
"""A record of a revive queue, and when it was due."""


class PoppedMessages(Service):
    """Reads the check points and acknowledgements of the revive topic, and puts messages that are
    not acknowledged in time into a retry topic of their group.

    A delivery is not awaited: `ReviveQueue` passes it when it is safe. An error holds up all
    queues, and is reported once.
    """

    name = "popped messages"
    standings = frozenset({Standing.LEADING})

    def __init__(self, core: Core, timers: TimerMessages, waiting: WaitingPlaces) -> None:
        self._core = core
        self._timers = timers
        self._view = ViewOf(core)
        self._retries = PopRetries(core, waiting)
        self._topic = revive_topic(core.config.cluster_name)
        self._tasks = core.runtime.tasks(self.name)
        self._queues: dict[int, ReviveQueue] = {}
        self._role: Role | None = None
        self._trouble = ""
        self._revived = self._again = self._skipped = 0

    def term(self, role: Role) -> Hashable:
        return role.epoch

    async def start(self, role: Role) -> None:
        self._role = role
        if self._core.config.timers:
            self._tasks.start(self._run(), name=self.name)

    async def stop(self) -> None:
        if is_closing(self._core, self._role):
            # What is not passed would come again.
            await settled(self._core, self._unsettled)
        await self._tasks.close()
        self._queues.clear()
        self._trouble = ""

    def _unsettled(self) -> ReviveQueue | None:
        return next((each for each in self._queues.values() if not each.is_settled), None)

    def metrics(self) -> Iterable[Family]:
        behind = {
            queue: max(self._view().next_offset(self._topic, queue) - found.passed - 1, 0)
            for queue, found in self._queues.items()
        }
        yield gauge(
            "rmqstore_revive_records",
            "check points and acknowledgements of popped messages that came, and are not done with",
            [({"queue": str(queue)}, count) for queue, count in behind.items()],
        )
        yield counter(
            "rmqstore_revived_messages_total",
            "popped messages that were not acknowledged in time, and can be popped again",
            [({}, self._revived)],
        )
        yield counter(
            "rmqstore_postponed_revivals_total",
            "check points of one message that were put again, because it could not be delivered",
            [({}, self._again)],
        )
        yield counter(
            "rmqstore_skipped_revive_records_total",
            "records among check points and acknowledgements that cannot be read",
            [({}, self._skipped)],
        )

    # ---- the beginning

    async def _run(self) -> None:
        runtime, store = self._core.runtime, self._core.store.store
        end = store.end_offset
        while store.dispatched_offset < end:
            await runtime.sleep(_DISPATCH_S)
        while True:
            pause_ms = await self._round()
            await runtime.sleep(pause_ms / 1000)

    def _begun(self, queue: int) -> ReviveQueue:
        """Returns a queue as its progress shows it."""
        offsets, place = self._core.metadata.offsets, (self._topic, REVIVE_GROUP, queue)
        passed = offsets.query(*place)
        start, _ = self._view().bounds(self._topic, queue) or (0, 0)
        end = max(self._view().next_offset(self._topic, queue), start)
        offset = 0 if passed is None else passed + 1
        found = ReviveQueue(min(max(offset, start), end), broker_name=self._core.config.name)
        if passed is not None and passed > found.passed:
            # New records get these offsets.
            self._core.log.warning(
                "revive queue %d ends at offset %d, before progress that counts", queue, end
            )
            offsets.commit(*place, found.passed)
        return found

    # ---- rounds

    async def _round(self) -> int:
        """Delivers what is due; returns the time in ms until the next round."""
        if not self._core.is_leading:
            return _AGAIN_MS
        try:
            time_ms = await self._timer_ms()
            for queue in range(self._retries.queue_count):
                if queue not in self._queues:
                    self._queues[queue] = self._begun(queue)
                await self._look_at(queue, self._queues[queue], time_ms)
            self._trouble = ""
        except (StoreError, OSError) as error:
            self._report(str(error))
            return _AGAIN_MS
        return _LOOK_MS if self._unsettled() is None else _UNCOUNTED_LOOK_MS

    async def _timer_ms(self) -> int | None:
        """Returns a time; all timer messages that were due before it are in their queues. None
        where that is not known."""
        store, time_ms = self._core.store.store, self._timers.read_ms
        end = store.end_offset
        for _ in range(_DISPATCH_LOOKS):
            if store.dispatched_offset >= end:
                return time_ms
            await self._core.runtime.sleep(_DISPATCH_S)
        return None

    async def _look_at(self, queue: int, found: ReviveQueue, time_ms: int | None) -> None:
        """Reads a queue to its end, and delivers what is due."""
        start, _ = self._view().bounds(self._topic, queue) or (0, 0)
        # Retention has deleted what stands still for days.
        found.skip_to(start)
        while units := self._view().units(self._topic, queue, found.offset, _READ_AT_ONCE):
            offsets = [each[0] for each in units]
            records = await self._core.runtime.in_thread(self._read, queue, offsets)
            for number, record in enumerate(records):
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await self._core.runtime.sleep(0)
                if record is None:
                    self._skipped += 1
                    found.skip()
                else:
                    found.take(*record, limit_ms=self._timers.read_ms)
            await self._deliver(queue, found)
            if found.is_full(_ENTRIES_MAX):
                return
        if time_ms is not None:
            found.read_to_end(time_ms)
        await self._deliver(queue, found)

    def _read(self, queue: int, offsets: Sequence[int]) -> list[_Read | None]:
        return [self._record(queue, offset) for offset in offsets]

    def _record(self, queue: int, offset: int) -> _Read | None:
        try:
            record = self._view().record_in(self._topic, queue, offset)
            if record is None or record.tags not in (CHECK_POINT_TAG, ACK_TAG, BATCH_TAG):
                raise RemotingFrameError("it is neither a check point nor an acknowledgement")
            kind = PopCheckPoint if record.tags == CHECK_POINT_TAG else PopAck
            due_text = record.properties.get(_DELIVER_MS, "")
            due_ms = int(due_text) if due_text.isdecimal() and len(due_text) < 16 else 0
            return kind.decode(record.body), due_ms
        except (CorruptionError, RemotingFrameError) as error:
            self._core.log.error(
                "record %d of revive queue %d is skipped: %s", offset, queue, error
            )
            return None

    # ---- deliveries

    async def _deliver(self, queue: int, found: ReviveQueue) -> None:
        """Delivers the messages of check points that are due, and passes those that are safe."""
        while due := found.due(_AT_ONCE):
            # Check points of messages that are all acknowledged wait for nothing.
            records: Any = []
            if any(each.offsets for each in due):
                records = await self._core.runtime.in_thread(self._messages, due)
            for number, revival in enumerate(due):
                end_offset = 0
                if revival.offsets:
                    end_offset = await self._revive(queue, revival, records[number])
                found.done(end_offset)
            await self._core.runtime.sleep(0)

        store = self._core.store.store
        if found.settle(min(store.flushed_offset, store.confirm_offset)):
            self._core.metadata.offsets.commit(self._topic, REVIVE_GROUP, queue, found.passed)

    def _messages(self, due: Sequence[Revival]) -> list[list[WaitingMessage | None]]:
        return [[self._message(point, each) for each in offsets] for _, point, offsets in due]

    def _message(self, point: PopCheckPoint, offset: int) -> WaitingMessage | None:
        if not self._is_here(point):
            return None
        try:
            record: WaitingMessage | None = self._view().record_in(point.topic, point.queue, offset)
        except CorruptionError as error:
            self._core.log.error(
                "popped message %d of queue %d of %s is lost: %s",
                offset,
                point.queue,
                point.topic,
                error,
            )
            return None
        return record

    def _is_here(self, point: PopCheckPoint) -> bool:
        return point.broker_name in (None, "", self._core.config.name)

    async def _revive(
        self, queue: int, revival: Revival, records: Sequence[WaitingMessage | None]
    ) -> int:
        """Appends the messages of a check point that come again; returns where the last one ends in
        the log. Errors are waited for, so that no message is appended twice."""
        point, end_offset = revival.point, 0
        is_here = self._is_here(point)
        topic = await self._topic_for(point) if is_here else ""
        if topic is None:
            return 0
        for offset, record in zip(revival.offsets, records, strict=True):
            # Retention has deleted a message of this broker that is not there.
            if record is not None or not is_here:
                end_offset = await self._put(queue, point, offset, record, topic)
        return end_offset

    async def _topic_for(self, point: PopCheckPoint) -> str | None:
        while True:
            try:
                return await self._retries.topic_of(point)
            except (RequestRefused, StoreError) as error:
                self._report(str(error))
                await self._core.runtime.sleep(_AGAIN_MS / 1000)

    async def _put(
        self,
        queue: int,
        point: PopCheckPoint,
        offset: int,
        record: WaitingMessage | None,
        topic: str,
    ) -> int:
        while True:
            try:
                if record is None:
                    end_offset = await self._retries.put_again(point, offset, queue)
                    self._again += 1
                else:
                    end_offset = await self._retries.deliver(point, record, topic)
                    self._revived += 1
            except MessageRejected as error:
                self._core.log.error(
                    "popped message %d of queue %d of %s cannot be stored in %s, and is tried "
                    "again later: %s",
                    offset,
                    point.queue,
                    point.topic,
                    topic,
                    error,
                )
                if record is None:
                    raise
                record = None
            except (RequestRefused, StoreError) as error:
                self._report(str(error))
                await self._core.runtime.sleep(_AGAIN_MS / 1000)
            else:
                self._trouble = ""
                return end_offset

    def _report(self, text: str) -> None:
        if self._trouble != text:
            self._trouble = text
            self._core.log.error("popped messages stand still: %s; it is tried again", text)
