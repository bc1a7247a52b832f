"""Programs of unmodified clients of RocketMQ against brokers of ours and of Java.

A program prints a line "@NAME=JSON" for each thing that it tried.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rmqstore.broker.metadata.topics import TEMPLATE_TOPIC
from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.tls import TlsClient, TlsServer
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader
from tests.support import java
from tests.support.brokers import broker_config
from tests.support.java_broker import java_side
from tests.support.our_group import OurGroup
from tests.support.releases import BEFORE
from tests.support.waiting import until

RETRYING: Mapping[str, object] = {
    "messageDelayLevel": "1s 1s 1s",
    "inSyncReplicas": 2,
    "allAckInSyncStateSet": "true",
}
"""Of a group whose consumers fail: nothing that is acknowledged is lost with the master."""

_TIMEOUT_S = 400.0
_NAMESERVER = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
_DELAY_MS = 1000


@dataclass(frozen=True, slots=True)
class Tls:
    """What servers use for TLS; without it they have none."""

    server: TlsServer | None = None
    client: TlsClient | None = None


class Program(Protocol):
    """A program of clients."""

    def __call__(self, *arguments: str) -> AbstractContextManager[Sequence[str]]:
        """Yield the command that runs the program."""


def java_program(release: str, *flags: str, name: str = "peer.clients.Main") -> Program:
    """Return the program *name* of Java's clients of *release*, with *flags* of the JVM."""
    project = java.CLIENTS if release == BEFORE else java.PROGRAMS
    java.need(release, project)

    @contextmanager
    def program(*arguments: str) -> Iterator[Sequence[str]]:
        with java.scratch([*java.quick_flags(release, project), *flags]) as all_flags:
            yield java.command(release, name, *arguments, flags=all_flags, project=project)

    return program


def play(program: Program, root: Path, tls: Tls | None = None) -> dict[str, Any]:
    """Run *program* against a broker at *root*; return what it saw, by name."""
    return asyncio.run(_play(program, root, tls or Tls()))


async def _play(program: Program, root: Path, tls: Tls) -> dict[str, Any]:
    async with Nameserver(_NAMESERVER, tls=tls.server, client_tls=tls.client) as nameserver:
        address = format_address(nameserver.address)
        config = broker_config(
            root,
            nameservers=(address,),
            delay_levels_ms=(_DELAY_MS,) * 18,
            sql_filters=True,
            transaction_timeout_ms=_DELAY_MS,
            transaction_check_interval_ms=_DELAY_MS,
        )
        async with Broker(config, tls=tls.server, client_tls=tls.client) as broker:
            await broker.registered()
            return await _run(program, address)


def play_over_java(program: Program, release: str, root: Path) -> dict[str, Any]:
    """Run *program* against a nameserver and a broker of Java's *release*; return what it saw."""
    return asyncio.run(_play_over_java(program, release, root))


async def _play_over_java(program: Program, release: str, root: Path) -> dict[str, Any]:
    with java_side(release, root) as peer:
        address = await peer.nameserver()
        await peer.broker(
            address,
            messageDelayLevel=" ".join([f"{_DELAY_MS // 1000}s"] * 18),
            enablePropertyFilter="true",
            timerWheelEnable="true",
            transactionTimeOut=_DELAY_MS,
            transactionCheckInterval=_DELAY_MS,
        )
        async with RemotingClient() as client:
            await until(lambda: _has_route(client, address), "the broker has registered")
        return await _run(program, address)


async def _has_route(client: RemotingClient, nameserver: str) -> bool:
    """Return whether topics can be made by messages."""
    header = GetRouteInfoRequestHeader(topic=TEMPLATE_TOPIC)
    request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.to_fields())
    return (await client.call(nameserver, request, 5.0)).code == ResponseCode.SUCCESS


async def _run(program: Program, nameserver: str) -> dict[str, Any]:
    with program(nameserver) as command:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, errors.decode()[-4000:]
    lines = [line[1:] for line in out.decode().splitlines() if line.startswith("@")]
    return {name: json.loads(value) for name, _, value in (line.partition("=") for line in lines)}


def play_through_kill(
    program: Program, nameserver: str, count: int, *, after: str, kill: Callable[[], None]
) -> dict[str, int]:
    """Run *program* with *count* messages, and *kill* a master once it says *after*; return what
    it saw, by name."""
    found: dict[str, int] = {}
    with (
        program(nameserver, str(count)) as command,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        limit = threading.Timer(_TIMEOUT_S, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                name, _, value = line.strip().removeprefix("@").partition("=")
                if line.startswith("@"):
                    found[name] = int(value)
                if name == after:
                    kill()
            assert process.wait() == 0
        finally:
            limit.cancel()
            process.kill()
    return found


def play_in_group(program: Program, group: OurGroup, count: int, *, after: str) -> dict[str, int]:
    """Do the same, and kill the master of *group*."""
    nameserver = f"{group.server_host}:{group.nameserver_port}"
    found = play_through_kill(
        program, nameserver, count, after=after, kill=lambda: group.master().kill()
    )
    # The controllers' answers name the masters.
    group.state()
    return found
