"""One store among its replicas: connections, machines and group wired together, without any I/O.

    effects = node.received(connection, frame, now_ms)

Whoever runs a node (`rmqstore.replication.service` over sockets, `rmqstore.sim` in virtual time)
numbers its connections, tells it what happens to them, and carries the effects out in order. What
concerns one connection comes as `To`; the effects of the group (`rmqstore.replication.group`) come
between them, where they belong: a confirm offset moves before the frame that tells it, a proposal
is waited for before it leaves.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Generic, Literal, TypeVar

from rmqstore.errors import Fenced
from rmqstore.replication import group as of_group
from rmqstore.replication.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.classic import ClassicMaster, ClassicSlave
from rmqstore.replication.epoch import EpochList
from rmqstore.replication.epoch_state import check_epoch, known_epoch
from rmqstore.replication.events import (
    Acked,
    CaughtUp,
    Close,
    Closed,
    Effect,
    Event,
    Failed,
    FlushLog,
    FrameReceived,
    Halt,
    HaOptions,
    HaState,
    Joined,
    LogGrew,
    LogView,
    Opened,
    PromiseConfirm,
    Received,
    SaveEpochs,
    SaveEpochState,
    SetConfirm,
    Tick,
    TruncateTo,
    Writable,
)
from rmqstore.replication.frames import Frame
from rmqstore.replication.group import MasterGroup
from rmqstore.replication.master import MasterMachine
from rmqstore.replication.slave import SlaveMachine

__all__ = [
    "HaProtocol",
    "MasterNode",
    "NodeEffect",
    "SlaveNode",
    "To",
    "steps_to_master",
    "steps_to_slave",
]

HaProtocol = Literal["autoswitch", "classic"]
T = TypeVar("T", bound=Hashable)

_REVIEW_MS = 500
_SETTLED_MS = 1000
_FIRST_DELAY_MS = 20
_DOUBLINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class To:
    """An effect for one connection. After a Close the node knows that connection no more."""

    connection: int
    effect: Effect


NodeEffect = To | of_group.ConfirmMoved | of_group.Resolved[T] | of_group.Propose


def steps_to_master(
    log: LogView, *, epoch: int, whole_end: int, is_promise: bool = False
) -> list[Effect]:
    """Return what makes *log* that of the master of *epoch*, in order; each may be done again.

    Records that are not whole go, what is left is durable before the epoch that begins behind it
    is, and the epoch is before anything is written in it. The epoch state goes before the list: a
    master that dies in between must not look like a slave of that epoch. *is_promise*: what this
    master confirms is a promise. Raises Fenced for an epoch that is over.
    """
    state, known = log.epoch_state, known_epoch(log)
    if epoch < known or (epoch == known and epoch != state.master_epoch):
        raise Fenced(
            f"epoch {epoch} is over: epoch {known} is known; become master in a later one",
            epoch=known,
        )
    end = min(whole_end, log.end_offset)
    kept = EpochList(tuple(log.epochs)).restored(log_end=end)
    # What was written before any epoch is laid to the first one: a slave that begins with the log's
    # first byte has to find its epoch.
    begun = kept.begin(epoch, log_end=end if kept.entries else min(log.start_offset, end))
    steps: list[Effect] = []
    if log.is_promised != is_promise:
        steps.append(PromiseConfirm(is_promise))
    if log.confirm_offset > end:
        steps.append(SetConfirm(end))
    if log.end_offset > end:
        steps.append(TruncateTo(end))
    if state.begin(epoch) != state:
        steps.append(SaveEpochState(state.begin(epoch)))
    if begun.entries != tuple(log.epochs):
        steps += [FlushLog(), SaveEpochs(begun.entries)]
    return steps


def steps_to_slave(log: LogView, *, epoch: int | None, allow_jump: bool = False) -> list[Effect]:
    """Return what makes *log* that of the slave of a master of *epoch*, None for an unknown one.

    The order is durable before anything else happens: a slave that dies right after it still
    refuses the masters of older epochs. Raises Fenced for an epoch that is over, ArgumentError as
    `check_epoch`.
    """
    state, known = log.epoch_state, known_epoch(log)
    ordered = state.share()
    if epoch is not None:
        check_epoch(epoch, known, allow_jump=allow_jump)
        if epoch < known:
            raise Fenced(
                f"epoch {epoch} of the master is over: epoch {known} is known; follow the master "
                "of that epoch or of a later one",
                epoch=known,
            )
        ordered = ordered.learn(epoch)
    return [SaveEpochState(ordered)] if ordered != state else []


class MasterNode(Generic[T]):
    """The connections of a master. *group* counts what they acknowledge."""

    def __init__(
        self,
        log: LogView,
        group: MasterGroup[T],
        *,
        protocol: HaProtocol,
        broker_id: int,
        options: HaOptions,
    ) -> None:
        self._log = log
        self._options = options
        self._protocol = protocol
        self._broker_id = broker_id
        self._machines: dict[int, MasterMachine] = {}
        self._heard: set[int] = set()
        self._reviewed_ms: int | None = None
        self.group = group

    @property
    def connections(self) -> Collection[int]:
        """The connections that are open."""
        return self._machines.keys()

    def machine(self, connection: int) -> MasterMachine:
        """Return the machine that serves a connection; KeyError for one that is closed."""
        return self._machines[connection]

    def accepted(
        self, connection: int, now_ms: int, *, address: str | None = None
    ) -> list[NodeEffect[T]]:
        """Take a connection in. Connections are numbered in the order in which they were opened.

        Slaves of the classic protocol do not name themselves and count by their *address*.
        """
        effects = self._follow_log(now_ms)
        if self._protocol == "classic":
            assert address is not None, "a classic slave counts by its address"
            broker_id = self._free_id()
            self._machines[connection] = ClassicMaster(
                self._log, broker_id=broker_id, options=self._options
            )
            joined = self.group.connected(
                broker_id, connection=connection, address=address, now_ms=now_ms
            )
            effects += self._share(connection) + self._of_group(joined)
        else:
            self._machines[connection] = AutoSwitchMaster(
                self._log, broker_id=self._broker_id, options=self._options, heard=self._heard
            )
        return effects + self.tell(connection, Opened(), now_ms)

    def _free_id(self) -> int:
        replicas = self.group.replicas
        return next(
            each for each in count(1) if each != replicas.self_id and replicas.get(each) is None
        )

    def received(self, connection: int, frame: Frame, now_ms: int) -> list[NodeEffect[T]]:
        """Take a frame of a slave."""
        return self.tell(connection, FrameReceived(frame), now_ms)

    def writable(self, connection: int, now_ms: int) -> list[NodeEffect[T]]:
        """Take note that a connection took all that was sent on it."""
        return self.tell(connection, Writable(), now_ms)

    def failed(self, connection: int, reason: str, now_ms: int) -> list[NodeEffect[T]]:
        """Take note that something asked for a connection could not be done."""
        return self.tell(connection, Failed(reason), now_ms)

    def closed(self, connection: int, now_ms: int) -> list[NodeEffect[T]]:
        """Take note that a connection has ended by itself."""
        return self.tell(connection, Closed(), now_ms) + self._forget(connection, now_ms)

    def close(self, connection: int, reason: str, now_ms: int) -> list[NodeEffect[T]]:
        """Close a connection from outside."""
        if connection not in self._machines:
            return []
        return [To(connection, Close(reason)), *self._forget(connection, now_ms)]

    def log_grew(self, now_ms: int) -> list[NodeEffect[T]]:
        """Follow the log's end, its durable end and its epochs."""
        effects = self._follow_log(now_ms)
        for connection in list(self._machines):
            effects += self.tell(connection, LogGrew(), now_ms)
        return effects

    def tick(self, now_ms: int) -> list[NodeEffect[T]]:
        """Let time pass."""
        effects = self._follow_log(now_ms)
        for connection, machine in list(self._machines.items()):
            due_ms = machine.next_tick_ms()
            if due_ms is not None and due_ms <= now_ms:
                effects += self.tell(connection, Tick(), now_ms)
        for connection, machine in self._machines.items():
            # Who has all there is keeps up, however long nothing was there to acknowledge.
            if machine.acked_offset == self._log.end_offset:
                self.group.caught_up(connection, now_ms)
        self._reviewed_ms = now_ms
        return effects + self._of_group(self.group.tick(now_ms))

    def next_tick_ms(self) -> int | None:
        """Return when `tick` is due at the latest, None while nothing waits for time."""
        times = [machine.next_tick_ms() for machine in self._machines.values()]
        times.append(self.group.writer.next_deadline_ms)
        if self.group.has_set and self.group.is_master:
            times.append(0 if self._reviewed_ms is None else self._reviewed_ms + _REVIEW_MS)
        return min((each for each in times if each is not None), default=None)

    def tell(self, connection: int, event: Event, now_ms: int) -> list[NodeEffect[T]]:
        """Tell the machine of a connection an event and return what follows."""
        machine = self._machines.get(connection)
        if machine is None:
            return []
        effects = self._follow_log(now_ms)
        for effect in machine.on(event, now_ms):
            effects += self._take(connection, effect, now_ms)
            if connection not in self._machines:
                break
        return effects

    def apply(self, effects: Iterable[of_group.Effect[T]]) -> list[NodeEffect[T]]:
        """Return the node's effects for those that a call to `group` returned."""
        return self._of_group(effects)

    def _take(self, connection: int, effect: Effect, now_ms: int) -> list[NodeEffect[T]]:
        match effect:
            case Joined(broker_id, is_learner, names_epochs):
                joined = self.group.connected(
                    broker_id,
                    connection=connection,
                    is_learner=is_learner,
                    names_epochs=names_epochs,
                    now_ms=now_ms,
                )
                return self._share(connection) + self._of_group(joined)
            case Acked(_, offset, epoch):
                return self._of_group(self.group.acked(connection, offset, now_ms, epoch=epoch))
            case CaughtUp(_, at_ms):
                self.group.caught_up(connection, at_ms)
                return []
            case Close():
                return [To(connection, effect), *self._forget(connection, now_ms)]
        self.group.sent(connection, now_ms)
        return [To(connection, effect)]

    def _share(self, connection: int) -> list[NodeEffect[T]]:
        """Save, before the first replica is answered, that another one holds this log."""
        state = self._log.epoch_state
        return [] if state.has_replicas else [To(connection, SaveEpochState(state.share()))]

    def _follow_log(self, now_ms: int) -> list[NodeEffect[T]]:
        if not self.group.is_master:
            return []
        effects = self.group.log_grew(self._log.end_offset)
        if self._options.ack_flushed:
            effects += self.group.flushed(self._log.flushed_offset, now_ms)
        return self._of_group(effects)

    def _forget(self, connection: int, now_ms: int) -> list[NodeEffect[T]]:
        self._machines.pop(connection, None)
        return self._of_group(self.group.disconnected(connection, now_ms))

    def _of_group(self, effects: Iterable[of_group.Effect[T]]) -> list[NodeEffect[T]]:
        found: list[NodeEffect[T]] = []
        for effect in effects:
            if isinstance(effect, of_group.CloseConnection):
                if self._machines.pop(effect.connection, None) is not None:
                    found.append(To(effect.connection, Close(effect.reason)))
            else:
                found.append(effect)
        return found


class SlaveNode:
    """The one connection of a slave: its machine, and when to connect.

    A connection that had worked is made anew at once when it breaks; one that then breaks early, or
    that the machine gave up, after the machine's delay. Where nobody answers, delays grow to that.
    """

    def __init__(
        self,
        log: LogView,
        *,
        protocol: HaProtocol,
        broker_id: int,
        options: HaOptions,
        is_learner: bool = False,
        sync_from_last_file: bool = False,
        may_begin_anew: bool = False,
    ) -> None:
        self.machine: SlaveMachine = (
            ClassicSlave(log, options=options, may_begin_anew=may_begin_anew)
            if protocol == "classic"
            else AutoSwitchSlave(
                log,
                broker_id=broker_id,
                options=options,
                is_learner=is_learner,
                sync_from_last_file=sync_from_last_file,
                may_begin_anew=may_begin_anew,
            )
        )
        self._opened_ms = 0
        self._has_heard = self._is_second = False
        self._refusals = 0
        self.connect_at_ms: int | None = 0
        """When to connect; None while connected, and for ever once halted."""
        self.reason = ""
        """Why the last connection ended."""
        self.halt_reason: str | None = None
        """Why the slave stopped for an operator to act, None while it goes on."""

    def tell(self, event: Event, now_ms: int) -> list[Effect]:
        """Tell the machine an event and return what is to be done, in order."""
        if isinstance(event, Opened):
            self._opened_ms, self.connect_at_ms = now_ms, None
            self._has_heard = False
        is_settled = now_ms - self._opened_ms >= _SETTLED_MS
        had_worked = self.machine.state is HaState.TRANSFER and (self._has_heard or is_settled)
        if had_worked:
            self._refusals = 0
        if is_settled:
            self._is_second = False
        self._has_heard |= isinstance(event, FrameReceived | Received)
        effects = self.machine.on(event, now_ms)
        for effect in effects:
            match effect:
                case Close(reason, retry_after_ms):
                    self.reason = reason
                    at_once = had_worked and isinstance(event, Closed) and not self._is_second
                    self._is_second = at_once
                    self.connect_at_ms = now_ms + (0 if at_once else retry_after_ms)
                case Halt(reason):
                    self.reason = self.halt_reason = reason
                    self.connect_at_ms = None
        return effects

    def refused(self, reason: str, *, retry_after_ms: int, now_ms: int) -> None:
        """Take note that no connection came about; *retry_after_ms* is the longest delay."""
        self.reason = reason
        delay_ms = _FIRST_DELAY_MS << min(self._refusals, _DOUBLINGS_MAX)
        self._refusals += 1
        self.connect_at_ms = now_ms + min(delay_ms, retry_after_ms)

    def next_tick_ms(self) -> int | None:
        """Return when a `Tick`, or connecting, is due; None while nothing waits for time."""
        return self.machine.next_tick_ms() if self.connect_at_ms is None else self.connect_at_ms
