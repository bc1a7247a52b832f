"""The nameservers of a broker: each one has what the broker is, as soon as it can be reached."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from rmqstore.broker.registration import Announcement, is_changed, member_count
from rmqstore.config import BrokerConfig
from rmqstore.errors import RemotingError
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.supervisor import Supervisor
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.headers.registration import RegisterBrokerResponseHeader

__all__ = ["Host", "NameserverLink"]

_RETRY_S = 1.0
_LOST_S = 0.1
_SPREAD_S = 0.005
"""Changes within this time become one registration."""
_REGISTERED_TIMEOUT_S = 3.0
_UNREGISTER_TIMEOUT_S = 2.0
_INTERVAL_MS_LOW, _INTERVAL_MS_HIGH = 10_000, 60_000


class Host(Protocol):
    """The broker, as this link uses it."""

    @property
    def config(self) -> BrokerConfig:
        """The present settings."""

    def announcement(self) -> Announcement | None:
        """Return what nameservers are to know; None while the broker serves no clients."""

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        """Take the master that a nameserver names to a slave."""

    def learn_alive(self, count: int) -> None:
        """Take how many replicas of the group are alive."""


class _Nameserver:
    """One nameserver, and what it was sent."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wake = asyncio.Event()
        self.tried = 0
        """The change of the broker after which it was called last, whatever came of it."""
        self.registered: Announcement | None = None
        """What it confirmed last, as long as the connection is the same."""
        self.failure = ""
        self.twin: str | None = ""
        """Another address that it had for the same name and id."""
        self.connection: RemotingConnection | None = None


class NameserverLink:
    """Registers *host* at its nameservers, each one in a task of its own: an absent or silent one
    delays no other.

    A nameserver that cannot be reached is tried again every second. One whose connection ends may
    have forgotten the broker, and soon gets the registration again.
    """

    def __init__(self, host: Host, client: RemotingClient, *, log: IdentityLog) -> None:
        self._host = host
        self._client = client
        self._log = log
        self._tasks = Supervisor("nameservers of a broker", log=log)
        self._nameservers: dict[str, _Nameserver] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._changes = 0
        self._turn = asyncio.Event()
        """Set, and replaced, after each call of a nameserver."""

    def start(self) -> None:
        """Begin to register."""
        self.update()
        if self._host.config.replica.acting_master_enable:
            self._tasks.start(self._poll_members(), name="members of the group")

    async def close(self) -> None:
        """Unregister everywhere, for a short while where no answer comes."""
        await self._tasks.close()
        known = [each for each in self._nameservers.values() if each.registered is not None]
        self._nameservers.clear()
        await asyncio.gather(*(self._unregister(each) for each in known))

    @property
    def states(self) -> dict[str, str]:
        """Why each nameserver does not know the broker, by address; "" for one that does."""
        return {
            each.address: each.failure or ("" if each.registered else "not called yet")
            for each in self._nameservers.values()
        }

    def update(self) -> None:
        """Take the nameservers of the configuration."""
        wanted = set(self._host.config.nameservers)
        for address in self._nameservers.keys() - wanted:
            self._running.pop(address).cancel()
            self._tasks.start(
                self._unregister(self._nameservers.pop(address)), name=f"unregister at {address}"
            )
        for address in self._host.config.nameservers:
            if address not in self._nameservers:
                nameserver = self._nameservers[address] = _Nameserver(address)
                self._running[address] = self._tasks.start(
                    self._keep(nameserver), name=f"nameserver {address}"
                )

    def due(self) -> None:
        """Register soon: the broker has changed."""
        self._changes += 1
        for each in self._nameservers.values():
            each.wake.set()

    async def registered(self) -> None:
        """Return when each nameserver that answered the call before has answered one after now, or
        failed to; at the latest after 3 s."""
        self.due()
        goal = self._changes
        waited = [each for each in self._nameservers.values() if not each.failure]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REGISTERED_TIMEOUT_S):
                while any(each.tried < goal for each in waited):
                    await self._turn.wait()

    # ---- one nameserver

    async def _keep(self, nameserver: _Nameserver) -> None:
        beating: asyncio.Task[None] | None = None
        if self._host.config.replica.acting_master_enable:
            name = f"heartbeats to {nameserver.address}"
            beating = self._tasks.start(self._beat(nameserver), name=name)
        try:
            while True:
                nameserver.wake.clear()
                changes = self._changes
                await self._call(nameserver)
                nameserver.tried = changes
                self._turn.set()
                self._turn = asyncio.Event()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s(nameserver)):
                        await nameserver.wake.wait()
                await asyncio.sleep(_SPREAD_S)
        finally:
            if beating is not None:
                beating.cancel()

    def _pause_s(self, nameserver: _Nameserver) -> float:
        if nameserver.failure:
            return _RETRY_S
        period_ms = self._host.config.registration_interval_ms
        return max(_INTERVAL_MS_LOW, min(period_ms, _INTERVAL_MS_HIGH)) / 1000

    async def _call(self, nameserver: _Nameserver) -> None:
        """Bring the nameserver to what the broker is."""
        announcement = self._host.announcement()
        if announcement is None:
            if nameserver.registered is not None:
                await self._unregister(nameserver)
            return
        try:
            if await self._is_due(nameserver, announcement):
                await self._register(nameserver, announcement)
        except (RemotingError, ValueError) as error:
            if not nameserver.failure:
                self._log.warning("nameserver %s: %s", nameserver.address, error)
            nameserver.failure = str(error) or type(error).__name__
            return
        if nameserver.failure or nameserver.registered is None:
            self._log.info("registered at %s as %d", nameserver.address, announcement.broker_id)
        nameserver.failure, nameserver.registered = "", announcement
        self._watch(nameserver)

    async def _is_due(self, nameserver: _Nameserver, announcement: Announcement) -> bool:
        if self._host.config.force_register or nameserver.registered != announcement:
            return True
        query = announcement.version_query()
        return is_changed(await self._client.call(nameserver.address, query, self._timeout_s))

    async def _register(self, nameserver: _Nameserver, announcement: Announcement) -> None:
        if not self._host.config.is_controlled:
            await self._look_for_twin(nameserver, announcement)
        frame = announcement.registration()
        answer = await self._client.call(nameserver.address, frame, self._timeout_s)
        answer.raise_for_code()
        if announcement.broker_id:
            self._host.learn_master(RegisterBrokerResponseHeader.from_fields(answer.ext_fields))

    async def _look_for_twin(self, nameserver: _Nameserver, announcement: Announcement) -> None:
        """Warn of another broker with the same name and id, which would take turns with this one.

        With a controller the former master of the group is such a broker for a while.
        """
        query = announcement.member_query(compatible=False)
        answer = await self._client.call(nameserver.address, query, self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            return  # A nameserver before 5.0 does not know the request.
        found = announcement.members(answer, compatible=False).get(announcement.broker_id)
        twin = "" if found in (None, announcement.address) else found
        if twin and twin != nameserver.twin:
            self._log.warning(
                "nameserver %s has %s for broker %d of %s, which this broker replaces now: unless "
                "that one has ended, give one of the two another brokerName or brokerId",
                nameserver.address,
                twin,
                announcement.broker_id,
                announcement.name,
            )
        nameserver.twin = twin

    @property
    def _timeout_s(self) -> float:
        return self._host.config.registration_timeout_ms / 1000

    def _watch(self, nameserver: _Nameserver) -> None:
        """Have the nameserver called again when its connection ends."""
        connection = self._client.connection_to(nameserver.address)
        if connection is not None and connection is not nameserver.connection:
            nameserver.connection = connection
            connection.on_close(self._lost(nameserver))

    def _lost(self, nameserver: _Nameserver) -> Callable[[RemotingConnection], None]:
        def lost(connection: RemotingConnection) -> None:
            if nameserver.connection is connection:
                nameserver.connection = None
                asyncio.get_running_loop().call_later(_LOST_S, nameserver.wake.set)

        return lost

    async def _unregister(self, nameserver: _Nameserver) -> None:
        registered, nameserver.registered = nameserver.registered, None
        if registered is None:
            return
        frame = registered.unregistration()
        try:
            answer = await self._client.call(nameserver.address, frame, _UNREGISTER_TIMEOUT_S)
            answer.raise_for_code()
        except (RemotingError, ValueError) as error:
            self._log.warning("not unregistered at %s: %s", nameserver.address, error)

    # ---- signs of life, and those of the others

    async def _beat(self, nameserver: _Nameserver) -> None:
        while True:
            config = self._host.config
            await asyncio.sleep(config.heartbeat_interval_ms / 1000)
            if nameserver.registered is None or nameserver.failure:
                continue
            frame = nameserver.registered.heartbeat(
                compatible=config.compatible_with_old_nameserver
            )
            # The next registration reports what is wrong.
            with contextlib.suppress(RemotingError, ValueError):
                await self._client.send_one_way(
                    nameserver.address, frame, config.heartbeat_timeout_ms / 1000
                )

    async def _poll_members(self) -> None:
        while True:
            await asyncio.sleep(self._host.config.member_group_interval_ms / 1000)
            announcement = self._host.announcement()
            if announcement is None:
                continue
            count = await self._count_members(announcement, tuple(self._nameservers.values()))
            if count is not None:
                self._host.learn_alive(count)

    async def _count_members(
        self, announcement: Announcement, nameservers: Sequence[_Nameserver]
    ) -> int | None:
        """Returns the number of living members by the first nameserver that knows the group."""
        config = self._host.config
        compatible = config.compatible_with_old_nameserver
        query = announcement.member_query(compatible=compatible)
        for nameserver in nameservers:
            if nameserver.failure:
                continue
            try:
                answer = await self._client.call(
                    nameserver.address, query, config.heartbeat_timeout_ms / 1000
                )
                members = announcement.members(answer, compatible=compatible)
            except (RemotingError, ValueError):
                continue
            count = member_count(members, announcement.broker_id)
            if count is not None:
                return count
        return None
