"""The service that delivers delayed messages at their time, while the broker leads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from rmqstore.broker.delays import Deliveries, Level, Origin, Unit, made_since
from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.deliveries import Deliverer, WaitingMessage
from rmqstore.broker.operations.message_rules import DELAY_ORIGIN
from rmqstore.broker.operations.records import queue_named
from rmqstore.broker.services.service import Service
from rmqstore.broker.services.settling import is_closing, settled
from rmqstore.errors import CorruptionError, StoreError
from rmqstore.net.metrics import Family, counter, gauge
from rmqstore.store.delay import REAL_QUEUE, REAL_TOPIC
from rmqstore.store.metadata import DelayOffsets
from rmqstore.topic_names import SCHEDULE_TOPIC

__all__ = ["DelayedMessages"]

_LOOK_MS = 500
"""Longest pause: the shortest level is one second, so no message is seen too late."""
_AGAIN_MS = 100
"""Pause after a failure, as RocketMQ's."""
_UNCOUNTED_LOOK_MS = 50
_BATCH = 64
_DISPATCH_S = 0.01
_LATENESS_MS = 10_000
"""How much later than due a message may have been delivered, where the log has lost its end."""


class DelayedMessages(Service):
    """Copies each message of SCHEDULE_TOPIC_XXXX to its topic once its level's time is over.

    A copy is not awaited: `Deliveries` counts it when it is safe. An error holds up its level
    alone, and is reported once.
    """

    name = "delayed messages"
    standings = frozenset({Standing.LEADING})

    def __init__(self, core: Core) -> None:
        self._core = core
        self.progress = DelayProgress(lambda: core.store.store.flushed_offset)
        """How far deliveries have come, those of timer messages included."""
        self._view = ViewOf(core)
        self._deliverer = Deliverer(core)
        self._tasks = core.runtime.tasks(self.name)
        self._deliveries: Deliveries | None = None
        self._delivered = 0
        self._role: Role | None = None
        self._trouble: dict[int, str] = {}
        """By level, why it stands still."""

    def term(self, role: Role) -> Hashable:
        return role.epoch

    async def start(self, role: Role) -> None:
        self._role = role
        self._tasks.start(self._run(), name=self.name)

    async def stop(self) -> None:
        if is_closing(self._core, self._role):
            # RocketMQ would deliver again what does not count.
            await settled(self._core, lambda: self._deliveries)
        await self._tasks.close()
        self._deliveries = None
        self._trouble.clear()

    def tables(self) -> Sequence[SharedTable]:
        return (self.progress,)

    def metrics(self) -> Iterable[Family]:
        waiting = {} if self._deliveries is None else self._waiting(self._deliveries)
        yield gauge(
            "rmqstore_delayed_messages",
            "messages that wait for their time",
            [({"level": str(level)}, count) for level, count in waiting.items()],
        )
        yield counter(
            "rmqstore_delivered_messages_total",
            "delayed messages that were delivered",
            [({}, self._delivered)],
        )

    def _waiting(self, deliveries: Deliveries) -> Mapping[int, int]:
        waiting = {}
        for level in deliveries.levels:
            end = self._view().next_offset(SCHEDULE_TOPIC, level.number - 1)
            waiting[level.number] = max(end - level.offset, 0)
        return waiting

    # ---- the beginning

    async def _run(self) -> None:
        runtime = self._core.runtime
        while (found := await self._begun()) is None:
            await runtime.sleep(1)
        self._deliveries = found
        while True:
            pause_ms = await self._round(found)
            await runtime.sleep(pause_ms / 1000)

    async def _begun(self) -> Deliveries | None:
        """Returns the levels as the tables and the log show them, None after a failure."""
        try:
            return await self._found()
        except StoreError as error:
            self._core.log.error("delayed messages: cannot begin: %s", error)
            return None

    async def _found(self) -> Deliveries:
        store, runtime = self._core.store.store, self._core.runtime
        progress = self.progress.latest
        end = store.end_offset
        while store.dispatched_offset < end:
            await runtime.sleep(_DISPATCH_S)

        delays_ms = dict(enumerate(store.config.delay_levels_ms, 1))
        for number in progress.offsets:
            # Of a longer table of levels: messages say themselves when they are due.
            delays_ms.setdefault(number, max(delays_ms.values()))
        levels = {
            number: Level(number, delay_ms, self._first_of(number, progress.offsets.get(number, 0)))
            for number, delay_ms in sorted(delays_ms.items())
        }

        log_offset = progress.log_offset or 0
        if log_offset > end:
            log_offset = 0
            await runtime.in_thread(self._step_back, levels)
        # A message is older than its delivery.
        since = max(log_offset, self._oldest_of(levels, end))
        if since < end:
            await runtime.in_thread(self._find_made, levels, since)
        found = Deliveries(list(levels.values()), since)
        await self._correct(found, progress)
        return found

    async def _correct(self, found: Deliveries, progress: DelayOffsets) -> None:
        """Saves offsets below the known ones: new messages get these offsets, so the file must not
        name them as delivered after a crash."""
        lower = {
            level.number: level.counted
            for level in found.levels
            if level.counted < progress.offsets.get(level.number, 0)
        }
        if not lower:
            return
        self.progress.step(lower, found.log_offset)
        failure = await self._core.metadata.failure_of(self.progress.name)
        if failure is not None:
            raise failure

    def _first_of(self, number: int, offset: int) -> int:
        """Returns the offset where a level goes on, which its queue has or is next to give."""
        start, _ = self._view().bounds(SCHEDULE_TOPIC, number - 1) or (0, 0)
        end = self._view().next_offset(SCHEDULE_TOPIC, number - 1)
        return min(max(offset, start), max(end, start))

    def _oldest_of(self, levels: Mapping[int, Level], end: int) -> int:
        """Returns the place in the log of the oldest message that is not delivered, *end* without
        one."""
        heads = [
            self._view().units(SCHEDULE_TOPIC, level.number - 1, level.offset, 1)
            for level in levels.values()
        ]
        return min((each[0][1] for each in heads if each), default=end)

    def _step_back(self, levels: Mapping[int, Level]) -> None:
        """Moves levels back to what was due since the last record: the log has lost deliveries that
        count, as in a directory that was put together from two copies."""
        store, view = self._core.store.store, self._view()
        last_ms = max(
            (each.store_timestamp for each in store.scan_log(None, on_corrupt="skip")), default=0
        )
        for level in levels.values():
            start, _ = view.bounds(SCHEDULE_TOPIC, level.number - 1) or (0, 0)
            while level.offset > start:
                [unit, *_] = view.units(SCHEDULE_TOPIC, level.number - 1, level.offset - 1, 1)
                if unit[3] < last_ms - _LATENESS_MS:
                    break
                level.offset = level.counted = level.offset - 1
        self._core.log.warning("delayed messages: the log ends before deliveries that count")

    def _find_made(self, levels: Mapping[int, Level], since: int) -> None:
        """Finds the deliveries in the log from *since* on."""
        store, view = self._core.store.store, self._view()
        offsets = {number: level.offset for number, level in levels.items()}
        records = store.scan_log(max(since, store.start_offset), on_corrupt="skip")
        for origin, delivery in made_since(records, offsets).items():
            level = levels.get(origin.level)
            record = view.record_in(SCHEDULE_TOPIC, origin.level - 1, origin.offset)
            if level is None or record is None:
                continue
            if (record.properties.get(REAL_TOPIC), record.unique_key) == delivery:
                level.made.add(origin.offset)

        for level in levels.values():
            level.pass_made(store.end_offset)

    # ---- deliveries

    async def _round(self, deliveries: Deliveries) -> int:
        """Delivers what is due; returns the time in ms until the next round."""
        pause_ms = _LOOK_MS
        for level in deliveries.levels:
            if not self._core.is_leading:
                return _AGAIN_MS
            try:
                left_ms = await self._look_at(level)
                self._trouble.pop(level.number, None)
            except StoreError as error:
                self._report(level, str(error))
                left_ms = _AGAIN_MS
            pause_ms = min(pause_ms, left_ms)

        self._settle(deliveries)
        return pause_ms if deliveries.is_settled else min(pause_ms, _UNCOUNTED_LOOK_MS)

    async def _look_at(self, level: Level) -> int:
        """Delivers due messages of a level; returns the time in ms until it must be looked at."""
        if level.is_full:
            return _UNCOUNTED_LOOK_MS
        queue, now_ms = level.number - 1, self._core.runtime.wall_ms()
        start, _ = self._view().bounds(SCHEDULE_TOPIC, queue) or (0, 0)
        if level.offset < start:
            # Retention has deleted what stands still for days.
            level.passed(start - 1)
        found = self._view().units(SCHEDULE_TOPIC, queue, level.offset, _BATCH)
        due, left_ms = level.due((Unit(each[0], each[3]) for each in found), now_ms)
        if due:
            records = await self._core.runtime.in_thread(self._read, queue, due)
            for offset, record in zip(due, records, strict=True):
                await self._deliver(level, offset, record)
            return 1
        return _LOOK_MS if left_ms is None else left_ms

    def _read(self, queue: int, offsets: Iterable[int]) -> list[WaitingMessage | None]:
        return [self._record(queue, offset) for offset in offsets]

    def _record(self, queue: int, offset: int) -> WaitingMessage | None:
        try:
            record: WaitingMessage | None = self._view().record_in(SCHEDULE_TOPIC, queue, offset)
        except CorruptionError as error:
            self._core.log.error("delayed message %d of queue %d is lost: %s", offset, queue, error)
            return None
        return record

    async def _deliver(self, level: Level, offset: int, record: WaitingMessage | None) -> None:
        if offset in level.made:
            level.pass_made(self._core.store.store.end_offset)
        if offset < level.offset:
            return
        if record is None or REAL_TOPIC not in record.properties:
            level.passed(offset)
            return
        level.passed(offset, await self._put(Origin(level.number, offset), record))
        self._delivered += 1

    async def _put(self, origin: Origin, record: WaitingMessage) -> int:
        """Appends the copy of a delayed message; returns its end in the log."""
        properties = record.properties
        topic, queue = properties[REAL_TOPIC], queue_named(properties.get(REAL_QUEUE))
        named = (DELAY_ORIGIN, str(origin))
        return await self._deliverer.deliver(record, topic, queue, properties, origin=named)

    # ---- what counts

    def _settle(self, deliveries: Deliveries) -> None:
        store = self._core.store.store
        safe = min(store.flushed_offset, store.confirm_offset)
        counted = deliveries.settle(safe, store.end_offset)
        if counted is not None:
            self.progress.step(counted, deliveries.log_offset)

    def _report(self, level: Level, text: str) -> None:
        if self._trouble.get(level.number) != text:
            self._trouble[level.number] = text
            self._core.log.error(
                "delay level %d stands still at offset %d: %s; it is tried again",
                level.number,
                level.offset,
                text,
            )
