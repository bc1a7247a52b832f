"""`rmqstore top` over a nameserver, a controller and brokers on the loopback interface."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from rmqstore.cli import top as top_module
from rmqstore.cli.app import app
from rmqstore.config import NameserverConfig
from rmqstore.data_version import DataVersion
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.remoting.bodies.controller import ReplicasInfo, ReplicaState, sync_state_data
from rmqstore.remoting.bodies.topic_config import TopicTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import Handler
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from rmqstore.remoting.server import RemotingServer
from tests.support.nameserver_host import registration
from tests.support.waiting import WAIT_S

WITHOUT_VARIABLE = {"NAMESRV_ADDR": None}


@dataclass
class Cluster:
    """Group b of two brokers with epochs, in cluster c, and groups without them, in cluster d: x
    of two, y of one that does not report the end of its log."""

    nameserver: str
    controller: str
    brokers: list[str]
    questions: list[int]
    """How often the controller was asked for sets."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    stack = AsyncExitStack()
    questions: list[int] = []

    def broker(end: int, table: bytes) -> dict[int, Handler]:
        body = b'{"brokerId":1,"epochList":[{"epoch":4,"startOffset":0}],"maxOffset":%d}' % end
        return without_epochs(table) | {
            RequestCode.GET_BROKER_EPOCH_CACHE: lambda connection, request: request.respond(
                ResponseCode.SUCCESS, body=body
            )
        }

    def without_epochs(table: bytes) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda connection, request: request.respond(
                ResponseCode.SUCCESS, body=b'{"table":{%b}}' % table
            )
        }

    async def start() -> Cluster:
        async def serve(handlers: dict[int, Handler]) -> str:
            server = await stack.enter_async_context(RemotingServer("127.0.0.1:0", handlers))
            return format_address(server.address)

        ends = [b'"commitLogMaxOffset":"%d"' % end for end in (90, 70)]
        leased = b'"commitLogMaxOffset":"510","leaseRemainingMillis":"6400"'
        handlers = [broker(500, leased), broker(120, b""), *map(without_epochs, [*ends, b""])]
        brokers = [await serve(each) for each in handlers]
        config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
        nameserver = await stack.enter_async_context(Nameserver(config))
        client = await stack.enter_async_context(RemotingClient())
        places = [("c", "b", 0), ("c", "b", 1), ("d", "x", 0), ("d", "x", 1), ("d", "y", 0)]
        for (name_of_cluster, name, broker_id), address in zip(places, brokers, strict=True):
            header = RegisterBrokerRequestHeader(
                broker_name=name,
                broker_address=address,
                cluster_name=name_of_cluster,
                broker_id=broker_id,
            )
            frame = registration(header, TopicTable(DataVersion(counter=1), {}))
            (await client.call(nameserver.address, frame, WAIT_S)).raise_for_code()

        def sets(connection: Any, request: Frame) -> Frame:
            questions.append(len(questions))
            group = ReplicasInfo(
                broker_name="b",
                master_id=2,
                master_address=brokers[0],
                master_epoch=4,
                set_epoch=9,
                in_sync=(ReplicaState(2, brokers[0], True),),
                not_in_sync=(
                    ReplicaState(1, brokers[1], True),
                    ReplicaState(3, "127.0.0.1:1", False),
                ),
                wait_reason="two copies" if len(questions) > 1 else "",
            )
            return request.respond(ResponseCode.SUCCESS, body=sync_state_data({"b": group}))

        def metadata(connection: Any, request: Frame) -> Frame:
            if len(questions) >= 4:
                return request.respond(ResponseCode.SYSTEM_BUSY, "no more")
            return request.respond(ResponseCode.SUCCESS, fields={"isLeader": "true"})

        controller = await serve(
            {
                RequestCode.CONTROLLER_GET_METADATA_INFO: metadata,
                RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: sets,
            }
        )
        return Cluster(format_address(nameserver.address), controller, brokers, questions)

    thread = LoopThread("cluster", what="the thread of the cluster")
    try:
        yield thread.run(start)
    finally:
        thread.run(stack.aclose)
        thread.stop()


def top(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["top", "--once", *arguments], env=WITHOUT_VARIABLE)
    assert result.exit_code == code, result.output
    return result.output


def test_a_nameserver_alone_shows_ids_ends_and_lag(cluster: Cluster) -> None:
    rows = [line.split("\t") for line in top("-n", cluster.nameserver).splitlines()]
    first, second, third, fourth, fifth = cluster.brokers
    assert rows[0][:4] == ["broker name", "id", "address", "role"]
    assert rows[1:] == [
        ["b", "0", first, "master", "yes", "4", "-", "-", "500", "0", "6400 ms"],
        ["b", "1", second, "slave", "yes", "4", "-", "-", "120", "380", "-"],
        ["x", "0", third, "master", "yes", "-", "-", "-", "90", "0", "-"],
        ["x", "1", fourth, "slave", "yes", "-", "-", "-", "70", "20", "-"],
        ["y", "0", fifth, "master", "yes", "-", "-", "-", "-", "-", "-"],
    ]
    only = top("-n", cluster.nameserver, "-c", "d").splitlines()[1:]
    assert [line.split("\t")[0] for line in only] == ["x", "x", "y"]
    assert "no live broker" in top("-n", cluster.nameserver, "-c", "e", code=1)


def test_a_controller_adds_masters_sets_and_why_a_group_waits(cluster: Cluster) -> None:
    cluster.questions.clear()
    found = json.loads(top("-a", cluster.controller, "-b", "b", "--json"))
    assert [
        (each["brokerId"], each["role"], each["inSync"], each["lagBytes"], each["leaseMillis"])
        for each in found["brokers"]
    ] == [
        (1, "slave", False, 380, None),
        (2, "master", True, 0, 6400),
        (3, "slave", False, None, None),
    ]
    assert [each["alive"] for each in found["brokers"]] == [True, True, False]
    assert {each["syncStateSetEpoch"] for each in found["brokers"]} == {9}
    assert (found["waitReasons"], found["unknown"]) == ({}, [])

    both = top("-n", cluster.nameserver, "-a", cluster.controller)
    assert f"b\t2\t{cluster.brokers[0]}\tmaster\tyes\t4\tyes\t9\t500\t0\t6400 ms\n" in both
    assert f"x\t0\t{cluster.brokers[2]}\tmaster\tyes\t-" in both
    assert "b: two copies" in both
    missing = top("-a", cluster.controller, "-b", "b", "-b", "z", code=1)
    assert "no server knows broker group z" in missing


def test_views_follow_each_other_and_go_on_while_no_server_answers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.questions.clear()
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(top_module, "time", SimpleNamespace(sleep=pause))
    arguments = ["top", "-a", cluster.controller, "-b", "b", "-i", "0.5"]
    result = CliRunner().invoke(app, arguments, env=WITHOUT_VARIABLE)
    assert result.exit_code == 130
    assert pauses == [0.5] * 6
    assert result.output.count("broker name\t") == 4
    assert result.output.count("no controller leads") == 2


def test_a_server_that_does_not_answer_ends_one_view() -> None:
    assert "cannot connect" in top("-n", "127.0.0.1:1", code=4)
    assert "no controller leads" in top("-a", "127.0.0.1:1", "-b", "b", code=4)
    assert "address" in top("-n", ";", code=2)


_VIEW = """
from rmqstore.admin.top import ReplicaRow, View
from rmqstore.cli.top import _show
rows = [
    ReplicaRow(
        broker_name="broker-a", broker_id=number, address=f"10.20.30.4{number}:10911",
        is_master=number == 1, is_alive=True, epoch=1, is_in_sync=True, set_epoch=3,
        end_offset=123456789, lag_bytes=0, lease_ms=2788 if number == 1 else None,
    )
    for number in (1, 2)
]
_show(View(rows, {}, []), json=False, clears=CLEARS)
"""


def _drawn(width: int, *, clears: bool = False) -> str:
    """Return what a terminal of *width* columns gets."""
    screen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 16, width, 0, 0))
    code = _VIEW.replace("CLEARS", str(clears))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run(
        [sys.executable, "-c", code],
        stdin=terminal,
        stdout=terminal,
        env=environment | {"TERM": "xterm"},
        check=True,
    )
    os.close(terminal)
    with open(screen, "rb", buffering=0) as output:
        drawn = output.read(100_000)
    assert drawn is not None
    return drawn.decode()


def _plain(text: str) -> list[str]:
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).splitlines()]


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (120, ""),
        (70, "set epoch, epoch, end offset, alive"),
        (40, "set epoch, epoch, end offset, alive, in sync, lease, lag, role"),
    ],
)
def test_narrow_terminal_loses_columns_by_rank_and_no_part_of_a_cell(
    width: int, left_out: str
) -> None:
    lines = _plain(_drawn(width))
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["broker-a", "1", "10.20.30.41:10911"],
        ["broker-a", "2", "10.20.30.42:10911"],
    ]
    assert "…" not in "".join(lines)
    assert lines[3:] == ([f"The terminal has no room for: {left_out}"] if left_out else [])


def test_terminal_too_narrow_for_all_folds_cells() -> None:
    lines = _plain(_drawn(25))
    assert "…" not in "".join(lines)
    addresses = "".join(line.split()[-1] for line in lines[1:] if "." in line or "10911" in line)
    assert "10.20.30.41:10911" in addresses.replace(" ", "")


def test_only_views_that_follow_each_other_clear_the_screen() -> None:
    assert "\x1b[2J" not in _drawn(120)
    assert "\x1b[2J" in _drawn(120, clears=True)
