"""The role of a replicated store: applies the effects of `group.roles`, and runs the present side.

All of it runs on the loop's thread, except for work that waits for the disk or for threads: such
work runs on a thread of the replica, in order. A step that fails leaves no role: the store can be
read and takes no puts, and every step may be taken again. A change that is given up ends in the
same way, between two steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal

from rmqstore.errors import ArgumentError, Fenced, StoreClosedError, StoreError, StoreTimeout
from rmqstore.net.addresses import Address
from rmqstore.net.runtime import Runtime
from rmqstore.replication.group.roles import (
    AcceptPuts,
    AwaitDispatch,
    Change,
    EndSide,
    Follow,
    Gate,
    RefusePuts,
    Reorder,
    RoleEffect,
    RoleMachine,
    Serve,
    Settle,
)
from rmqstore.replication.group.status import Status
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.protocol.events import (
    FlushLog,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
)
from rmqstore.replication.runtime.connections import NewLink
from rmqstore.replication.runtime.following import SlaveSide
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.replication.runtime.logger import log
from rmqstore.replication.runtime.serving import MasterSide
from rmqstore.replication.runtime.settings import Settings
from rmqstore.replication.runtime.sides import Sides
from rmqstore.replication.runtime.turns import Turn, Turns
from rmqstore.replication.runtime.waits import Waits
from rmqstore.store.replica_view import ReplicaView

__all__ = ["Roles"]

_LAST = (AcceptPuts, Follow, Reorder)
"""The steps with which a change is complete."""
_DISPATCH_S = 0.1
"""The thread of the replica waits for the dispatcher at most so long at a time."""


class Roles:
    """The role of *store*; changes run one at a time."""

    def __init__(
        self,
        runtime: Runtime,
        store: ReplicaView,
        log_of_store: StoreLog,
        settings: Settings,
        *,
        on_proposal: Callable[[Proposal], None],
        on_change: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._log = log_of_store
        self._settings = settings
        self._on_proposal = on_proposal
        self._on_change = on_change
        self._machine: RoleMachine[Address] = RoleMachine(
            log_of_store,
            quorum=settings.quorum,
            mode=settings.mode,
            place=store.path,
            fixed=settings.fixed,
        )
        self._turns = Turns(runtime)
        """Changes of the role, and all else that saves the epoch state of a master."""
        self._is_closing = False
        self._waits = Waits(runtime, refresh=lambda: self.sides.refresh())
        self.sides = Sides(runtime, store, log_of_store, settings, self)
        """The side of the present role."""

    @property
    def role(self) -> Literal["master", "slave"] | None:
        """The role, None without one."""
        return self._machine.role

    @property
    def known_epoch(self) -> int:
        """The highest epoch known from an order, the log or a master, -1 for none."""
        return self._machine.known_epoch

    # ---- changes

    async def become_master(
        self,
        epoch: int | None,
        *,
        members: Collection[int],
        set_epoch: int,
        others_asked: bool,
        allow_jump: bool,
        timeout: float,
    ) -> None:
        """Become master; see `Replica.become_master`."""
        deadline = self._now() + timeout

        async def change(turn: Turn) -> None:
            self._check_open()
            try:
                steps = self._machine.become_master(
                    epoch,
                    members=members,
                    set_epoch=set_epoch,
                    others_asked=others_asked,
                    allow_jump=allow_jump,
                )
            except Fenced as error:
                error.master = self._store.master_hint
                raise
            await self._carry_out(steps, turn, deadline)
            if members and set_epoch > self.sides.known_set()[1]:
                await self._take_set(frozenset(members), set_epoch)

        await self._turns.take(change)

    async def become_slave(
        self, master: Address, epoch: int | None, *, begin_anew: bool, allow_jump: bool
    ) -> None:
        """Follow *master*; see `Replica.become_slave`."""

        async def change(turn: Turn) -> None:
            self._check_open()
            side = self.sides.slave
            if side is not None:
                # From here on only the change saves the epoch state.
                await side.hold()
            try:
                steps = self._machine.become_slave(
                    master,
                    epoch,
                    may_begin_anew=begin_anew,
                    allow_jump=allow_jump,
                    is_halted=side is not None and side.node.halt_reason is not None,
                )
                await self._carry_out(steps, turn)
            finally:
                if side is not None:
                    await side.go_on()

        await self._turns.take(change)

    async def close(self, *, is_clean: bool) -> None:
        """End the role, and every wait. A change in progress is completed first, but waits for its
        dispatcher no longer.

        *is_clean*: the end of the role of a master is saved; a failure to do so is logged.
        """
        self._is_closing = True
        self._waits.end(self._closed_error())

        async def change(turn: Turn) -> None:
            try:
                await self._run(self._machine.end(is_clean=is_clean), turn)
            except StoreError as error:
                if not isinstance(error, StoreClosedError):
                    log().warning(
                        "%s: the end of the role of master was not saved, so this store becomes "
                        "master again only with an epoch and others_asked: %s",
                        self._store.path,
                        error,
                    )
                await self._fail(str(error))

        await self._turns.take(change)
        self.changed()

    def _check_open(self) -> None:
        if self._is_closing:
            raise self._closed_error()

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"replication of store {self._store.path} was closed")

    async def _carry_out(
        self, steps: Change[Address], turn: Turn, deadline: float | None = None
    ) -> None:
        """Carry a change out; when that fails, the replica has no role."""
        try:
            await self._run(steps, turn, deadline)
        except BaseException as error:
            await self._end_role(str(error) or type(error).__name__)
            raise

    async def _run(self, steps: Change[Address], turn: Turn, deadline: float | None = None) -> None:
        for effect in steps:
            if isinstance(effect, AwaitDispatch):
                assert deadline is not None, "only a master waits for its dispatcher"
                await self._await_dispatch(effect.end_offset, turn, deadline)
            else:
                await self._do(effect)
            if not isinstance(effect, _LAST):
                turn.check()

    async def _await_dispatch(self, end_offset: int, turn: Turn, deadline: float) -> None:
        begun = self._now()
        while True:
            left = max(deadline - self._now(), 0.001)
            wait_s = min(left, _DISPATCH_S)
            try:
                await self._runtime.on_disk(
                    partial(self._store.wait_dispatched, end_offset, timeout=wait_s)
                )
                return
            except StoreTimeout as error:
                if left <= _DISPATCH_S:
                    waited = round(self._now() - begun, 3)
                    raise StoreTimeout(
                        f"waited {waited} s for queues and index to hold all confirmed "
                        f"records: {error}"
                    ) from error
            turn.check()
            self._check_open()

    def _now(self) -> float:
        return self._runtime.now_ms() / 1000

    async def _do(self, effect: RoleEffect[Address]) -> None:
        match effect:
            case RefusePuts():
                await self._runtime.on_disk(self._store.refuse_puts)
            case AcceptPuts():
                self._store.accept_puts(self._present_master().board)
                log().info("%s: master of epoch %d", self._store.path, self._machine.epoch)
                self.changed()
            case EndSide():
                try:
                    await self.sides.end()
                finally:
                    self.moved()
            case Settle():
                await self._runtime.on_disk(self._log.settle)
            case Gate():
                await self._runtime.on_disk(self._log.gate)
            case Serve(epoch, members=members, set_epoch=set_epoch):
                if effect.is_new:
                    self.sides.make_master(effect)
                self._present_master().begin(epoch, members=members, set_epoch=set_epoch)
            case Follow():
                self.sides.follow(effect)
                self.changed()
            case Reorder():
                self._reorder(effect)
            case FlushLog() | PromiseConfirm() | SaveEpochs() | SaveEpochState():
                await self._runtime.on_disk(partial(self._log.carry_out, effect))

    def _present_master(self) -> MasterSide:
        side = self.sides.master
        if side is None or side.is_over:
            raise StoreError(f"the role of master ended: {self._machine.failure}")
        return side

    def _reorder(self, effect: Reorder) -> None:
        side = self.sides.slave
        if side is None or side.is_over:
            raise StoreError(f"the role of slave ended: {self._machine.failure}")
        side.node.machine.may_begin_anew = effect.may_begin_anew
        side.node.machine.ordered_epoch = effect.ordered
        side.ordered(effect.epoch)

    async def _end_role(self, failure: str) -> None:
        """End the role because of *failure*; the store takes no puts from here on."""
        had_role = self.role or "taking a role"
        await self._fail(failure)
        log().error("%s: %s ended: %s", self._store.path, had_role, failure)
        self.changed()

    async def _fail(self, reason: str) -> None:
        for effect in self._machine.fail(reason):
            with contextlib.suppress(StoreClosedError):
                await self._do(effect)

    # ---- the sync-state set

    async def set_sync_state_set(self, members: frozenset[int], set_epoch: int) -> None:
        """Take a confirmed set; see `Replica.set_sync_state_set`."""
        if self._settings.broker_id in members:
            await self._take_set(members, set_epoch)
        else:
            # Another master was elected, which may end the role.
            await self._turns.take(lambda turn: self._take_set(members, set_epoch))

    async def _take_set(self, members: frozenset[int], set_epoch: int) -> None:
        self._check_open()
        side = self.sides.of_master()
        known = side.group.sync_state_set
        if not side.group.has_set:
            raise ArgumentError("this master has no sync-state set; give become_master its members")
        if self._settings.broker_id not in members and set_epoch != known.set_epoch:
            if set_epoch > known.set_epoch:
                await self._end_role(
                    f"the sync-state set {sorted(members)} of version {set_epoch} lacks this "
                    f"broker, {self._settings.broker_id}: another master was elected"
                )
            return
        side.change(lambda group, now: group.confirm_set(members, set_epoch=set_epoch, now_ms=now))

    # ---- how things stand

    def status(self) -> Status:
        """Return all of it, of one moment."""
        if self.role is None and not self._turns.is_taken:
            # The end of a role and the opening check the log. Only bytes that others appended since
            # are not checked yet.
            with contextlib.suppress(StoreError):
                self._log.check()
        replicas = self.sides.replicas()
        members, set_epoch, proposals = self.sides.known_set()
        return Status(
            role=self.role,
            broker_id=self._settings.broker_id,
            epoch=self.known_epoch,
            synced_epoch=self._machine.synced_epoch,
            epochs=tuple(self._log.epochs),
            address=self._settings.address,
            start_offset=self._log.start_offset,
            is_partial=self._log.epoch_state.is_partial(self._log.start_offset),
            end_offset=self._log.end_offset,
            whole_end=self._log.whole_end,
            flushed_offset=self._log.flushed_offset,
            confirm_offset=self._log.confirm_offset,
            sync_state_set=members,
            sync_state_set_epoch=set_epoch,
            proposals=proposals,
            replicas=replicas,
            master=self.sides.master_status,
            failure=self._machine.failure,
        )

    async def wait_in_sync(self, copies: int, end_offset: int, timeout: float) -> None:
        """Return when so many copies hold all below *end_offset*."""
        await self._wait(
            lambda: self.sides.of_master().is_in_sync(copies, end_offset),
            timeout,
            f"{copies} copies up to {end_offset}",
        )

    async def wait_caught_up(self, offset: int | None, timeout: float) -> None:
        """Return when the log is the master's up to *offset*, None for the end that is known."""
        what = "the master's end" if offset is None else f"offset {offset}"
        await self._wait(
            lambda: self.sides.of_slave().has_caught_up(offset), timeout, f"catching up to {what}"
        )

    async def wait_dispatched(self, end_offset: int, timeout: float) -> None:
        """Return when readers see all below *end_offset*."""
        await self._wait(
            lambda: self._store.dispatched_offset >= end_offset,
            timeout,
            f"offset {end_offset} to be confirmed and dispatched",
        )

    async def _wait(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        self._check_open()
        await self._waits.wait(condition, timeout, what)

    # ---- events of the sides

    def moved(self) -> None:
        """Offsets may have moved."""
        self._waits.look()

    def changed(self) -> None:
        """Role, set, a connection or its state is another."""
        self._waits.look()
        self._on_change()

    def synced(self, epoch: int) -> None:
        """The log holds all that the master of *epoch* had."""
        self._machine.note_synced(epoch)

    def proposed(self, proposal: Proposal) -> None:
        """A master wishes another set."""
        self._on_proposal(proposal)

    def failed(self, side: MasterSide | SlaveSide, error: Exception) -> None:
        """Record that *side*, which no longer handles events, cannot go on."""
        log().error("%s: %s", self._store.path, error, exc_info=not isinstance(error, StoreError))

        async def change(turn: Turn) -> None:
            if side in (self.sides.master, self.sides.slave) and not self._is_closing:
                await self._end_role(f"{type(error).__name__}: {error}")

        self._turns.begin(change)

    def share(self, done: Callable[[StoreError | None], None]) -> None:
        """Save that another replica holds this log; call *done* then, with the error if it
        failed."""

        async def change(turn: Turn) -> None:
            if self._is_closing:
                return
            state = self._log.epoch_state.share()
            failure: StoreError | None = None
            if state != self._log.epoch_state:
                try:
                    await self._do(SaveEpochState(state))
                except StoreError as error:
                    failure = error
            done(failure)

        self._turns.begin(change)

    # ---- connections

    def accept(self, link: NewLink, peer: Address) -> None:
        """Serve a connection from *peer*, or close it."""
        self.sides.accept(link, peer, is_master=self.role == "master")
