"""Models of a replica, a broker and a client, for tests of a broker's parts in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

from rmqstore.broker.membership.roles import Role
from rmqstore.errors import RemotingConnectError, RemotingTimeout, StoreError
from rmqstore.net.addresses import Address, format_address, parse_address
from rmqstore.net.runtime import Runtime
from rmqstore.remoting.frames import Frame
from rmqstore.replication.protocol.events import HaState

Server = Callable[[Frame], Frame | None]


class ModelConnection:
    """The connection to a server, until `lose`."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []

    def on_close(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def lose(self) -> None:
        for callback in self._callbacks:
            callback(self)


class ModelClient:
    """Calls the functions of *servers*, by address. A call without an answer ends at its limit."""

    runtime: Runtime

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self.servers = dict(servers)
        self.sent: list[tuple[str, int, int]] = []
        """Address, code and time of each call."""
        self.connections: dict[str, ModelConnection] = {}

    async def call(self, address: str | Address, request: Frame, timeout: float) -> Frame:
        place, answer = self._send(address, request)
        if answer is None:
            await self.runtime.sleep(timeout)
            raise RemotingTimeout(f"{place}: no answer")
        return answer

    async def send_one_way(self, address: str | Address, request: Frame, timeout: float) -> None:
        self._send(address, request)

    def _send(self, address: str | Address, request: Frame) -> tuple[str, Frame | None]:
        place = format_address(parse_address(address))
        self.sent.append((place, request.code, self.runtime.now_ms()))
        if place not in self.servers:
            raise RemotingConnectError(f"{place}: refused")
        self.connections.setdefault(place, ModelConnection())
        return place, self.servers[place](request)

    def connection_to(self, address: str | Address) -> ModelConnection | None:
        return self.connections.get(format_address(parse_address(address)))

    def lose(self, address: str) -> None:
        """End the connection to a server."""
        self.connections.pop(address).lose()

    def times(self, address: str, code: int) -> list[int]:
        """Return when calls of *code* to *address* were made."""
        return [now_ms for place, sent, now_ms in self.sent if (place, sent) == (address, code)]


class ModelReplica:
    """A replica that has each role at once, or never while it `is_stuck`."""

    def __init__(self, runtime: Runtime) -> None:
        self.role: str | None = None
        self.epoch = -1
        self.lease_end_ms: int | None = None
        self.lease_ms = 0
        self.acknowledges_flushed = False
        self.is_stuck = False
        self.failures: list[StoreError] = []
        """What the next changes of the role raise."""
        self.done: list[tuple[object, ...]] = []
        """The calls that were carried out."""
        self._runtime = runtime

    async def _change(self, role: str, epoch: int) -> None:
        self.role = None
        if self.is_stuck:
            await self._runtime.event().wait()
        if self.failures:
            raise self.failures.pop(0)
        self.role, self.epoch = role, epoch

    async def become_master(self, epoch: int, *, members: Collection[int], set_epoch: int) -> None:
        await self._change("master", epoch)
        self.done.append(("master", epoch))

    async def become_slave(self, master: str, epoch: int) -> None:
        await self._change("slave", epoch)
        self.done.append(("slave", epoch, master))

    async def set_sync_state_set(self, members: Collection[int], set_epoch: int) -> None:
        self.done.append(("set", sorted(members), set_epoch))

    def renew_lease(self, asked_ms: int) -> None:
        self.lease_end_ms = asked_ms + 3000

    def refuse_proposal(self, number: int) -> None:
        self.done.append(("refused", number))

    def lose_proposal(self, number: int) -> None:
        self.done.append(("lost", number))

    def status(self) -> Any:
        master = SimpleNamespace(state=HaState.TRANSFER) if self.role == "slave" else None
        return SimpleNamespace(
            master=master,
            failure="the disk failed",
            epochs=(),
            whole_end=0,
            flushed_offset=0,
            confirm_offset=0,
            sync_state_set_epoch=0,
            synced_epoch=-1,
            start_offset=0,
            is_partial=False,
        )

    async def close(self) -> None:
        self.role = None


class ModelHost:
    """The broker of a role keeper."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.role = Role()
        self.roles: list[Role] = []
        self.registrations = 0
        self.stopping_s = 0.0
        """How long the services of a former role take to stop."""

    def set_role(self, role: Role) -> None:
        self.role = role
        self.roles.append(role)

    async def former_services_stopped(self) -> None:
        await self.runtime.sleep(self.stopping_s)

    def registration_due(self) -> None:
        self.registrations += 1
