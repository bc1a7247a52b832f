"""A controller over the wire: brokers that register, fail and are notified, bad input."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.config import ControllerConfig
from rmqstore.controller import inquiry, notices
from rmqstore.controller.server import Controller
from rmqstore.errors import ConfigError, StoreLockedError, UnsupportedStoreError
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.bodies.epochs import EpochCache
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.server import RemotingServer
from tests.service.remoting_peers import on_loop
from tests.support.loops import runtime_with
from tests.support.waiting import WAIT_S, until

GROUP = {"clusterName": "c", "brokerName": "b"}


def config_of(path: Path, **changes: Any) -> ControllerConfig:
    settings: dict[str, Any] = {"bind_address": "127.0.0.1", "listen_port": 0}
    settings |= {"store_path": str(path), "scan_brokers_interval_ms": 20} | changes
    return ControllerConfig(**settings)


class Broker:
    """A broker for the controller: a listening address and a connection for heartbeats."""

    def __init__(self, controller: Controller, number: int, host: str = "127.0.0.1") -> None:
        self.controller = controller
        self.id = str(number)
        self.notices: list[Frame] = []
        self.serves_as: tuple[int, str] | None = (-1, "b")
        """The id and the group that it names when it is queried; None if it does not answer."""
        handlers = {
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.notified,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.asked,
        }
        self.server = RemotingServer((host, 0), handlers)
        self.client = RemotingClient()
        self.beats = 0
        self.seen: dict[str, str] = {}

    def notified(self, connection: RemotingConnection, request: Frame) -> None:
        self.notices.append(request)

    def asked(self, connection: RemotingConnection, request: Frame) -> Frame | None:
        if self.serves_as is None:
            return None
        number, name = self.serves_as
        body = EpochCache(number, (), 0).encode(cluster="c", broker_name=name)
        return request.respond(ResponseCode.SUCCESS, body=body)

    @property
    def epochs(self) -> list[str]:
        """The master epochs that it was notified of."""
        return [each.ext_fields["masterEpoch"] for each in self.notices]

    async def send(self, code: RequestCode, body: bytes = b"", **fields: str) -> Frame:
        address = self.controller.address
        return await self.client.call(address, Frame.request(code, fields, body), timeout=30)

    @property
    def address(self) -> str:
        return format_address(self.server.address)

    async def register(self) -> Frame:
        code = f"{self.address};1"
        applied = await self.send(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            **GROUP,
            appliedBrokerId=self.id,
            registerCheckCode=code,
        )
        applied.raise_for_code()
        return await self.send(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            **GROUP,
            brokerId=self.id,
            brokerAddress=self.address,
        )

    async def beat(self, **fields: str) -> Frame:
        """Send a heartbeat of a Java broker and return the answer, which a Java broker ignores."""
        sent = {"brokerId": self.id, "brokerAddr": self.address, "epoch": "0", "maxOffset": "100"}
        sent["heartbeatTimeoutMills"] = "30000"
        return await self.send(RequestCode.BROKER_HEARTBEAT, **GROUP, **(sent | fields))

    async def beat_ours(self, **fields: str) -> dict[str, str]:
        """Send a heartbeat as a broker of this library does; return the answer's fields."""
        self.beats += 1
        sent = {"brokerLife": "1", "heartbeatNumber": str(self.beats), "inSyncReplicas": "2"}
        sent |= {
            name: self.seen[name]
            for name in ("controllerNode", "controllerTimeMillis")
            if name in self.seen
        }
        answer = await self.beat(**(sent | {"leaseMillis": "300"} | fields))
        self.seen = answer.raise_for_code().ext_fields
        return self.seen

    async def elect(self, **fields: str) -> Frame:
        return await self.send(
            RequestCode.CONTROLLER_ELECT_MASTER, **GROUP, **({"brokerId": self.id} | fields)
        )

    async def propose(self, *members: int, set_epoch: int, epoch: int = 1) -> Frame:
        return await self.send(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            SyncStateSetBody(frozenset(members), set_epoch).encode(),
            brokerName="b",
            masterBrokerId=self.id,
            masterEpoch=str(epoch),
        )


@asynccontextmanager
async def brokers_of(controller: Controller, *numbers: int) -> AsyncIterator[list[Broker]]:
    brokers = [Broker(controller, each) for each in numbers]
    try:
        for each in brokers:
            each.server.start()
        yield brokers
    finally:
        for each in brokers:
            await each.client.close()
            await each.server.close()


async def java_group(brokers: list[Broker]) -> None:
    """Register brokers, make the first master and all of them members."""
    for each in brokers:
        (await each.register()).raise_for_code()
        (await each.beat()).raise_for_code()
    (await brokers[0].elect()).raise_for_code()
    ids = [int(each.id) for each in brokers]
    (await brokers[0].propose(*ids, set_epoch=1)).raise_for_code()


async def master_after(
    controller: Controller, former: int, beat: Callable[[], Awaitable[object]]
) -> int | None:
    """Call *beat* until the master of the group is no longer *former*; return the new one."""
    deadline = time.monotonic() + WAIT_S
    while True:
        group = controller.state.group("b")
        assert group is not None
        if group.master_id != former:
            return group.master_id
        assert time.monotonic() < deadline, f"broker {former} is still master"
        await beat()


@on_loop
async def test_of_two_processes_with_one_identity_the_later_one_is_heard(tmp_path: Path) -> None:
    async with Controller(config_of(tmp_path)) as controller:
        async with brokers_of(controller, 1) as (one,):
            (await one.register()).raise_for_code()
            await one.beat_ours(brokerLife="8")
            refused = await one.beat(brokerLife="7", heartbeatNumber="99", epoch="50")
            assert refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
            assert refused.ext_fields["brokerLife"] == "8"
            assert "two brokers use one identity" in (refused.remark or "")
            report = controller.liveness.report("b", 1)
            assert report is not None
            assert (report.beat.life, report.beat.rank.last_epoch) == (8, 0)


@on_loop
async def test_state_survives_a_restart(tmp_path: Path) -> None:
    async with Controller(config_of(tmp_path / "log")) as first, brokers_of(first, 1, 2) as brokers:
        await java_group(brokers)
        before = first.state.snapshot()
    async with Controller(config_of(tmp_path / "log")) as second:
        assert second.state.snapshot() == before
        async with brokers_of(second, 3) as [broker]:
            answer = await broker.send(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, **GROUP)
            assert answer.ext_fields["nextBrokerId"] == "3"
            answer = await broker.send(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName="b")
            assert answer.ext_fields["masterEpoch"] == "1"
            assert SyncStateSetBody.decode(answer.body) == SyncStateSetBody(frozenset((1, 2)), 2)


@on_loop
async def test_lost_master_is_replaced_and_the_living_are_notified(tmp_path: Path) -> None:
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1, 2, 3) as brokers,
    ):
        await java_group(brokers)
        await brokers[0].client.close()
        await until(lambda: not controller.liveness.is_alive("b", 1, controller.now_ms()), "death")
        await controller.reviewed("b")
        # The longer log reports first: it is elected even where the other report is late.
        await brokers[2].beat(maxOffset="200")
        await brokers[1].beat(maxOffset="100")
        for each in brokers[1:]:
            await until(lambda each=each: each.epochs[-1:] == ["2"], "notice")
            notice = each.notices[-1]
            assert notice.is_one_way
            assert notice.ext_fields == {
                "masterAddress": brokers[2].address,
                "masterBrokerId": "3",
                "masterEpoch": "2",
                "syncStateSetEpoch": "3",
            }
            assert SyncStateSetBody.decode(notice.body).members == {3}
        assert controller.status().task_failures == ()


@on_loop
async def test_master_without_heartbeats_is_replaced_once_it_no_longer_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiry, "_TIMEOUT_S", 0.2)
    for ended in (None, (-1, "b"), (0, "other")):
        async with (
            Controller(config_of(tmp_path / str(ended))) as controller,
            brokers_of(controller, 1, 2) as brokers,
        ):
            await java_group(brokers)
            master, slave = brokers
            master.serves_as = (0, "b")
            await master.client.close()
            await until(lambda c=controller: not c.liveness.is_alive("b", 1, c.now_ms()), "death")
            assert (await slave.elect()).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
            await slave.beat()
            assert (await slave.elect()).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
            master.serves_as = ended
            assert await master_after(controller, 1, slave.beat) == 2
            await until(lambda slave=slave: slave.epochs[-1:] == ["2"], "notice")
            # A process that is stopped finds the notice when it continues.
            if ended is None:
                await until(lambda master=master: master.epochs[-1:] == ["2"], "its notice")
            else:
                assert "2" not in master.epochs
            assert controller.status().task_failures == ()


@on_loop
async def test_controller_that_was_stopped_replaces_no_master_before_it_reads_its_sockets(
    tmp_path: Path,
) -> None:
    ahead_s = 0.0
    async with (
        Controller(
            config_of(tmp_path / "log", scan_masters_interval_ms=20),
            runtime=runtime_with(lambda: time.monotonic() + ahead_s),
        ) as controller,
        brokers_of(controller, 1, 2) as brokers,
    ):
        await java_group(brokers)
        ahead_s = 60.0
        await brokers[1].beat()
        assert controller.status().living_brokers == 2
        # The node runs on, and the master stays silent for its 30 s.
        while ahead_s < 95.0 and controller.status().living_brokers == 2:
            ahead_s += 0.3
            await brokers[1].beat()
        assert 89.0 < ahead_s < 91.0
        assert await master_after(controller, 1, brokers[1].beat) == 2


@on_loop
async def test_broker_that_cannot_be_reached_at_first_is_notified_later(tmp_path: Path) -> None:
    async with Controller(config_of(tmp_path / "log")) as controller:
        # No other test listens at this host, so the port stays free.
        broker = Broker(controller, 1, "127.0.0.2")
        broker.server.start()
        address = broker.address
        await broker.register()
        await broker.beat()
        await broker.server.close()
        (await broker.elect()).raise_for_code()
        handlers = {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: broker.notified}
        async with RemotingServer(address, handlers):
            await until(lambda: broker.notices, "notice")
        await broker.client.close()


@on_loop
async def test_broker_with_an_address_that_is_none_ends_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notices, "_PAUSES_S", ())
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1) as [broker],
    ):
        await broker.register()
        registered = await broker.send(
            RequestCode.CONTROLLER_REGISTER_BROKER, **GROUP, brokerId="1", brokerAddress="?"
        )
        registered.raise_for_code()
        (await broker.beat()).raise_for_code()
        (await broker.elect()).raise_for_code()
        await until(lambda: "? was not notified" in caplog.text, "the failed notice")
        (await broker.beat()).raise_for_code()
        assert controller.status().task_failures == ()


@on_loop
async def test_silent_broker_ends_after_the_timeout_it_announced(tmp_path: Path) -> None:
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1, 2) as brokers,
    ):
        await java_group(brokers)
        await brokers[0].beat(heartbeatTimeoutMills="50")
        assert await master_after(controller, 1, brokers[1].beat) == 2


@on_loop
async def test_lease_is_granted_and_outlasts_the_master(tmp_path: Path) -> None:
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1, 2) as brokers,
    ):
        first, second = brokers
        for each in brokers:
            await each.register()
            await each.beat_ours()
        await first.elect()
        answer = await first.beat_ours(roleEpoch="1", syncStateSetEpoch="1")
        assert (answer["leaseMillis"], answer["isLeader"]) == ("300", "true")
        assert (answer["masterBrokerId"], answer["masterEpoch"]) == ("1", "1")
        assert (await second.beat_ours())["leaseMillis"] == "0"
        await first.propose(1, 2, set_epoch=1)
        granted_ms = controller.now_ms()
        await first.beat_ours(roleEpoch="1", syncStateSetEpoch="2")

        await first.client.close()
        answers = []

        async def beat() -> None:
            answers.append(await second.beat_ours())

        assert await master_after(controller, 1, beat) == 2
        assert controller.now_ms() >= granted_ms + 330
        # A report from before the end of the lease does not count: the next one is wanted at once.
        *early, last = [each["wantsReport"] for each in answers if each["masterBrokerId"] == "1"]
        assert (set(early), last) <= ({"false"}, "true")
        group = controller.state.group("b")
        assert group is not None
        assert group.master_epoch == 2


@on_loop
async def test_waiting_group_is_shown_with_the_replicas_it_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1, 2, 3) as brokers,
    ):
        for each in brokers:
            await each.register()
            await each.beat_ours()
        await brokers[0].elect()
        await brokers[0].beat_ours(roleEpoch="1", syncStateSetEpoch="1")
        await brokers[0].propose(1, 2, 3, set_epoch=1)
        for each in (brokers[0], brokers[2]):
            await each.client.close()
        assert await master_after(controller, 1, brokers[1].beat_ours) is None

        answer = await brokers[1].send(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b'["b","x"]')
        info = fastjson.loads(answer.body)["replicasInfoTable"]
        assert set(info) == {"b"}
        assert info["b"]["waitsFor"] == [1, 3]
        assert "2 copies" in info["b"]["waitReason"]
        assert "waits for a master" in caplog.text

        answer = await brokers[1].elect(designateElect="true")
        assert answer.code == ResponseCode.SUCCESS
        assert answer.remark is not None
        assert "acknowledged messages may be lost" in answer.remark


@on_loop
async def test_set_is_refused_with_the_set_that_is_to_a_broker_of_ours(tmp_path: Path) -> None:
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1) as [broker],
    ):
        await broker.register()
        await broker.beat()
        await broker.elect()
        refused = await broker.propose(1, set_epoch=1)
        assert refused.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
        assert refused.body == b""
        await broker.beat_ours(roleEpoch="1")
        taken = await broker.propose(1, set_epoch=1)
        assert taken.ext_fields == {"newSyncStateSetEpoch": "2"}
        refused = await broker.propose(1, set_epoch=1)
        assert refused.code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        assert SyncStateSetBody.decode(refused.body).epoch == 2


BAD: list[tuple[RequestCode, dict[str, str], bytes, ResponseCode, str]] = [
    (
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        {},
        b"",
        ResponseCode.INVALID_PARAMETER,
        "clusterName",
    ),
    (
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        {**GROUP, "appliedBrokerId": "x"},
        b"",
        ResponseCode.INVALID_PARAMETER,
        "appliedBrokerId",
    ),
    (
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        {
            "clusterName": "c",
            "brokerName": "n" * 256,
            "appliedBrokerId": "1",
            "registerCheckCode": "a;1",
        },
        b"",
        ResponseCode.INVALID_PARAMETER,
        "brokerName",
    ),
    (
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        {**GROUP, "appliedBrokerId": "9000000000000000000", "registerCheckCode": "a;1"},
        b"",
        ResponseCode.CONTROLLER_BROKER_ID_INVALID,
        "apply brokerId",
    ),
    (
        RequestCode.CONTROLLER_REGISTER_BROKER,
        {**GROUP, "brokerId": "1", "brokerAddress": "h:1"},
        b"",
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        "registered",
    ),
    (
        RequestCode.CONTROLLER_ELECT_MASTER,
        {**GROUP, "brokerId": "1"},
        b"",
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        "registered",
    ),
    (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": "1"},
        b"{",
        ResponseCode.INVALID_PARAMETER,
        "body",
    ),
    (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": "1"},
        b'{"syncStateSet":["x"]}',
        ResponseCode.INVALID_PARAMETER,
        "syncStateSet",
    ),
    (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": "1"},
        b"",
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
        "not existed",
    ),
    (
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        {"brokerName": "b"},
        b"",
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        "not existed",
    ),
    (
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        {},
        b'{"a":1}',
        ResponseCode.INVALID_PARAMETER,
        "body",
    ),
    (
        RequestCode.CLEAN_BROKER_DATA,
        {"brokerName": "b", "brokerControllerIdsToClean": "1;x"},
        b"",
        ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        "separated by ;",
    ),
    (
        RequestCode.CLEAN_BROKER_DATA,
        {"brokerName": "b"},
        b"",
        ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        "not existed",
    ),
    (
        RequestCode.BROKER_HEARTBEAT,
        {**GROUP, "brokerAddr": "h:1"},
        b"",
        ResponseCode.CONTROLLER_INVALID_REQUEST,
        "brokerId",
    ),
    (
        RequestCode.BROKER_HEARTBEAT,
        {**GROUP, "brokerAddr": "h:1", "brokerId": "1"},
        b"",
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        "registered",
    ),
    (
        RequestCode.BROKER_HEARTBEAT,
        {**GROUP, "brokerAddr": "h:1", "brokerId": "1", "brokerLife": "1", "inSyncReplicas": "0"},
        b"",
        ResponseCode.INVALID_PARAMETER,
        "inSyncReplicas",
    ),
    (RequestCode.UPDATE_CONTROLLER_CONFIG, {}, b"\xff", ResponseCode.INVALID_PARAMETER, "body"),
    (
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        {},
        b"noSuchKey=1\n",
        ResponseCode.INVALID_PARAMETER,
        "unknown key",
    ),
    (
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        {},
        b"controllerStorePath=/x\n",
        ResponseCode.INVALID_PARAMETER,
        "only at a start",
    ),
    (
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        {},
        b"configStorePath=/x\n",
        ResponseCode.NO_PERMISSION,
        "black list",
    ),
]


@on_loop
async def test_bad_requests_are_refused_with_what_is_wrong(tmp_path: Path) -> None:
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1) as [broker],
    ):
        before = controller.state.snapshot()
        for code, fields, body, wanted, word in BAD:
            answer = await broker.send(code, body, **fields)
            assert answer.code == wanted, (code, answer)
            assert word in (answer.remark or ""), (code, answer.remark)
        assert controller.state.snapshot() == before
        assert controller.status().task_failures == ()


@on_loop
async def test_configuration_is_changed_in_its_file_first(tmp_path: Path) -> None:
    file = tmp_path / "controller.conf"
    file.write_text(f"controllerStorePath={tmp_path}/log\nlistenPort=0\nbindAddress=127.0.0.1\n")
    async with (
        Controller.from_file(file) as controller,
        brokers_of(controller, 1) as [broker],
    ):
        answer = await broker.send(
            RequestCode.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true\n"
        )
        assert answer.code == ResponseCode.SUCCESS
        assert "enableElectUncleanMaster=true" in file.read_text()
        answer = await broker.send(RequestCode.GET_CONTROLLER_CONFIG)
        assert b"enableElectUncleanMaster=true" in answer.body
        assert controller.leader is not None
        assert controller.leader.allows_unclean


@on_loop
async def test_controller_whose_log_ended_refuses_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="rmqstore.controller")
    async with (
        Controller(config_of(tmp_path / "log")) as controller,
        brokers_of(controller, 1) as [broker],
    ):
        await broker.register()

        def fail(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fdatasync", fail)
        answer = await broker.elect()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "unknown whether" in (answer.remark or "")
        answer = await broker.elect()
        assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER
        answer = await broker.send(RequestCode.CONTROLLER_GET_METADATA_INFO)
        assert answer.ext_fields["isLeader"] == "false"
        status = controller.status()
        assert not status.is_leader
        assert "syncing the log" in str(status.failure)


@on_loop
async def test_controllers_on_one_loop_are_apart(tmp_path: Path) -> None:
    async with (
        Controller(config_of(tmp_path / "one")) as one,
        Controller(config_of(tmp_path / "two")) as two,
        brokers_of(one, 1) as [broker],
    ):
        await broker.register()
        assert (one.status().groups, two.status().groups) == (1, 0)


@on_loop
async def test_directory_of_another_controller_is_refused(tmp_path: Path) -> None:
    async with Controller(config_of(tmp_path / "log")):
        with pytest.raises(StoreLockedError):
            await Controller(config_of(tmp_path / "log")).start()


@on_loop
async def test_directory_of_a_java_controller_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").mkdir()
    with pytest.raises(UnsupportedStoreError, match="dledger-n0"):
        await Controller(config_of(tmp_path)).start()


@on_loop
async def test_controller_without_a_directory_is_refused() -> None:
    for config in (ControllerConfig(), ControllerConfig(peers="n0-h:1;n1-h:2")):
        with pytest.raises(ConfigError, match="controllerStorePath is empty"):
            await Controller(config).start()
