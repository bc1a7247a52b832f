"""RocketMQ's load programs, unmodified, against a broker and a nameserver of ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.store.metadata import TopicConfig
from tests.interop.upstream import PROGRAMS, RELEASE
from tests.support import java
from tests.support.brokers import broker_config
from tests.support.effort import rounds
from tests.support.loops import on_loop
from tests.support.waiting import until

pytestmark = pytest.mark.java
PACKAGE = "org.apache.rocketmq.example.benchmark"
TOPIC, GROUP = "load", "load-readers"
QUEUES = 4
THREADS = 8
BODY_BYTES = 256
LIMIT_S = 200.0
MESSAGES = rounds(20_000, 300_000)


@asynccontextmanager
async def program(
    name: str, *arguments: str, stdout: int = asyncio.subprocess.DEVNULL
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a load program, at most as long as the block."""
    with java.scratch(java.quick_flags(RELEASE, PROGRAMS)) as flags:
        command = java.command(
            RELEASE, f"{PACKAGE}.{name}", *arguments, flags=flags, project=PROGRAMS
        )
        process = await asyncio.create_subprocess_exec(
            *command, stdout=stdout, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@on_loop
async def test_load_programs_send_and_consume_every_message(tmp_path: Path) -> None:
    java.need(RELEASE, PROGRAMS)
    config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
    async with Nameserver(config) as nameserver:
        namesrv = format_address(nameserver.address)
        settings = broker_config(
            tmp_path, nameservers=(namesrv,), commit_log_file_size_bytes=64 << 20
        )
        async with Broker(settings) as broker:
            await broker.metadata.change_topic(TopicConfig(TOPIC, QUEUES, QUEUES))
            await broker.registered()
            common = ("-n", namesrv, "-t", TOPIC, "-w", str(THREADS))
            async with program("Consumer", *common, "-g", GROUP):
                assert await produce(*common) == (MESSAGES, 0, 0)
                what = "every message consumed"
                await until(lambda: consumed(broker) == MESSAGES, what, timeout=LIMIT_S)


async def produce(*common: str) -> tuple[int, ...]:
    """Run the producer to its end; return how many it sent, and how many sends failed."""
    arguments = (*common, "-s", str(BODY_BYTES), "-q", str(MESSAGES))
    async with program("Producer", *arguments, stdout=asyncio.subprocess.PIPE) as process:
        out, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    counts = re.search(
        rb"\[Complete\] Send Total: (\d+) .*Send Failed: (\d+) .*Response Failed: (\d+)", out
    )
    assert counts, out
    return tuple(map(int, counts.groups()))


def consumed(broker: Broker) -> int:
    """Return how many messages the group has consumed."""
    offsets = broker.metadata.tables.offsets
    return sum(offsets.query(TOPIC, GROUP, queue) or 0 for queue in range(QUEUES))
