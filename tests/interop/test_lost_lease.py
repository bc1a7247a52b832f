"""A Java producer and consumer of a master whose controllers are away longer than its lease.

The brokers, the controller and the nameserver are ours. `make test` runs one release of the
clients, `make soak` both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame
from tests.golden import RELEASES
from tests.interop.faults import FEW
from tests.support import java
from tests.support.broker_group import Group, controller_of, takes_puts
from tests.support.effort import is_long
from tests.support.java_broker import java_side
from tests.support.java_cluster import LIMIT_S
from tests.support.java_replica import Replica
from tests.support.loops import on_loop
from tests.support.sends import CALL_S, send_request
from tests.support.waiting import until

TOPIC = "orders"
LEASE_MS = 2000
PAUSE_S = 0.05
NO_ROUTE = 10005
"""The client's own code: the route has no broker that takes messages."""
TIMEOUT = 10002


class Client:
    """A Java client that sends and receives the messages of one topic."""

    def __init__(self, process: Replica, namesrv: str) -> None:
        self._process = process
        self._namesrv = namesrv

    async def begin(self, verb: str) -> None:
        await asyncio.to_thread(self._process.ask, f"{verb} {self._namesrv} {TOPIC}")

    async def end_sending(self) -> None:
        await asyncio.to_thread(self._process.ask, "stop")

    def acknowledged(self) -> set[int]:
        sent = self._process.events_of("sent")
        assert {each["status"] for each in sent} <= {"SEND_OK", "FLUSH_SLAVE_TIMEOUT"}
        return {each["n"] for each in sent if each["status"] == "SEND_OK"}

    def received(self) -> set[int]:
        return {each["n"] for each in self._process.events_of("received")}

    def failures(self) -> set[int]:
        """Return the codes of sends that failed."""
        failed = self._process.events_of("failed")
        return {TIMEOUT if "timeout" in each["why"] else each["code"] for each in failed}

    async def wait(self, condition: Callable[[], object], what: str) -> None:
        await until(condition, what, timeout=LIMIT_S, pause=PAUSE_S)

    async def wait_acknowledged(self, more: int) -> None:
        goal = len(self.acknowledged()) + more
        await self.wait(lambda: len(self.acknowledged()) >= goal, f"{goal} acknowledged messages")


@pytest.fixture(
    params=[
        pytest.param(release, marks=pytest.mark.java)
        for release in (RELEASES if is_long() else RELEASES[-1:])
    ]
)
def release(request: pytest.FixtureRequest) -> str:
    """Return a release whose client is built."""
    found: str = request.param
    java.need(found)
    return found


@on_loop
async def test_sends_fail_without_a_lease_and_the_clients_go_on_with_the_controllers(
    release: str, tmp_path: Path
) -> None:
    controller = controller_of(tmp_path / "controller")
    await controller.start()
    port = controller.address[1]
    nameserver = Nameserver(NameserverConfig(bind_address="127.0.0.1", listen_port=0))
    async with nameserver as names:
        namesrv = format_address(names.address)
        options = {
            "lease_ms": LEASE_MS,
            "nameservers": (namesrv,),
            "all_ack_in_sync_state_set": True,
            "in_sync_replicas": 2,
            "slave_reads": True,
            "slave_timeout_ms": 1000,
        }

        def known() -> set[int]:
            return set(names.table.member_group("DefaultCluster", "broker-a").addresses)

        group = Group(tmp_path, format_address(controller.address), **options)
        try:
            with java_side(release, tmp_path) as side:
                await group.start("a")
                await group.start("b")
                broker = group.brokers[await group.master()]
                epoch = broker.role.epoch
                client = Client(await side.client(), namesrv)
                await client.begin("produce")
                await client.wait_acknowledged(FEW)

                await controller.close()
                await until(lambda: not takes_puts(broker), "the lease ends")
                end = broker.store.store.end_offset
                await until(lambda: known() == {1, 2}, "the route has no master")
                refused = await send(broker)
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
                await client.wait(lambda: NO_ROUTE in client.failures(), "no route")
                # Those before had the former route, and a put may have been under way.
                others = client.failures() - {NO_ROUTE}
                assert others <= {ResponseCode.SERVICE_NOT_AVAILABLE, TIMEOUT}
                before = client.acknowledged()
                await client.begin("consume")
                await client.wait(lambda: before <= client.received(), "all that was acknowledged")
                assert client.acknowledged() == before
                assert broker.store.store.end_offset == end, "nothing was stored without the lease"
                assert broker.role.name == "master"

                controller = controller_of(tmp_path / "controller", port)
                await controller.start()
                await client.wait_acknowledged(FEW)
                await client.end_sending()
                sent = client.acknowledged()
                await client.wait(lambda: sent <= client.received(), "the later messages")
                assert (broker.role.name, broker.role.epoch) == ("master", epoch)
        finally:
            for name in list(group.brokers):
                await group.stop(name)
            await controller.close()


async def send(broker: Broker) -> Frame:
    async with RemotingClient() as client:
        return await client.call(broker.address, send_request(TOPIC, b"refused"), CALL_S)
