"""The step of `demo` that a cluster does: three controllers and a nameserver lose the leading
controller and the master of a broker group, and name another master.

The brokers here are brokers as far as controllers and nameservers see them: they register, send
heartbeats and take notices, and store nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from rmqstore.cli.demo.steps import Done
from rmqstore.config import ControllerConfig, NameserverConfig
from rmqstore.controller.engines import raft
from rmqstore.controller.server import Controller
from rmqstore.errors import RemotingError, StoreTimeout
from rmqstore.nameserver.server import NameServer
from rmqstore.net.addresses import Address, format_address
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.bodies.data_version import DataVersion
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from rmqstore.remoting.server import RemotingServer

__all__ = ["show"]

_GROUP = {"clusterName": "demo", "brokerName": "ledger"}
_TOPIC = "orders"
_BROKERS = (1, 2, 3)
_HEARTBEAT_S, _HEARTBEAT_TIMEOUT_MS = 0.1, 3000
_TIMEOUT_S = 30.0
_LOOK_S = 0.01


def show(folder: Path, done: Done) -> None:
    """Do the step in *folder*."""
    count = 3 if raft.is_built() else 1
    nodes = "three controllers" if count == 3 else "one controller (built without libraft)"
    print(f"8. {nodes}, a nameserver and a group of three brokers; the master ends", flush=True)
    began = time.monotonic()
    proof, is_proven = asyncio.run(_run(folder, count))
    done("elect after the master ended", 0, time.monotonic() - began, proof, is_proven)


async def _run(folder: Path, count: int) -> tuple[str, bool]:
    nameserver = NameServer(NameserverConfig(bind_address="127.0.0.1", listen_port=0))
    # The brokers end last: otherwise the controllers log that the group has no master.
    async with (
        contextlib.AsyncExitStack() as stack,
        nameserver,
        _controllers(folder, count) as controllers,
    ):
        await _until(lambda: _leader_of(controllers) is not None, "a controller that leads")
        brokers = {}
        for number in _BROKERS:
            brokers[number] = broker = _Broker(number, controllers, nameserver.address)
            await stack.enter_async_context(broker)
        master = brokers[1]
        await master.ask_controller(RequestCode.CONTROLLER_ELECT_MASTER, brokerId="1")
        await _until(lambda: master.role == (1, 1), "the election of broker 1")
        await master.take_in(frozenset(_BROKERS))

        began = time.monotonic()
        await master.end()
        if count > 1:
            leader = _leader_of(controllers)
            assert leader is not None, "one leads, as was waited for"
            controllers.remove(leader)
            await leader.close()
        others = [brokers[number] for number in _BROKERS[1:]]
        await _until(lambda: all(each.role[1] > 1 for each in others), "another master")
        chosen, epoch = others[0].role
        await _until_routed(others[0], brokers[chosen].address)
        seconds = time.monotonic() - began

        answer = await others[0].ask_controller(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
        next_id = int(answer.ext_fields["nextBrokerId"])
        is_one = len({each.role for each in others}) == 1
        proof = (
            f"broker {chosen} is master of epoch {epoch} {seconds:.1f} s after broker 1"
            f"{' and the leading controller' if count > 1 else ''} ended, the nameserver routes to "
            f"it, and the next broker gets id {next_id}"
        )
        return proof, is_one and chosen in (2, 3) and epoch > 1 and next_id == len(_BROKERS) + 1


class _Broker:
    """A broker of the group. A context manager: entering registers it, leaving ends it."""

    def __init__(self, number: int, controllers: list[Controller], nameserver: Address) -> None:
        self.number = number
        self.role = (0, 0)
        """The master and its epoch in the last notice."""
        self._set_epoch = 0
        self._controllers = controllers
        self._nameserver = nameserver
        self._client = RemotingClient()
        self._server = RemotingServer(
            ("127.0.0.1", 0), {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notified}
        )
        self._beats: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Broker:
        self._server.start()
        await self.ask_controller(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            appliedBrokerId=str(self.number),
            registerCheckCode=f"{self.address};1",
        )
        await self.ask_controller(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            brokerId=str(self.number),
            brokerAddress=self.address,
        )
        await self._beat()
        self._beats = asyncio.create_task(self._go_on(), name=f"broker {self.number}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return format_address(self._server.address)

    async def end(self) -> None:
        """End as a process does: all connections close. Twice is harmless."""
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait([self._beats])
        await self._client.close()
        await self._server.close()

    async def ask_controller(self, code: RequestCode, body: bytes = b"", **fields: str) -> Frame:
        """Return the leading controller's answer. Raises RemotingError for an error."""
        leader = _leader_of(self._controllers)
        assert leader is not None, "a controller leads"
        request = Frame.request(code, {**_GROUP, **fields}, body)
        answer = await self._client.call(leader.address, request, timeout=_TIMEOUT_S)
        return answer.raise_for_code()

    async def take_in(self, members: frozenset[int]) -> None:
        """Have the controllers make *members* the sync-state set, as the master."""
        body = SyncStateSetBody(members, self._set_epoch).encode()
        master, epoch = self.role
        await self.ask_controller(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            body,
            masterBrokerId=str(master),
            masterEpoch=str(epoch),
        )

    async def route(self) -> TopicRoute:
        """Return the route of the topic. Raises RemotingError where there is none."""
        request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": _TOPIC})
        answer = await self._client.call(self._nameserver, request, timeout=_TIMEOUT_S)
        return TopicRoute.decode(answer.raise_for_code().body)

    def _notified(self, connection: RemotingConnection, request: Frame) -> None:
        notice = NotifyBrokerRoleChangedRequestHeader.from_fields(request.ext_fields)
        self.role = notice.master_broker_id or 0, notice.master_epoch or 0
        self._set_epoch = notice.sync_state_set_epoch or 0

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            await self._beat()

    async def _beat(self) -> None:
        """Send heartbeats to the controllers, and register the role at the nameserver."""
        fields = {
            **_GROUP,
            "brokerId": str(self.number),
            "brokerAddr": self.address,
            "epoch": str(self.role[1]),
            "maxOffset": "0",
            "heartbeatTimeoutMills": str(_HEARTBEAT_TIMEOUT_MS),
        }
        for each in tuple(self._controllers):
            with contextlib.suppress(RemotingError):  # It ends, and another one leads.
                request = Frame.request(RequestCode.BROKER_HEARTBEAT, fields)
                await self._client.send_one_way(each.address, request)
        header = RegisterBrokerRequestHeader(
            cluster_name=_GROUP["clusterName"],
            broker_name=_GROUP["brokerName"],
            broker_address=self.address,
            broker_id=0 if self.role[0] == self.number else self.number,
        )
        version = DataVersion(self.role[1], 0, 1)
        # A registration with a single topic changes one topic of a registered broker.
        topics = {name: TopicConfig(name, 4, 4, 6) for name in (_TOPIC, _GROUP["brokerName"])}
        table = TopicTable(version, topics)
        body = RegisterBrokerBody(table, ()).encode()
        request = Frame.request(RequestCode.REGISTER_BROKER, header.to_fields(), body)
        with contextlib.suppress(RemotingError):
            await self._client.call(self._nameserver, request)


@contextlib.asynccontextmanager
async def _controllers(folder: Path, count: int) -> AsyncIterator[list[Controller]]:
    """Runs so many controllers, which may be closed and removed."""
    with _free_ports(2 * count) as ports:
        names = [f"n{number}" for number in range(count)]
        peers, raft_peers = (
            ";".join(f"{name}-127.0.0.1:{port}" for name, port in zip(names, some, strict=True))
            for some in (ports[:count], ports[count:])
        )
        running: list[Controller] = []
        try:
            for name in names:
                config = ControllerConfig(
                    bind_address="127.0.0.1",
                    peers=peers,
                    raft_peers=raft_peers if count > 1 else "",
                    self_id=name,
                    store_path=str(folder / f"controller-{name}"),
                    scan_masters_interval_ms=100,
                )
                controller = Controller(config)
                await controller.start()
                running.append(controller)
            yield running
        finally:
            for controller in running:
                await controller.close()


@contextlib.contextmanager
def _free_ports(count: int) -> Iterator[list[int]]:
    """Holds ports for servers whose port must be known before they start: a socket that is bound
    and does not listen keeps its port for those that name it."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
        yield ports


def _leader_of(controllers: list[Controller]) -> Controller | None:
    return next((each for each in controllers if each.status().is_leader), None)


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise StoreTimeout(f"waited {_TIMEOUT_S:.0f} s for {what}")
        await asyncio.sleep(_LOOK_S)


async def _until_routed(broker: _Broker, address: str) -> None:
    """Waits until the nameserver names *address* as the master of the topic's broker."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(RemotingError):
            if (await broker.route()).brokers[0].addresses.get(0) == address:
                return
        await asyncio.sleep(_LOOK_S)
    raise StoreTimeout(f"waited {_TIMEOUT_S:.0f} s for the route to {address}")
