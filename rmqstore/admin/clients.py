"""The requests of an operator about clients of brokers, and those that reach consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqstore.admin.broker_calls import BrokerCalls
from rmqstore.errors import NotFoundError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.values import integer_at, list_of, object_of
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.clients import (
    ConsumeDirectlyRequestHeader,
    ConsumerGroupRequestHeader,
    ConsumerRequestHeader,
    ConsumerStatusRequestHeader,
    ProducerGroupRequestHeader,
)
from rmqstore.topic_names import RETRY_PREFIX
from rmqstore.typed_calls import typed

__all__ = ["ClientAdmin"]

_QUESTION_S = 15.0
"""Longer than a broker waits for a consumer."""


@typed()
class ClientAdmin(BrokerCalls):
    """Lists clients, and passes questions to consumers."""

    # -- lists

    async def producer_connections(self, group: str, topic: str) -> Sequence[Mapping[str, Any]]:
        """Return the members of a producer group that are connected to brokers of a topic."""
        header = ProducerGroupRequestHeader(producer_group=group)
        found: list[Mapping[str, Any]] = []
        for address in await self._route_masters(topic):
            answer = await self._call(
                address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header.to_fields()
            )
            if answer.code != ResponseCode.SYSTEM_ERROR:
                found += _objects(_object(answer), "connectionSet")
        if not found:
            raise NotFoundError(f"no producer of the group {group!r} is connected")
        return found

    async def producers(self, broker: str) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return all producers that are connected to a broker, by group."""
        data = object_of(
            _object(await self._call(broker, RequestCode.GET_ALL_PRODUCER_INFO)).get("data"), "data"
        )
        return {group: _objects(data, group) for group in data}

    async def consumer_connections(
        self, group: str, broker: str | None = None
    ) -> Mapping[str, Any]:
        """Return the members and subscriptions of a consumer group, as *broker* or the first broker
        of the group's retry topic knows them. Raises NotFoundError without a member."""
        header = ConsumerGroupRequestHeader(consumer_group=group)
        for address in await self._brokers_of(group, broker):
            answer = await self._call(
                address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header.to_fields()
            )
            if answer.code != ResponseCode.CONSUMER_NOT_ONLINE:
                return _object(answer)
        raise NotFoundError(f"no consumer of the group {group!r} is connected")

    async def _brokers_of(self, group: str, broker: str | None) -> Sequence[str]:
        return await self._route_masters(RETRY_PREFIX + group) if broker is None else (broker,)

    # -- questions

    async def running_info(
        self, group: str, client_id: str, *, broker: str | None = None, with_stacks: bool = False
    ) -> Mapping[str, Any]:
        """Return the state that a consumer reports (ConsumerRunningInfo)."""
        header = ConsumerRequestHeader(
            consumer_group=group, client_id=client_id, with_stacks=with_stacks
        )
        address = (await self._brokers_of(group, broker))[0]
        return await self._ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header.to_fields())

    async def consumer_status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> Mapping[str, Mapping[QueueName, int]]:
        """Return the next offset of each queue that the members of a group have, or one of them, by
        the id of the client."""
        header = ConsumerStatusRequestHeader(group=group, topic=topic, client_id=client_id)
        found: dict[str, dict[QueueName, int]] = {}
        for address in await self._route_masters(topic):
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            body = await self._ask(address, code, header.to_fields())
            for member, table in object_of(body.get("consumerTable"), "consumerTable").items():
                offsets = object_of(table, "messageQueueTable")
                found.setdefault(member, {}).update(
                    {QueueName.of_key(key): integer_at(offsets, key, 0) for key in offsets}
                )
        return found

    async def consume_directly(
        self, group: str, client_id: str, topic: str, message_id: str, broker: str
    ) -> Mapping[str, Any]:
        """Let one consumer consume the message with an offset id, which *broker* has; return the
        result of its listener (ConsumeMessageDirectlyResult)."""
        header = ConsumeDirectlyRequestHeader(
            consumer_group=group, client_id=client_id, topic=topic, message_id=message_id
        )
        return await self._ask(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header.to_fields())

    async def _ask(self, address: str, code: int, fields: Mapping[str, str]) -> Mapping[str, Any]:
        request = Frame.request(code, fields)
        return _object(await self._client.call(address, request, max(self._timeout, _QUESTION_S)))


def _object(answer: Frame) -> Mapping[str, Any]:
    return object_of(fastjson.loads(answer.raise_for_code().body), "body")


def _objects(fields: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [object_of(each, key) for each in list_of(fields.get(key), key)]
