"""Lists of clients for operators: GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST
(204), GET_ALL_PRODUCER_INFO (328), QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.clients import Client, ClientTable
from rmqstore.broker.context import Context
from rmqstore.errors import RequestRefused
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.client_lists import (
    ConsumerConnections,
    GroupSubscription,
    ProducerConnections,
    ProducerTable,
)
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.clients import (
    ConsumerGroupRequestHeader,
    GroupTopicRequestHeader,
    ProducerGroupRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["ClientListRequests"]


class ClientListRequests:
    """Answers an operator who looks for the members of groups."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
        }

    def _consumers(self, call: Call[ConsumerGroupRequestHeader, bytes]) -> Frame:
        header = call.header
        group = self._clients.consumer_group(header.consumer_group)
        if group is None:
            raise RequestRefused(
                f"the consumer group[{header.consumer_group}] not online",
                code=ResponseCode.CONSUMER_NOT_ONLINE,
            )
        body = ConsumerConnections(
            connections=[_connection(each) for each in group.members.values()],
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from=group.consume_from,
            subscriptions=group.subscriptions,
        )
        return call.respond(ResponseCode.SUCCESS, body=body.encode())

    def _producers(self, call: Call[ProducerGroupRequestHeader, bytes]) -> Frame:
        group = call.header.producer_group
        members = self._clients.producers(group)
        if not members:
            raise RequestRefused(
                f"the producer group[{group}] not exist", code=ResponseCode.SYSTEM_ERROR
            )
        body = ProducerConnections([_connection(each) for each in members])
        return call.respond(ResponseCode.SUCCESS, body=body.encode())

    def _all_producers(self, call: Call[Any, bytes]) -> Frame:
        groups = self._clients.producer_groups().items()
        body = ProducerTable({name: [*map(self._producer, members)] for name, members in groups})
        return call.respond(ResponseCode.SUCCESS, body=body.encode())

    def _producer(self, client: Client) -> dict[str, Any]:
        heard_ms = self._clients.heard_ms(client.connection)
        silent_ms = 0 if heard_ms is None else self._context.now_ms() - heard_ms
        return {
            "clientId": client.client_id,
            "language": client.language,
            "lastUpdateTimestamp": self._context.wall_ms() - silent_ms,
            "remoteIP": f"/{_address(client)}",  # The slash is Java's.
            "version": client.version,
        }

    def _subscription(self, call: Call[GroupTopicRequestHeader, bytes]) -> Frame:
        header = call.header
        found = self._clients.subscription(header.group, header.topic or "")
        body = GroupSubscription(group=header.group, topic=header.topic, subscription=found)
        return call.respond(ResponseCode.SUCCESS, body=body.encode())


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientAddr": _address(client),
        "clientId": client.client_id,
        "language": client.language,
        "version": client.version,
    }


def _address(client: Client) -> str:
    return format_address(client.connection.proxied_peer or client.connection.peer)
