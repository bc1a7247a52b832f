"""The role of one replica, and the steps from one role to the next: a machine without any I/O.

    for effect in roles.become_master(8, others_asked=True):
        carry_out(effect)

A change is a sequence of effects. Each effect is applied before the next one is requested,
because what comes next depends on what the log then holds. When an effect fails, `fail` is the
change that follows; the replica has no role then, and the same order may be given again. When the
process dies between two effects, the replica starts again without a role.

`rmqstore.replication.runtime` carries the effects out on a store, `rmqstore.sim` in virtual time.
tests/simulation/test_role_steps.py shows what goes wrong without each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rmqstore.epochs import EpochEntry, EpochList
from rmqstore.errors import Fenced
from rmqstore.replication.group.epoch_state import check_epoch, epoch_to_begin, known_epoch
from rmqstore.replication.group.fixed_master import FixedMaster
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.protocol.events import (
    FlushLog,
    LogView,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
)

__all__ = [
    "AcceptPuts",
    "AwaitDispatch",
    "Change",
    "EndSide",
    "Follow",
    "Gate",
    "RefusePuts",
    "Reorder",
    "RoleEffect",
    "RoleMachine",
    "Serve",
    "Settle",
]

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class RefusePuts:
    """Stop admitting puts. When this is done, no admitted put can still append."""


@dataclass(frozen=True, slots=True)
class AcceptPuts:
    """Admit connections of slaves, and puts."""


@dataclass(frozen=True, slots=True)
class EndSide:
    """End the connections and timers of the last `Serve` or `Follow`; waiting puts fail. When this
    is done, nothing of it changes the log."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Cut the log after its last whole record, and count queue offsets on from all records, so
    that puts can append; durable before the next effect."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Hide unconfirmed records from readers, before bytes of a master are appended."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Lead in *epoch*, which begins at the log's end, with the sync-state set *members*.

    With *is_new* as another master than before: without connections. Otherwise connections stay,
    and so do waiting puts.
    """

    epoch: int
    mode: Mode
    members: frozenset[int]
    set_epoch: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class AwaitDispatch:
    """Wait until readers see the log up to *end_offset*."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Follow(Generic[A]):
    """Connect to *master*, and copy its log. *epoch* is that of the order, -1 without one."""

    master: A
    may_begin_anew: bool
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Reorder:
    """Go on with the present master, and with no other of an epoch before *epoch*. *ordered* is
    the epoch of the order, -1 without one."""

    epoch: int
    may_begin_anew: bool
    ordered: int = -1


RoleEffect = (
    RefusePuts
    | AcceptPuts
    | EndSide
    | Settle
    | Gate
    | Serve
    | AwaitDispatch
    | Follow[A]
    | Reorder
    | FlushLog
    | PromiseConfirm
    | SaveEpochs
    | SaveEpochState
)
Change = Iterator[RoleEffect[A]]


class RoleMachine(Generic[A]):
    """The role of the replica of *log*; its masters have addresses of the type *A*.

    *place* names the log in messages. *quorum* and *mode* are those of the replica as a master;
    with members the mode is SYNC_STATE_SET. *fixed* is that of a broker whose file names its role,
    which is saved with the epoch. Changes come one after another: the effects of one are
    all carried out, or `fail` was called, before the next one begins.
    """

    def __init__(
        self,
        log: LogView,
        *,
        quorum: Quorum,
        mode: Mode,
        place: str,
        fixed: FixedMaster | None = None,
    ) -> None:
        self._log = log
        self._fixed = fixed
        self._quorum = quorum
        self._usual_mode = mode
        self._place = place
        self._begun_epoch = -1
        """An epoch that this process began as master, and in which it has taken no puts."""

        self._mode: Mode | None = None
        """The mode of the present side of a master."""
        self._has_side = False

        self.role: Literal["master", "slave"] | None = None
        self.epoch = -1
        """The epoch of the present or last role, if known."""
        self.master: A | None = None
        """The master of a slave."""
        self.failure: str | None = None
        """Why the last role ended, or was not reached; None while there is a role."""
        self.synced_epoch = -1
        """The epoch of the last master whose log this process held up to its end, or in which it
        was master itself; -1 for none."""

    @property
    def known_epoch(self) -> int:
        """The highest epoch known from an order, the log or a master, -1 for none."""
        return known_epoch(self._log)

    def note_synced(self, epoch: int) -> None:
        """Record that the log holds all that the master of *epoch* had."""
        self.synced_epoch = max(self.synced_epoch, epoch)

    # ---- to master

    def become_master(
        self,
        epoch: int | None,
        *,
        members: Collection[int] = (),
        set_epoch: int = 0,
        others_asked: bool = False,
        allow_jump: bool = False,
    ) -> Change[A]:
        """Return the way to the role of master in *epoch*; no effects for the present epoch.

        *members* and *set_epoch* are the sync-state set of the election. Raises as
        `epoch_to_begin`; nothing changes then.
        """
        new = epoch_to_begin(
            self._log,
            epoch,
            begun_epoch=self._begun_epoch,
            others_asked=others_asked or bool(members),
            allow_jump=allow_jump,
            place=self._place,
        )
        if self.role == "master" and new == self.epoch:
            return iter(())
        return self._to_master(new, frozenset(members), set_epoch)

    def _to_master(self, epoch: int, members: frozenset[int], set_epoch: int) -> Change[A]:
        log = self._log
        mode = Mode.SYNC_STATE_SET if members else self._usual_mode
        is_new = self.role != "master" or mode is not self._mode
        if is_new:
            yield from self.end(is_clean=False)
            yield Settle()
        else:
            yield RefusePuts()

        # From the first save on the epoch is this replica's own: after a failure the same order
        # may be given again.
        self._begun_epoch = epoch
        is_promise = log.is_gated and self._quorum.is_promise(mode)
        if log.is_promised != is_promise:
            yield PromiseConfirm(is_promise)
        # The state is saved before the list. A master that dies in between is still known to have
        # been interrupted.
        begun = log.epoch_state.begin(epoch)
        if self._fixed is not None:
            begun = begun.begin(epoch, copies=self._fixed.copies, boot=self._fixed.boot)
        if begun != log.epoch_state:
            yield SaveEpochState(begun)
        if self._entries_with(epoch) != tuple(log.epochs):
            yield FlushLog()
            yield SaveEpochs(self._entries_with(epoch))

        self.epoch, self._mode, self._has_side = epoch, mode, True
        yield Serve(epoch, mode, members, set_epoch, is_new)
        if is_new:
            yield AwaitDispatch(log.confirm_offset)
        self.role, self.failure = "master", None
        self.note_synced(epoch)
        yield AcceptPuts()

    def _entries_with(self, epoch: int) -> tuple[EpochEntry, ...]:
        """Return the epoch list of the log with *epoch*, which begins at the log's end."""
        log, end = self._log, self._log.end_offset
        kept = EpochList(tuple(log.epochs)).restored(log_end=end)
        # Records that were written before any epoch belong to the first one: a slave that begins
        # with the log's first byte has to find its epoch.
        return kept.begin(epoch, log_end=end if kept.entries else log.start_offset).entries

    # ---- to slave

    def become_slave(
        self,
        master: A,
        epoch: int | None,
        *,
        may_begin_anew: bool = False,
        allow_jump: bool = False,
        is_halted: bool = False,
    ) -> Change[A]:
        """Return the way to the role of slave of *master* in *epoch*, None for an unknown one.

        Under the same master only the order changes, unless its side *is_halted*. Raises Fenced
        for an epoch that is over and for the one in which this replica is master, ArgumentError as
        `check_epoch`; nothing changes then.
        """
        if self.role == "master" and epoch == self.epoch:
            raise Fenced(
                f"store {self._place} is itself master of epoch {epoch}: another master of that "
                "epoch is a fork; give each master an epoch of its own",
                epoch=self.epoch,
            )

        known = self.known_epoch
        if epoch is not None:
            check_epoch(epoch, known, allow_jump=allow_jump)
            if epoch < known:
                raise Fenced(
                    f"epoch {epoch} of the master is over: epoch {known} is known; follow the "
                    "master of that epoch or of a later one",
                    epoch=known,
                )

        order = -1 if epoch is None else epoch
        if self.role == "slave" and self.master == master and not is_halted:
            return self._to_order(order, may_begin_anew)
        return self._to_slave(master, order, may_begin_anew)

    def _to_order(self, epoch: int, may_begin_anew: bool) -> Change[A]:
        yield from self._save_order(epoch)
        yield Reorder(self.epoch, may_begin_anew, epoch)

    def _to_slave(self, master: A, epoch: int, may_begin_anew: bool) -> Change[A]:
        yield from self.end(is_clean=True)
        yield from self._save_order(epoch)
        yield Gate()
        self.role, self.master, self.failure = "slave", master, None
        self._has_side = True
        yield Follow(master, may_begin_anew, epoch)

    def _save_order(self, epoch: int) -> Change[A]:
        """Save the order: a replica that dies after it refuses the masters of older epochs."""
        state = self._log.epoch_state
        ordered = state.share().learn(epoch)
        if ordered != state:
            yield SaveEpochState(ordered)
        self.epoch = self.known_epoch

    # ---- to no role

    def end(self, *, is_clean: bool) -> Change[A]:
        """Return the way to no role.

        *is_clean*: that the role of a master ended with its whole log on the disk is saved. Such a
        master may go on in its epoch, unless a later one becomes known.
        """
        was_master = self.role == "master"
        if was_master:
            yield RefusePuts()
        yield from self._end_side()
        if was_master and is_clean:
            yield FlushLog()
            yield SaveEpochState(self._log.epoch_state.end(self._log.end_offset))

    def fail(self, reason: str) -> Change[A]:
        """Return the way to no role after an effect, or a side, failed for *reason*."""
        yield from self.end(is_clean=False)
        self.failure = reason

    def _end_side(self) -> Change[A]:
        if self.role == "master" and self._begun_epoch == self.epoch:
            # Its set may be another one by now.
            self._begun_epoch = -1
        self.role = self.master = None
        if self._has_side:
            self._has_side = False
            yield EndSide()
