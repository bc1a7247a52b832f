"""A master among its replicas: one machine over acknowledgements, set, confirm offset and waiters.

Every event returns its effects in the order in which they are to be carried out. `ConfirmMoved`
comes before `Resolved`, so that a put is readable when its caller hears of it, and a proposal is
waited for from the moment it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rmqstore.errors import ArgumentError, Fenced
from rmqstore.message import PutStatus
from rmqstore.replication.quorum import (
    Admission,
    Lease,
    Mode,
    Quorum,
    QuorumWriter,
    Resolution,
    Standing,
)
from rmqstore.replication.replicas import AckFault, Replicas
from rmqstore.replication.sync_state_set import Proposal, SyncStateSet
from rmqstore.replication.watermark import Watermark

__all__ = [
    "CloseConnection",
    "ConfirmMoved",
    "Effect",
    "MasterGroup",
    "Propose",
    "Resolved",
]

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ConfirmMoved:
    """Dispatch may go on to *confirm_offset*, frames carry it, and the checkpoint stores it."""

    confirm_offset: int


@dataclass(frozen=True, slots=True)
class Resolved(Generic[T]):
    """Tell the caller of a put its outcome."""

    resolution: Resolution[T]


@dataclass(frozen=True, slots=True)
class Propose:
    """Ask the controller, or the application, to take a set."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close a connection whose peer must not count."""

    connection: int
    reason: str


Effect = ConfirmMoved | Resolved[T] | Propose | CloseConnection


class MasterGroup(Generic[T]):
    """The replicas of the broker *self_id* while it is master.

    *watermark* belongs to the store and outlives the role. Without *is_gated* the confirm offset
    is the end of the log, as RocketMQ has it unless allAckInSyncStateSet is on: readers then see
    what the next master may cut.
    """

    def __init__(
        self,
        self_id: int,
        watermark: Watermark,
        quorum: Quorum,
        mode: Mode,
        *,
        lease: Lease | None = None,
        is_gated: bool = True,
    ) -> None:
        self.replicas = Replicas(self_id)
        self.sync_state_set = SyncStateSet(self.replicas, lag_ms_max=quorum.lag_ms_max)
        self.watermark = watermark
        self.writer: QuorumWriter[T] = QuorumWriter(quorum, mode, lease=lease)
        self.epoch = -1
        self.epoch_start_offset = 0
        self.end_offset = 0
        self.is_master = False
        self.has_set = mode is Mode.SYNC_STATE_SET
        """Whether replicas count as members of a sync-state set, not by their connections."""
        self._is_gated = is_gated
        self._flushed_offset: int | None = None
        self._standing: Standing | None = None

    @property
    def standing(self) -> Standing:
        """What the replicas hold at this moment."""
        if self._standing is None:
            self._standing = self._look()
        return self._standing

    def _look(self) -> Standing:
        heard = {each.broker_id: each.ack_offset for each in self.replicas}
        held = {
            each.broker_id: each.held(self.epoch, self.epoch_start_offset) for each in self.replicas
        }
        voters = self.replicas.countable()
        if not self.has_set:
            return Standing(self._own_end, held, voters, heard=heard)
        # A member without a connection is a copy nobody can count on.
        return Standing(
            self._own_end,
            held,
            self.sync_state_set.counted & voters,
            self.sync_state_set.waited - {self.replicas.self_id},
            heard=heard,
        )

    def become_master(
        self,
        epoch: int,
        *,
        end_offset: int,
        now_ms: int,
        members: Collection[int] = (),
        set_epoch: int = 0,
    ) -> list[Effect[T]]:
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
        self._standing = None
        return self._after(now_ms)

    def stop(self) -> list[Effect[T]]:
        """End the role: every put that waits is told that it has not got its copies."""
        standing = self.standing
        self.is_master = False
        self.replicas.clear()
        self._standing = None
        return [Resolved(each) for each in self.writer.stop(standing)]

    def connected(
        self,
        broker_id: int,
        *,
        connection: int,
        is_learner: bool = False,
        address: str | None = None,
        names_epochs: bool = False,
        now_ms: int,
    ) -> list[Effect[T]]:
        """Take in a replica whose handshake is complete; one that has no name in its protocol comes
        with the *address* it counts by."""
        if not self.is_master:
            return [CloseConnection(connection, "this store is no master")]
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
        effects: list[Effect[T]] = []
        if replaced is not None:
            reason = f"broker {broker_id} came back on connection {connection}"
            effects.append(CloseConnection(replaced, reason))
        self.sync_state_set.connected(broker_id)
        self._standing = None
        return effects + self._after(now_ms)

    def disconnected(self, connection: int, now_ms: int) -> list[Effect[T]]:
        """Follow the end of a connection."""
        replica = self.replicas.disconnected(connection)
        if replica is None:
            return []
        self.sync_state_set.disconnected(replica.broker_id)
        self._standing = None
        return self._after(now_ms)

    def sent(self, connection: int, now_ms: int) -> None:
        """Take note that log or a heartbeat went out to a replica."""
        replica = self.replicas.on(connection)
        if replica is not None:
            replica.sent(end_offset=self.end_offset, now_ms=now_ms)

    def caught_up(self, connection: int, at_ms: int) -> None:
        """Take the word of who serves a connection that its replica had everything at *at_ms*."""
        replica = self.replicas.on(connection)
        if replica is not None:
            replica.caught_up_ms = max(at_ms, replica.caught_up_ms or at_ms)

    def acked(self, connection: int, offset: int, now_ms: int, *, epoch: int) -> list[Effect[T]]:
        """Take an acknowledgement of a replica that is known to have stored *epoch*."""
        fault = self.replicas.acked(
            connection, offset, epoch=epoch, end_offset=self.end_offset, now_ms=now_ms
        )
        if fault is not None:
            close = CloseConnection(connection, _told(fault, offset, self.end_offset))
            return [close, *self.disconnected(connection, now_ms)]
        replica = self.replicas.on(connection)
        assert replica is not None, "a connection without a replica is a fault"
        is_news = self.sync_state_set.acked(replica)
        self._standing = None
        return self._after(now_ms, is_news=is_news)

    def log_grew(self, end_offset: int) -> list[Effect[T]]:
        """Follow the master's own appends."""
        if end_offset < self.end_offset:
            raise ArgumentError(
                f"the log ended at {self.end_offset} and cannot end at {end_offset}; a log is cut "
                "before its store becomes master"
            )
        if end_offset > self.end_offset:
            self.end_offset = end_offset
            self._standing = replace(self.standing, end_offset=self._own_end)
        return self._confirm()

    def flushed(self, offset: int, now_ms: int) -> list[Effect[T]]:
        """Follow the durable end of the master's log, where copies count on the disk only.

        From the first call on the master's own copy ends there, and nothing behind it is confirmed
        or resolved: readers of a slave would see what this master, still a member of the set, comes
        back without when it loses its power.
        """
        if offset == self._flushed_offset:
            return []
        self._flushed_offset = offset
        self._standing = replace(self.standing, end_offset=self._own_end)
        return self._after(now_ms, is_news=False)

    @property
    def _own_end(self) -> int:
        if self._flushed_offset is None:
            return self.end_offset
        return min(self._flushed_offset, self.end_offset)

    def tick(self, now_ms: int) -> list[Effect[T]]:
        """Let time pass: replicas that lag, proposals without an answer, deadlines of puts."""
        effects = self._confirm() + self._review(now_ms)
        effects += (Resolved(each) for each in self.writer.tick(self.standing, now_ms))
        return effects

    def admit(
        self, *, now_ms: int, is_replicated: bool = True, copies: int | None = None
    ) -> Admission:
        """Decide about a put before it is appended; see `QuorumWriter.admit`."""
        if not self.is_master:
            return Admission(PutStatus.SERVICE_NOT_AVAILABLE, reason="this store is no master")
        return self.writer.admit(
            self.standing, now_ms=now_ms, is_replicated=is_replicated, copies=copies
        )

    def wait(
        self,
        token: T,
        admission: Admission,
        *,
        end_offset: int,
        now_ms: int,
        timeout_ms: int | None = None,
    ) -> list[Effect[T]]:
        """Let an appended put wait for its copies."""
        effects = self.log_grew(max(end_offset, self.end_offset))
        resolutions = self.writer.wait(
            token,
            admission,
            self.standing,
            end_offset=end_offset,
            now_ms=now_ms,
            timeout_ms=timeout_ms,
        )
        return effects + [Resolved(each) for each in resolutions]

    def acknowledge(self, now_ms: int) -> PutStatus:
        """Return the status of an appended put that has all it waited for; see
        `QuorumWriter.acknowledge`."""
        if not self.is_master:
            return PutStatus.FLUSH_SLAVE_TIMEOUT
        return self.writer.acknowledge(now_ms)

    def confirm_set(
        self, members: Collection[int], *, set_epoch: int, now_ms: int
    ) -> list[Effect[T]]:
        """Take the set the controller has; see `SyncStateSet.confirm`."""
        if not self.is_master:
            return []
        self.sync_state_set.confirm(members, set_epoch=set_epoch, now_ms=now_ms)
        self._standing = None
        return self._after(now_ms)

    def refuse_proposal(self, number: int, now_ms: int) -> list[Effect[T]]:
        """Take a proposal back that will never take effect."""
        self.sync_state_set.refuse(number, now_ms=now_ms)
        self._standing = None
        return self._after(now_ms)

    def lose_proposal(self, number: int, now_ms: int) -> list[Effect[T]]:
        """Take note that a proposal's answer will never come."""
        self.sync_state_set.lost(number, now_ms=now_ms)
        return []

    def _after(self, now_ms: int, *, is_news: bool = True) -> list[Effect[T]]:
        # The confirm offset rises before anybody is proposed: a joiner must hold what is confirmed
        # at the moment it is waited for.
        effects = self._confirm()
        if is_news:
            effects += self._review(now_ms)
        effects += (Resolved(each) for each in self.writer.progress(self.standing, now_ms))
        return effects

    def _confirm(self) -> list[Effect[T]]:
        if not self.is_master:
            return []
        standing = self.standing
        if not self._is_gated:
            reached: int | None = self._own_end
        elif self.has_set:
            reached = standing.end_of_all()
        else:
            reached = standing.end_of_copies(self.writer.needed(standing))
        moved = self.watermark.lead(reached, end_offset=self.end_offset)
        return [ConfirmMoved(self.watermark.confirm_offset)] if moved else []

    def _review(self, now_ms: int) -> list[Effect[T]]:
        if not (self.has_set and self.is_master):
            return []
        proposal = self.sync_state_set.review(
            confirm_offset=self.watermark.confirm_offset, now_ms=now_ms
        )
        self._standing = None
        # Somebody who is about to join no more is waited for no more: readers see what puts that
        # waited for it are resolved with.
        effects = self._confirm()
        return effects if proposal is None else [Propose(proposal), *effects]


def _told(fault: AckFault, offset: int, end_offset: int) -> str:
    return f"{fault} (acknowledged {offset}, log ends at {end_offset})"
