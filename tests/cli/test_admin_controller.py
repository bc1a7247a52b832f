"""`rmqstore admin` against a controller and brokers on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.config import NameserverConfig
from rmqstore.data_version import DataVersion
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.remoting.bodies.topic_config import TopicTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from rmqstore.remoting.server import RemotingServer
from tests.cli.broker_group import broker_group
from tests.support.admin_command import admin
from tests.support.nameserver_host import registration
from tests.support.waiting import WAIT_S

EPOCHS = (
    b'{"brokerId":2,"brokerName":"b","clusterName":"c","maxOffset":500,"epochList":['
    b'{"endOffset":100,"epoch":1,"startOffset":0},'
    b'{"endOffset":9223372036854775807,"epoch":3,"startOffset":100}]}'
)


def lines(*arguments: str) -> list[Any]:
    return [json.loads(line) for line in admin(*arguments, "--json").splitlines()]


@contextmanager
def registered(*names: str) -> Iterator[tuple[str, list[str]]]:
    """Run a nameserver with brokers of these names; the first broker knows no epochs.

    Yields the address of the nameserver and those of the brokers.
    """
    stack = AsyncExitStack()

    def answer(connection: Any, request: Frame) -> Frame:
        return request.respond(ResponseCode.SUCCESS, body=EPOCHS)

    async def start() -> tuple[str, list[str]]:
        config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
        server = await stack.enter_async_context(Nameserver(config))
        client = await stack.enter_async_context(RemotingClient())
        addresses = []
        for name in names:
            handlers = {RequestCode.GET_BROKER_EPOCH_CACHE: answer} if addresses else {}
            broker = await stack.enter_async_context(RemotingServer("127.0.0.1:0", handlers))
            addresses.append(format_address(broker.address))
            header = RegisterBrokerRequestHeader(
                broker_name=name, broker_address=addresses[-1], cluster_name="c", broker_id=0
            )
            frame = registration(header, TopicTable(DataVersion(counter=1), {}))
            (await client.call(server.address, frame, WAIT_S)).raise_for_code()
        return format_address(server.address), addresses

    thread = LoopThread("nameserver", what="the thread of the nameserver")
    try:
        yield thread.run(start)
    finally:
        thread.run(stack.aclose)
        thread.stop()


def test_an_operator_sees_why_there_is_no_master_and_what_an_election_may_lose(
    tmp_path: Path,
) -> None:
    with broker_group(tmp_path / "log") as (group, thread):
        at = ("-a", f"127.0.0.1:1;{group.address}")
        rows = admin("getSyncStateSet", *at, "-b", "b").splitlines()
        assert [row.split("\t") for row in rows[1:]] == [
            ["b", str(number), f"127.0.0.1:{number}", role, "in sync", "alive", "1", "2"]
            for number, role in ((1, "master"), (2, "slave"), (3, "slave"))
        ]

        thread.run(lambda: group.lose(1, 3))
        [found] = lines("getSyncStateSet", *at, "-b", "b")
        assert (found["brokerName"], found["waitsFor"]) == ("b", [1, 3])
        assert "masterBrokerId" not in found
        assert "waits for a master, for replicas 1 3: puts waited for 2 copies" in admin(
            "getSyncStateSet", *at, "-b", "b"
        )

        elect = ("electMaster", *at, "-b", "2", "-bn", "b", "-c", "c")
        text = admin(*elect)
        assert "b: broker 2 at 127.0.0.1:2 is master of epoch" in text
        assert "acknowledged messages may be lost: broker 2 has the log up to 100" in text
        [found] = lines("getSyncStateSet", *at, "-b", "b")
        assert found["masterBrokerId"] == 2
        assert "CONTROLLER_MASTER_STILL_EXIST" in admin(*elect, code=4)

        clean = ("cleanBrokerMetadata", *at, "-bn", "b", "-c", "c")
        assert "brokers [2] of b are alive" in admin(*clean, "-b", "2;3", code=4)
        assert admin(*clean, "-b", "3") == "b: removed 3\n"
        [found] = lines("getSyncStateSet", *at, "-b", "b")
        assert [each["brokerId"] for each in found["notInSyncReplicas"]] == [1]
        assert lines(*clean, "-l") == [{"brokerName": "b", "removed": "all"}]
        assert "knows no broker group b" in admin("getSyncStateSet", *at, "-b", "b", code=1)


def test_an_election_as_json_has_the_group_and_the_risk(tmp_path: Path) -> None:
    with broker_group(tmp_path / "log") as (group, thread):
        thread.run(lambda: group.lose(1, 3))
        [found] = lines("electMaster", "-a", group.address, "-b", "2", "-bn", "b", "-c", "c")
    assert (found["masterBrokerId"], found["syncStateSet"]) == (2, [2])
    assert found["brokerAddrs"] == {str(number): f"127.0.0.1:{number}" for number in (1, 2, 3)}
    assert "acknowledged messages may be lost" in found["risk"]


def test_controllers_show_and_change_their_configuration(tmp_path: Path) -> None:
    with broker_group(tmp_path / "log") as (group, _):
        at = ("-a", group.address)
        row = admin("getControllerMetaData", *at).splitlines()[1]
        assert row.split("\t") == ["g", "n0", group.address, f"n0:{group.address};"]
        [found] = lines("getControllerMetaData", *at)
        assert found["controllerLeaderId"] == "n0"

        pair = {"controller": group.address, "key": "notifyBrokerRoleChanged", "value": "true"}
        assert pair in lines("getControllerConfig", *at)
        change = ("updateControllerConfig", *at, "-k", "notifyBrokerRoleChanged")
        assert admin(*change, "-v", "false") == f"{group.address}: changed\n"
        assert pair | {"value": "false"} in lines("getControllerConfig", *at)
        assert "not changed" in admin(*change, "-v", "perhaps", code=4)
        assert "\tlistenPort\t0\n" in admin("getControllerConfig", *at)


def test_epochs_come_from_each_broker_that_the_nameserver_names() -> None:
    with registered("a", "b") as (nameserver, addresses):
        text = admin("getBrokerEpoch", "-n", nameserver, "-c", "c", code=4)
        assert "REQUEST_CODE_NOT_SUPPORTED" in text
        rows = [line.split("\t") for line in text.splitlines() if line.startswith("c\t")]
        first = ["c", "b", "0", addresses[1]]
        assert rows == [[*first, "1", "0", "100"], [*first, "3", "100", "500"]]
        last = lines("getBrokerEpoch", "-n", nameserver, "-b", "b")[-1]
        assert (last["epoch"], last["startOffset"], last["endOffset"]) == (3, 100, 500)
        missing = admin("getBrokerEpoch", "-n", nameserver, "-b", "x", code=1)
        assert "rmqstore admin clusterList" in missing
        assert "no live broker" in admin("getBrokerEpoch", "-n", nameserver, "-c", "x", code=1)
        assert "broker group" in admin("getBrokerEpoch", "-n", nameserver, code=2)


def test_the_groups_of_a_cluster_are_those_at_the_nameserver(tmp_path: Path) -> None:
    with broker_group(tmp_path / "log") as (group, _), registered("b", "x") as (nameserver, _):
        both = admin("getSyncStateSet", "-a", group.address, "-n", nameserver, "-c", "c", code=1)
        assert "knows no broker group x" in both
        assert both.count("in sync\talive\t1") == 3


def test_a_query_with_an_interval_is_repeated_until_it_fails() -> None:
    served = 0

    def answer(connection: Any, request: Frame) -> Frame:
        nonlocal served
        served += 1
        if served > 2:
            return request.respond(ResponseCode.SYSTEM_BUSY, "enough")
        return request.respond(ResponseCode.SUCCESS, fields={"isLeader": "true"})

    def data(connection: Any, request: Frame) -> Frame:
        info = b'{"inSyncReplicas":[{"brokerId":1,"brokerAddress":"h:1"}],"masterEpoch":7}'
        return request.respond(ResponseCode.SUCCESS, body=b'{"replicasInfoTable":{"b":%b}}' % info)

    handlers = {
        RequestCode.CONTROLLER_GET_METADATA_INFO: answer,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: data,
    }
    stack = AsyncExitStack()

    async def start() -> str:
        server = await stack.enter_async_context(RemotingServer("127.0.0.1:0", handlers))
        return format_address(server.address)

    thread = LoopThread("server", what="the thread of the server")
    try:
        at = thread.run(start)
        text = admin("getSyncStateSet", "-a", at, "-b", "b", "-i", "0.01", code=4)
    finally:
        thread.run(stack.aclose)
        thread.stop()
    assert text.count("b\t1\th:1\tslave\tin sync\tdead\t7\t0") == 2
    assert "no controller leads" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("getControllerMetaData",), "-a"),
        (("getControllerMetaData", "-a", ";"), "10.0.0.1:9878"),
        (("electMaster", "-a", "h:1", "-b", "0", "-bn", "b", "-c", "c"), "-b"),
        (("cleanBrokerMetadata", "-a", "h:1", "-bn", "b"), "-l"),
        (("getSyncStateSet", "-a", "h:1"), "-b"),
    ],
)
def test_a_missing_or_wrong_argument_is_named(arguments: tuple[str, ...], named: str) -> None:
    assert named in admin(*arguments, code=2)
