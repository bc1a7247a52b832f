"""The consumer groups of a broker: make, change, delete, show, and their progress."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rmqstore.broker.metadata import groups as rules
from rmqstore.broker.metadata.spreading import Spread
from rmqstore.broker.operations.core import Core
from rmqstore.errors import NotFoundError, OffsetOutOfRange, RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import ConsumeStats, QueueProgress
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig, RequestMode
from rmqstore.topic_names import RETRY_PREFIX

__all__ = ["GroupOperations"]


class GroupOperations:
    """Makes, changes, deletes and shows groups; changes return as those of `TopicOperations`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def change(self, group: GroupConfig) -> Spread:
        """Make or change a group. Raises RequestRefused."""
        rules.check_name(group.name)
        self._core.log.info("group %s is made or changed by a request", group.name)
        return await self._core.metadata.change_group(group)

    async def change_all(self, groups: Sequence[GroupConfig]) -> Spread:
        """Make or change groups; all names are checked before the first one. Raises
        RequestRefused."""
        for group in groups:
            rules.check_name(group.name)
        spread = Spread()
        for group in groups:
            spread = await self.change(group)
        return spread

    async def delete(self, name: str, *, with_offsets: bool) -> Spread:
        """Delete a group, and its offsets if *with_offsets*. Raises RequestRefused."""
        self._core.log.info("group %s is deleted by a request", name)
        spread = await self._core.metadata.delete_group(name, with_offsets=with_offsets)
        self._core.traffic.statistics.forget_group(name)
        return spread

    async def set_mode(self, mode: RequestMode) -> Spread:
        """Set how a group gets the messages of a topic. Raises RequestRefused."""
        if mode.topic.startswith(RETRY_PREFIX):
            raise RequestRefused(
                "retry topic is not allowed to set mode", code=ResponseCode.NO_PERMISSION
            )
        if mode.mode not in ("PULL", "POP") or not mode.topic or not mode.group:
            raise RequestRefused(
                f"mode {mode.mode!r} of topic {mode.topic!r} and group {mode.group!r}; give a "
                "topic, a group, and PULL or POP",
                code=ResponseCode.INVALID_PARAMETER,
            )
        if self._core.metadata.topic(mode.topic) is None:
            raise RequestRefused(
                f"topic[{mode.topic}] not exist", code=ResponseCode.TOPIC_NOT_EXIST
            )
        if await self._core.metadata.group_for(mode.group) is None:
            raise _no_group(mode.group)
        return await self._core.metadata.set_mode(mode)

    async def allow(self, group: str, topic: str, *, is_readable: bool) -> Spread:
        """Allow a group to read a topic, or forbid it. Raises RequestRefused."""
        return await self._core.metadata.forbid(group, topic, is_forbidden=not is_readable)

    # -- Questions.

    def may_read(self, group: str, topic: str) -> bool:
        """Return whether a group is not forbidden to read a topic."""
        return not self._core.metadata.is_forbidden(group, topic)

    def config(self, name: str) -> GroupConfig:
        """Return a group. Raises RequestRefused for an unknown one."""
        group = self._core.metadata.group(name)
        if group is None:
            raise _no_group(name)
        return group

    async def stats(self, group: str, topics: Collection[str] = ()) -> ConsumeStats:
        """Return the progress of a group on *topics*, or on all that it has offsets on."""
        offsets, statistics = self._core.metadata.offsets, self._core.traffic.statistics
        topics = topics or offsets.topics_of(group)
        now_s = self._core.now_ms() / 1000
        rate = sum(statistics.group_get_rate(topic, group, now_s) for topic in topics)
        queues = [each for topic in topics for each in self._queues_of(topic, group)]
        progress = await self._core.runtime.in_thread(self._progress, queues)
        return ConsumeStats(progress, rate)

    def _queues_of(self, topic: str, group: str) -> Iterator[tuple[QueueName, int, int]]:
        """Yields the queues of a topic, with the offsets that a group has committed and pulled."""
        metadata = self._core.metadata
        config = metadata.topic(topic)
        for number in range(0 if config is None else config.read_queue_count):
            committed = metadata.offsets.query(topic, group, number) or 0
            pulled = metadata.offsets.last_pulled(topic, group, number) or 0
            # A group that committed without a pull here has nothing in flight.
            name = QueueName(topic, self._core.config.name, number)
            yield name, committed, max(pulled, committed)

    def _progress(
        self, queues: Iterable[tuple[QueueName, int, int]]
    ) -> Mapping[QueueName, QueueProgress]:
        store, found = self._core.store.store, {}
        for name, committed, pulled in queues:
            queue = store.queue(name.topic, name.queue_id)
            consumed_ms = 0
            if committed > 0:
                try:
                    consumed_ms = queue.get(committed - 1).store_timestamp
                except (NotFoundError, OffsetOutOfRange):
                    consumed_ms = 0  # The message is deleted, or the offset is past the end.
            found[name] = QueueProgress(queue.end, committed, pulled, consumed_ms)
        return found


def _no_group(name: str) -> RequestRefused:
    return RequestRefused(
        f"No group in this broker. group: {name}",
        code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
