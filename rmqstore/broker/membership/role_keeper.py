"""Carries the orders of controllers out on the replica of a broker, one at a time.

An order that fails is given again. A later order ends the one that is being carried out. A broker
has no role while it changes from one to another, so it serves no client then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from rmqstore.broker.membership.controller_calls import Outcome, SetAnswer
from rmqstore.broker.membership.master_places import MasterSearch, other_places
from rmqstore.broker.membership.orders import Decision, Orders, RoleOrder
from rmqstore.broker.membership.roles import Role, role_by, role_during, role_with
from rmqstore.errors import Fenced, RemotingError, StoreClosedError, StoreError
from rmqstore.net.addresses import format_address
from rmqstore.net.runtime import Runtime
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.ha import ExchangeHaInfoHeader
from rmqstore.replication.protocol.events import HaState
from rmqstore.replication.runtime.replica import Replica

__all__ = ["Host", "RoleKeeper"]

_LEAD_S = 10.0
"""How long an elected broker takes the role of master, before it refuses the epoch."""
_HA_TIMEOUT_S = 3.0
_HA_PAUSE_S = 0.1
_HA_PAUSE_S_MAX = 1.0


class Host(Protocol):
    """The part of a broker that the keeper of its role uses."""

    @property
    def runtime(self) -> Runtime:
        """The world of this broker."""

    @property
    def role(self) -> Role:
        """The present role."""

    def set_role(self, role: Role) -> None:
        """Serve clients by *role* from now on."""

    async def former_services_stopped(self) -> None:
        """Return when no service of a former role acts any more, or does not stop in time."""

    def registration_due(self) -> None:
        """Register at the nameservers soon: what this broker is has changed."""


class RoleKeeper:
    """The role of the broker *broker_id* with the open *replica*.

    *on_change* is called when another role or set is to be reported to the controllers.
    """

    def __init__(
        self,
        host: Host,
        replica: Replica,
        broker_id: int,
        *,
        life: int,
        on_change: Callable[[], None],
    ) -> None:
        self._host = host
        self._runtime = host.runtime
        self._log = host.runtime.log
        self._replica = replica
        self._broker_id = broker_id
        self._on_change = on_change
        self._tasks = self._runtime.tasks("role")
        self._orders = Orders(broker_id, life)
        self._news = self._runtime.event()
        """Set when there may be something to do: a decision, another order, the end of the work."""
        self._present: RoleOrder | None = None
        """The order that is being carried out."""
        self._search: MasterSearch | None = None
        """The search for the master of the present order."""
        self._named = "", ""
        """The master that a nameserver named last, and its HA address."""
        self._is_named = self._runtime.event()
        self._way = ""
        """The HA address that is followed because a nameserver names it; empty for another one."""
        self._warned = ""
        self._is_over = False
        self._past_epoch = -1

    def start(self) -> None:
        """Begin to carry orders out."""
        self._host.set_role(Role(broker_id=self._broker_id))
        self._tasks.start(self._run(), name="orders")

    async def close(self) -> None:
        """End an order that is being carried out, and take no further ones. The role remains."""
        self._is_over = True
        await self._tasks.close()

    async def give_way(self, reason: str) -> None:
        """End the role for good: another process has the identity of this broker."""
        self._log.error("role ended, no client is served until a restart: %s", reason)
        await self.close()
        self._host.set_role(Role(broker_id=self._broker_id))
        await self._replica.close()

    @property
    def role_epoch(self) -> int:
        """The epoch in which this broker is master, -1 while it is not."""
        role = self._host.role
        is_master = role.is_master and self._replica.role == "master"
        return role.epoch if is_master else -1

    @property
    def refused_epoch(self) -> int:
        """The highest epoch in which this broker was elected and will not be master."""
        return self._orders.refused_epoch

    @property
    def cannot_lead(self) -> bool:
        """Whether this broker was elected and failed to take the role a short time ago."""
        return self._orders.cannot_lead(self._runtime.now_ms())

    @property
    def _holds_lease(self) -> bool:
        end_ms = self._replica.lease_end_ms
        return end_ms is None or self._runtime.now_ms() < end_ms

    @property
    def trouble(self) -> str:
        """Why the last order was not carried out, or why this broker does not follow its master;
        empty where it does, or is master."""
        if self._orders.trouble or self._host.role.is_master:
            return self._orders.trouble
        if self._present is not None:
            return "" if self._search is None else self._search.trouble
        master = self._replica.status().master
        if master is None or master.state is HaState.TRANSFER:
            return ""
        reason = master.halted_reason or master.last_error
        return f"the log is not copied from {format_address(master.address)}: {reason}"

    def learn_master(self, master: str, ha_address: str) -> None:
        """Take the master of the group, and its HA address, as a nameserver names them."""
        self._named = master, ha_address
        if self._present is not None:
            if self._search is not None and self._search.named(master, ha_address):
                self._is_named.set()
            return
        role, status = self._host.role, self._replica.status().master
        is_followed = role.is_slave and role.followed is not None
        is_same = is_followed and master == format_address(role.master_address or ("", 0))
        is_other_way = is_same and self._way not in ("", ha_address)
        if is_other_way and status is not None and status.state is not HaState.TRANSFER:
            self._orders.again()
            self._news.set()

    # ---- messages of controllers

    def take(self, decision: Decision) -> None:
        """Take what a controller has decided."""
        if self._is_over:
            return
        self.check()
        self._warn_of_past(decision)
        self._orders.take(decision, known_epoch=self._replica.epoch)
        role = self._host.role
        if self._orders.takes_set(decision, role_epoch=self.role_epoch, set_epoch=role.set_epoch):
            self._tasks.start(
                self._take_set(decision.epoch, decision.members, decision.set_epoch), name="set"
            )
        elif role.is_slave and decision.epoch == role.epoch:
            self._host.set_role(role_with(role, decision.members, decision.set_epoch))
        if self._orders.renews_lease(decision, role_epoch=self.role_epoch):
            was_held = self._holds_lease
            self._replica.renew_lease(decision.lease_asked_ms)
            if not was_held:
                # Nameservers know no master without a lease.
                self._host.registration_due()
        self._news.set()

    def answer(self, answer: SetAnswer) -> None:
        """Take the answer to a proposal of the present role."""
        if self._is_over or answer.epoch != self.role_epoch:
            return
        now = answer.now
        if now is not None:
            self._tasks.start(self._take_set(answer.epoch, now.members, now.epoch), name="set")
        if answer.outcome is Outcome.REFUSED:
            self._replica.refuse_proposal(answer.number)
        elif answer.outcome is Outcome.LOST:
            self._replica.lose_proposal(answer.number)

    async def _take_set(self, epoch: int, members: frozenset[int], set_epoch: int) -> None:
        if self.role_epoch != epoch or self._broker_id not in members:
            return
        try:
            await self._replica.set_sync_state_set(members, set_epoch)
        except StoreError as error:
            self._log.error("cannot take the sync-state set %s: %s", sorted(members), error)
            return
        role = self._host.role
        if self.role_epoch == epoch and set_epoch > role.set_epoch:
            self._host.set_role(role_with(role, members, set_epoch))
            self._on_change()

    def _warn_of_past(self, decision: Decision) -> None:
        known = self._replica.epoch
        if decision.master_id is None or decision.epoch >= known:
            return
        if decision.epoch != self._past_epoch and decision.epoch > self._host.role.epoch:
            self._past_epoch = decision.epoch
            self._log.error(
                "the controllers name epoch %d, but the log of this broker knows epoch %d: they "
                "have lost their state, or this is the directory of another group; no order "
                "below epoch %d is followed",
                decision.epoch,
                known,
                known,
            )

    def check(self) -> None:
        """Check whether the role ended without an order; its order is given again then."""
        role = self._host.role
        if self._is_over or self._present is not None or not role.is_known:
            return
        if self._replica.role is None:
            failure = self._replica.status().failure
            self._log.error("the role of %s ended: %s", role.name, failure)
            self._host.set_role(Role(broker_id=self._broker_id))
            self._orders.ended(self._runtime.now_ms())
            self._news.set()
            self._on_change()

    # ---- orders

    async def _run(self) -> None:
        while True:
            self._news.clear()
            order = self._orders.next(self._runtime.now_ms())
            if order is not None:
                await self._carry_out(order)
                continue
            retry_at_ms = self._orders.retry_at_ms
            wait_s = None
            if retry_at_ms is not None:
                wait_s = max(0.0, (retry_at_ms - self._runtime.now_ms()) / 1000) + 0.001
            await self._news.wait(wait_s)

    async def _carry_out(self, order: RoleOrder) -> None:
        """Carry *order* out, unless a later one comes."""
        self._present = order
        work = self._tasks.start(self._do(order), name=f"order of epoch {order.epoch}")
        ended = self._runtime.event()

        def end(_: object) -> None:
            ended.set()
            self._news.set()

        work.add_done_callback(end)
        end_ms = self._runtime.now_ms() + int(_LEAD_S * 1000)
        try:
            while not work.done():
                left_s = (end_ms - self._runtime.now_ms()) / 1000
                await self._news.wait(left_s if left_s > 0 else _LEAD_S)
                self._news.clear()
                if not work.done() and self._is_late(order, end_ms):
                    self._orders.give_up(
                        order, self._runtime.now_ms(), f"no role of master after {_LEAD_S:.0f} s"
                    )
                    self._on_change()
                if not work.done() and self._orders.latest != order:
                    work.cancel()
                    # A second cancellation would not let the replica complete its step.
                    await ended.wait()
        finally:
            self._present = None

        if work.cancelled() or work.exception() is not None:
            self._orders.failed(order, self._runtime.now_ms(), "it was interrupted")
        self._on_change()

    def _is_late(self, order: RoleOrder, end_ms: int) -> bool:
        return self._orders.may_give_up(order) and self._runtime.now_ms() >= end_ms

    async def _do(self, order: RoleOrder) -> None:
        self._search = None
        try:
            if self._orders.is_own(order):
                role = await self._become_master(order)
            else:
                role = await self._become_slave(order)
        except Fenced as error:
            self._log.error("refuses the order of epoch %d: %s", order.epoch, error)
            self._orders.refused(order)
        except StoreClosedError as error:
            self._orders.failed(order, self._runtime.now_ms(), str(error))
        except StoreError as error:
            self._log.warning(
                "order of epoch %d failed, and is tried again: %s", order.epoch, error
            )
            self._orders.failed(order, self._runtime.now_ms(), str(error))
        else:
            self._orders.done(order)
            self._host.set_role(role)

    async def _become_master(self, order: RoleOrder) -> Role:
        self._host.set_role(role_during(self._host.role, order))
        await self._host.former_services_stopped()
        await self._replica.become_master(
            order.epoch, members=order.members, set_epoch=order.set_epoch
        )
        return role_by(order, self._broker_id)

    async def _become_slave(self, order: RoleOrder) -> Role:
        self._host.set_role(role_during(self._host.role, order))
        await self._host.former_services_stopped()
        if self._replica.role == "master" and self._broker_id not in order.members:
            # The set without this broker ends its role, before the new master answers.
            await self._replica.set_sync_state_set(order.members, order.set_epoch)
        search = self._search = MasterSearch(order.master_address)
        search.named(*self._named)
        ha_address = await self._ha_address(search)
        await self._replica.become_slave(ha_address, order.epoch)
        role = role_by(order, self._broker_id)
        assert role.master_address is not None, "an order names the master"
        return replace(role, other_places=other_places(role.master_address, ha_address))

    async def _ha_address(self, search: MasterSearch) -> str:
        """Return the HA address of a master, once it is master and answers, or once a nameserver
        names it and the master does not answer."""
        pause_s = _HA_PAUSE_S
        while True:
            self._is_named.clear()
            self._way = ""
            if found := await self._ask_master(search):
                return found
            if search.is_out_of_reach and search.ha_address:
                self._way = search.ha_address
                self._log.warning(
                    "%s does not answer; its log is copied from %s, which a nameserver names",
                    search.master,
                    search.ha_address,
                )
                return search.ha_address
            if search.is_unreached:
                self._ask_nameservers()
            if search.trouble != self._warned:
                self._warned = search.trouble
                if self._warned:
                    self._log.warning("%s", self._warned)
            await self._is_named.wait(pause_s)
            pause_s = min(2 * pause_s, _HA_PAUSE_S_MAX)

    async def _ask_master(self, search: MasterSearch) -> str | None:
        """Returns the HA address that the master names; None while it is not master or does not
        answer."""
        for place in search.places:
            request = Frame.request(RequestCode.EXCHANGE_BROKER_HA_INFO)
            try:
                answer = await self._runtime.client.call(place, request, _HA_TIMEOUT_S)
                answer.raise_for_code()
                found = ExchangeHaInfoHeader.from_fields(answer.ext_fields)
            except RemotingError as error:
                search.failed(place, str(error))
                continue
            if search.is_master(place, found.master_address):
                search.answered()
                if place != search.places[0] and found.master_ha_address:
                    self._log.warning(
                        "%s does not answer; its broker is reached at %s",
                        search.master,
                        format_address(place),
                    )
                return found.master_ha_address
            search.failed(place, f"the broker there is not {search.master}")
        return None

    def _ask_nameservers(self) -> None:
        """Register, as a slave: the answers name the HA address of the master."""
        role = self._host.role
        if not role.is_known and not role.is_searching:
            self._host.set_role(replace(role, is_searching=True))
        else:
            self._host.registration_due()
