"""Replies to requests: SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325).

A request is an ordinary message that names its client (REPLY_TO_CLIENT). The consumer that replies
sends the reply to the broker of the request, which passes it on to that client.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.handlers.send import SendCall, message_of, place_fields
from rmqstore.broker.operations.core import refuse_other_than_master
from rmqstore.broker.operations.send import ClientMessage, SendOperation, Sent
from rmqstore.errors import PutError, RemotingError
from rmqstore.message import encode_properties
from rmqstore.net.addresses import format_address
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import ReplyMessageRequestHeader
from rmqstore.remoting.requests import Handler

__all__ = ["ReplyRequests"]

_PUSH_S = 10.0
_CLIENT = "REPLY_TO_CLIENT"


class ReplyRequests:
    """The handler of replies."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
        self._operation = SendOperation(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    async def _reply(self, call: SendCall) -> Frame:
        refuse_other_than_master(self._context.role)
        message = message_of(call, is_batch=False)
        fields = await self._stored(message) if self._context.config.store_replies else {}
        failure = await self._push(call, message)
        if failure:
            return call.respond(ResponseCode.SYSTEM_ERROR, failure, fields)
        return call.respond(ResponseCode.SUCCESS, fields=fields)

    async def _stored(self, message: ClientMessage) -> Mapping[str, str]:
        """Returns where a reply is stored. One that the store did not take is passed on
        nevertheless: the client waits for it, not for the record."""
        try:
            found = self._operation.send(message)
            return place_fields(found if isinstance(found, Sent) else await found)
        except PutError as error:
            self._context.log.warning("a reply is not stored: %s", error)
            return {}

    async def _push(self, call: SendCall, message: ClientMessage) -> str:
        """Sends a reply to the client of its request; returns why that failed, "" for a success."""
        client_id = message.properties.get(_CLIENT)
        if client_id is None:
            return f"reply message properties[{_CLIENT}] is null"
        client = self._clients.producer(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        request = Frame.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._push_fields(call, message), message.body
        )
        try:
            answer = await client.call(request, _PUSH_S)
        except RemotingError as error:
            return f"push reply message to {client_id}fail. {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id}fail. {answer.remark or answer.code}"
        return ""

    def _push_fields(self, call: SendCall, message: ClientMessage) -> Mapping[str, str]:
        now_ms = self._context.wall_ms()
        properties = {**message.properties, "PUSH_REPLY_TIME": str(now_ms)}
        return ReplyMessageRequestHeader(
            producer_group=call.header.producer_group,
            topic=message.topic,
            default_topic=message.default_topic,
            default_topic_queues=message.default_topic_queues,
            queue_id=message.queue,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            flag=message.flag,
            properties=encode_properties(properties),
            reconsume_times=message.reconsume_times,
            unit_mode=message.is_unit,
            born_host=format_address(message.born_host),
            store_host=format_address(self._context.address),
            store_timestamp_ms=now_ms,
        ).to_fields()
