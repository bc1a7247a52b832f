"""A whole nameserver in virtual time: scans, connections, and files that cannot be written."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqstore.config import NameserverConfig
from rmqstore.data_version import DataVersion
from rmqstore.errors import DiskError
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.network import Network
from rmqstore.sim.process import Process
from rmqstore.sim.runtime import VirtualRuntime
from rmqstore.sim.transport import SimClient, SimServer
from tests.support.nameserver_host import registration

PLACE = "10.0.0.1:9876"
TABLE = TopicTable(
    DataVersion(counter=1, timestamp_ms=1),
    {name: TopicConfig(name, 4, 4, 6) for name in ("orders", "payments")},
)
SCAN_MS = 500


class World:
    """A nameserver on machine 1, a broker on machine 2."""

    def __init__(self, **values: Any) -> None:
        self.timeline = Timeline()
        self._network = Network(self.timeline, Random(1))
        self._failures: list[dict[str, Any]] = []
        self.process, clock = self._process(1)
        self.broker, _ = self._process(2)
        self.config = NameserverConfig(
            bind_address="10.0.0.1", listen_port=9876, scan_interval_ms=SCAN_MS, **values
        )
        self.client: SimClient
        self.nameserver: Nameserver

        def make() -> None:
            sockets = self.process.sockets
            runtime = VirtualRuntime(
                log=IdentityLog("rmqstore.test"), clock=clock, client=SimClient(sockets)
            )
            self.nameserver = Nameserver(
                self.config,
                runtime=runtime,
                serve=lambda *of, **options: SimServer(sockets, *of, **options),
            )

        def connect() -> None:
            self.client = SimClient(self.broker.sockets)

        self.process.run(make)
        self.broker.run(connect)
        self.run(self.nameserver.start(), self.process)

    def _process(self, number: int) -> tuple[Process, MachineClock]:
        clock = MachineClock(self.timeline, begin_ms=1000 * number, drift_ppm=0)
        process = Process(
            number,
            timeline=self.timeline,
            network=self._network,
            clock=clock,
            failed=self._failures.append,
        )
        return process, clock

    def pass_ms(self, ms: int) -> None:
        self.timeline.run(self.timeline.now_us + ms * 1000)
        assert not self._failures, self._failures

    def run(self, work: Coroutine[Any, Any, Any], process: Process) -> Any:
        """Return the result of *work* in *process*."""
        tasks: list[asyncio.Task[Any]] = []
        process.run(lambda: tasks.append(process.loop.create_task(work)))
        for _ in range(5000):
            if tasks[0].done():
                return tasks[0].result()
            self.pass_ms(1)
        raise AssertionError("not done after 5 s")

    def call(self, request: Frame) -> Frame:
        """Return the answer to a request of the broker."""
        answer = self.run(self.client.call(PLACE, request, 3.0), self.broker)
        assert isinstance(answer, Frame)
        return answer

    def register(self, *, timeout_ms: int) -> None:
        header = RegisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_address="10.0.0.2:10911",
            cluster_name="east",
            ha_address="10.0.0.2:10912",
            broker_id=0,
            heartbeat_timeout_ms=timeout_ms,
        )
        assert self.call(registration(header, TABLE)).code == ResponseCode.SUCCESS

    @property
    def brokers(self) -> dict[int, str]:
        """The members of the broker's group."""
        return dict(self.nameserver.table.member_group("east", "broker-a").addresses)


def test_a_silent_broker_expires_at_the_next_scan_after_its_timeout() -> None:
    world = World()
    world.register(timeout_ms=3000)
    world.pass_ms(2900)
    assert world.brokers == {0: "10.0.0.2:10911"}
    assert world.client.connections
    world.pass_ms(200 + SCAN_MS)
    assert world.brokers == {}
    assert not world.client.connections, "the nameserver closes the connection"


def test_a_broker_is_gone_with_its_connection() -> None:
    world = World()
    world.register(timeout_ms=60_000)
    world.broker.end(loses_power=False)
    world.pass_ms(20)
    assert world.brokers == {}


def test_two_changes_of_the_key_values_at_once_are_both_in_effect(tmp_path: Path) -> None:
    world = World(kv_config_path=str(tmp_path / "kvConfig.json"))

    async def both() -> None:
        await asyncio.gather(
            *(
                world.nameserver.change_kv(lambda kv, key=key: kv.put("n", key, "v"))  # type: ignore[misc]
                for key in ("a", "b")
            )
        )

    world.run(both(), world.process)
    wanted = {"a": "v", "b": "v"}
    assert world.nameserver.kv.pairs("n") == wanted
    assert KvConfig.decode((tmp_path / "kvConfig.json").read_bytes()).pairs("n") == wanted


@pytest.mark.parametrize("kind", ["key-values", "configuration"])
def test_what_cannot_be_saved_is_not_taken(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(
        kv_config_path=str(tmp_path / "kvConfig.json"), config_store_path=str(tmp_path / "changes")
    )

    def fail(*_: object) -> None:
        raise DiskError(errno.ENOSPC, "no space")

    monkeypatch.setattr("rmqstore.nameserver.kv_file.replace_file", fail)
    monkeypatch.setattr("rmqstore.store.server_files.replace_file", fail)
    if kind == "key-values":
        fields = {"namespace": "n", "key": "a", "value": "v"}
        answer = world.call(Frame.request(RequestCode.PUT_KV_CONFIG, fields))
    else:
        body = b"supportActingMaster=true\n"
        answer = world.call(Frame.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=body))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "unchanged" in (answer.remark or "")
    assert world.nameserver.kv.pairs("n") is None
    assert not world.nameserver.config.acting_master
