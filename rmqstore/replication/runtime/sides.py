"""The side of a replica's present role: how it is made and ended, and what it knows."""

from __future__ import annotations

from rmqstore.errors import ArgumentError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.runtime import Runtime
from rmqstore.net.seldom import Seldom
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.node import MasterNode, SlaveNode
from rmqstore.replication.group.roles import Follow, Serve
from rmqstore.replication.group.status import MasterStatus, ReplicaStatus
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.runtime.connections import NewLink
from rmqstore.replication.runtime.following import SlaveSide
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.replication.runtime.logger import log
from rmqstore.replication.runtime.owner import Owner
from rmqstore.replication.runtime.serving import MasterSide
from rmqstore.replication.runtime.settings import Settings
from rmqstore.store.replica_view import ReplicaView

__all__ = ["Sides"]


class Sides:
    """The side of *store* as master or as slave, which reports to *owner*; at most one."""

    def __init__(
        self,
        runtime: Runtime,
        store: ReplicaView,
        log_of_store: StoreLog,
        settings: Settings,
        owner: Owner,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._log = log_of_store
        self._settings = settings
        self._owner = owner
        self._refusals = Seldom(log())
        self._alive_replicas: int | None = None
        self.master: MasterSide | None = None
        self.slave: SlaveSide | None = None

    # ---- roles

    def make_master(self, effect: Serve) -> None:
        """Make the side of a new master, without an epoch."""
        settings = self._settings
        group = MasterGroup(
            settings.broker_id,
            settings.quorum,
            effect.mode,
            lease=settings.lease,
            is_gated=settings.is_gated,
            waits_for_admission=settings.waits_for_admission,
        )
        if self._alive_replicas is not None:
            group.policy.alive_replicas = self._alive_replicas
        node = MasterNode(
            self._log,
            group,
            protocol=settings.protocol,
            broker_id=settings.broker_id,
            options=settings.options,
        )
        self.master = MasterSide(
            self._runtime,
            self._store,
            self._log,
            node,
            self._owner,
            protocol=settings.protocol,
            options=settings.options,
        )

    def follow(self, effect: Follow[Address]) -> None:
        """Make the side of a slave, and let it connect."""
        settings = self._settings
        node = SlaveNode(
            self._log,
            protocol=settings.protocol,
            broker_id=settings.broker_id,
            options=settings.options,
            is_learner=settings.is_learner,
            sync_from_last_file=settings.sync_from_last_file,
            learns_while_partial=settings.learns_while_partial,
            may_begin_anew=effect.may_begin_anew,
        )
        node.machine.ordered_epoch = effect.epoch
        self.slave = SlaveSide(
            self._runtime,
            self._store,
            self._log,
            node,
            self._owner,
            master=effect.master,
            protocol=settings.protocol,
            options=settings.options,
        )
        self._store.master_hint = format_address(effect.master)
        log().info("%s: slave of %s", self._store.path, format_address(effect.master))
        self.slave.begin()

    async def end(self) -> None:
        """End the present side, if there is one."""
        side = self.slave if self.master is None else self.master
        self._store.master_hint = None
        if self.master is not None:
            self._store.leave_board()
        try:
            if side is not None:
                await side.end()
        finally:
            self.master = self.slave = None

    def accept(self, link: NewLink, peer: Address, *, is_master: bool) -> None:
        """Serve a connection from *peer*, or close it."""
        side = self.master
        if side is None or side.is_over or not is_master:
            reason = "this store is not a master"
        elif not self._settings.allowed.takes(peer[0]):
            reason = f"only {self._settings.allowed} may connect (allow)"
        elif len(side) >= self._settings.connections_max:
            reason = f"there are {self._settings.connections_max} connections (connections_max)"
        else:
            reason = link.refusal()
            if not reason:
                side.accept(link, peer)
                return
        link.close()
        self._refusals.warning("connection from %s refused: %s", format_address(peer), reason)

    # ---- what they know

    def refresh(self) -> None:
        """Handle what other threads received."""
        for side in (self.master, self.slave):
            if side is not None:
                side.refresh()

    def of_master(self) -> MasterSide:
        """Return the side of a master. Raises ArgumentError in another role."""
        if self.master is None or self.master.is_over:
            raise ArgumentError(f"store {self._store.path} is not a master")
        return self.master

    def of_slave(self) -> SlaveSide:
        """Return the side of a slave. Raises ArgumentError in another role."""
        if self.slave is None:
            raise ArgumentError(f"store {self._store.path} is not a slave")
        return self.slave

    def set_alive_replicas(self, count: int) -> None:
        """Take how many replicas of the group are alive, for this role and the next ones."""
        self._alive_replicas = count

        def take(group: MasterGroup, now_ms: int) -> None:
            group.policy.alive_replicas = count

        if self.master is not None and not self.master.is_over:
            self.master.change(take)

    def known_set(self) -> tuple[frozenset[int] | None, int, tuple[Proposal, ...]]:
        """Return the set confirmed last, its version, and what is proposed."""
        if self.master is None or not self.master.group.has_set:
            return None, 0, ()
        known = self.master.group.sync_state_set
        return known.members, known.set_epoch, known.proposals

    @property
    def lease_end_ms(self) -> int | None:
        """When the lease of a master is over, see `Lease.end_ms`; None in another role."""
        return None if self.master is None else self.master.group.policy.lease.end_ms

    @property
    def possible_members(self) -> frozenset[int]:
        """See `Replica.possible_members`."""
        return frozenset() if self.master is None else self.master.group.sync_state_set.possible

    @property
    def members_without_reports(self) -> frozenset[int]:
        """See `Replica.members_without_reports`."""
        if self.master is None:
            return frozenset()
        return self.master.group.sync_state_set.without_reports

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Return the connections of a master."""
        if self.master is not None:
            self.master.refresh()
        return () if self.master is None else self.master.replicas()

    @property
    def master_status(self) -> MasterStatus | None:
        """The master of a slave, None in another role."""
        return None if self.slave is None else self.slave.status()
