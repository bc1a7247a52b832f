"""Unmodified producers and consumers of RocketMQ against a broker and a nameserver of ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from tests.support import java
from tests.support.brokers import broker_config
from tests.support.releases import NEW, OLD, with_releases

PROGRAM = "peer.clients.Main"
TIMEOUT_S = 400.0
NAMESERVER = NameserverConfig(bind_address="127.0.0.1", listen_port=0)


async def play(release: str, root: Path, flags: tuple[str, ...]) -> Mapping[str, Any]:
    """Run the program against a broker; return what it saw, by name."""
    async with Nameserver(NAMESERVER) as nameserver:
        address = format_address(nameserver.address)
        config = broker_config(root, nameservers=(address,), delay_levels_ms=(1000,) * 18)
        async with Broker(config):
            with java.scratch([*java.quick_flags(release), *flags]) as all_flags:
                command = java.command(release, PROGRAM, address, flags=all_flags)
                process = await asyncio.create_subprocess_exec(
                    *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        out, errors = await process.communicate()
                finally:
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
    assert process.returncode == 0, errors.decode()[-4000:]
    lines = [line[1:] for line in out.decode().splitlines() if line.startswith("@")]
    return {name: json.loads(value) for name, _, value in (line.partition("=") for line in lines)}


@with_releases(
    "flags", {"json": ((), NEW), "binary": (("-Drocketmq.serialize.type=ROCKETMQ",), OLD)}
)
def test_java_clients_send_find_and_consume(
    java_release: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    assert asyncio.run(play(java_release, tmp_path, flags)) == {
        "sync": "SEND_OK",
        "async": True,
        "batch": "SEND_OK 8",
        "requested": "not awaited" if java_release == OLD else "re: hello",
        "pulled": 20,
        "tagged": [0, 11],
        "by key": "1 5",
        "by id": "0",
        "by unique key": "0",
        "pushed": 20,
        "shared": {"first": 2, "second": 2},
        "pushed to both": 60,
        "left": 4,
        "delayed": True,
        "tries": 2,
        "tried": 1,
        "dead": 1,
        "fewest tries": 3,
        "in order": {"0": True, "1": True, "2": True},
        "broadcast": [60, 60],
        "polled": 60,
        "committed": True,
    }
