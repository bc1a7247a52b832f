"""Servers whose process may open few descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.admin.broker import BrokerAdmin
from rmqstore.broker.node import Broker
from rmqstore.net.addresses import format_address, parse_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.server import RemotingServer
from rmqstore.replication import Replica
from tests.service.server_processes import first_line, serving
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.waiting import until

LIMIT = 200
_OPEN_MIN = 120
"""With fewer open descriptors the two parts of the reserve are too small for these tests."""


def _send(topic: str) -> Frame:
    fields = {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    return Frame.request(RequestCode.SEND_MESSAGE_V2, fields | {"h": "0", "i": ""}, b"x")


@on_loop
async def test_idle_connections_leave_descriptors_to_new_topics(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

    arguments = ("standalone", "--port", "0", "--broker-port", "0", str(tmp_path))
    with serving(*arguments, preexec_fn=limited) as process, contextlib.ExitStack() as idle:
        place = parse_address(first_line(process).split()[-1])
        async with RemotingClient() as client:
            assert (await client.call(place, _send("first"))).code == ResponseCode.SUCCESS
            for _ in range(LIMIT + 30):
                sock = idle.enter_context(socket.create_connection(place, 10))
            # The last connection was accepted and closed.
            sock.settimeout(10)
            assert sock.recv(1) == b""
            for number in range(20):
                answer = await client.call(place, _send(f"topic-{number}"))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
        process.terminate()
        _, errors = process.communicate()
    assert f"of {LIMIT} descriptors of this process are open" in errors
    assert "Too many open files" not in errors


def test_server_process_raises_its_soft_limit(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))

    arguments = ("standalone", "--port", "0", "--broker-port", "0", str(tmp_path))
    with serving(*arguments, preexec_fn=limited) as process:
        first_line(process)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (300, 300)


@pytest.fixture
def few_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next descriptors are in the part that is kept back from clients, and not from others."""
    with contextlib.ExitStack() as fillers:
        while (filler := os.open("/dev/null", os.O_RDONLY)) < _OPEN_MIN:
            fillers.callback(os.close, filler)
        fillers.callback(os.close, filler)
        # Of 8 parts, 6 are for clients and 7 for others.
        limit = 8 * (filler // 6)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
        yield


@pytest.mark.usefixtures("few_left")
@on_loop
async def test_client_is_refused_and_counted() -> None:
    async with RemotingServer("127.0.0.1:0", {}) as server:
        with socket.create_connection(server.address, 10):
            await until(lambda: server.status().refused_connections == 1, "the refusal")
        assert server.status().connections == 0


@pytest.mark.usefixtures("few_left")
@on_loop
async def test_slave_may_use_a_part_of_the_descriptors_kept_back(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, commit_log_file_size_bytes=1 << 20) as store:
        async with Replica(store, broker_id=0, listen="127.0.0.1:0", protocol="classic") as master:
            await master.become_master(1)
            assert master.address is not None
            with socket.create_connection(master.address, 10):
                await until(lambda: len(master.status().replicas) == 1, "the connection")


@on_loop
async def test_change_that_finds_no_descriptor_does_not_ask_for_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, BrokerAdmin("127.0.0.1") as admin:
        error = rmqstore.DiskError(errno.EMFILE, "topics.json: Too many open files")

        async def fail(*_: str) -> rmqstore.DiskError:
            return error

        monkeypatch.setattr(broker.metadata, "failure_of", fail)
        place = format_address(broker.address)
        [change] = await admin.update_topic(rmqstore.TopicConfig("new", 4, 4), [place])
    assert "ulimit -n" in str(change.error)
    assert "free space" not in str(change.error)
