"""Replies to requests: which client gets them, and how their sender is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.message import decode_properties
from rmqstore.net.addresses import format_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import ReplyMessageRequestHeader
from tests.service.broker_clients import call, heartbeat
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request

TOPIC = "DefaultCluster_REPLY_TOPIC"
CODES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


class Requester:
    """A client that waits for replies, and answers their push with *code*."""

    def __init__(self, code: int = ResponseCode.SUCCESS) -> None:
        self.replies: list[Frame] = []
        self._code = code
        handlers = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply}
        self.client = RemotingClient(handlers=handlers)

    def _reply(self, connection: RemotingConnection, request: Frame) -> Frame:
        self.replies.append(request)
        return request.respond(self._code, "no such request")


def reply(client_id: str | None = "c1", *, code: int = CODES[1]) -> Frame:
    """Return a reply to the request of a client."""
    properties = {"CORRELATION_ID": "7", "MSG_TYPE": "reply", "UNIQ_KEY": "K"}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    form = RequestCode.SEND_MESSAGE if code == CODES[0] else RequestCode.SEND_MESSAGE_V2
    request = send_request(TOPIC, b"pong", properties, code=form, flag=9)
    request.code = code
    return request


@pytest.mark.parametrize("code", CODES)
@on_loop
async def test_reply_is_passed_on_to_the_client_of_its_request(tmp_path: Path, code: int) -> None:
    """testProcessRequest_Success of upstream's ReplyMessageProcessorTest."""
    requester = Requester()
    async with Broker(broker_config(tmp_path)) as broker, requester.client:
        async with RemotingClient() as replier:
            await call(requester.client, broker, heartbeat("c1"))
            answer = await call(replier, broker, reply(code=code))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext_fields["queueOffset"] == "0"

        [pushed] = requester.replies
        header = ReplyMessageRequestHeader.from_fields(pushed.ext_fields)
        assert (pushed.body, header.topic, header.flag) == (b"pong", TOPIC, 9)
        assert header.store_host == format_address(broker.address)
        assert header.born_host.startswith("127.0.0.1:")
        properties = decode_properties(header.properties or "")
        assert properties.pop("PUSH_REPLY_TIME") == str(header.store_timestamp_ms)
        assert properties["CORRELATION_ID"] == "7"
        assert broker.store.store.record_at(0).body == b"pong"


@pytest.mark.parametrize(
    ("client_id", "remark"),
    [
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
        ("c2", "push reply message fail, channel of <c2> not found."),
        ("c1", "push reply message to c1fail. no such request"),
    ],
)
@on_loop
async def test_reply_that_reaches_no_client_fails_and_is_stored(
    tmp_path: Path, client_id: str | None, remark: str
) -> None:
    requester = Requester(ResponseCode.SYSTEM_ERROR)
    async with Broker(broker_config(tmp_path)) as broker, requester.client:
        await call(requester.client, broker, heartbeat("c1"))
        answer = await call(requester.client, broker, reply(client_id))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert answer.ext_fields["msgId"] == broker.store.store.record_at(0).message_id


@on_loop
async def test_client_whose_connection_ended_gets_no_reply(tmp_path: Path) -> None:
    requester = Requester()
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as replier:
        async with requester.client:
            await call(requester.client, broker, heartbeat("c1"))
        answer = await call(replier, broker, reply())
        while "not found" not in (answer.remark or ""):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            answer = await call(replier, broker, reply())


@on_loop
async def test_replies_are_not_stored_where_the_broker_is_configured_so(tmp_path: Path) -> None:
    requester = Requester()
    config = broker_config(tmp_path, store_replies=False)
    async with Broker(config) as broker, requester.client:
        await call(requester.client, broker, heartbeat("c1"))
        answer = await call(requester.client, broker, reply())
        assert (answer.code, len(requester.replies)) == (ResponseCode.SUCCESS, 1)
        assert broker.store.store.end_offset == 0
