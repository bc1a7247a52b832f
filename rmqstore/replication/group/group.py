"""A master among its replicas: one machine over acknowledgements and the sync-state set.

Every event returns its effects in the order in which they are to be carried out. The machine moves
no offset and resolves no put: the board does both (`group.board`), by the rule that the machine
returns. A proposal is waited for from the moment it is made.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from rmqstore.errors import ArgumentError, Fenced
from rmqstore.message import PutStatus
from rmqstore.replication.group.quorum import (
    Lease,
    Mode,
    Quorum,
    QuorumPolicy,
    Rule,
    Standing,
)
from rmqstore.replication.group.replicas import AckFault, Replicas
from rmqstore.replication.group.sync_state_set import Proposal, SyncStateSet

__all__ = ["CloseConnection", "Effect", "MasterGroup", "Propose"]


@dataclass(frozen=True, slots=True)
class Propose:
    """Ask the controller, or the application, to take a set."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close a connection whose peer must not count."""

    connection: int
    reason: str


Effect = Propose | CloseConnection


class MasterGroup:
    """The replicas of the broker *self_id* while it is master.

    Without *is_gated* the confirm offset is the end of the log, as RocketMQ has it unless
    allAckInSyncStateSet is on: readers then see what the next master may cut.
    """

    def __init__(
        self,
        self_id: int,
        quorum: Quorum,
        mode: Mode,
        *,
        lease: Lease | None = None,
        is_gated: bool = True,
        waits_for_admission: bool = False,
    ) -> None:
        self.replicas = Replicas(self_id)
        self.sync_state_set = SyncStateSet(
            self.replicas,
            lag_ms_max=quorum.lag_ms_max,
            waits_for_admission=waits_for_admission,
        )
        self.policy = QuorumPolicy(quorum, mode, lease=lease)
        self.epoch = -1
        self.epoch_start_offset = 0
        self.end_offset = 0
        self.confirm_offset = 0
        """The confirm offset of the board, which stays there while a decision is made."""
        self.is_master = False
        self.has_set = mode is Mode.SYNC_STATE_SET
        """Whether replicas count as members of a sync-state set, not by their connections."""
        self._is_gated = is_gated
        self._awaits_lease = False
        """Whether the first lease of the epoch is missing. Until then another replica may be
        elected in place of this master by the rule of the epoch before."""
        self._standing: Standing | None = None

    @property
    def standing(self) -> Standing:
        """What the replicas hold at this moment."""
        if self._standing is None:
            self._standing = self._look()
        return self._standing

    def _look(self) -> Standing:
        acks = {each.broker_id: each.ack_offset for each in self.replicas}
        voters = self.replicas.countable()
        if not self.has_set:
            return Standing(self.end_offset, acks, voters)
        # The copy of a member without a connection is not reliable.
        return Standing(
            self.end_offset,
            acks,
            self.sync_state_set.counted & voters,
            self.sync_state_set.waited - {self.replicas.self_id},
        )

    def rule(self, *, is_flushed: bool) -> Rule:
        """Return the rule for the board. *is_flushed*: the master's own copy counts once it is on
        the disk."""
        rule = self.policy.rule(
            self.standing,
            epoch=self.epoch,
            epoch_start=self.epoch_start_offset,
            is_gated=self._is_gated,
            is_flushed=is_flushed,
        )
        if self.is_master and not (self._awaits_lease and self.has_set and self._is_gated):
            return rule
        # The master itself is waited for and has no slot: nothing is confirmed.
        unconfirmed = replace(rule, waited=(self.replicas.self_id,), is_gated=True)
        if self.is_master:
            return unconfirmed
        return replace(
            unconfirmed,
            status=PutStatus.SERVICE_NOT_AVAILABLE,
            reason="this store is not a master",
        )

    def become_master(
        self,
        epoch: int,
        *,
        end_offset: int,
        now_ms: int,
        members: Collection[int] = (),
        set_epoch: int = 0,
    ) -> list[Effect]:
        """Start an epoch with a log that ends, at a whole record, at *end_offset*.

        *members* is the sync-state set that goes with the election. The master elected again keeps
        its connections and the puts that wait; what replicas hold counts again once they are known
        to have stored the new epoch. Raises Fenced for an epoch that is not above the last one.
        """
        if epoch <= self.epoch:
            raise Fenced(
                f"epoch {epoch} is not above {self.epoch}, in which broker "
                f"{self.replicas.self_id} was master; another may have been elected",
                epoch=self.epoch,
            )

        if self.has_set:
            self.sync_state_set.begin(
                members or (self.replicas.self_id,),
                set_epoch=set_epoch,
                epoch=epoch,
                epoch_start_offset=end_offset,
                now_ms=now_ms,
            )

        if not self.is_master:
            self.replicas.clear()
        self.epoch, self.end_offset, self.is_master = epoch, end_offset, True
        self.epoch_start_offset = end_offset
        self._awaits_lease = not self.policy.lease.is_held(now_ms)

        self._standing = None
        return self._review(now_ms)

    def renew_lease(self, asked_ms: int) -> None:
        """Record a renewal of the lease in this epoch; see `Lease.renewed`."""
        self.policy.lease.renewed(asked_ms=asked_ms)
        self._awaits_lease = False

    def stop(self) -> None:
        """End the role."""
        self.is_master = False
        self.policy.lease.end()
        self.replicas.clear()
        self._standing = None

    def connected(
        self,
        broker_id: int,
        *,
        connection: int,
        is_learner: bool = False,
        address: str | None = None,
        names_epochs: bool = False,
        now_ms: int,
    ) -> list[Effect]:
        """Take in a replica whose handshake is complete; one that has no name in its protocol comes
        with the *address* it counts by."""
        if not self.is_master:
            return [CloseConnection(connection, "this store is not a master")]

        try:
            replaced = self.replicas.connected(
                broker_id,
                connection=connection,
                is_learner=is_learner,
                address=address,
                names_epochs=names_epochs,
                now_ms=now_ms,
            )
        except ArgumentError as error:
            return [CloseConnection(connection, str(error))]

        effects: list[Effect] = []
        if replaced is not None:
            reason = f"broker {broker_id} came back on connection {connection}"
            effects.append(CloseConnection(replaced, reason))

        self.sync_state_set.connected(broker_id)
        self._standing = None
        return effects + self._review(now_ms)

    def disconnected(self, connection: int, now_ms: int) -> list[Effect]:
        """Follow the end of a connection."""
        replica = self.replicas.disconnected(connection)
        if replica is None:
            return []
        self.sync_state_set.disconnected(replica.broker_id)
        self._standing = None
        return self._review(now_ms)

    def sent(self, connection: int, now_ms: int) -> None:
        """Record that log or a heartbeat went out to a replica."""
        replica = self.replicas.on(connection)
        if replica is not None:
            replica.sent(end_offset=self.end_offset, now_ms=now_ms)

    def caught_up(self, connection: int, at_ms: int) -> None:
        """Take the word of who serves a connection that its replica had everything at *at_ms*."""
        replica = self.replicas.on(connection)
        if replica is not None:
            replica.caught_up_ms = max(at_ms, replica.caught_up_ms or at_ms)

    def acked(self, connection: int, offset: int, now_ms: int, *, epoch: int) -> list[Effect]:
        """Take an acknowledgement of a replica that is known to have stored *epoch*."""
        fault = self.replicas.acked(
            connection, offset, epoch=epoch, end_offset=self.end_offset, now_ms=now_ms
        )
        if fault is not None:
            close = CloseConnection(connection, _refusal(fault, offset, self.end_offset))
            return [close, *self.disconnected(connection, now_ms)]
        replica = self.replicas.on(connection)
        assert replica is not None, "a connection without a replica is a fault"
        is_news = self.sync_state_set.acked(replica)
        self._standing = None
        return self._review(now_ms) if is_news else []

    def log_grew(self, end_offset: int) -> None:
        """Follow the master's own appends."""
        if end_offset < self.end_offset:
            raise ArgumentError(
                f"the log ended at {self.end_offset} and cannot end at {end_offset}; a log is cut "
                "before its store becomes master"
            )
        if end_offset > self.end_offset:
            self.end_offset = end_offset
            self._standing = replace(self.standing, end_offset=end_offset)

    def tick(self, now_ms: int) -> list[Effect]:
        """Let time pass: replicas that lag, proposals without an answer."""
        return self._review(now_ms)

    def admit(self, broker_ids: Collection[int], now_ms: int) -> list[Effect]:
        """Let these replicas join the set, and no others; see `SyncStateSet.admit`."""
        self.sync_state_set.admit(broker_ids)
        return self._review(now_ms)

    def confirm_set(self, members: Collection[int], *, set_epoch: int, now_ms: int) -> list[Effect]:
        """Take the set the controller has; see `SyncStateSet.confirm`."""
        if not self.is_master:
            return []
        self.sync_state_set.confirm(members, set_epoch=set_epoch, now_ms=now_ms)
        self._standing = None
        return self._review(now_ms)

    def refuse_proposal(self, number: int, now_ms: int) -> list[Effect]:
        """Take a proposal back that will never take effect."""
        refused = self.sync_state_set.refuse(number, now_ms=now_ms)
        self._standing = None
        replica = None if refused is None else self.replicas.get(refused)
        if replica is None:
            return self._review(now_ms)
        # A turned bit may have changed the id in its handshake.
        reason = f"the controller refused broker {refused} as a member each time; connect again"
        close = CloseConnection(replica.connection, reason)
        return [close, *self.disconnected(replica.connection, now_ms)]

    def lose_proposal(self, number: int, now_ms: int) -> list[Effect]:
        """Record that a proposal's answer will never come."""
        self.sync_state_set.lost(number, now_ms=now_ms)
        return []

    def _review(self, now_ms: int) -> list[Effect]:
        if not (self.has_set and self.is_master):
            return []
        # Nothing is confirmed between this review and the rule that waits for proposed replicas:
        # a joiner holds what is confirmed at the moment it is waited for.
        proposal = self.sync_state_set.review(confirm_offset=self.confirm_offset, now_ms=now_ms)
        self._standing = None
        return [] if proposal is None else [Propose(proposal)]


def _refusal(fault: AckFault, offset: int, end_offset: int) -> str:
    return f"{fault} (acknowledged {offset}, log ends at {end_offset})"
