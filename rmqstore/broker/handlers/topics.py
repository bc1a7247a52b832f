"""Requests about topics: make, change, delete, show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.metadata import topics as rules
from rmqstore.broker.metadata.spreading import Spread
from rmqstore.broker.request_table import TopicChange
from rmqstore.errors import RequestRefused
from rmqstore.permissions import PERM_ALL
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import GroupList, QueueStats, TopicStats
from rmqstore.remoting.bodies.tables import TopicList
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import (
    CreateTopicRequestHeader,
    OneTopicRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler
from rmqstore.store.metadata import TopicConfig

__all__ = ["TopicRequests"]

_QUEUES_MAX = 65_536


class TopicRequests:
    """Answers requests about topics.

    A change is answered when it is durable, when the members of the sync-state set hold it or the
    wait for them has ended, and when the nameservers that answer have the topic. Where members lack
    the change, the remark names the number of those that hold it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._create_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.GET_TOPIC_CONFIG: self._config,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumers,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
        }

    async def _create(self, call: Call[CreateTopicRequestHeader, bytes]) -> Frame:
        header = call.header
        topic = TopicConfig(
            header.topic,
            header.read_queues,
            header.write_queues,
            header.perm,
            header.filter_type or "SINGLE_TAG",
            header.sys_flag or 0,
            header.order,
        )
        changes = rules.parse_attributes(header.attributes or "")
        return await self._change(call, [(topic, changes)])

    async def _create_list(self, call: Call[Any, list[TopicChange]]) -> Frame:
        return await self._change(call, call.body)

    async def _change(self, call: Call[Any, Any], wanted: list[TopicChange]) -> Frame:
        """Makes or changes topics: all of them are checked before the first one."""
        metadata = self._context.metadata
        made = []
        for topic, changes in wanted:
            rules.check_name(topic.name)
            rules.refuse_system(topic.name)
            _check_numbers(topic)
            known = metadata.topic(topic.name)
            topic = rules.with_attributes(topic, known, changes)
            # What this broker does not know of a topic stays as it is.
            topic = topic if known is None else replace(topic, others=known.others)
            if topic != known:
                made.append(topic)

        spread = Spread()
        for topic in made:
            self._context.log.info("topic %s is made or changed by a request", topic.name)
            spread = await metadata.change_topic(topic)
        if not made:
            spread = await metadata.confirm_topics()
        await self._context.registered()
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _delete(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        name = call.header.topic
        if not name.strip():
            raise RequestRefused(
                "The specified topic is blank.", code=ResponseCode.INVALID_PARAMETER
            )
        rules.refuse_system(name)
        role = self._context.role
        if role.name == "slave" and not role.waits_for:
            # mqadmin sends the request to masters and slaves, in any order.
            remark = "this broker is a slave, which deletes the topic after its master"
            return call.respond(ResponseCode.SUCCESS, remark)
        self._context.log.info("topic %s is deleted by a request", name)
        spread = await self._context.metadata.delete_topic(name)
        await self._context.registered()
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    def _config(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        topic = self._known(call.header.topic)
        return call.respond(ResponseCode.SUCCESS, body=fastjson.dumps(topic.members()))

    def _stats(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        name = call.header.topic
        topic = self._context.metadata.topic(name)
        if topic is None:
            raise _not_exist(f"topic[{name}] not exist")
        count = max(topic.read_queue_count, topic.write_queue_count)
        broker_name = self._context.config.name
        queues = {
            QueueName(name, broker_name, number): self._queue_stats(name, number)
            for number in range(count)
        }
        rate = self._context.traffic.topic_put_rate(name, self._context.now_ms() / 1000)
        return call.respond(ResponseCode.SUCCESS, body=TopicStats(queues, rate).encode())

    def _queue_stats(self, topic: str, number: int) -> QueueStats:
        queue = self._context.store.store.queue(topic, number)
        start, end = queue.start, queue.end
        updated_ms = queue.get(end - 1).store_timestamp if end > start else 0
        return QueueStats(start, end, updated_ms)

    def _consumers(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        topic = call.header.topic
        groups = self._context.metadata.offsets.groups_of(topic)
        return call.respond(ResponseCode.SUCCESS, body=GroupList(groups).encode())

    def _system_topics(self, call: Call[Any, bytes]) -> Frame:
        topics = sorted(self._context.metadata.system_topics())
        return call.respond(ResponseCode.SUCCESS, body=TopicList(topics).encode())

    def _known(self, name: str) -> TopicConfig:
        topic = self._context.metadata.topic(name)
        if topic is None:
            raise _not_exist(f"No topic in this broker. topic: {name}")
        return topic


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
