"""The replica of a simulated broker: the face of `replication.runtime.Replica` over a `Member`.

Changes of the role come one after another, as in production. Their steps, and everything else,
happen on the model disk and network of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Literal

from rmqstore.epochs import EpochEntry
from rmqstore.errors import ArgumentError, StoreClosedError
from rmqstore.net.addresses import Address, parse_address
from rmqstore.net.runtime import Runtime
from rmqstore.replication.group.group import Effect as GroupEffect
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.node import MasterNode, SlaveNode
from rmqstore.replication.group.quorum import Lease
from rmqstore.replication.group.status import MasterStatus, ReplicaStatus, Status
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.runtime.turns import Turn, Turns
from rmqstore.sim.member import Member
from rmqstore.sim.model_store import ModelStore
from rmqstore.sim.transport import host_of, machine_of

__all__ = ["ModelReplica"]


class ModelReplica:
    """The replica of one life of the broker on *machine*, over its *runtime*; see `Replica`.

    The settings of the machine's shape stand for those of the store's configuration.
    """

    def __init__(
        self,
        machine: Member,
        runtime: Runtime,
        store: ModelStore,
        *,
        broker_id: int,
        listen: Address,
        lease: Lease,
        waits_for_admission: bool,
        on_proposal: Callable[[Proposal], None],
        on_change: Callable[[Status], None],
        **others: Any,
    ) -> None:
        assert broker_id == machine.number, "the controllers give each machine its number"
        assert lease.duration_ms == machine.shape.lease_ms, (
            "the broker has the settings of the shape"
        )
        self.store = store
        self.broker_id = broker_id
        self.lease_ms = lease.duration_ms
        self.address: Address = (host_of(machine.number), listen[1])
        self._machine = machine
        self._turns = Turns(runtime)
        self._is_closed = False
        self._on_change = on_change
        self._known: object = None
        self._has_changed = False
        machine.waits_for_admission = waits_for_admission
        machine.on_proposal = on_proposal
        machine.after_turn = self._after_turn

    async def open(self) -> ModelReplica:
        """Return this replica, without a role."""
        return self

    async def close(self) -> None:
        """End the role, and save that it ended so."""
        self._is_closed = True
        machine = self._machine

        async def change(turn: Turn) -> None:
            await machine.carry_out(machine.roles.end(is_clean=True), turn)

        await self._turns.take(change)

    # ---- roles

    async def become_master(
        self,
        epoch: int | None = None,
        *,
        members: Collection[int] = (),
        set_epoch: int = 0,
        others_asked: bool = False,
    ) -> None:
        """Become master; see `Replica.become_master`."""

        async def change(turn: Turn) -> None:
            self._check_open()
            machine = self._machine
            steps = machine.roles.become_master(
                epoch, members=members, set_epoch=set_epoch, others_asked=others_asked
            )
            await machine.carry_out(steps, turn)
            if members and set_epoch > self._set_epoch:
                self._take_set(frozenset(members), set_epoch)
            machine.obeyed(machine.epoch)

        await self._turns.take(change)

    async def become_slave(self, master: str | Address, epoch: int | None = None) -> None:
        """Follow the replica that listens at *master*; see `Replica.become_slave`."""
        number = machine_of(parse_address(master))

        async def change(turn: Turn) -> None:
            self._check_open()
            machine, node = self._machine, self._machine.slave_node
            is_halted = node is not None and node.halt_reason is not None
            steps = machine.roles.become_slave(number, epoch, is_halted=is_halted)
            await machine.carry_out(steps, turn)
            machine.obeyed(machine.epoch if epoch is None else epoch)

        await self._turns.take(change)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"replication of store {self.store.path} was closed")

    # ---- the sync-state set and the lease

    async def set_sync_state_set(self, members: Collection[int], set_epoch: int) -> None:
        """Take a confirmed set; see `Replica.set_sync_state_set`."""
        found = frozenset(members)
        if self.broker_id in found:
            self._take_set(found, set_epoch)
            return

        async def change(turn: Turn) -> None:
            self._take_set(found, set_epoch)

        await self._turns.take(change)

    def _take_set(self, members: frozenset[int], set_epoch: int) -> None:
        self._check_open()
        known = self._master().group.sync_state_set
        if self.broker_id in members or set_epoch == known.set_epoch:
            self._change(
                lambda group, now_ms: group.confirm_set(members, set_epoch=set_epoch, now_ms=now_ms)
            )
        elif set_epoch > known.set_epoch:
            self._machine.end_role(
                f"the sync-state set {sorted(members)} of version {set_epoch} lacks this broker, "
                f"{self.broker_id}: another master was elected"
            )

    def refuse_proposal(self, number: int) -> None:
        """Take that a proposal will never take effect."""
        self._change(lambda group, now_ms: group.refuse_proposal(number, now_ms))

    def lose_proposal(self, number: int) -> None:
        """Take that the answer to a proposal will never come."""
        self._change(lambda group, now_ms: group.lose_proposal(number, now_ms))

    def renew_lease(self, asked_ms: float) -> None:
        """Take a renewal of the lease."""

        def renew(group: MasterGroup, now_ms: int) -> list[GroupEffect]:
            group.renew_lease(math.floor(asked_ms))
            return []

        self._change(renew)

    def admit(self, broker_ids: Collection[int]) -> None:
        """Let these replicas, and no others, join the set of this master."""
        self._change(lambda group, now_ms: group.admit(broker_ids, now_ms))

    def set_alive_replicas(self, count: int) -> None:
        """Do nothing: the number matters to masters without a controller alone."""

    def _change(self, change: Callable[[MasterGroup, int], list[GroupEffect]]) -> None:
        self._master()
        self._machine.change_group(change)

    def _master(self) -> MasterNode:
        node = self._machine.master_node
        if node is None or self._is_closed:
            raise ArgumentError(f"store {self.store.path} is not a master")
        return node

    # ---- state

    @property
    def role(self) -> Literal["master", "slave"] | None:
        """The role, None without one."""
        return self._machine.roles.role

    @property
    def epoch(self) -> int:
        """The highest epoch known, -1 for none."""
        return self._machine.roles.known_epoch

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        """The epochs of the log."""
        return tuple(self._machine.log.epochs)

    @property
    def confirm_offset(self) -> int:
        """The physical offset up to which readers may see."""
        return self._machine.log.confirm_offset

    @property
    def acknowledges_flushed(self) -> bool:
        """Whether acknowledgements of this replica mean its disk."""
        return bool(self._machine.shape.options.ack_flushed)

    @property
    def possible_members(self) -> frozenset[int]:
        """Those that may be in the set of this master; empty in another role."""
        node = self._machine.master_node
        return frozenset() if node is None else node.group.sync_state_set.possible

    @property
    def members_without_reports(self) -> frozenset[int]:
        """The possible members that report no changes of topics."""
        node = self._machine.master_node
        return frozenset() if node is None else node.group.sync_state_set.without_reports

    @property
    def lease_end_ms(self) -> int | None:
        """When the lease of this master ends; None without a lease or in another role."""
        node = self._machine.master_node
        return None if node is None else node.group.policy.lease.end_ms

    @property
    def _set_epoch(self) -> int:
        node = self._machine.master_node
        has_set = node is not None and node.group.has_set
        return node.group.sync_state_set.set_epoch if node is not None and has_set else 0

    def status(self) -> Status:
        """Return all of it, of one moment."""
        machine, log = self._machine, self._machine.log
        node = machine.master_node
        known = None if node is None or not node.group.has_set else node.group.sync_state_set
        return Status(
            role=self.role,
            broker_id=self.broker_id,
            epoch=self.epoch,
            synced_epoch=machine.roles.synced_epoch,
            epochs=self.epochs,
            address=self.address,
            start_offset=log.start_offset,
            is_partial=log.is_partial,
            end_offset=log.end_offset,
            whole_end=log.whole_end,
            flushed_offset=log.flushed_offset,
            confirm_offset=log.confirm_offset,
            sync_state_set=None if known is None else known.members,
            sync_state_set_epoch=0 if known is None else known.set_epoch,
            proposals=() if known is None else known.proposals,
            replicas=() if node is None else tuple(self._replicas(node)),
            master=self._master_status(machine.slave_node),
            failure=machine.roles.failure,
        )

    def _replicas(self, node: MasterNode) -> list[ReplicaStatus]:
        return [self._replica(node, number) for number in self._machine.connections]

    def _replica(self, node: MasterNode, connection: int) -> ReplicaStatus:
        machine, log = node.machine(connection), self._machine.log
        replica = node.group.replicas.on(connection)
        ack_offset = -1 if replica is None else replica.ack_offset
        hello = machine.slave if isinstance(machine, AutoSwitchMaster) else None
        return ReplicaStatus(
            broker_id=None if replica is None else replica.broker_id,
            address=(host_of(self._machine.connections[connection]), self.address[1]),
            state=machine.state,
            is_learner=hello is not None and hello.is_learner,
            ack_offset=ack_offset,
            lag_bytes=max(log.end_offset - max(ack_offset, log.start_offset), 0),
            is_counted=replica is not None and replica.broker_id in node.group.standing.counted,
            connected_ms=0 if replica is None else replica.connected_ms,
            caught_up_ms=None if replica is None else replica.caught_up_ms,
        )

    def _master_status(self, node: SlaveNode | None) -> MasterStatus | None:
        if node is None:
            return None
        machine = node.machine
        return MasterStatus(
            address=(host_of(self._machine.master), self.address[1]),
            state=machine.state,
            acked_offset=machine.reported_offset,
            # The machine knows no more of its master.
            master_end=machine.reported_offset,
            lag_bytes=0,
            last_error=node.reason,
            halted_reason=node.halt_reason,
        )

    def _after_turn(self) -> None:
        """Notify readers of the store, and the broker of another role, set or connection."""
        self.store.look()
        machine = self._machine
        slave = machine.slave_node
        known = (
            self.role,
            machine.epoch,
            machine.roles.synced_epoch,
            self._set_epoch,
            tuple(machine.connections),
            None if slave is None else (slave.machine.state, slave.halt_reason),
        )
        if known != self._known and not self._has_changed:
            self._known = known
            self._has_changed = True
            machine.loop.call_soon(self._notify)

    def _notify(self) -> None:
        self._has_changed = False
        self._on_change(self.status())
