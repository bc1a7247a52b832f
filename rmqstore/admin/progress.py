"""The requests of an operator about the progress of groups, and about queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqstore.admin.broker_calls import BrokerCalls
from rmqstore.admin.servers import Change
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import ConsumeStatsOfAll, ResetOffsets
from rmqstore.remoting.bodies.values import object_of
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.headers.administration import (
    CloneOffsetsRequestHeader,
    ConsumeStatsOfAllRequestHeader,
    QueueUnitsRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqstore.store.metadata import GroupConfig
from rmqstore.topic_names import RETRY_PREFIX
from rmqstore.typed_calls import typed

__all__ = ["ProgressAdmin"]


@typed()
class ProgressAdmin(BrokerCalls):
    """Shows and changes the offsets of groups, and looks into queues."""

    async def broker_consume_stats(
        self, broker: str, *, only_ordered: bool = False
    ) -> ConsumeStatsOfAll:
        """Return the progress of every group on each of its topics at a broker."""
        header = ConsumeStatsOfAllRequestHeader(only_ordered=only_ordered)
        answer = await self._call(broker, RequestCode.GET_BROKER_CONSUME_STATS, header.to_fields())
        return ConsumeStatsOfAll.decode(answer.raise_for_code().body)

    async def clone_group_offset(
        self, source: str, group: str, topic: str | None = None, *, is_offline: bool = False
    ) -> Sequence[Change]:
        """Give a group the offsets of the group *source* on a topic, or on all its topics.

        Unless *is_offline*, topics are left out that online consumers of *source* do not subscribe
        to.
        """
        header = CloneOffsetsRequestHeader(
            source=source, group=group, topic=topic, is_offline=is_offline
        )
        brokers = await self._route_masters(topic or RETRY_PREFIX + source)
        return await self._change_at(brokers, RequestCode.CLONE_GROUP_OFFSET, header.to_fields())

    async def reset_offset_by_time(
        self, group: str, topic: str, *, time_ms: int | None = None, is_forced: bool = True
    ) -> Mapping[QueueName, int]:
        """Set the offsets of a group on a topic to those of a store time, None for the end of each
        queue; return them."""
        header = ResetOffsetRequestHeader(
            group=group,
            topic=topic,
            timestamp_ms=-1 if time_ms is None else time_ms,
            is_forced=is_forced,
        )
        found: dict[QueueName, int] = {}
        for address in await self._route_masters(topic):
            answer = await self._call(
                address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header.to_fields()
            )
            found |= ResetOffsets.decode(answer.raise_for_code().body).offsets
        return found

    async def update_groups(
        self, groups: Sequence[GroupConfig], brokers: Sequence[str]
    ) -> Sequence[Change]:
        """Create or change consumer groups at *brokers*."""
        body = fastjson.dumps({"groupConfigList": [each.members() for each in groups]})
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        return await self._change_at(brokers, code, None, body)

    async def queue_units(
        self,
        topic: str,
        queue: int,
        *,
        start: int,
        count: int,
        broker: str | None = None,
        group: str | None = None,
    ) -> Mapping[str, Any]:
        """Return units of a queue at *broker*, or at the first broker of the topic, with the
        subscription of a group (QueryConsumeQueueResponseBody)."""
        header = QueueUnitsRequestHeader(
            topic=topic, queue_id=queue, start=start, count=count, group=group
        )
        address = (await self._route_masters(topic))[0] if broker is None else broker
        answer = await self._call(address, RequestCode.QUERY_CONSUME_QUEUE, header.to_fields())
        return object_of(fastjson.loads(answer.raise_for_code().body), "queueData")
