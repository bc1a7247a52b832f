"""The hand-out of messages to consumers that pop: each message goes to one consumer of its group.

The check point of a hand-out is in the log, as durable as a message that is acknowledged, before
the consumer gets the messages, and before the offset of the group passes them. So whatever ends in
between, the messages come again.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.broker.operations.core import Core, ViewOf, refuse_other_than_master
from rmqstore.broker.operations.filters import ALL, TAG, Filter, filter_of
from rmqstore.broker.operations.pop_orders import OrderlyPops
from rmqstore.broker.operations.pop_puts import PopPuts
from rmqstore.broker.operations.queue_reads import (
    BYTES_MAX,
    TURNS_MAX,
    Found,
    QueueReads,
    goes_on,
)
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.pop_locks import PopLocks
from rmqstore.broker.pop_records import PopAck, PopCheckPoint
from rmqstore.errors import PutError, RequestRefused, StoreError
from rmqstore.message import Durability, GetStatus
from rmqstore.permissions import PERM_READ
from rmqstore.remoting.bodies.messages import encode_message
from rmqstore.remoting.bodies.receipts import ORDERLY_QUEUE, PoppedQueue, ReceiptHandle
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig, TopicConfig
from rmqstore.topic_names import LIGHT_PREFIX, RetryKind, pop_retry_topic, retry_kind

__all__ = [
    "MESSAGES_MAX",
    "CheckedPop",
    "Mark",
    "Pop",
    "PopOperation",
    "PopResult",
    "pop_retry_topics",
]

MESSAGES_MAX = 32
"""Of one pop."""
_QUEUE_OFFSET_AT, _PHYSICAL_OFFSET_AT = 20, 28
_OFFSET = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_CORRECTED = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
)
"""Results of a read at an offset that the queue does not have; it is made once more at the next
offset."""
_PASSED = (
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
)
"""Results without messages, past which a group goes on."""
_POP_CHECK = "POP_CK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pop:
    """A request for messages."""

    group: str
    topic: str
    queue: int = -1
    """Below 0: any queue."""
    messages_max: int
    invisible_ms: int
    """How long the messages are those of the consumer."""
    begins_at_end: bool = False
    """Where a group without an offset begins; otherwise at the first message."""
    expression_type: str = TAG
    expression: str | None = None
    is_orderly: bool = False
    """Whether the group gets no further message of a queue until these are acknowledged."""
    attempt_id: str | None = None
    """Of an orderly pop: a repetition with the same id gets the same messages."""


@dataclass(frozen=True, slots=True)
class CheckedPop:
    """A pop that may be served."""

    pop: Pop
    topic: TopicConfig
    group: GroupConfig
    filter: Filter


@dataclass(slots=True)
class PopResult:
    """What a consumer gets."""

    pop_time_ms: int
    revive_queue: int
    rest_count: int = 0
    """Messages that may be popped at once."""
    queues: list[PoppedQueue] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    order_counts: list[str] = field(default_factory=list)
    """Of an orderly pop: how often messages were popped before, see `count_texts`."""

    @property
    def message_count(self) -> int:
        """The number of messages."""
        return sum(len(each.offsets) for each in self.queues)


class Mark(NamedTuple):
    """What a pop may have seen; another mark means that a later pop may find more."""

    stored: int
    """Messages that the queues of the pop ever had."""
    releases: int
    """Locks that were released after another pop was turned away, and notices of queues that
    orderly consumers may pop again."""


class _Taken(NamedTuple):
    """Messages of a locked queue that are not handed out yet."""

    queue: PoppedQueue
    next_offset: int
    records: bytes


def pop_retry_topics(core: Core, topic: str, group: str) -> Iterator[TopicConfig]:
    """Yield the retry topics that a pop of a group looks at."""
    config = core.config
    kinds = [RetryKind.V2] if config.pop_retries_v2 else [RetryKind.V1]
    if config.pop_retries_v2 and config.pops_old_retries:
        kinds.append(RetryKind.V1)
    for kind in kinds:
        found = core.metadata.topic(pop_retry_topic(topic, group, kind))
        if found is not None:
            yield found


class PopOperation:
    """Hands out the messages of a broker's store."""

    def __init__(
        self,
        core: Core,
        waiting: WaitingPlaces,
        orders: OrderlyPops,
        *,
        on_released: Callable[[str, str], None] = lambda topic, group: None,
    ) -> None:
        """*on_released* is called with the topic that consumers ask for, and the group, when a
        queue is released that another pop has looked for."""
        self._core = core
        self._view = ViewOf(core)
        self._reads = QueueReads(core)
        self._puts = PopPuts(core, waiting)
        self._orders = orders
        self._locks = PopLocks()
        self._numbers = itertools.count()
        self._not_before_ms = 0
        """The earliest time of the next pop."""
        self._on_released = on_released

    # -- Checks, in RocketMQ's order.

    async def check(self, pop: Pop) -> CheckedPop:
        """Return a pop that may be served. Raises RequestRefused."""
        core = self._core
        refuse_other_than_master(core.role)
        if not core.config.permission & PERM_READ:
            raise _forbidden(f"the broker[{core.config.host}] pop message is forbidden")
        self._refuse_numbers(pop)
        topic = self._topic_of(pop)
        group = core.metadata.group(pop.group) or await core.metadata.group_for(pop.group)
        if group is None:
            raise RequestRefused(
                f"subscription group [{pop.group}] does not exist, and the broker makes none; "
                "make it with updateSubGroup",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        if not group.consume_enabled:
            raise _forbidden(f"subscription group no permission, {group.name}")
        allows_sql = core.config.sql_filters
        wanted = ALL
        if pop.expression:
            wanted = filter_of(pop.expression_type, pop.expression, allows_sql=allows_sql)
        return CheckedPop(pop, topic, group, wanted)

    def _refuse_numbers(self, pop: Pop) -> None:
        config = self._core.config
        if not 0 < pop.messages_max <= MESSAGES_MAX:
            raise _invalid(
                f"the broker[{config.host}] pop message's num is greater than {MESSAGES_MAX}, or "
                f"below 1: {pop.messages_max}"
            )
        if not config.timers:
            raise RequestRefused(
                f"the broker[{config.host}] pop message is forbidden because timerWheelEnable is "
                "false",
                code=ResponseCode.SYSTEM_ERROR,
            )
        longest_ms = config.timer_delay_max_s * 1000
        if not 0 <= pop.invisible_ms <= longest_ms:
            raise _invalid(
                f"invisibleTime is {pop.invisible_ms}; give 0 to {longest_ms} ms, which is "
                "timerMaxDelaySec"
            )

    def _topic_of(self, pop: Pop) -> TopicConfig:
        topic = self._core.metadata.topic(pop.topic)
        if topic is None:
            raise RequestRefused(
                f"topic[{pop.topic}] not exist, apply first please!",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )
        if not topic.perm & PERM_READ:
            raise _forbidden(f"the topic[{topic.name}] peeking message is forbidden")
        if pop.queue >= topic.read_queue_count:
            raise _invalid(
                f"queueId[{pop.queue}] is illegal, topic:[{topic.name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}]"
            )
        if topic.attributes.get("queue.type") == "BatchCQ":
            raise RequestRefused(
                f"topic[{topic.name}] has queue.type=BatchCQ; one message of a batch cannot be "
                "acknowledged: pull instead",
                code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            )
        return topic

    # -- The hand-out.

    def mark(self, checked: CheckedPop) -> Mark:
        """Return what a pop sees that begins now."""
        topic, queue = checked.topic, checked.pop.queue
        stored = self._stored(topic.name, range(topic.read_queue_count) if queue < 0 else (queue,))
        for retries in pop_retry_topics(self._core, topic.name, checked.group.name):
            stored += self._stored(retries.name, range(retries.read_queue_count))
        return Mark(stored, self._locks.releases + self._orders.notices)

    def _stored(self, topic: str, queues: Iterable[int]) -> int:
        bounds = self._view().bounds
        return sum([found[1] for queue in queues if (found := bounds(topic, queue)) is not None])

    async def pop(self, checked: CheckedPop) -> PopResult:
        """Hand out messages; return those that are remembered. Raises PutError where none is,
        StoreError, and RequestRefused in a role that stores no messages."""
        core = self._core
        refuse_other_than_master(core.role)
        revive_queue = next(self._numbers) % core.config.revive_queue_count
        pop_time_ms = max(core.runtime.wall_ms(), self._not_before_ms)
        if checked.pop.is_orderly:
            revive_queue = ORDERLY_QUEUE
            queues = range(checked.topic.read_queue_count)
            pop_time_ms = self._orders.new_time(
                checked.topic.name, checked.group.name, queues, pop_time_ms
            )
        result = PopResult(pop_time_ms, revive_queue)
        taken: list[_Taken] = []
        try:
            await self._take_all(checked, result, taken)
            await self._remember_all(checked, result, taken)
        finally:
            for each in taken:
                self._release(checked, each.queue.topic, each.queue.queue)
        size_bytes = sum(map(len, result.records))
        names = checked.topic.name, checked.group.name
        core.traffic.pulled(*names, result.message_count, size_bytes)
        return result

    def queues_of(self, checked: CheckedPop) -> Iterator[tuple[str, int]]:
        """Yield the queues of a pop: those of retries, and its own."""
        yield from self._retry_queues(checked)
        yield from self._own_queues(checked)

    def _retry_queues(self, checked: CheckedPop) -> Iterator[tuple[str, int]]:
        if checked.pop.is_orderly:
            return  # Messages that come again stay in their place.
        for topic in pop_retry_topics(self._core, checked.topic.name, checked.group.name):
            yield from _rotated(topic)

    def _own_queues(self, checked: CheckedPop) -> Iterator[tuple[str, int]]:
        if checked.pop.queue >= 0:
            yield checked.topic.name, checked.pop.queue
        else:
            yield from _rotated(checked.topic)

    async def _take_all(self, checked: CheckedPop, result: PopResult, taken: list[_Taken]) -> None:
        own, retries = self._own_queues(checked), self._retry_queues(checked)
        is_of_retries = random.randrange(100) < self._core.config.pop_retries_percent
        order = (retries, own) if is_of_retries else (own, retries)
        for topic, queue in itertools.chain(*order):
            count = sum(len(each.queue.offsets) for each in taken)
            size = sum(len(each.records) for each in taken)
            is_full = count >= checked.pop.messages_max or size >= BYTES_MAX
            if is_full or not self._locks.take(topic, checked.group.name, queue):
                result.rest_count += self._behind(topic, checked.group.name, queue)
                continue
            found = None
            try:
                room = checked.pop.messages_max - count, BYTES_MAX - size
                found = await self._take(checked, result, topic, queue, *room)
            finally:
                if found is None:
                    self._release(checked, topic, queue)
                else:
                    taken.append(found)

    def _release(self, checked: CheckedPop, topic: str, queue: int) -> None:
        if self._locks.release(topic, checked.group.name, queue):
            self._on_released(checked.topic.name, checked.group.name)

    def _behind(self, topic: str, group: str, queue: int) -> int:
        """Returns the number of messages that a group has not got yet."""
        start, end = self._view().bounds(topic, queue) or (0, 0)
        return max(end - (self._core.metadata.offsets.query(topic, group, queue) or start), 0)

    # -- One queue.

    async def _take(
        self,
        checked: CheckedPop,
        result: PopResult,
        topic: str,
        queue: int,
        messages_max: int,
        bytes_max: int,
    ) -> _Taken | None:
        """Reads a locked queue; passes what the group does not want."""
        offsets, group = self._core.metadata.offsets, checked.group.name
        start = self._start_of(checked, topic, queue)
        if self.is_blocked(checked, topic, queue):
            return None
        found: Found | None = None
        for turn in range(TURNS_MAX):
            if turn:
                await self._core.runtime.sleep(0)
            found = await self._read(topic, queue, start, messages_max, bytes_max, checked.filter)
            status, next_offset, _, end = found[:4]
            if status is GetStatus.FOUND:
                break
            is_passed = status in _CORRECTED or (status in _PASSED and next_offset > start)
            if is_passed and next_offset >= 0 and next_offset != start:
                offsets.commit(topic, group, queue, next_offset)
                start = next_offset
                if turn == 0 and status in _CORRECTED:
                    continue
            if not goes_on(checked.filter, status, next_offset, end):
                break
        assert found is not None
        status, next_offset, _, end, _, records = found
        result.rest_count += max(end - max(next_offset, start), 0)
        if status is not GetStatus.FOUND:
            return None
        if checked.pop.is_orderly and offsets.query(topic, group, queue) != start:
            # A message was acknowledged during the read.
            return await self._take(checked, result, topic, queue, messages_max, bytes_max)
        popped = PoppedQueue(topic, queue, start, self._offsets_of(topic, queue, start, found))
        return _Taken(popped, next_offset, records)

    async def _read(
        self, topic: str, queue: int, start: int, messages_max: int, bytes_max: int, wanted: Filter
    ) -> Found:
        place = topic, queue, start, messages_max, bytes_max, wanted
        if self._reads.is_far_behind(topic, queue, start):
            return await self._core.runtime.in_thread(self._reads.get, *place)
        return self._reads.get(*place)

    def _start_of(self, checked: CheckedPop, topic: str, queue: int) -> int:
        """Returns where a group goes on in a queue; a new group, or one that is reset, has its
        offset from then on."""
        offsets, group = self._core.metadata.offsets, checked.group.name
        start = offsets.take_reset(topic, group, queue)
        if start is not None:
            self._orders.reset(topic, group, queue)
        else:
            start = offsets.query(topic, group, queue)
            if start is not None:
                return start
            start = self._begin_of(checked, topic, queue)
        offsets.commit(topic, group, queue, start)
        return start

    def is_blocked(self, checked: CheckedPop, topic: str, queue: int) -> bool:
        """Return whether a pop in order gets nothing of a queue now."""
        pop = checked.pop
        return pop.is_orderly and self._orders.is_blocked(
            topic, pop.group, queue, attempt_id=pop.attempt_id, invisible_ms=pop.invisible_ms
        )

    def _begin_of(self, checked: CheckedPop, topic: str, queue: int) -> int:
        start, end = self._view().bounds(topic, queue) or (0, 0)
        if not checked.pop.begins_at_end or retry_kind(topic) is not RetryKind.NONE:
            return max(start, 0)
        is_recent = self._core.config.pop_begins_at_zero and self._reads.is_whole_and_recent(
            topic, queue
        )
        return 0 if is_recent else end

    def _offsets_of(self, topic: str, queue: int, start: int, found: Found) -> tuple[int, ...]:
        next_offset, records = found[1], found[5]
        at_of = list(_record_places(records))
        if not topic.startswith(LIGHT_PREFIX):
            return tuple(_OFFSET.unpack_from(records, at + _QUEUE_OFFSET_AT)[0] for at in at_of)
        # A record names its offset in the queue of its own topic.
        units = self._view().units(topic, queue, start, next_offset - start)
        offsets = {unit[1]: unit[0] for unit in units}
        physical = (_OFFSET.unpack_from(records, at + _PHYSICAL_OFFSET_AT)[0] for at in at_of)
        return tuple(offsets[each] for each in physical)

    # -- The check points.

    async def _remember_all(
        self, checked: CheckedPop, result: PopResult, taken: list[_Taken]
    ) -> None:
        works = [self._remember(checked, result, each) for each in taken]
        if len(works) == 1:
            failures = [await works[0]]
        else:
            failures = await self._core.runtime.gather(*works)
        first = next(filter(None, failures), None)
        if first is not None and not result.queues:
            raise first

    async def _remember(
        self, checked: CheckedPop, result: PopResult, taken: _Taken
    ) -> StoreError | None:
        """Hands out the messages of a queue once their check point is durable; returns why it is
        not."""
        popped, offsets = taken.queue, self._core.metadata.offsets
        if checked.pop.is_orderly:
            result.order_counts += self._orders.popped(
                checked.group.name,
                popped,
                popped_ms=result.pop_time_ms,
                invisible_ms=checked.pop.invisible_ms,
                attempt_id=checked.pop.attempt_id,
            )
            result.queues.append(popped)
            result.records.append(taken.records)
            return None
        point = PopCheckPoint(
            topic=popped.topic,
            queue=popped.queue,
            group=checked.group.name,
            start_offset=popped.start_offset,
            offsets=popped.offsets,
            pop_time_ms=result.pop_time_ms,
            invisible_ms=checked.pop.invisible_ms,
            broker_name=self._core.config.name,
        )
        try:
            put = self._puts.put(point, result.revive_queue, point.due_ms)
            if isinstance(put, Coroutine):
                await put
        except PutError as error:
            if error.stored is not False:
                self._take_back(point, result.revive_queue)
            return error
        except StoreError as error:
            return error
        offsets.commit(popped.topic, checked.group.name, popped.queue, taken.next_offset)
        result.queues.append(popped)
        result.records.append(self._records_of(checked, result, taken))
        return None

    def _take_back(self, point: PopCheckPoint, revive_queue: int) -> None:
        """Acknowledges the messages of a check point that may be in the log, of a hand-out that was
        not made: the next pop hands them out, and they need not come a second time."""
        ack = PopAck(
            topic=point.topic,
            queue=point.queue,
            group=point.group,
            start_offset=point.start_offset,
            offsets=point.offsets,
            pop_time_ms=point.pop_time_ms,
            broker_name=point.broker_name,
            is_batch=True,
        )
        # A check point of the same queue and time would be taken for this one.
        self._not_before_ms = max(self._not_before_ms, point.pop_time_ms + 1)
        try:
            self._puts.put(ack, revive_queue, point.revive_ms, Durability.MEMORY)
        except StoreError as error:
            self._core.log.warning("messages may come twice that no pop got: %s", error)

    def _records_of(self, checked: CheckedPop, result: PopResult, taken: _Taken) -> bytes:
        """Returns the records for the consumer. One that is popped again names the topic that the
        consumer asked for, and has its receipt handle: the answer's texts name the retry topic."""
        popped = taken.queue
        kind = retry_kind(popped.topic)
        if kind is RetryKind.NONE or self._core.config.pop_returns_retry_topic:
            return taken.records
        pieces = []
        for offset, at in zip(popped.offsets, _record_places(taken.records), strict=True):
            record = self._view().record_in(popped.topic, popped.queue, offset)
            if record is None:
                # It was removed since it was read.
                size = _SIZE.unpack_from(taken.records, at)[0]
                pieces.append(taken.records[at : at + size])
                continue
            handle = ReceiptHandle(
                start_offset=popped.start_offset,
                pop_time_ms=result.pop_time_ms,
                invisible_ms=checked.pop.invisible_ms,
                revive_queue=result.revive_queue,
                kind=kind,
                broker_name=self._core.config.name,
                queue=popped.queue,
                offset=offset,
            )
            added = {} if _POP_CHECK in record.properties else {_POP_CHECK: str(handle)}
            pieces.append(encode_message(record, checked.topic.name, popped.queue, added))
        return b"".join(pieces)


def _rotated(topic: TopicConfig) -> Iterator[tuple[str, int]]:
    """Yields the queues of a topic from any one on."""
    count = topic.read_queue_count
    first = random.randrange(max(count, 1))
    return ((topic.name, (first + each) % count) for each in range(count))


def _record_places(records: bytes) -> Iterator[int]:
    at = 0
    while at < len(records):
        yield at
        at += _SIZE.unpack_from(records, at)[0]


def _forbidden(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.NO_PERMISSION)


def _invalid(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.INVALID_PARAMETER)
