"""Brokers and clients of RocketMQ's own remoting against the nameserver."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping
from typing import Any

from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from tests.support import java
from tests.support.releases import NEW, OLD, with_releases

PROGRAM = "peer.nameserver.Main"
TIMEOUT_S = 150.0
CONFIG = NameserverConfig(
    bind_address="127.0.0.1", listen_port=0, acting_master=True, notify_min_broker_id=True
)


async def play(release: str, flags: tuple[str, ...]) -> Mapping[str, Any]:
    """Run the program against a nameserver; return what it decoded, by name."""
    async with Nameserver(CONFIG) as nameserver:
        with java.scratch([*java.quick_flags(release), *flags]) as all_flags:
            command = java.command(
                release, PROGRAM, format_address(nameserver.address), flags=all_flags
            )
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


_BINARY = ("-Drocketmq.remoting.version=400", "-Drocketmq.serialize.type=ROCKETMQ")


@with_releases(
    "flags",
    # Version 400 is the last one that gets routes with unquoted broker ids.
    {"json-479": (("-Drocketmq.remoting.version=479",), OLD), "binary-400": (_BINARY, NEW)},
)
def test_java_decodes_every_answer(java_release: str, flags: tuple[str, ...]) -> None:
    assert asyncio.run(play(java_release, flags)) == {
        "register master": [0, "null"],
        "register slave": [0, "127.0.0.1:1"],
        "route": [[0, 1], 6, 4],
        "no route": 17,
        "cluster info": "127.0.0.1:1",
        "member group": [0, 1],
        "data version": [False, True],
        "topics": ["orders", "payments"],
        "key values": {"key": "välue"},
        "wiped": 2,
        "unknown request": 3,
        "unregistered": 0,
        "notification": [1, True, "127.0.0.1:1"],
        "route without master": [[0], 4, 4],
    }
