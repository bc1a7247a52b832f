"""The role of a broker without a controller: the one that its file names.

A master that may lack messages its slaves hold (`rmqstore.replication.group.fixed_master`) waits:
it serves reads, is registered without the permission to write, and asks the slaves that the
nameservers name how far their logs go, until it may lead.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rmqstore.aio import AsyncStore
from rmqstore.broker.membership.master_places import other_places
from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.config import BrokerConfig
from rmqstore.errors import RemotingError, RequestRefused, StoreError
from rmqstore.net.addresses import Address, format_address, parse_address
from rmqstore.net.boot import boot_id
from rmqstore.net.runtime import Runtime
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import (
    GetBrokerMemberGroupRequestHeader,
    RegisterBrokerResponseHeader,
)
from rmqstore.replication.group.fixed_master import FixedMaster, Lead, SlaveReport, Wait
from rmqstore.replication.runtime.replica import Replica

__all__ = ["FixedMembership", "Host"]

_MASTER_ID = 0


class Host(Protocol):
    """The broker, as its fixed role uses it."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""

    @property
    def config(self) -> BrokerConfig:
        """The present settings."""

    @property
    def store(self) -> AsyncStore:
        """The store, open."""

    @property
    def role(self) -> Role:
        """The present role."""

    @property
    def address(self) -> Address:
        """Where clients connect."""

    @property
    def nameserver_addresses(self) -> tuple[str, ...]:
        """The nameservers, as "host:port"."""

    async def open_replica(self, broker_id: int, **options: Any) -> Replica:
        """Open the replica of the store."""

    def set_role(self, role: Role) -> None:
        """Make *role* the present role."""

    def registration_due(self) -> None:
        """Register at the nameservers soon."""


@dataclass(frozen=True, slots=True)
class _Answers:
    """What a round of questions found."""

    is_answered: bool
    """Whether a nameserver answered."""
    leader: str
    """Another broker with the id of the master; "" for none."""
    reports: tuple[SlaveReport, ...]


class FixedMembership:
    """See `Membership`: gives *broker* the role of its file."""

    def __init__(self, broker: Host) -> None:
        self._broker = broker
        self._runtime = broker.runtime
        self._tasks = self._runtime.tasks("role of a broker")
        self._replica: Replica | None = None
        self._followed: str | None = None
        """The HA address of the master of this slave."""
        self._wake = self._runtime.event()
        self.is_hidden = False
        """Whether nameservers must not know this broker: it waits, and another may be the
        master."""
        self.leads = True
        """No other broker is elected."""
        self.leader: str | None = None
        """No controller leads."""
        self.members_without_reports: frozenset[int] = frozenset()
        """No member may be elected."""
        self.puts_need_members = False
        """Puts wait for copies, not for members of a set."""

    async def close(self) -> None:
        """Stop asking."""
        await self._tasks.close()

    @property
    def trouble(self) -> str:
        """Why this broker, the master by its file, waits; empty where it does not."""
        return self._broker.role.waits_for

    @property
    def lease_end_ms(self) -> int | None:
        """The end of the lease of this master, None without one."""
        return None if self._replica is None else self._replica.lease_end_ms

    @property
    def possible_members(self) -> frozenset[int]:
        """The members of the present role."""
        return self._broker.role.members

    def admit(self, broker_ids: Collection[int]) -> None:
        """Do nothing: slaves join no set."""

    def notified(self, request: Frame) -> None:
        """Raise RequestRefused: no controller gives this broker orders."""
        raise RequestRefused(
            "this broker takes no orders of controllers; they need enableControllerMode",
            code=ResponseCode.SYSTEM_ERROR,
        )

    async def start(self) -> None:
        """Begin the role, or wait for that of a master."""
        broker, config = self._broker, self._broker.config
        if config.is_slave:
            self._replica = await broker.open_replica(config.broker_id)
            self._followed = config.replica.ha_master_address or None
            if self._followed:
                await self._replica.become_slave(self._followed)
            broker.set_role(Role(name="slave", broker_id=config.broker_id))
            return
        boot = _boot_of(broker.store.store.path)
        fixed = FixedMaster.from_config(config.store, config.replica, boot=boot)
        self._replica = await broker.open_replica(_MASTER_ID, fixed=fixed)
        step = self._replica.next_step(word=config.others_asked_epoch)
        if isinstance(step, Lead):
            await self._lead(step)
            return
        self.is_hidden = True
        self._note(step)
        self._tasks.start(self._wait(), name="waiting to lead")

    def configured(self) -> None:
        """Decide again: the settings have changed."""
        self._wake.set()

    # ---- a master

    async def _lead(self, step: Lead) -> None:
        assert self._replica is not None, "the replica is open"
        if step.reason:
            self._runtime.log.warning(
                "leads on in epoch %s after an unclean end: %s", step.epoch, step.reason
            )
        await self._replica.become_master(step.epoch, others_asked=step.epoch is not None)
        self.is_hidden = False
        address = self._broker.address
        self._broker.set_role(Role(name="master", broker_id=_MASTER_ID, master_address=address))

    def _note(self, step: Wait) -> None:
        """Show why the broker waits."""
        if step.reason != self._broker.role.waits_for:
            self._runtime.log.warning("takes no messages and serves reads: %s", step.reason)
        self._broker.set_role(Role(name="slave", broker_id=_MASTER_ID, waits_for=step.reason))

    async def _wait(self) -> None:
        assert self._replica is not None, "the replica is open"
        while True:
            config = self._broker.config
            self._wake.clear()
            answers = await self._ask(config)
            step = self._replica.next_step(
                word=self._broker.config.others_asked_epoch,
                leader=answers.leader,
                reports=answers.reports,
            )
            if isinstance(step, Lead):
                try:
                    await self._lead(step)
                    return
                except StoreError as error:
                    step = Wait(f"it cannot lead: {error}")
            is_hidden = bool(answers.leader) or (self.is_hidden and not answers.is_answered)
            if is_hidden != self.is_hidden:
                self.is_hidden = is_hidden
                self._broker.registration_due()
            self._note(step)
            await self._wake.wait(config.member_group_interval_ms / 1000)

    async def _ask(self, config: BrokerConfig) -> _Answers:
        """Ask the nameservers for the brokers of the group, and its slaves for their ends."""
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=config.cluster_name, broker_name=config.name
        )
        query = Frame.request(RequestCode.GET_BROKER_MEMBER_GROUP, header.to_fields())
        timeout_s = config.heartbeat_timeout_ms / 1000
        is_answered, members = False, dict[int, str]()
        for nameserver in self._broker.nameserver_addresses:
            try:
                answer = await self._runtime.client.call(nameserver, query, timeout_s)
                # A nameserver before 5.0 refuses the request.
                is_answered = True
                if answer.code == ResponseCode.SUCCESS:
                    members |= _others(BrokerMemberGroup.decode(answer.body).addresses, self._own)
            except (RemotingError, ValueError):
                continue
        slaves = {each: at for each, at in members.items() if each != _MASTER_ID}
        found = await self._runtime.gather(
            *(self._report(each, at, timeout_s) for each, at in slaves.items())
        )
        return _Answers(
            is_answered,
            members.get(_MASTER_ID, ""),
            tuple(each for each in found if each is not None),
        )

    async def _report(self, broker_id: int, address: str, timeout_s: float) -> SlaveReport | None:
        """Returns how far the log of a slave goes, None without an answer."""
        request = Frame.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        with contextlib.suppress(RemotingError, ValueError, KeyError):
            answer = await self._runtime.client.call(address, request, timeout_s)
            table = KvTable.decode(answer.raise_for_code().body).table
            return SlaveReport(broker_id, address, int(table["commitLogMaxOffset"]))
        return None

    @property
    def _own(self) -> str:
        return format_address(self._broker.address)

    # ---- a slave

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        """Follow the master that a nameserver names, where the file names none."""
        role, config = self._broker.role, self._broker.config
        if not answer.master_address or role.standing is not Standing.FOLLOWING:
            return
        found = parse_address(answer.master_address)
        ha_address = config.replica.ha_master_address or answer.ha_address or ""
        places = other_places(found, ha_address)
        if (found, places) != (role.master_address, role.other_places):
            self._broker.set_role(replace(role, master_address=found, other_places=places))
        if answer.ha_address and not config.replica.ha_master_address:
            self._follow_soon(answer.ha_address)

    def _follow_soon(self, ha_address: str) -> None:
        if ha_address == self._followed:
            return
        self._followed = ha_address
        self._tasks.start(self._follow(ha_address), name=f"following {ha_address}")

    async def _follow(self, ha_address: str) -> None:
        assert self._replica is not None, "a slave has a replica"
        try:
            await self._replica.become_slave(ha_address)
        except BaseException:
            self._followed = None  # The next answer of a nameserver names it again.
            raise


def _others(addresses: Mapping[int, str], own: str) -> dict[int, str]:
    """Returns the brokers of a group without the one at *own*."""
    return {broker_id: address for broker_id, address in addresses.items() if address != own}


def _boot_of(root: str) -> str:
    """Returns the boot of this machine and the number of a store's directory, which is another one
    for a copy of it."""
    return f"{boot_id()} {os.stat(root).st_ino}"
