"""A master without a controller that starts again: after a kill, a loss of power, a copy."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import BrokerRole, FlushDiskType
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.replication import HaOptions
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.service.broker_clients import call, pull_request, records_of
from tests.service.test_broker_nameservers import at, known, nameserver
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.ports import reserved
from tests.support.sends import send_request
from tests.support.waiting import until


class Pair:
    """A SYNC_MASTER and its slave, each with a directory of its own."""

    def __init__(self, root: Path, server: Nameserver, boot: Path, ha_port: int) -> None:
        self._root = root
        self._ha_port = ha_port
        self._server = server
        self._boot = boot
        self._boots = 0
        self.reboot()

    def reboot(self) -> None:
        """Let the machine of all brokers that start from now on be in another boot."""
        self._boots += 1
        self._boot.write_text(f"boot-{self._boots}\n")

    @property
    def master_path(self) -> Path:
        return self._root / "a"

    def master(self, name: str = "a", **changes: Any) -> Broker:
        settings: dict[str, Any] = {
            "broker_role": BrokerRole.SYNC_MASTER,
            "in_sync_replicas": 2,
            "total_replicas": 2,
            "nameservers": at(self._server),
            "member_group_interval_ms": 10,
            "ha_listen_port": self._ha_port,
        }
        return Broker(broker_config(self._root / name, **settings | changes))

    def slave(self, name: str = "b", **changes: Any) -> Broker:
        settings: dict[str, Any] = {
            "broker_role": BrokerRole.SLAVE,
            "broker_id": 1,
            "nameservers": at(self._server),
            "slave_reads": True,
            "ha_master_address": f"127.0.0.1:{self._ha_port}",
            "ha_send_heartbeat_interval_ms": 200,
        }
        return Broker(broker_config(self._root / name, **settings | changes))

    @contextlib.contextmanager
    def losing(self, what: str) -> Iterator[None]:
        """Let the master, which ends within, be as *what* leaves it: a "kill" takes only the word
        that it ended cleanly, "power" also what was stored since."""
        kept = self._root / "kept"
        shutil.copytree(self.master_path, kept)
        state = self.master_path / "epochState"
        text = state.read_bytes()
        yield
        if what == "power":
            for each in [*self.master_path.iterdir()]:
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.copytree(kept, self.master_path, dirs_exist_ok=True)
        state.write_bytes(text)
        shutil.rmtree(kept)


@pytest.fixture
def pair_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Nameserver], Pair]]:
    boot = tmp_path / "boot"
    monkeypatch.setenv("RMQ_BOOT_ID_PATH", str(boot))
    # A slave that finds its master before that has its role tries again soon.
    slow = HaOptions.from_config
    monkeypatch.setattr(HaOptions, "from_config", lambda config: slow(config, reconnect_ms=20))
    with reserved(1) as (port,):
        yield lambda server: Pair(tmp_path, server, boot, port)


async def in_sync(master: Broker, slave: Broker) -> None:
    """Return once puts of *master* get the copy of *slave*."""
    assert master.replica is not None
    await until(
        lambda: master.replica is not None and len(master.replica.replicas) == 1, "it connects"
    )
    await master.replica.wait_in_sync(2)


async def put(master: Broker, *bodies: bytes) -> list[int]:
    receipts = [await master.store.put("orders", each, timeout=20.0) for each in bodies]
    return [each.queue_offset for each in receipts]


def bodies(broker: Broker) -> list[bytes]:
    return [each.body for each in broker.store.store.scan_log()]


async def waiting(broker: Broker, text: str) -> None:
    """Return once *broker* waits for a reason with *text*."""
    await until(lambda: text in broker.status().role.waits_for, f"it waits: {text}")


async def lead(master: Broker) -> None:
    await until(lambda: master.role.name == "master", "it leads")


async def registered(master: Broker, server: Nameserver) -> None:
    """Return once *server* knows *master* by its id."""
    address = format_address(master.address)
    await until(lambda: known(server).get(0) == address, "it is registered")


async def perm_of(server: Nameserver, client: RemotingClient) -> int:
    request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    answer = await client.call(server.address, request)
    return TopicRoute.decode(answer.raise_for_code().body).queues[0].perm


PairAt = Callable[[Nameserver], Pair]


@contextlib.asynccontextmanager
async def ended_by(
    what: str, pair_at: PairAt, **changes: Any
) -> AsyncIterator[tuple[Pair, Broker]]:
    """Yield a pair and its slave, which runs. The master has acknowledged a message, which the
    slave has, and has ended as `Pair.losing` says."""
    async with nameserver() as server:
        pair = pair_at(server)
        async with pair.slave() as slave:
            async with pair.master(**changes) as master:
                await in_sync(master, slave)
                with pair.losing(what):
                    await put(master, b"0")
                    await master.close()
            yield pair, slave


@on_loop
async def test_a_master_whose_machine_lost_power_waits_while_its_slave_holds_more(
    pair_at: PairAt,
) -> None:
    async with nameserver() as server, RemotingClient() as client:
        pair = pair_at(server)
        async with pair.slave() as slave:
            async with pair.master() as master:
                await master.metadata.change_topic(TopicConfig("orders", 4, 4))
                await master.metadata.change_group(GroupConfig("cg"))
                await in_sync(master, slave)
                await put(master, b"0")
                await master.store.flush()
                with pair.losing("power"):
                    offsets = await put(master, b"1", b"2")
                    await master.close()
            pair.reboot()
            async with pair.master() as again:
                await waiting(again, f"Slave 1 at {format_address(slave.address)} has the log up")
                assert bodies(again) == [b"0"]
                # It is found, and not written to.
                await registered(again, server)
                assert await perm_of(server, client) == 4
                answer = await call(client, again, send_request("orders", b"x"))
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "exchange brokerRole and brokerId" in (answer.remark or "")
                info = await call(client, again, Frame.request(RequestCode.GET_BROKER_RUNTIME_INFO))
                table = KvTable.decode(info.body).table
                assert table["brokerActive"] == "false"
                assert "othersAskedEpoch=2" in table["waitReason"]
                # A consumer that read further keeps its place.
                pulled = await call(client, again, pull_request("orders", offsets[-1] + 1))
                assert pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                pulled = await call(client, again, pull_request("orders", 0))
                assert [each.body for each in records_of(pulled.body)] == [b"0"]
                assert slave.replica is not None
                status = slave.replica.status().master
                assert status is not None
                assert status.halted_reason is None
        # The cure that it names: the two exchange their roles.
        async with (
            pair.master("b") as promoted,
            pair.slave("a") as former,
        ):
            await in_sync(promoted, former)
            assert await put(promoted, b"3") == [3]
            assert bodies(promoted) == bodies(former) == [b"0", b"1", b"2", b"3"]


@on_loop
async def test_it_leads_on_once_its_slaves_hold_nothing_more(pair_at: PairAt) -> None:
    async with nameserver() as server, RemotingClient() as client:
        pair = pair_at(server)
        async with pair.master() as master:
            await master.metadata.change_topic(TopicConfig("orders", 4, 4))
            async with pair.slave() as slave:
                await in_sync(master, slave)
                await put(master, b"0")
            with pair.losing("kill"):
                await master.close()
        pair.reboot()
        async with pair.master() as again:
            await waiting(again, "0 of the 1 slaves needed")
            await registered(again, server)
            assert await perm_of(server, client) == 4
            async with pair.slave() as slave:
                await lead(again)
                assert again.replica is not None
                assert again.replica.epoch == 2
                await in_sync(again, slave)
                assert await put(again, b"1") == [1]
                await again.registered()
                # A nameserver takes topics again only of another version.
                assert await perm_of(server, client) == 6


@on_loop
async def test_power_lost_twice_is_asked_about_twice(pair_at: PairAt) -> None:
    async with ended_by("power", pair_at) as (pair, _):
        for _ in range(2):
            pair.reboot()
            async with pair.master() as again:
                await waiting(again, "has the log up to")


@on_loop
async def test_an_operator_lets_it_lead_while_it_runs(pair_at: PairAt) -> None:
    async with ended_by("power", pair_at) as (pair, _):
        pair.reboot()
        async with pair.master() as again:
            await waiting(again, "has the log up to")
            await again.configure({"othersAskedEpoch": "3"})
            await waiting(again, "has the log up to")
            await again.configure({"othersAskedEpoch": "2"})
            await lead(again)
            assert again.replica is not None
            assert again.replica.epoch == 2


@on_loop
async def test_a_master_whose_process_was_killed_leads_on(pair_at: PairAt) -> None:
    async with ended_by("kill", pair_at) as (pair, slave):
        async with pair.master() as again:
            assert again.role.name == "master"
            assert again.replica is not None
            assert again.replica.epoch == 2
            await in_sync(again, slave)
            assert await put(again, b"1") == [1]


@on_loop
async def test_a_master_that_ended_cleanly_leads_on_in_another_boot(pair_at: PairAt) -> None:
    async with nameserver() as server:
        pair = pair_at(server)
        async with pair.slave() as slave:
            async with pair.master() as master:
                await in_sync(master, slave)
                await put(master, b"0")
            assert b"masterBoot" not in (pair.master_path / "epochState").read_bytes()
            pair.reboot()
            async with pair.master() as again:
                assert again.role.name == "master"
                assert again.replica is not None
                assert again.replica.epoch == 1


@on_loop
async def test_a_copy_of_the_directory_waits_in_the_same_boot(pair_at: PairAt) -> None:
    async with nameserver() as server:
        pair = pair_at(server)
        async with pair.slave() as slave, pair.master() as master:
            await in_sync(master, slave)
            await put(master, b"0")
            copied = pair.master_path.with_name("copied")
            shutil.copytree(pair.master_path, copied)
            (copied / "lock").unlink()
            # The first one leads, so this one is not even registered.
            async with pair.master("copied", ha_listen_port=0) as copy:
                address = format_address(master.address)
                await waiting(copy, f"{address} is the master of the group now")
                assert known(server)[0] == address


@pytest.mark.parametrize(
    "changes",
    [
        {"broker_role": BrokerRole.ASYNC_MASTER},
        {"in_sync_replicas": 1},
        {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
    ],
)
@on_loop
async def test_it_leads_on_where_no_other_can_hold_more(
    pair_at: PairAt, changes: Mapping[str, Any]
) -> None:
    async with ended_by("kill", pair_at, **changes) as (pair, _):
        pair.reboot()
        async with pair.master(**changes) as again:
            assert again.role.name == "master"
            assert again.replica is not None
            assert again.replica.epoch == 2


@on_loop
async def test_a_lower_number_of_copies_does_not_end_the_wait(pair_at: PairAt) -> None:
    async with ended_by("power", pair_at) as (pair, _):
        pair.reboot()
        async with pair.master(in_sync_replicas=1) as again:
            await waiting(again, "has the log up to")


@on_loop
async def test_without_a_boot_to_read_a_kill_counts_as_a_loss_of_power(
    pair_at: PairAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ended_by("kill", pair_at) as (pair, _):
        monkeypatch.setenv("RMQ_BOOT_ID_PATH", str(pair.master_path / "nothing"))
        async with pair.master() as again:
            # The slave answers that it holds no more.
            await lead(again)
            assert again.role.name == "master"


@on_loop
async def test_a_slave_waits_for_no_boot(pair_at: PairAt) -> None:
    async with nameserver() as server:
        pair = pair_at(server)
        async with pair.master() as master:
            async with pair.slave() as slave:
                await in_sync(master, slave)
                await put(master, b"0")
            pair.reboot()
            async with pair.slave() as slave:
                assert slave.role.waits_for == ""
                await in_sync(master, slave)
