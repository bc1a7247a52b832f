"""The progress of groups as operators compare it: of all groups, in time, and between groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rmqstore.broker.metadata import groups as rules
from rmqstore.broker.operations.core import Core, ViewOf, refuse_slave
from rmqstore.broker.operations.groups import GroupOperations
from rmqstore.errors import NotFoundError, OffsetOutOfRange, RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import ConsumeStats, TimeSpan
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.queue import Queue

__all__ = ["ProgressOperations", "Subscribed", "corrected"]

Subscribed = Callable[[str], Collection[str] | None]
"""Returns the topics that the online members of a group subscribe to, None where none is online."""

_NO_CORRECTION = (1 << 63) - 1
"""For a queue in which the compared group is behind all others."""


class ProgressOperations:
    """Shows the progress of groups, and copies it from one group to another."""

    def __init__(self, core: Core, subscribed: Subscribed) -> None:
        self._core = core
        self._subscribed = subscribed
        self._groups = GroupOperations(core)
        self._view = ViewOf(core)

    # -- All groups.

    async def of_all(self, *, only_ordered: bool) -> Mapping[str, Sequence[ConsumeStats]]:
        """Return the progress of every group on each of its topics, or on its ordered topics."""
        metadata = self._core.metadata
        by_group = metadata.offsets.topics_by_group()
        found: dict[str, list[ConsumeStats]] = {}
        for group in sorted(metadata.tables.groups):
            topics = [
                topic
                for topic in by_group.get(group, ())
                if self._counts(topic, group) and (not only_ordered or self._is_ordered(topic))
            ]
            found[group] = [await self._groups.stats(group, [topic]) for topic in topics]
        return found

    def _counts(self, topic: str, group: str) -> bool:
        """Whether a group consumes a topic that exists, as far as its online members show."""
        subscribed = self._subscribed(group)
        is_consumed = subscribed is None or topic in subscribed
        return is_consumed and self._core.metadata.topic(topic) is not None

    def _is_ordered(self, topic: str) -> bool:
        found = self._core.metadata.topic(topic)
        return found is not None and found.order

    def topics_of(self, group: str) -> Sequence[str]:
        """Return the topics that a group has offsets on."""
        return self._core.metadata.offsets.topics_of(group)

    # -- Times.

    async def time_spans(self, topic: str, group: str) -> Sequence[TimeSpan]:
        """Return how far back in time a group is in each queue. Raises RequestRefused for an
        unknown topic."""
        config = self._core.metadata.topic(topic)
        if config is None:
            raise RequestRefused(f"topic[{topic}] not exist", code=ResponseCode.TOPIC_NOT_EXIST)
        queues = range(max(config.read_queue_count, config.write_queue_count))
        offsets = dict(self._core.metadata.offsets.table.of(topic, group))
        now_ms = self._core.runtime.wall_ms()

        def read() -> Sequence[TimeSpan]:
            return [self._span(topic, number, offsets.get(number), now_ms) for number in queues]

        return await self._core.runtime.in_thread(read)

    def _span(self, topic: str, number: int, committed: int | None, now_ms: int) -> TimeSpan:
        queue = self._core.store.store.queue(topic, number)
        start, end = queue.start, queue.end
        min_ms = _stored_ms(queue, start)
        next_offset = start if committed is None else max(committed, start)
        next_ms = _stored_ms(queue, next_offset) if next_offset < end else -1
        return TimeSpan(
            QueueName(topic, self._core.config.name, number),
            min_ms,
            _stored_ms(queue, end - 1),
            _stored_ms(queue, committed - 1) if committed else min_ms,
            now_ms - next_ms if next_ms >= 0 else 0,
        )

    # -- Between groups.

    def corrections(
        self, topic: str, compare_group: str, left_out: Collection[str]
    ) -> Mapping[int, int]:
        """Return by queue the smallest offset of the groups on a topic, without those of
        *left_out*; see `corrected`. Nothing is changed."""
        offsets, bounds = self._core.metadata.offsets, self._view().bounds
        known = {group: offsets.table.of(topic, group) for group in offsets.groups_of(topic)}
        queues = {queue for each in known.values() for queue in each}
        starts = {queue: (bounds(topic, queue) or (0, 0))[0] for queue in queues}
        counted = [each for group, each in known.items() if group not in left_out]
        return corrected(counted, known.get(compare_group, {}), starts)

    def clone(
        self, source: str, target: str, topic: str | None, *, is_offline: bool
    ) -> Sequence[str]:
        """Give the group *target* the offsets of *source* on a topic, None for all its topics;
        return the topics. Unless *is_offline*, topics are left out that the online members of
        *source* do not subscribe to. Raises RequestRefused."""
        refuse_slave(self._core.role, "clone offset")
        rules.check_name(target)
        if source == target:
            raise RequestRefused(
                f"the group {source} is the source and the target; give two groups",
                code=ResponseCode.INVALID_PARAMETER,
            )
        metadata = self._core.metadata
        topics = [topic] if topic else metadata.offsets.topics_of(source)
        cloned = [
            each
            for each in topics
            if metadata.topic(each) is not None
            and (is_offline or self._counts(each, source))
            and metadata.offsets.clone(each, source, target)
        ]
        self._core.log.info(
            "the group %s has the offsets of %s on %s", target, source, ", ".join(cloned) or "none"
        )
        return cloned


def corrected(
    offsets: Collection[Mapping[int, int]], compared: Mapping[int, int], starts: Mapping[int, int]
) -> dict[int, int]:
    """Return by queue the smallest of *offsets* that is not before the start of the queue. Where
    the offset of the *compared* group is smaller still, it needs no correction: the value is the
    largest one."""
    found: dict[int, int] = {}
    for each in offsets:
        for queue, offset in each.items():
            if offset >= starts[queue]:
                found[queue] = min(found.get(queue, offset), offset)
    for queue, offset in compared.items():
        if found.get(queue, offset) > offset:
            found[queue] = _NO_CORRECTION
    return found


def _stored_ms(queue: Queue, offset: int) -> int:
    """Returns the store time of a message, -1 where there is none."""
    if offset < 0:
        return -1
    try:
        return queue.get(offset).store_timestamp
    except (NotFoundError, OffsetOutOfRange):
        return -1
