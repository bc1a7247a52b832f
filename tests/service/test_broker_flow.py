"""Clients that send more than they should, beside one that sends a message at a time
(spec/broker.md 1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rmqstore.broker.node import Broker
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from tests.service.broker_clients import call, pull_request
from tests.support.brokers import broker_config
from tests.support.effort import rounds
from tests.support.loops import on_loop
from tests.support.sends import send_request
from tests.support.waiting import until

_HELD_MAX = 8 << 20
"""Bytes of frames that a broker may hold for one client that does not read."""


@asynccontextmanager
async def connected(
    broker: Broker,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*broker.address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def send_is_served(client: RemotingClient, broker: Broker) -> None:
    answer = await call(client, broker, send_request("T", b"of another client"))
    assert answer.code == ResponseCode.SUCCESS


@on_loop
async def test_a_client_that_reads_no_answer_holds_bounded_memory(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        for number in range(32):
            await call(client, broker, send_request("T", bytes(4000) + b"%d" % number))
        await broker.store.wait_dispatched()
        async with connected(broker) as (_, writer):
            writer.write(encode(pull_request("T", 0)) * 2000)
            # 2,000 answers have 250 MB.
            await until(lambda: len(broker.open.server.connections) == 2, "both are connected")
            connection = broker.open.server.connections[-1]
            await until(lambda: not connection.is_writable, "the broker waits for the client")
            for _ in range(50):
                await send_is_served(client, broker)
                assert broker.open.held_bytes < _HELD_MAX
            assert not connection.is_writable
        await until(lambda: broker.open.held_bytes == 0, "nothing is held for a client that left")


@on_loop
async def test_requests_without_end_of_one_client_are_all_answered_and_delay_no_other(
    tmp_path: Path,
) -> None:
    """In its long form a million of them."""
    count = rounds(20_000, 1_000_000)
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await send_is_served(client, broker)
        async with connected(broker) as (reader, writer):
            piece, pieces = encode(Frame(31999)) * 1000, count // 1000

            async def send() -> None:
                for _ in range(pieces):
                    writer.write(piece)
                    await writer.drain()

            async def receive() -> int:
                decoder, received = FrameDecoder(), 0
                while received < count:
                    received += len(decoder.feed(await reader.read(1 << 20)))
                return received

            both = asyncio.gather(send(), receive())
            while not both.done():
                await send_is_served(client, broker)
                assert broker.open.held_bytes < _HELD_MAX
            assert (await both)[1] == count
