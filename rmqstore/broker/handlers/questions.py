"""Requests that a broker passes on to consumers: INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223),
GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY (309).

A consumer that does not answer costs the operator the time of the question, and delays no other
request.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.broker.clients import Client, ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.operations.lookups import LookupOperations
from rmqstore.errors import ArgumentError, RemotingError, RemotingTimeout, RequestRefused
from rmqstore.message import parse_message_id
from rmqstore.remoting.bodies.client_lists import ClientProgress, GroupProgress
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.clients import (
    ConsumeDirectlyRequestHeader,
    ConsumerRequestHeader,
    ConsumerStatusRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["QuestionRequests"]

_ANSWER_S = 10.0
_PROGRESS_S = 5.0
"""As RocketMQ's brokers wait for either answer."""
_ANSWER_BYTES_MAX = 12 * 1024 * 1024
"""Bytes that are passed on; the frame has at most 16 MiB."""


class QuestionRequests:
    """Asks consumers for an operator."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
        self._lookups = LookupOperations(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._progress,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
        }

    def _member(self, group: str, client_id: str) -> Client:
        found = self._clients.consumer(group, client_id)
        if found is None:
            raise RequestRefused(
                f"The Consumer <{group}> <{client_id}> not online", code=ResponseCode.SYSTEM_ERROR
            )
        return found

    # -- The progress of members.

    async def _progress(self, call: Call[ConsumerStatusRequestHeader, bytes]) -> Frame:
        header = call.header
        members = self._members(header.group, header.client_id or "")
        question = ConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        request = Frame.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question.to_fields())
        left = _ANSWER_BYTES_MAX

        async def ask(member: Client) -> ClientProgress | None:
            nonlocal left
            try:
                answer = await member.connection.call(request, _PROGRESS_S)
                left -= len(answer.body)
                if answer.code != ResponseCode.SUCCESS or left < 0:
                    return None
                return await self._context.runtime.in_thread(ClientProgress.decode, answer.body)
            except RemotingError as error:
                self._context.log.warning(
                    "%s of the group %s does not give its progress: %s",
                    member.client_id,
                    header.group,
                    error,
                )
                return None

        answers = await self._context.runtime.gather(*(ask(each) for each in members.values()))
        if left < 0:
            raise RequestRefused(
                f"the answers have more than {_ANSWER_BYTES_MAX} bytes; ask one client of the "
                f"group {header.group} at a time",
                code=ResponseCode.SYSTEM_ERROR,
            )
        found = {name: each for name, each in zip(members, answers, strict=True) if each}
        return call.respond(ResponseCode.SUCCESS, body=GroupProgress(found).encode())

    def _members(self, group: str, client_id: str) -> Mapping[str, Client]:
        """Returns the members to ask, by the ids of their clients."""
        if client_id.strip():
            return {client_id: self._member(group, client_id)}
        known = self._clients.consumer_group(group)
        if known is None:
            raise RequestRefused(
                f"No Any Consumer online in the consumer group: [{group}]",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return {each.client_id: each for each in known.members.values()}

    # -- One member.

    async def _running_info(self, call: Call[ConsumerRequestHeader, bytes]) -> Frame:
        header = call.header
        member = self._member(header.consumer_group, header.client_id)
        question = Frame.request(call.request.code, call.request.ext_fields)
        return await self._passed_on(call, header.consumer_group, member, question)

    async def _consume(self, call: Call[ConsumeDirectlyRequestHeader, bytes]) -> Frame:
        header, metadata = call.header, self._context.metadata
        member = self._member(header.consumer_group, header.client_id or "")
        fields = {**call.request.ext_fields, "brokerName": self._context.config.name}
        topic = metadata.topic(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.sys_flag)
        group = metadata.group(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.sys_flag)

        question = Frame.request(call.request.code, fields, self._message(header))
        return await self._passed_on(call, header.consumer_group, member, question)

    def _message(self, header: ConsumeDirectlyRequestHeader) -> bytes:
        """Returns the record of the message to consume."""
        try:
            place = parse_message_id(header.message_id or "")
        except ArgumentError as error:
            raise RequestRefused(f"msgId: {error}", code=ResponseCode.INVALID_PARAMETER) from None
        record = self._lookups.message_at(place.physical_offset)
        if header.topic and record.topic != header.topic:
            raise RequestRefused(
                f"the message {header.message_id} belongs to topic {record.topic}, not to "
                f"{header.topic}",
                code=ResponseCode.INVALID_PARAMETER,
            )
        return record.raw

    async def _passed_on(
        self,
        call: Call[ConsumerRequestHeader | ConsumeDirectlyRequestHeader, bytes],
        group: str,
        member: Client,
        question: Frame,
    ) -> Frame:
        name = f"consumer <{group}> <{member.client_id}>"
        try:
            answer = await member.connection.call(question, _ANSWER_S)
        except RemotingTimeout as error:
            raise RequestRefused(
                f"{name} Timeout: {error}", code=ResponseCode.CONSUME_MSG_TIMEOUT
            ) from None
        except RemotingError as error:
            raise RequestRefused(
                f"invoke {name} Exception: {error}", code=ResponseCode.SYSTEM_ERROR
            ) from None
        body = answer.body.strip()
        is_object = body.startswith(b"{") and body.endswith(b"}")
        if len(body) > _ANSWER_BYTES_MAX or (answer.code == ResponseCode.SUCCESS and not is_object):
            raise RequestRefused(
                f"{name} answers with {len(body)} bytes, which are not a JSON object of at most "
                f"{_ANSWER_BYTES_MAX} bytes",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return call.respond(answer.code, answer.remark, body=body)
