"""The nameservers of a broker: each one has what the broker is, as soon as it can be reached."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from rmqstore.broker.nameserver_calls import NameserverCalls, Requests
from rmqstore.broker.registration import Announcement
from rmqstore.config import BrokerConfig
from rmqstore.errors import RemotingError
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import Connection, Runtime, Task
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerResponseHeader

__all__ = ["Host", "NameserverLink"]

_REGISTERED_TIMEOUT_S = 3.0
_UNREGISTER_TIMEOUT_S = 2.0
_INTERVAL_MS_LOW, _INTERVAL_MS_HIGH = 10_000, 60_000
_AWAITING_MS = 3000
"""Period of a slave that awaits its master, whose topics and offsets it lacks."""


class Host(Protocol):
    """The broker, as this link uses it."""

    @property
    def config(self) -> BrokerConfig:
        """The present settings."""

    @property
    def nameserver_addresses(self) -> tuple[str, ...]:
        """The nameservers, as "host:port"."""

    @property
    def log(self) -> IdentityLog:
        """The log of the broker."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""

    def announcement(self) -> Announcement | None:
        """Return what nameservers are to know; None while the broker serves no clients."""

    @property
    def announced_until_ms(self) -> int | None:
        """When that ends unless the lease is renewed; None where it does not end by itself."""

    @property
    def awaits_master(self) -> bool:
        """Whether this is a slave that no nameserver has named its master to."""

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        """Take the master that a nameserver names to a slave."""

    def learn_order_topics(self, topics: Collection[str]) -> None:
        """Take the topics that nameservers have an order configuration of."""

    def learn_members(self, members: Mapping[int, str]) -> None:
        """Take the addresses of the living replicas of the group by id, this one included."""


class _Nameserver:
    """One nameserver, and what it was sent."""

    def __init__(self, address: str, runtime: Runtime) -> None:
        self.address = address
        self.calls = NameserverCalls()
        self.wake = runtime.event()
        self.tried = 0
        """The change of the broker after which it was called last, whatever came of it."""
        self.connection: Connection | None = None


class NameserverLink:
    """Registers *host* at its nameservers, each one in a task of its own: an absent or silent one
    delays no other.

    What is sent and when is decided by `NameserverCalls`.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._runtime = host.runtime
        self._client = host.runtime.client
        self._log = host.log
        self._tasks = host.runtime.tasks("nameservers of a broker")
        self._nameservers: dict[str, _Nameserver] = {}
        self._running: dict[str, Task[None]] = {}
        self._changes = 0
        self._called = self._runtime.event()
        """Set after each call of a nameserver."""

    def start(self) -> None:
        """Begin to register."""
        self.update()
        config = self._host.config
        if config.replica.acting_master_enable or config.strict_locks:
            self._tasks.start(self._poll_members(), name="members of the group")

    async def close(self) -> None:
        """Unregister everywhere, for a short while where no answer comes."""
        await self._tasks.close()
        known = tuple(self._nameservers.values())
        self._nameservers.clear()
        await self._runtime.gather(*(self._unregister(each) for each in known))

    @property
    def states(self) -> dict[str, str]:
        """Why each nameserver does not know the broker, by address; "" for one that does."""
        return {
            each.address: each.calls.failure or ("" if each.calls.is_known else "not called yet")
            for each in self._nameservers.values()
        }

    def update(self) -> None:
        """Take the present addresses of nameservers."""
        wanted = set(self._host.nameserver_addresses)
        for address in self._nameservers.keys() - wanted:
            self._running.pop(address).cancel()
            self._tasks.start(
                self._unregister(self._nameservers.pop(address)), name=f"unregister at {address}"
            )
        for address in self._host.nameserver_addresses:
            if address not in self._nameservers:
                nameserver = self._nameservers[address] = _Nameserver(address, self._runtime)
                self._running[address] = self._tasks.start(
                    self._keep(nameserver), name=f"nameserver {address}"
                )

    def due(self) -> None:
        """Register soon: the broker has changed."""
        self._changes += 1
        for each in self._nameservers.values():
            each.calls.changed(self._runtime.now_ms())
            each.wake.set()

    async def registered(self) -> None:
        """Return when each nameserver that answered the call before has answered one after now, or
        failed to; at the latest after 3 s."""
        self.due()
        goal = self._changes
        waited = [each for each in self._nameservers.values() if not each.calls.failure]
        end_ms = self._runtime.now_ms() + int(_REGISTERED_TIMEOUT_S * 1000)
        while any(each.tried < goal for each in waited):
            self._called.clear()
            left_ms = end_ms - self._runtime.now_ms()
            if left_ms <= 0 or not await self._called.wait(left_ms / 1000):
                return

    # ---- one nameserver

    async def _keep(self, nameserver: _Nameserver) -> None:
        beating: Task[None] | None = None
        if self._host.config.replica.acting_master_enable:
            name = f"heartbeats to {nameserver.address}"
            beating = self._tasks.start(self._beat(nameserver), name=name)
        calls = nameserver.calls
        try:
            while True:
                now_ms = self._runtime.now_ms()
                announcement = self._host.announcement()
                if calls.is_due(announcement, now_ms):
                    changes = self._changes
                    await self._call(nameserver, announcement)
                    nameserver.tried = changes
                    self._called.set()
                    continue
                until_ms = None if announcement is None else self._host.announced_until_ms
                nameserver.wake.clear()
                due_ms = calls.due_ms(now_ms, until_ms)
                await nameserver.wake.wait((due_ms - now_ms) / 1000 + 0.001)
        finally:
            if beating is not None:
                beating.cancel()

    async def _call(self, nameserver: _Nameserver, announcement: Announcement | None) -> None:
        """Bring the nameserver to what the broker is."""
        calls, config, failure = nameserver.calls, self._host.config, ""
        was_known, twin = calls.is_known, calls.twin
        requests = calls.call(
            announcement,
            always_registers=config.force_register,
            looks_for_twin=not config.is_controlled,
        )
        try:
            timeout_s = _UNREGISTER_TIMEOUT_S if announcement is None else self._timeout_s
            await self._carry_out(nameserver, requests, timeout_s)
        except (RemotingError, ValueError) as error:
            failure = str(error) or type(error).__name__
            if not calls.failure:
                self._log.warning("nameserver %s: %s", nameserver.address, failure)
        if calls.twin not in ("", twin):
            assert announcement is not None, "who leaves looks for no other"
            self._warn_of_twin(nameserver, announcement)
        if calls.is_known and not failure and (calls.failure or not was_known):
            assert announcement is not None, "who leaves is not known"
            self._log.info("registered at %s as %d", nameserver.address, announcement.broker_id)
        calls.ended(self._runtime.now_ms(), period_ms=self._period_ms, failure=failure)
        if calls.is_known:
            self._watch(nameserver)

    async def _carry_out(
        self, nameserver: _Nameserver, requests: Requests, timeout_s: float
    ) -> None:
        try:
            request = next(requests)
            while True:
                answer = await self._client.call(nameserver.address, request, timeout_s)
                request = requests.send(answer)
        except StopIteration as end:
            if end.value is not None:
                self._learn(end.value)

    def _learn(self, answer: Frame) -> None:
        """Take what the answer to a registration says."""
        self._host.learn_master(RegisterBrokerResponseHeader.from_fields(answer.ext_fields))
        if answer.body:
            self._host.learn_order_topics(KvTable.decode(answer.body).table)

    def _warn_of_twin(self, nameserver: _Nameserver, announcement: Announcement) -> None:
        """Warn of another broker with the same name and id, which would take turns with this
        one."""
        self._log.warning(
            "nameserver %s has %s for broker %d of %s, which this broker replaces now: unless "
            "that one has ended, give one of the two another brokerName or brokerId",
            nameserver.address,
            nameserver.calls.twin,
            announcement.broker_id,
            announcement.name,
        )

    @property
    def _period_ms(self) -> int:
        if self._host.awaits_master:
            return _AWAITING_MS
        period_ms = self._host.config.registration_interval_ms
        return max(_INTERVAL_MS_LOW, min(period_ms, _INTERVAL_MS_HIGH))

    @property
    def _timeout_s(self) -> float:
        return self._host.config.registration_timeout_ms / 1000

    def _watch(self, nameserver: _Nameserver) -> None:
        """Have the nameserver called again when its connection ends."""
        connection = self._client.connection_to(nameserver.address)
        if connection is not None and connection is not nameserver.connection:
            nameserver.connection = connection
            connection.on_close(self._lost(nameserver))

    def _lost(self, nameserver: _Nameserver) -> Callable[[Connection], None]:
        def lost(connection: Connection) -> None:
            if nameserver.connection is connection:
                nameserver.connection = None
                nameserver.calls.lost(self._runtime.now_ms())
                nameserver.wake.set()

        return lost

    async def _unregister(self, nameserver: _Nameserver) -> None:
        frame = nameserver.calls.unregistration()
        if frame is None:
            return
        try:
            answer = await self._client.call(nameserver.address, frame, _UNREGISTER_TIMEOUT_S)
            answer.raise_for_code()
        except (RemotingError, ValueError) as error:
            self._log.warning("not unregistered at %s: %s", nameserver.address, error)

    # ---- signs of life, and those of the others

    async def _beat(self, nameserver: _Nameserver) -> None:
        while True:
            config = self._host.config
            await self._runtime.sleep(config.heartbeat_interval_ms / 1000)
            frame = nameserver.calls.heartbeat(
                self._host.announcement(), compatible=config.compatible_with_old_nameserver
            )
            if frame is None:
                continue
            # The next registration reports what is wrong.
            with contextlib.suppress(RemotingError, ValueError):
                await self._client.send_one_way(
                    nameserver.address, frame, config.heartbeat_timeout_ms / 1000
                )

    async def _poll_members(self) -> None:
        while True:
            await self._runtime.sleep(self._host.config.member_group_interval_ms / 1000)
            announcement = self._host.announcement()
            if announcement is None:
                continue
            members = await self._members(announcement, tuple(self._nameservers.values()))
            if members:
                self._host.learn_members(members)

    async def _members(
        self, announcement: Announcement, nameservers: Sequence[_Nameserver]
    ) -> Mapping[int, str]:
        """Returns the living members by the first nameserver that knows the group, none where no
        nameserver does."""
        config = self._host.config
        compatible = config.compatible_with_old_nameserver
        query = announcement.member_query(compatible=compatible)
        for nameserver in nameservers:
            if nameserver.calls.failure:
                continue
            try:
                answer = await self._client.call(
                    nameserver.address, query, config.heartbeat_timeout_ms / 1000
                )
                members = announcement.members(answer, compatible=compatible)
            except (RemotingError, ValueError):
                continue
            if members:
                return {**members, announcement.broker_id: announcement.address}
        return {}
