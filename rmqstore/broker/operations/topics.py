"""The topics of a broker: make, change, delete, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rmqstore.broker.membership.roles import Standing
from rmqstore.broker.metadata import topics as rules
from rmqstore.broker.metadata.spreading import Spread
from rmqstore.broker.operations.core import Core
from rmqstore.errors import RequestRefused
from rmqstore.permissions import PERM_ALL
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import QueueStats, TopicStats
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import TopicConfig
from rmqstore.topic_names import RetryKind, pop_retry_topic, popped_from

__all__ = ["TopicChange", "TopicOperations"]

_QUEUES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic to make or change."""

    topic: TopicConfig
    """Without attributes."""
    attributes: Mapping[str, str]
    """Changes of its attributes by key with a sign; see `parse_attributes`."""


class TopicOperations:
    """Makes, changes, deletes and shows topics.

    A change returns when it is durable, when the members of the sync-state set hold it or the wait
    for them has ended, and when the nameservers that answer have the topic. The `Spread` names the
    members that lack it. A slave refuses changes.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    async def change(self, changes: Sequence[TopicChange]) -> Spread:
        """Make or change topics; all are checked before the first one. Raises RequestRefused."""
        metadata = self._core.metadata
        made = []
        for change in changes:
            topic = self._changed(change)
            if topic != metadata.topic(topic.name):
                made.append(topic)

        spread = Spread()
        for topic in made:
            self._core.log.info("topic %s is made or changed by a request", topic.name)
            spread = await metadata.change_topic(topic)
        if not made:
            spread = await metadata.confirm_topics()
        await self._core.registered()
        return spread

    def _changed(self, change: TopicChange) -> TopicConfig:
        """Returns a topic after a change."""
        topic = change.topic
        rules.check_name(topic.name)
        rules.refuse_system(topic.name)
        if self._core.config.light_queues and rules.light_topic(topic.name) is not None:
            raise RequestRefused(
                f"{topic.name} is a light queue, which exists by its name and has no settings",
                code=ResponseCode.INVALID_PARAMETER,
            )
        _check_numbers(topic)
        known = self._core.metadata.topic(topic.name)
        topic = rules.with_attributes(topic, known, change.attributes)
        # What this broker does not know of a topic stays as it is.
        return topic if known is None else replace(topic, others=known.others)

    async def delete(self, name: str) -> Spread | None:
        """Delete a topic with its queues and the offsets of groups; return None where this slave
        deletes the topic after its master. Raises RequestRefused."""
        if not name.strip():
            raise RequestRefused(
                "The specified topic is blank.", code=ResponseCode.INVALID_PARAMETER
            )
        rules.refuse_system(name)
        role = self._core.role
        if role.standing is Standing.FOLLOWING:
            # mqadmin sends the request to masters and slaves, in any order.
            return None
        self._core.log.info("topic %s is deleted by a request", name)
        retries = self._retries_of(name)
        spread = await self._core.metadata.delete_topic(name)
        for retry_topic in retries:
            await self._core.metadata.delete_topic(retry_topic)
        self._core.traffic.statistics.forget_topic(name)
        await self._core.registered()
        return spread

    def _retries_of(self, name: str) -> list[str]:
        """Returns the topics of messages that were popped from a topic, and are to be popped again.
        One that may be of another topic, too, stays."""
        metadata, found = self._core.metadata, []
        if not self._core.config.clears_pop_retries:
            return []
        for group in metadata.offsets.groups_of(name):
            for kind in (RetryKind.V1, RetryKind.V2):
                retry_topic = pop_retry_topic(name, group, kind)
                if metadata.topic(retry_topic) is None:
                    continue
                readings = popped_from(retry_topic, lambda each: metadata.group(each) is not None)
                if any(topic != name and metadata.topic(topic) for _, topic in readings):
                    self._core.log.warning(
                        "%s stays: it may be of another topic than %s", retry_topic, name
                    )
                else:
                    found.append(retry_topic)
        return found

    # -- Questions.

    def config(self, name: str) -> TopicConfig:
        """Return a topic. Raises RequestRefused for an unknown one."""
        topic = self._core.metadata.topic(name)
        if topic is None:
            raise _not_exist(f"No topic in this broker. topic: {name}")
        return topic

    async def stats(self, name: str) -> TopicStats:
        """Return the bounds of the queues of a topic. Raises RequestRefused for an unknown one."""
        topic = self._core.metadata.topic(name)
        if topic is None:
            raise _not_exist(f"topic[{name}] not exist")
        count = max(topic.read_queue_count, topic.write_queue_count)
        queues = await self._core.runtime.in_thread(self._queues_stats, name, count)
        rate = self._core.traffic.statistics.topic_put_rate(name, self._core.now_ms() / 1000)
        return TopicStats(queues, rate)

    def _queues_stats(self, topic: str, count: int) -> Mapping[QueueName, QueueStats]:
        broker_name = self._core.config.name
        return {
            QueueName(topic, broker_name, number): self._queue_stats(topic, number)
            for number in range(count)
        }

    def _queue_stats(self, topic: str, number: int) -> QueueStats:
        queue = self._core.store.store.queue(topic, number)
        start, end = queue.start, queue.end
        updated_ms = queue.get(end - 1).store_timestamp if end > start else 0
        return QueueStats(start, end, updated_ms)

    def groups_of(self, topic: str) -> Sequence[str]:
        """Return the groups that have offsets on a topic."""
        return self._core.metadata.offsets.groups_of(topic)

    def system_topics(self) -> Sequence[str]:
        """Return the topics of the system and of the broker itself, in order."""
        return sorted(self._core.metadata.system_topics())


def _check_numbers(topic: TopicConfig) -> None:
    for name in ("read_queue_count", "write_queue_count"):
        count = getattr(topic, name)
        if not 0 <= count <= _QUEUES_MAX:
            raise RequestRefused(
                f"topic {topic.name} has {name} {count}; give 0 to {_QUEUES_MAX}",
                code=ResponseCode.INVALID_PARAMETER,
            )
    if not 0 <= topic.perm <= PERM_ALL:
        raise RequestRefused(
            f"topic {topic.name} has perm {topic.perm}; give a sum of 4, 2 and 1",
            code=ResponseCode.INVALID_PARAMETER,
        )


def _not_exist(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.TOPIC_NOT_EXIST)
