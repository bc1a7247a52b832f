"""The roles of a replicated store: the steps from one to another, and which side is at work.

All of it runs on the loop's thread. A step that fails leaves no role: the store is readable, takes
no puts, and every step may be taken again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from rmqstore.errors import ArgumentError, Fenced, StoreClosedError, StoreError
from rmqstore.replication.calls import Calls, Waiting, Waits
from rmqstore.replication.epoch import EpochList
from rmqstore.replication.epoch_state import epoch_to_begin, known_epoch
from rmqstore.replication.events import (
    FlushLog,
    HaOptions,
    SaveEpochs,
    SaveEpochState,
    SetConfirm,
    TruncateTo,
)
from rmqstore.replication.following import SlaveSide
from rmqstore.replication.group import MasterGroup
from rmqstore.replication.links import Address, Allowed, Seldom, log, told
from rmqstore.replication.log import StoreLog
from rmqstore.replication.node import (
    HaProtocol,
    MasterNode,
    SlaveNode,
    steps_to_master,
    steps_to_slave,
)
from rmqstore.replication.quorum import Lease, Mode, Quorum
from rmqstore.replication.serving import MasterSide
from rmqstore.replication.status import MasterStatus, ReplicaStatus, Status
from rmqstore.replication.sync_state_set import Proposal
from rmqstore.replication.watermark import Watermark
from rmqstore.store import Store

__all__ = ["Roles", "Settings"]

_REFRESH_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What does not change with a role; see `rmqstore.replication.service.ReplicatedStore`."""

    broker_id: int
    address: Address | None
    protocol: HaProtocol
    quorum: Quorum
    mode: Mode
    options: HaOptions
    lease: Lease
    is_gated: bool
    connections_max: int
    allowed: Allowed
    is_learner: bool
    sync_from_last_file: bool


class Roles:
    """The present role of *store*, and the way to the next."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        log_of_store: StoreLog,
        settings: Settings,
        calls: Calls,
    ) -> None:
        self._loop = loop
        self._store = store
        self._log = log_of_store
        self._settings = settings
        self._calls = calls
        self._begun_epoch = -1
        self._failure: str | None = None
        self._master: MasterSide | None = None
        self._slave: SlaveSide | None = None
        self._waits = Waits()
        self._refreshing: asyncio.TimerHandle | None = None
        self._refusals = Seldom()
        self.role: Literal["master", "slave"] | None = None
        self.epoch = -1
        """The epoch of the present or last role, as far as it is known."""

    @property
    def known_epoch(self) -> int:
        """The highest epoch known from an order, the log or a master, -1 for none."""
        return known_epoch(self._log)

    def close(self) -> bool:
        """End the role, and every wait; return True when the role was that of a master."""
        was_master = self.role == "master"
        self.end_role()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._waits.end(StoreClosedError(f"replication of store {self._store.path} was closed"))
        return was_master

    def record_end(self) -> None:
        """Save that the role of master, which has just ended, ended with the whole log on the
        disk."""
        self._log.carry_out(SaveEpochState(self._log.epoch_state.end(self._log.end_offset)))

    # ---- to master

    def epoch_to_begin(self, epoch: int | None, *, others_asked: bool, allow_jump: bool) -> int:
        """Return the epoch to begin as master; see `rmqstore.replication.epoch_state`."""
        try:
            return epoch_to_begin(
                self._log,
                epoch,
                begun_epoch=self._begun_epoch,
                others_asked=others_asked,
                allow_jump=allow_jump,
                place=self._store.path,
            )
        except Fenced as error:
            error.master = self._store._master_hint
            raise

    def rule_on(
        self, epoch: int, wants_set: bool, members: Collection[int], set_epoch: int
    ) -> bool:
        """Begin another epoch of a master whose connections stay; tell whether that was done."""
        side = self._master
        if side is None or self.role != "master" or side.group.has_set != wants_set:
            return False
        self._refuse_puts(hint=None)
        self._begin_epoch(side, epoch, members, set_epoch)
        self._accept_puts()
        return True

    def take_office(
        self, epoch: int, wants_set: bool, members: Collection[int], set_epoch: int
    ) -> None:
        """Make the log that of the master of *epoch*; nobody may connect or put yet."""
        self._refuse_puts(hint=None)
        self._end_sides()
        mode = Mode.SYNC_STATE_SET if wants_set else self._settings.mode
        watermark = Watermark(
            confirm_offset=max(self._log.confirm_offset, 0),
            start_offset=self._log.start_offset,
            end_offset=self._log.end_offset,
        )
        group: MasterGroup[int] = MasterGroup(
            self._settings.broker_id,
            watermark,
            self._settings.quorum,
            mode,
            lease=self._settings.lease,
            is_gated=self._settings.is_gated,
        )
        node = MasterNode(
            self._log,
            group,
            protocol=self._settings.protocol,
            broker_id=self._settings.broker_id,
            options=self._settings.options,
        )
        side = MasterSide(
            self._loop,
            self._store,
            self._log,
            node,
            self,
            protocol=self._settings.protocol,
            is_gated=self._settings.is_gated,
            options=self._settings.options,
        )
        self._master = side
        self._begin_epoch(side, epoch, members, set_epoch)

    def _begin_epoch(
        self, side: MasterSide, epoch: int, members: Collection[int], set_epoch: int
    ) -> None:
        if self.role != "master":
            self._log.settle()
        # Before the first step, which makes the epoch this store's own: the same call may be made
        # again when a later one fails.
        self._begun_epoch = epoch
        steps = steps_to_master(
            self._log,
            epoch=epoch,
            whole_end=self._log.whole_end,
            is_promise=self._log.is_gated
            and self._settings.quorum.is_promise(side.group.writer.mode),
        )
        for step in steps:
            self._log.carry_out(step)
        side.begin(epoch, members=members, set_epoch=set_epoch)
        self.epoch = epoch

    def open_office(self, epoch: int) -> None:
        """Accept connections and puts."""
        if self._master is None:
            raise StoreError(f"the role of master ended: {self._failure}")
        self.role, self._failure = "master", None
        self._accept_puts()
        log().info("%s: master of epoch %d", self._store.path, epoch)
        self.changed()

    # ---- to slave

    def follow(
        self, place: Address, epoch: int | None, *, begin_anew: bool, allow_jump: bool
    ) -> None:
        """Follow the master at *place*; where that is done already, only the epoch and the
        permission to begin anew change."""
        was_master = self.role == "master"
        if was_master and epoch == self.epoch:
            raise Fenced(
                f"store {self._store.path} is itself master of epoch {epoch}: another master of "
                "that epoch is a fork; give each master an epoch of its own",
                epoch=self.epoch,
            )
        order = steps_to_slave(self._log, epoch=epoch, allow_jump=allow_jump)
        try:
            for step in order:
                self._log.carry_out(step)
            self.epoch = self.known_epoch
            side = self._slave
            if side is not None and side.master == place and side.node.halt_reason is None:
                side.node.machine.may_begin_anew = begin_anew
                side.ordered(self.epoch)
                return
            self._refuse_puts(hint=told(place))
            self._end_sides()
            if was_master:
                self._log.carry_out(FlushLog())
                self.record_end()
            self._cut_to_whole()
            self._log.gate()
        except BaseException as error:
            self.end_role(str(error))
            raise
        node = SlaveNode(
            self._log,
            protocol=self._settings.protocol,
            broker_id=self._settings.broker_id,
            options=self._settings.options,
            is_learner=self._settings.is_learner,
            sync_from_last_file=self._settings.sync_from_last_file,
            may_begin_anew=begin_anew,
        )
        self._slave = SlaveSide(
            self._loop,
            self._store,
            self._log,
            node,
            self,
            master=place,
            protocol=self._settings.protocol,
            options=self._settings.options,
        )
        self.role, self._failure = "slave", None
        log().info("%s: slave of %s", self._store.path, told(place))
        self._slave.begin()
        self.changed()

    def _cut_to_whole(self) -> None:
        self._log.check()
        end = min(self._log.whole_end, self._log.end_offset)
        if self._log.end_offset > end:
            if self._log.confirm_offset > end:
                self._log.carry_out(SetConfirm(end))
            self._log.carry_out(TruncateTo(end))
        epochs = EpochList(tuple(self._log.epochs))
        kept = epochs.restored(log_end=end)
        if kept != epochs:
            self._log.carry_out(SaveEpochs(kept.entries))

    def end_role(self, failure: str | None = None) -> None:
        """End the role; the store takes no puts from here on."""
        with contextlib.suppress(StoreClosedError):
            self._refuse_puts(hint=None)
        had_role = self.role
        with contextlib.suppress(StoreClosedError):
            self._end_sides()
        self._failure = failure
        if failure is not None:
            log().error("%s: %s ended: %s", self._store.path, had_role or "taking a role", failure)
        self.changed()

    def _end_sides(self) -> None:
        master, self._master = self._master, None
        slave, self._slave = self._slave, None
        if self.role == "master" and self._begun_epoch == self.epoch:
            self._begun_epoch = -1
        self.role = None
        if slave is not None:
            slave.stop()
        if master is not None:
            self._store._board = None
            master.stop()
        self.moved()

    # ---- the sync-state set

    def take_set(self, members: frozenset[int], set_epoch: int) -> None:
        """Take a confirmed set; see `ReplicatedStore.set_sync_state_set`."""
        side = self.of_master()
        known = side.group.sync_state_set
        if not side.group.has_set:
            raise ArgumentError("this master has no sync-state set; give become_master its members")
        if self._settings.broker_id not in members and set_epoch != known.set_epoch:
            if set_epoch > known.set_epoch:
                self.end_role(
                    f"the sync-state set {sorted(members)} of version {set_epoch} lacks this "
                    f"broker, {self._settings.broker_id}: another master was elected"
                )
            return
        side.change(lambda group, now: group.confirm_set(members, set_epoch=set_epoch, now_ms=now))

    def known_set(self) -> tuple[frozenset[int] | None, int, tuple[Proposal, ...]]:
        """Return the set confirmed last, its version, and what is proposed."""
        side = self._master
        if side is None or not side.group.has_set:
            return None, 0, ()
        known = side.group.sync_state_set
        return known.members, known.set_epoch, known.proposals

    # ---- how things stand

    def status(self) -> Status:
        """Return all of it, of one moment."""
        if self.role is None:
            # Nobody appends; what came before the role ended may not be checked yet.
            with contextlib.suppress(StoreError):
                self._log.check()
        replicas = self.replicas()
        members, set_epoch, proposals = self.known_set()
        return Status(
            role=self.role,
            broker_id=self._settings.broker_id,
            epoch=self.known_epoch,
            epochs=tuple(self._log.epochs),
            address=self._settings.address,
            start_offset=self._log.start_offset,
            end_offset=self._log.end_offset,
            whole_end=self._log.whole_end,
            flushed_offset=self._log.flushed_offset,
            confirm_offset=self._log.confirm_offset,
            sync_state_set=members,
            sync_state_set_epoch=set_epoch,
            proposals=proposals,
            replicas=replicas,
            master=self.master_status,
            failure=self._failure,
        )

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Return the connections of a master."""
        if self._master is not None:
            self._master.refresh()
        return () if self._master is None else self._master.replicas()

    def wait_in_sync(self, copies: int, end_offset: int) -> Waiting:
        """Return a wait for so many copies of all below *end_offset*."""
        return self._begin_wait(
            lambda: self.of_master().group.standing.copies_of(end_offset) >= copies
        )

    def wait_caught_up(self, offset: int | None) -> Waiting:
        """Return a wait for the log to be the master's up to *offset*."""
        return self._begin_wait(lambda: self._of_slave().has_caught_up(offset))

    def end_wait(self, waiting: Waiting) -> None:
        """Forget a wait that is over."""
        self._waits.remove(waiting)

    def _begin_wait(self, condition: Callable[[], bool]) -> Waiting:
        waiting = self._waits.add(condition)
        self._refresh()
        return waiting

    def _refresh(self) -> None:
        """Look, while somebody waits, at what moves without a word to this thread."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            self._refreshing = None
        for side in (self._master, self._slave):
            if side is not None:
                side.refresh()
        self._waits.look()
        if self._waits:
            self._refreshing = self._loop.call_later(_REFRESH_S, self._refresh)

    def of_master(self) -> MasterSide:
        """Return the side of a master. Raises ArgumentError in another role."""
        if self._master is None:
            raise ArgumentError(f"store {self._store.path} is no master")
        return self._master

    @property
    def master_status(self) -> MasterStatus | None:
        """The master of a slave, None in another role."""
        return None if self._slave is None else self._slave.status()

    def _of_slave(self) -> SlaveSide:
        if self._slave is None:
            raise ArgumentError(f"store {self._store.path} is no slave")
        return self._slave

    # ---- what the sides tell

    def moved(self) -> None:
        """Offsets may have moved."""
        self._waits.look()

    def changed(self) -> None:
        """Role, set, a connection or its state is another."""
        self._waits.look()
        self._calls.changed()

    def proposed(self, proposal: Proposal) -> None:
        """A master wishes another set."""
        self._calls.proposed(proposal)

    def failed(self, error: Exception) -> None:
        """A side cannot go on."""
        log().error("%s: %s", self._store.path, error, exc_info=not isinstance(error, StoreError))
        self.end_role(f"{type(error).__name__}: {error}")

    # ---- connections

    def accept(self, sock: socket.socket, peer: Address) -> None:
        """Serve a connection from *peer*, or close it."""
        side = self._master
        if side is None or self.role != "master":
            reason = "this store is no master"
        elif not self._settings.allowed.takes(peer[0]):
            reason = f"only {self._settings.allowed} may connect (allow)"
        elif len(side) >= self._settings.connections_max:
            reason = f"there are {self._settings.connections_max} connections (connections_max)"
        else:
            side.accept(sock, peer)
            return
        sock.close()
        self._refusals.warning("connection from %s refused: %s", told(peer), reason)

    # ---- puts

    def _refuse_puts(self, *, hint: str | None) -> None:
        """On return no put is under way that could still append."""
        self._store._master_hint = hint
        self._store._refuse("role")

    def _accept_puts(self) -> None:
        assert self._master is not None
        self._store._board = self._master.board
        self._store._refuse("role", False)
