"""Each log message of a server names it, and peers cannot fill the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import Address, format_address
from rmqstore.remoting.server import RemotingServer
from tests.support.broker_group import group_of, put
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.waiting import until

_NAMED = re.compile(r"\[(broker|controller|namesrv) [^]]+\] ")
_BAD_FRAME = b"\xff" * 8
_TLS_HELLO = b"\x16\x03\x01\x00\x05hello"


async def _connect(place: Address, data: bytes) -> None:
    """Connect, send *data*, and wait until the server has closed the connection."""
    reader, writer = await asyncio.open_connection(*place)
    writer.write(data)
    writer.write_eof()
    # A server that closes before it has read all resets the connection.
    with contextlib.suppress(ConnectionError):
        await reader.read()
        writer.close()
        await writer.wait_closed()


def _nameless(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{each.name}: {each.getMessage()}"
        for each in caplog.records
        if each.name.startswith("rmqstore") and not _NAMED.match(each.getMessage())
    ]


@on_loop
async def test_each_message_of_a_group_names_its_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quorum = {"in_sync_replicas": 2, "all_ack_in_sync_state_set": True, "min_in_sync_replicas": 2}
    async with group_of(tmp_path, "a", "b", "c", **quorum) as group:
        first = await group.master()
        master = group.brokers[first]
        await put(master, "one")
        assert master.open.ha_address is not None
        for place in (master.address, master.open.ha_address):
            await _connect(place, b"")
        await _connect(master.address, _BAD_FRAME)
        await _connect(master.address, _TLS_HELLO)
        await group.kill(first)
        await group.master(after=master.role.epoch)
    assert _nameless(caplog) == []
    replication = [each for each in caplog.records if each.name == "rmqstore.replication"]
    assert any("master of epoch" in each.getMessage() for each in replication)


@on_loop
async def test_servers_of_one_process_are_named_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = {"bind_address": "127.0.0.1", "listen_port": 0}
    async with (
        Nameserver(NameserverConfig(**place)) as nameserver,  # type: ignore[arg-type]
        Broker(broker_config(tmp_path)) as broker,
    ):
        caplog.clear()
        for server, kind in ((nameserver, "namesrv"), (broker, "broker broker-a")):
            await _connect(server.address, _BAD_FRAME)
            name = f"[{kind} {format_address(server.address)}] "
            await until(lambda: bool(caplog.messages), "the message")
            assert caplog.messages[0].startswith(name)
            caplog.clear()


@pytest.mark.parametrize("data", [b"", _BAD_FRAME, _TLS_HELLO], ids=["check", "frame", "tls"])
@on_loop
async def test_connections_do_not_fill_the_log(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with RemotingServer("127.0.0.1:0", {}) as server:
        for _ in range(40):
            await _connect(server.address, data)
        with socket.create_connection(server.address, 10):
            pass
    assert len(caplog.records) == (5 if data else 0)
