"""Requests about topics: make, change, delete, show."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.metadata import topics as rules
from rmqstore.broker.operations.topics import TopicChange, TopicOperations
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.statistics import GroupList
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


class TopicRequests:
    """Answers requests about topics. Where members of the set lack a change, the remark names the
    number of those that hold it."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._operations = TopicOperations(context)
        self._clients = clients

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
        change = TopicChange(topic, rules.parse_attributes(header.attributes or ""))
        spread = await self._operations.change([change])
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _create_list(self, call: Call[Any, list[TopicChange]]) -> Frame:
        spread = await self._operations.change(call.body)
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _delete(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        spread = await self._operations.delete(call.header.topic)
        remark = "this broker is a slave, which deletes the topic after its master"
        return call.respond(ResponseCode.SUCCESS, remark if spread is None else spread.remark)

    def _config(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        topic = self._operations.config(call.header.topic)
        return call.respond(ResponseCode.SUCCESS, body=fastjson.dumps(topic.members()))

    async def _stats(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        stats = await self._operations.stats(call.header.topic)
        return call.respond(ResponseCode.SUCCESS, body=stats.encode())

    def _consumers(self, call: Call[OneTopicRequestHeader, bytes]) -> Frame:
        topic = call.header.topic
        groups = {*self._operations.groups_of(topic), *self._clients.subscribers(topic)}
        return call.respond(ResponseCode.SUCCESS, body=GroupList(sorted(groups)).encode())

    def _system_topics(self, call: Call[Any, bytes]) -> Frame:
        topics = self._operations.system_topics()
        return call.respond(ResponseCode.SUCCESS, body=TopicList(topics).encode())
