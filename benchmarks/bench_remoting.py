"""Remoting: the header that a broker reads for each message, and calls over one connection.

    pytest benchmarks/bench_remoting.py

The cost of a header has two parts: its frame, and its fields as a dataclass.
"""

from __future__ import annotations

import asyncio

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame, FrameDecoder, SerializeType, encode
from rmqstore.remoting.headers.field import Header
from rmqstore.remoting.headers.pull import PullMessageRequestHeader
from rmqstore.remoting.headers.send import SendMessageRequestHeaderV2
from rmqstore.remoting.server import RemotingServer

CALLS = 1000

SEND = SendMessageRequestHeaderV2(
    producer_group="producer",
    topic="bench0",
    default_topic="TBW102",
    default_topic_queues=4,
    queue_id=2,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    flag=0,
    properties="UNIQ_KEY\x01C000020267764E0E2F2A67BCF9970000\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    reconsume_times=0,
    unit_mode=False,
    is_batch=False,
    broker_name="broker-a",
)
PULL = PullMessageRequestHeader(
    consumer_group="consumer",
    topic="bench0",
    queue_id=2,
    queue_offset=1_000_000,
    max_messages=32,
    sys_flag=3,
    commit_offset=999_968,
    suspend_timeout_ms=15_000,
    subscription_version=1_700_000_000_000,
    expression_type="TAG",
    max_size_bytes=262_144,
    broker_name="broker-a",
)
HEADERS = [(RequestCode.SEND_MESSAGE_V2, SEND), (RequestCode.PULL_MESSAGE, PULL)]


def frame_of(code: int, header: Header, kind: SerializeType = SerializeType.JSON) -> Frame:
    frame = Frame.request(code, header.to_fields(), body=bytes(1024))
    frame.serialize_type = kind
    return frame


@pytest.mark.parametrize("kind", SerializeType, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("code", "header"), HEADERS, ids=["310", "11"])
def bench_frame_decoded(
    benchmark: BenchmarkFixture, code: int, header: Header, kind: SerializeType
) -> None:
    frame = frame_of(code, header, kind)
    [found] = benchmark(FrameDecoder().feed, encode(frame))
    assert found == frame


@pytest.mark.parametrize(("code", "header"), HEADERS, ids=["310", "11"])
def bench_fields_decoded(benchmark: BenchmarkFixture, code: int, header: Header) -> None:
    [frame] = FrameDecoder().feed(encode(frame_of(code, header)))
    assert benchmark(type(header).from_fields, frame.ext_fields) == header


@pytest.mark.parametrize("kind", SerializeType, ids=lambda kind: kind.name)
def bench_answer_encoded(benchmark: BenchmarkFixture, kind: SerializeType) -> None:
    fields = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "2", "queueOffset": "17"}
    answer = frame_of(RequestCode.SEND_MESSAGE_V2, SEND, kind).respond(0, None, fields)
    data = benchmark(encode, answer)
    assert FrameDecoder().feed(data) == [answer]


def bench_calls_pipelined(benchmark: BenchmarkFixture) -> None:
    """CALLS requests at once over one connection; both ends on one loop."""
    request = frame_of(RequestCode.PULL_MESSAGE, PULL)

    def answer(connection: RemotingConnection, asked: Frame) -> Frame:
        return asked.respond(ResponseCode.SUCCESS, None, {}, asked.body)

    with asyncio.Runner() as runner:
        server = RemotingServer("127.0.0.1:0", {RequestCode.PULL_MESSAGE: answer})
        client = RemotingClient()

        async def begin() -> None:
            server.start()

        async def call() -> int:
            calls = (client.call(server.address, request, timeout=60.0) for _ in range(CALLS))
            return sum(len(found.body) for found in await asyncio.gather(*calls))

        async def end() -> None:
            await client.close()
            await server.close()

        runner.run(begin())
        benchmark.extra_info["messages"] = CALLS
        assert benchmark(lambda: runner.run(call())) == CALLS * 1024
        runner.run(end())
