"""The service that delivers timer messages at their time, while the broker leads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

from rmqstore._native.core import TimerIndex
from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.broker.metrics import node_labels
from rmqstore.broker.operations.core import Core, ViewOf, dispatched
from rmqstore.broker.operations.deliveries import Deliverer, WaitingMessage
from rmqstore.broker.operations.records import queue_named
from rmqstore.broker.operations.timer_rules import DELETES, TIMER_ORIGIN
from rmqstore.broker.services.service import Service
from rmqstore.broker.services.settling import is_closing, settled
from rmqstore.broker.timers import Deletions, Timers, TimerState, due_ms_of, made_since
from rmqstore.data_version import DataVersion
from rmqstore.errors import CorruptionError, MessageRejected, OffsetOutOfRange, StoreError
from rmqstore.message import java_string_hash
from rmqstore.net.metrics import Family, counter, gauge
from rmqstore.store.delay import REAL_QUEUE, REAL_TOPIC
from rmqstore.store.metadata import TimerProgress
from rmqstore.store.metadata.timer_checkpoint import TimerCheckpoint
from rmqstore.topic_names import TIMER_TOPIC

__all__ = ["TimerMessages"]

_LOOK_MS = 100
"""Pause between looks at new messages."""
_AGAIN_MS = 100
"""Pause after a failure."""
_UNCOUNTED_LOOK_MS = 50
_BATCH = 256
_READ_AT_ONCE = 2048
_DISPATCH_S = 0.002
_AHEAD_MS_MAX = 30 * 86_400_000
"""How far ahead of the clock progress may be; beyond that it is damaged."""
_SAVE_S = 1.0
_CLEAN_MS = 30_000
_ROLLS = "TIMER_ROLL_TIMES"
_ENTERED, _LEFT = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"
_DEFAULT, _ROLL, _DELETE = 1, 2, 4


class TimerMessages(Service):
    """Enters each message of rmq_sys_wheel_timer into the wheel, and copies it to its topic once
    its slot is over.

    A copy is not awaited: `Timers` counts it when it is safe. An error holds up all messages, and
    is reported once.
    """

    name = "timer messages"
    standings = frozenset({Standing.LEADING})

    def __init__(
        self, core: Core, make_index: Callable[..., TimerIndex], progress: DelayProgress
    ) -> None:
        self._core = core
        self.progress = progress
        self._view = ViewOf(core)
        self._deliverer = Deliverer(core)
        self._make_index = make_index
        self._tasks = core.runtime.tasks(self.name)
        self._timers: Timers | None = None
        self._index: TimerIndex | None = None
        self._role: Role | None = None
        self._trouble = ""
        self._closing_ms = 0
        self._of_slot: set[int] = set()
        """Messages of the slot in progress that are delivered."""
        self._rolled_end = 0
        """The end in the log of the last message that was entered again."""
        self._delivered = self._skipped = 0
        self._saved: TimerProgress | None = None

    def term(self, role: Role) -> Hashable:
        return role.epoch

    async def start(self, role: Role) -> None:
        self._role = role
        if self._core.config.timers:
            self._tasks.start(self._run(), name=self.name)

    async def stop(self) -> None:
        if is_closing(self._core, self._role):
            # RocketMQ would deliver again what does not count.
            await settled(self._core, lambda: self._timers)
        await self._tasks.close()
        timers, self._timers = self._timers, None
        index, self._index = self._index, None
        if index is not None:
            if timers is not None:
                await self._save_or_report(timers, index)
            index.close()
        self._of_slot.clear()
        self._closing_ms, self._rolled_end, self._trouble = 0, 0, ""

    def metrics(self) -> Iterable[Family]:
        state, node = self.state(), node_labels(self._core.config)
        yield gauge("rmqstore_timer_messages", "timer messages that wait", [({}, state.waiting)])
        yield gauge(
            "rocketmq_timer_enqueue_lag",
            "timer messages that have not entered the wheel",
            [(node, state.unread)],
        )
        yield gauge(
            "rocketmq_timer_dequeue_latency",
            "seconds since the next slot to be read was over",
            [(node, state.behind_ms // 1000)],
        )
        yield counter(
            "rmqstore_delivered_timer_messages_total",
            "timer messages that were delivered",
            [({}, self._delivered)],
        )
        yield counter(
            "rmqstore_skipped_timer_messages_total",
            "records among timer messages that name no time, or cannot be read",
            [({}, self._skipped)],
        )

    # ---- what operations ask

    def state(self) -> TimerState:
        """Return what waits."""
        timers, index = self._timers, self._index
        if timers is None:
            return TimerState()
        now_ms, precision_ms = self._core.runtime.wall_ms(), self._core.config.timer_precision_ms
        return TimerState(
            waiting=0 if index is None else index.count(timers.read_ms),
            unread=max(self._view().next_offset(TIMER_TOPIC, 0) - timers.offset, 0),
            behind_ms=max(now_ms - timers.read_ms - precision_ms, 0),
        )

    def slot_count(self, due_ms: int) -> int:
        """Return the number of messages that wait in the slot of a time, less deletions."""
        return 0 if self._index is None else self._index.slot_count(due_ms)

    @property
    def read_ms(self) -> int:
        """The end of the slots whose messages are all in the log; 0 before they are known."""
        return 0 if self._timers is None else self._timers.read_ms

    def is_open(self, slot_ms: int) -> bool:
        """Whether all messages that are now in the log, and wait in a slot, are found before it is
        read."""
        return self._timers is not None and slot_ms >= max(self._closing_ms, self._timers.read_ms)

    # ---- the beginning

    async def _run(self) -> None:
        runtime = self._core.runtime
        while (timers := await self._begun()) is None:
            await runtime.sleep(1)
        self._timers = timers
        self._tasks.start(self._save_regularly(timers), name="saving of timers")
        while True:
            pause_ms = await self._round(timers)
            await runtime.sleep(pause_ms / 1000)

    async def _begun(self) -> Timers | None:
        """Returns the timers as the tables and the log show them, None after a failure."""
        try:
            return await self._found()
        except (StoreError, OSError) as error:
            self._report(f"cannot begin: {error}")
            if self._index is not None:
                self._index.close()
                self._index = None
            return None

    async def _found(self) -> Timers:
        core, runtime, config = self._core, self._core.runtime, self._core.config
        store = core.store.store
        end = store.end_offset
        while store.dispatched_offset < end:
            await runtime.sleep(_DISPATCH_S)

        first, next_offset = self._view().bounds(TIMER_TOPIC, 0) or (0, 0)
        progress = self.progress.latest.timer
        by_java = await self._progress_of_java()
        if by_java is not None and (progress is None or by_java[:2] > progress[:2]):
            progress = by_java
        if progress is not None and (
            progress.log_offset > end or progress.queue_offset > next_offset
        ):
            core.log.warning("timer messages: the log ends before deliveries that count")
            progress = None
        if progress is not None and progress.read_ms > runtime.wall_ms() + _AHEAD_MS_MAX:
            core.log.error("timer messages: the progress is that of %d ms", progress.read_ms)
            progress = None
        if progress is None:
            start_ms = self._first_ms(first) if next_offset > first else runtime.wall_ms()
            precision_ms = config.timer_precision_ms
            start_ms = start_ms // precision_ms * precision_ms
            progress = TimerProgress(start_ms, first, max(store.start_offset, 0))

        timers = Timers(
            progress,
            precision_ms=config.timer_precision_ms,
            window_slots=config.timer_window_slots,
        )
        bound = self._place_of(max(progress.queue_offset, first), end)
        timers.offset = next_offset
        if next_offset > first:
            index = self._index = await runtime.on_disk(partial(self._open, bound))
            timers.offset = self._after(index.last_offset, first, next_offset)
        await runtime.in_thread(self._find_made, timers, progress)
        return timers

    async def _progress_of_java(self) -> TimerProgress | None:
        """Returns what a check point of RocketMQ says, whose deliveries name no origin."""
        files, runtime = self._core.metadata.timer_files, self._core.runtime
        end = self._core.store.store.end_offset
        if not await runtime.in_thread(files.is_of_rocketmq):
            return None
        found = TimerCheckpoint.decode(await runtime.in_thread(files.checkpoint))
        if found is None or not 0 < found.read_ms <= runtime.wall_ms() + _AHEAD_MS_MAX:
            return None
        _, next_offset = self._view().bounds(TIMER_TOPIC, 0) or (0, 0)
        return TimerProgress(found.read_ms, min(found.queue_offset, next_offset), end)

    def _first_ms(self, first: int) -> int:
        record = self._view().record_in(TIMER_TOPIC, 0, first)
        return 0 if record is None else record.store_timestamp

    def _place_of(self, offset: int, end: int) -> int:
        """Returns the physical offset of a message in the queue, *end* past the last one."""
        units = self._view().units(TIMER_TOPIC, 0, offset, 1)
        return units[0][1] if units else end

    def _after(self, physical_offset: int, first: int, end: int) -> int:
        """Returns the offset in the queue of the first message past a physical offset."""
        low, high = first, end
        while low < high:
            middle = (low + high) // 2
            if self._place_of(middle, 0) <= physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _open(self, bound: int) -> TimerIndex:
        config = self._core.config
        make = partial(
            self._make_index,
            self._core.store.store.path,
            file_size=config.timer_file_size,
            precision_ms=config.timer_precision_ms,
        )
        try:
            return make(bound=bound)
        except CorruptionError as error:
            # All of it is in the commit log.
            self._core.log.error("the timer log is made again: %s", error)
            return make(bound=0, is_new=True)

    def _find_made(self, timers: Timers, progress: TimerProgress) -> None:
        """Finds the deliveries in the log that do not count yet."""
        store, view = self._core.store.store, self._view()
        since = max(progress.log_offset, store.start_offset)
        if since >= store.end_offset:
            return
        records = store.scan_log(since, on_corrupt="skip")
        for offset, (topic, key) in made_since(records).items():
            record = view.record_in(TIMER_TOPIC, 0, offset)
            if record is None or record.unique_key != key:
                continue
            if topic in (TIMER_TOPIC, record.properties.get(REAL_TOPIC)):
                timers.made.add(offset)

    # ---- rounds

    async def _round(self, timers: Timers) -> int:
        """Delivers what is due; returns the time in ms until the next round."""
        if not self._core.is_leading:
            return _AGAIN_MS
        try:
            timers.follow(self._core.runtime.wall_ms())
            await self._enter(timers)
            await self._read(timers)
            self._trouble = ""
        except (StoreError, OSError) as error:
            self._report(str(error))
            return _AGAIN_MS

        self._settle(timers)
        config, now_ms = self._core.config, self._core.runtime.wall_ms()
        left_ms = timers.read_ms + config.timer_precision_ms - now_ms
        pause_ms = min(max(left_ms, 1), _LOOK_MS)
        return pause_ms if timers.is_settled else min(pause_ms, _UNCOUNTED_LOOK_MS)

    async def _enter(self, timers: Timers) -> None:
        """Enters new messages into the wheel."""
        view = self._view()
        if view.next_offset(TIMER_TOPIC, 0) <= timers.offset:
            return
        while units := view.units(TIMER_TOPIC, 0, timers.offset, _BATCH):
            if self._index is None:
                opened = partial(self._open, units[0][1])
                self._index = await self._core.runtime.on_disk(opened)
            offsets = [each[0] for each in units]
            records = await self._core.runtime.in_thread(self._records, offsets)
            for unit, record in zip(units, records, strict=True):
                self._enter_one(timers, self._index, unit, record)

    def _enter_one(
        self,
        timers: Timers,
        index: TimerIndex,
        unit: Sequence[Any],
        record: WaitingMessage | None,
    ) -> None:
        offset, physical_offset, size = unit[:3]
        properties = {} if record is None else record.properties
        due_ms = due_ms_of(properties)
        if record is None or due_ms is None:
            self._skip(offset)
            timers.offset = offset + 1
            return
        place = timers.enter(offset, stored_ms=record.store_timestamp, due_ms=due_ms)
        if place is None:
            return
        magic = _DEFAULT
        magic |= _ROLL if place.is_rolled else 0
        magic |= _DELETE if DELETES in properties else 0
        try:
            index.add(
                place.slot_ms,
                write_ms=place.write_ms,
                magic=magic,
                physical_offset=physical_offset,
                size=size,
                topic_hash=java_string_hash(properties[REAL_TOPIC]),
            )
        except StoreError:
            timers.offset = offset
            raise
        self._core.traffic.statistics.timers_entered.add(properties[REAL_TOPIC], 1)

    def _records(self, offsets: Iterable[int]) -> list[WaitingMessage | None]:
        return [self._record(offset) for offset in offsets]

    def _record(self, offset: int) -> WaitingMessage | None:
        try:
            record: WaitingMessage | None = self._view().record_in(TIMER_TOPIC, 0, offset)
        except CorruptionError as error:
            self._core.log.error("timer message %d cannot be read: %s", offset, error)
            return None
        return record

    def _skip(self, offset: int) -> None:
        self._skipped += 1
        self._core.log.error(
            "record %d of queue 0 of %s is not a timer message, and is skipped", offset, TIMER_TOPIC
        )

    # ---- deliveries

    async def _read(self, timers: Timers) -> None:
        """Delivers the messages of all slots that are over."""
        while timers.read_ms < (end_ms := timers.readable(self._core.runtime.wall_ms())):
            # Messages that are acknowledged before this are found.
            self._closing_ms = end_ms
            await dispatched(self._core)
            if not self._finds_rolled():
                return
            await self._enter(timers)
            index = self._index
            slot_ms = end_ms if index is None else index.next(timers.read_ms, end_ms)
            if index is None or slot_ms >= end_ms:
                timers.read(end_ms)
                return
            await self._deliver_slot(timers, index, slot_ms)
            timers.read(slot_ms + self._core.config.timer_precision_ms, len(self._of_slot))
            self._of_slot.clear()

    def _finds_rolled(self) -> bool:
        """Whether all messages that were entered again are found, without which a deletion that
        waits for one of them would be over before it."""
        store = self._core.store.store
        return self._rolled_end <= min(store.dispatched_offset, store.confirm_offset)

    async def _deliver_slot(self, timers: Timers, index: TimerIndex, slot_ms: int) -> None:
        """Delivers the messages of a slot but those that are deleted."""
        units = await self._core.runtime.in_thread(index.units, slot_ms)
        deletions = Deletions()
        rest = []
        for unit in units:
            is_deletion = unit[1] & (_DELETE | _ROLL) == _DELETE
            if not is_deletion:
                rest.append(unit)
            elif (record := self._record_at(unit[2])) is not None:
                deletions.add(record.properties)

        for at in range(0, len(rest), _READ_AT_ONCE):
            batch = rest[at : at + _READ_AT_ONCE]
            offsets = [each[2] for each in batch]
            records = await self._core.runtime.in_thread(self._records_at, offsets)
            for number, ((_, magic, _, _), record) in enumerate(zip(batch, records, strict=True)):
                if number % _BATCH == 0:
                    # Deliveries do not wait, so that requests would.
                    await self._core.runtime.sleep(0)
                if record is not None and not timers.is_done(record.queue_offset, slot_ms):
                    is_rolled = bool(magic & _ROLL)
                    await self._deliver(timers, deletions, record, is_rolled=is_rolled)

    def _records_at(self, offsets: Iterable[int]) -> list[WaitingMessage | None]:
        return [self._record_at(offset) for offset in offsets]

    def _record_at(self, physical_offset: int) -> WaitingMessage | None:
        try:
            record = self._view().record_at(physical_offset, True)
        except (CorruptionError, OffsetOutOfRange) as error:
            self._core.log.error("the timer message at %d is lost: %s", physical_offset, error)
            return None
        found: WaitingMessage | None = record if record.topic == TIMER_TOPIC else None
        return found

    async def _deliver(
        self, timers: Timers, deletions: Deletions, record: WaitingMessage, *, is_rolled: bool
    ) -> None:
        """Appends the delivery of a message, or its copy for the wheel, unless the message is
        deleted, or was delivered by an earlier master, or before an error."""
        offset, properties = record.queue_offset, record.properties
        if offset in timers.made:
            timers.made.discard(offset)
            self._of_slot.add(offset)
        # A message that is late may meet its deletion in a slot where it would be entered again.
        if offset in self._of_slot or deletions.holds(properties):
            return
        topic, queue = properties[REAL_TOPIC], queue_named(properties.get(REAL_QUEUE))
        if is_rolled:
            topic, queue = TIMER_TOPIC, 0
            properties[_ROLLS] = str(queue_named(properties.get(_ROLLS)) + 1)
        else:
            properties[_ENTERED] = str(record.store_timestamp)
            properties[_LEFT] = str(self._core.runtime.wall_ms())
        origin = (TIMER_ORIGIN, str(offset))
        end = await self._deliver_until_stored(record, topic, queue, properties, origin)
        if is_rolled:
            self._rolled_end = end
        self._of_slot.add(offset)
        if not is_rolled:
            self._delivered += 1
            self._core.traffic.statistics.timers_delivered.add(topic, 1)

    async def _deliver_until_stored(
        self,
        record: WaitingMessage,
        topic: str,
        queue: int,
        properties: dict[str, str],
        origin: tuple[str, str],
    ) -> int:
        """Returns the end of the copy in the log, 0 where no log takes it."""
        end = 0
        while True:
            try:
                end = await self._deliverer.deliver(record, topic, queue, properties, origin=origin)
            except MessageRejected as error:
                if properties != record.properties:
                    # They have no room for those of the timer.
                    properties = record.properties
                    continue
                self._core.log.error(
                    "timer message %s cannot be stored in %s: %s", origin[1], topic, error
                )
            except StoreError as error:
                self._report(str(error))
                await self._core.runtime.sleep(_AGAIN_MS / 1000)
                continue
            self._trouble = ""
            return end

    # ---- what counts

    def _settle(self, timers: Timers) -> None:
        store = self._core.store.store
        safe = min(store.flushed_offset, store.confirm_offset)
        progress = timers.settle(safe, store.end_offset)
        if progress is not None:
            self.progress.step_timer(progress)

    # ---- files that RocketMQ reads

    async def _save_regularly(self, timers: Timers) -> None:
        """Saves what changes, so that deliveries do not wait for it, and removes old files."""
        runtime, store = self._core.runtime, self._core.store.store
        cleaned_ms = runtime.now_ms()
        while True:
            await runtime.sleep(_SAVE_S)
            if (index := self._index) is None:
                continue
            if timers.progress != self._saved:
                await self._save_or_report(timers, index)
            try:
                if runtime.now_ms() >= cleaned_ms + _CLEAN_MS:
                    cleaned_ms = runtime.now_ms()
                    start = max(store.start_offset, 0)
                    await runtime.on_disk(partial(index.delete_before, start))
            except StoreError as error:
                self._core.log.error("files of the timer log stay: %s", error)

    async def _save_or_report(self, timers: Timers, index: TimerIndex) -> None:
        try:
            await self._save(timers, index)
        except (StoreError, OSError) as error:
            self._core.log.error("the state of timer messages is not saved: %s", error)

    async def _save(self, timers: Timers, index: TimerIndex) -> None:
        """Writes log, wheel, progress and check point, in this order."""
        progress, metadata = timers.progress, self._core.metadata
        await self._core.runtime.on_disk(index.flush)
        failure = await metadata.failure_of(self.progress.name)
        if failure is not None:
            raise failure
        former = TimerCheckpoint.decode(metadata.timer_files.checkpoint())
        version = DataVersion() if former is None else former.version
        epoch = max(self._role.epoch, 0) if self._role is not None else 0
        now_ms = self._core.runtime.wall_ms()
        checkpoint = TimerCheckpoint(
            read_ms=progress.read_ms,
            log_position=index.flushed_position,
            queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset,
            version=version.next(now_ms=now_ms, state_version=epoch),
        )
        save = partial(metadata.timer_files.save_own, checkpoint.encode())
        await self._core.runtime.on_disk(save)
        self._saved = progress

    def _report(self, text: str) -> None:
        if self._trouble != text:
            self._trouble = text
            self._core.log.error("timer messages stand still: %s; it is tried again", text)
