"""One store among its replicas: connections, machines and group wired together, without any I/O.

    effects = node.received(connection, frame, now_ms)

The runner of a node (`rmqstore.replication.facade` over sockets, `rmqstore.sim` in virtual time)
numbers its connections, passes their events to it, and applies the effects in order. Effects of one
connection are wrapped in `To`; the proposals of the group are between them. A master's events are
steps of decisions (`rmqstore.replication.group.board`): the board uses the new rule before any
effect is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Literal

from rmqstore.replication.group import group as of_group
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.quorum import Rule
from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.protocol.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.protocol.classic import ClassicMaster, ClassicSlave
from rmqstore.replication.protocol.events import (
    Acked,
    CaughtUp,
    Close,
    Closed,
    Effect,
    Event,
    Failed,
    FrameReceived,
    Halt,
    HaOptions,
    HaState,
    Joined,
    LogGrew,
    LogView,
    Opened,
    Received,
    SaveEpochState,
    Tick,
    Writable,
)
from rmqstore.replication.protocol.frames import Frame
from rmqstore.replication.protocol.master import MasterMachine
from rmqstore.replication.protocol.slave import SlaveMachine

__all__ = [
    "HaProtocol",
    "MasterNode",
    "NodeEffect",
    "SlaveNode",
    "To",
]

HaProtocol = Literal["autoswitch", "classic"]

_REVIEW_MS = 500
_SETTLED_MS = 1000
_FIRST_DELAY_MS = 20
_DOUBLINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class To:
    """An effect for one connection. After a Close the node no longer knows that connection."""

    connection: int
    effect: Effect


NodeEffect = To | of_group.Propose


class MasterNode:
    """The connections of a master. *group* counts what they acknowledge."""

    def __init__(
        self,
        log: LogView,
        group: MasterGroup,
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
    ) -> list[NodeEffect]:
        """Take a connection in. Connections are numbered in the order in which they were opened.

        Slaves of the classic protocol do not name themselves and count by their *address*.
        """
        self.follow_log()
        effects: list[NodeEffect] = []

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

        return effects + self.handle(connection, Opened(), now_ms)

    def _free_id(self) -> int:
        replicas = self.group.replicas
        return next(
            each for each in count(1) if each != replicas.self_id and replicas.get(each) is None
        )

    def received(self, connection: int, frame: Frame, now_ms: int) -> list[NodeEffect]:
        """Take a frame of a slave."""
        return self.handle(connection, FrameReceived(frame), now_ms)

    def writable(self, connection: int, now_ms: int) -> list[NodeEffect]:
        """Record that a connection took all that was sent on it."""
        return self.handle(connection, Writable(), now_ms)

    def failed(self, connection: int, reason: str, now_ms: int) -> list[NodeEffect]:
        """Record that something asked for a connection could not be done."""
        return self.handle(connection, Failed(reason), now_ms)

    def closed(self, connection: int, now_ms: int) -> list[NodeEffect]:
        """Record that a connection has ended by itself."""
        return self.handle(connection, Closed(), now_ms) + self._forget(connection, now_ms)

    def close(self, connection: int, reason: str, now_ms: int) -> list[NodeEffect]:
        """Close a connection from outside."""
        if connection not in self._machines:
            return []
        return [To(connection, Close(reason)), *self._forget(connection, now_ms)]

    def log_grew(self, now_ms: int) -> list[NodeEffect]:
        """Follow the log's end and its epochs."""
        self.follow_log()
        effects: list[NodeEffect] = []
        for connection in list(self._machines):
            effects += self.handle(connection, LogGrew(), now_ms)
        return effects

    def tick(self, now_ms: int) -> list[NodeEffect]:
        """Let time pass."""
        self.follow_log()
        effects: list[NodeEffect] = []
        for connection, machine in list(self._machines.items()):
            due_ms = machine.next_tick_ms()
            if due_ms is not None and due_ms <= now_ms:
                effects += self.handle(connection, Tick(), now_ms)
        for connection, machine in self._machines.items():
            # Who has all there is keeps up, however long nothing was there to acknowledge.
            if machine.acked_offset == self._log.end_offset:
                self.group.caught_up(connection, now_ms)
        self._reviewed_ms = now_ms
        return effects + self._of_group(self.group.tick(now_ms))

    def next_tick_ms(self) -> int | None:
        """Return when `tick` is due at the latest, None while nothing waits for time."""
        times = [machine.next_tick_ms() for machine in self._machines.values()]
        if self.group.has_set and self.group.is_master:
            review_ms = min(_REVIEW_MS, self.group.policy.quorum.check_ms)
            times.append(0 if self._reviewed_ms is None else self._reviewed_ms + review_ms)
        return min((each for each in times if each is not None), default=None)

    def handle(self, connection: int, event: Event, now_ms: int) -> list[NodeEffect]:
        """Pass an event to the machine of a connection and return the effects."""
        machine = self._machines.get(connection)
        if machine is None:
            return []
        self.follow_log()
        effects: list[NodeEffect] = []
        for effect in machine.on(event, now_ms):
            effects += self._take(connection, effect, now_ms)
            if connection not in self._machines:
                break
        return effects

    def follow_log(self) -> None:
        """Let the group know where the log ends."""
        if self.group.is_master:
            self.group.log_grew(self._log.end_offset)

    def rule(self) -> Rule:
        """Return the rule for the board."""
        return self.group.rule(is_flushed=bool(self._options.ack_flushed))

    def apply(self, effects: Iterable[of_group.Effect]) -> list[NodeEffect]:
        """Return the node's effects for those that a call to `group` returned."""
        return self._of_group(effects)

    def _take(self, connection: int, effect: Effect, now_ms: int) -> list[NodeEffect]:
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

    def _share(self, connection: int) -> list[NodeEffect]:
        """Save, before the first replica is answered, that another one holds this log."""
        state = self._log.epoch_state
        return [] if state.has_replicas else [To(connection, SaveEpochState(state.share()))]

    def _forget(self, connection: int, now_ms: int) -> list[NodeEffect]:
        self._machines.pop(connection, None)
        return self._of_group(self.group.disconnected(connection, now_ms))

    def _of_group(self, effects: Iterable[of_group.Effect]) -> list[NodeEffect]:
        found: list[NodeEffect] = []
        for effect in effects:
            if isinstance(effect, of_group.CloseConnection):
                if self._machines.pop(effect.connection, None) is not None:
                    found.append(To(effect.connection, Close(effect.reason)))
            else:
                found.append(effect)
        return found


class SlaveNode:
    """The one connection of a slave: its machine, and when to connect.

    A connection that had worked is made again at once when it breaks. One that then breaks early,
    or that the machine gave up, is made after the machine's delay. Without an answer, delays grow
    to that.
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
        learns_while_partial: bool = False,
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
                learns_while_partial=learns_while_partial,
                may_begin_anew=may_begin_anew,
            )
        )

        self._opened_ms = 0
        self._has_heard = self._is_second = False
        self._refusals = 0
        self.connect_at_ms: int | None = 0
        """When to connect; None while connected, and forever once halted."""
        self.reason = ""
        """Why the last connection ended."""
        self.halt_reason: str | None = None
        """Why the slave stopped for an operator to act, None while it goes on."""

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Pass an event to the machine and return its effects, in order."""
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
        """Record that no connection came about; *retry_after_ms* is the longest delay."""
        self.reason = reason
        delay_ms = _FIRST_DELAY_MS << min(self._refusals, _DOUBLINGS_MAX)
        self._refusals += 1
        self.connect_at_ms = now_ms + min(delay_ms, retry_after_ms)

    def next_tick_ms(self) -> int | None:
        """Return when a `Tick`, or connecting, is due; None while nothing waits for time."""
        return self.machine.next_tick_ms() if self.connect_at_ms is None else self.connect_at_ms
