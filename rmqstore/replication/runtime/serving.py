"""A master at work: its connections, its machines and the board that puts wait at.

The board resolves puts and moves the confirm offset by a rule, on whatever thread an
acknowledgement arrives. Every event on the loop's thread is a decision about that rule
(`rmqstore.replication.group.board`); its effects are applied once the new rule is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from rmqstore._native.core import PumpReport
from rmqstore.errors import ArgumentError, StoreError
from rmqstore.net.addresses import Address, format_address, ip_of
from rmqstore.net.runtime import Runtime, Timer
from rmqstore.net.seldom import Seldom
from rmqstore.replication.group.board import MasterBoard
from rmqstore.replication.group.group import MasterGroup, Propose
from rmqstore.replication.group.node import HaProtocol, MasterNode, NodeEffect, To
from rmqstore.replication.group.status import ReplicaStatus
from rmqstore.replication.protocol.autoswitch_master import AutoSwitchMaster
from rmqstore.replication.protocol.events import (
    Close,
    Effect,
    Event,
    HaOptions,
    HaState,
    Heartbeat,
    SaveEpochState,
    Send,
    SendLog,
    SetUntil,
    Stream,
    StreamEnded,
)
from rmqstore.replication.protocol.frames import (
    encode,
    encode_head,
)
from rmqstore.replication.runtime.connections import NewLink
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.replication.runtime.logger import log
from rmqstore.replication.runtime.owner import Owner
from rmqstore.replication.runtime.slave_link import SlaveLink, streamed
from rmqstore.store.replica_view import ReplicaView

__all__ = ["MasterSide"]

_READ_BYTES = 16 * 1024
_REVIEW_MS = 250
_WAITING_MAX = 1 << 20


class MasterSide:
    """The master's role of one store, from taking office to its end; all calls on the loop."""

    def __init__(
        self,
        runtime: Runtime,
        store: ReplicaView,
        log_of_store: StoreLog,
        node: MasterNode,
        owner: Owner,
        *,
        protocol: HaProtocol,
        options: HaOptions,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._log = log_of_store
        self._owner = owner
        self._protocol = protocol
        self._batch_bytes = options.batch_bytes
        self._served: dict[int, SlaveLink] = {}
        self._connections = 0
        self._notices = Seldom(log())
        self._timer: Timer | None = None
        self._is_over = False
        self.node = node
        self.board = store.make_board()
        self._decisions = MasterBoard(node, self.board)
        self._pump = store.make_pump(self.board)
        self._pumped: dict[int, int] = {}
        """Connections by the pump's links."""
        self._watch = store.watchers.subscribe("grew")
        self._is_watching = False
        self._readers = [
            runtime.when_readable(self._watch, self._log_grew),
            runtime.when_readable(self._pump, self._pump_ready),
        ]

    @property
    def group(self) -> MasterGroup:
        """What the replicas acknowledged, and the set."""
        return self.node.group

    def __len__(self) -> int:
        return len(self._served)

    # ---- the role

    def begin(self, epoch: int, *, members: Collection[int], set_epoch: int) -> None:
        """Begin an epoch that the log's epoch list has; connections stay."""
        end_offset = self._log.end_offset
        self.change(
            lambda group, now: group.become_master(
                epoch, end_offset=end_offset, now_ms=now, members=members, set_epoch=set_epoch
            )
        )
        self._event(self.node.log_grew)

    def refresh(self) -> None:
        """Handle acknowledgements that other threads received."""
        self._event(lambda now: [])

    def is_in_sync(self, copies: int, end_offset: int) -> bool:
        """Whether so many copies hold all below *end_offset*, and puts that need them are admitted.

        The pump notes an acknowledgement before the next decision admits puts by it.
        """
        present = self.node.rule().present
        is_admitted = present is None or present >= copies
        return is_admitted and self.board.copies_of(end_offset) >= copies

    @property
    def is_over(self) -> bool:
        """Whether the side has ended, or failed."""
        return self._is_over

    async def end(self) -> None:
        """End the role: waiting puts fail, connections close. Puts are refused already."""
        self._stop()
        try:
            await self._runtime.on_disk(self._pump.close)
        finally:
            for served in self._served.values():
                served.close()
            self._served.clear()
            self._pumped.clear()
            self.group.stop()
            self._watch.close()
            self.board.abandon()

    def _stop(self) -> None:
        """Stop handling events."""
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for reader in self._readers:
            reader.cancel()
        for served in self._served.values():
            served.pause()

    def _fail(self, error: Exception) -> None:
        if not self._is_over:
            self._stop()
            self._owner.failed(self, error)

    def change(self, step: Callable[[MasterGroup, int], Any]) -> None:
        """Let *step* change the group, which it gets with the time; its effects follow.

        What it raises is raised here, and ends nothing.
        """
        try:
            self._run(lambda now: self.node.apply(step(self.group, now) or []))
        except Exception as error:
            if self._decisions.is_frozen:
                self._fail(error)
            raise
        self._owner.changed()

    # ---- events

    def _event(self, step: Callable[[int], list[NodeEffect]]) -> None:
        """Run one event; what goes wrong ends the role."""
        if self._is_over:
            return
        try:
            self._run(step)
        except Exception as error:
            self._fail(error)

    def _run(self, step: Callable[[int], list[NodeEffect]]) -> None:
        """Run one event as a decision, then carry out what follows."""
        effects, failure = self._decisions.decide(step, self._runtime.now_ms())
        self._carry_out(effects)
        self._set_timer()
        self._watch_log()
        self._owner.moved()
        if failure is not None:
            raise failure

    def _carry_out(self, effects: list[NodeEffect]) -> None:
        failed: dict[int, str] = {}
        for effect in effects:
            match effect:
                case Propose(proposal):
                    log().info("set %s proposed", sorted(proposal.members))
                    self._owner.proposed(proposal)
                case To(connection, Close(reason)):
                    self._drop(connection, reason)
                case To(connection, to_do) if self._holds(connection, to_do):
                    pass
                case To(connection, to_do) if connection not in failed:
                    try:
                        self._send(connection, to_do)
                    except StoreError as error:
                        failed[connection] = str(error)
        for connection, reason in failed.items():
            self._event(lambda now, at=connection, why=reason: self.node.failed(at, why, now))  # type: ignore[misc]
        self._note_states()

    def _holds(self, connection: int, effect: Effect) -> bool:
        """Hold *effect* back while it is saved that another replica holds this log."""
        served = self._served.get(connection)
        if served is None:
            return False
        if isinstance(effect, SaveEpochState):
            if not served.is_held:
                served.hold_back()
                self._owner.share(lambda failure: self._shared(connection, failure))
            return True
        if served.is_held:
            served.add_held(effect)
        return served.is_held

    def _shared(self, connection: int, failure: StoreError | None) -> None:
        """Go on with a connection whose effects were held back."""
        served = self._served.get(connection)
        if self._is_over or served is None or not served.is_held:
            return
        held = served.released()
        if failure is not None:
            reason = str(failure)
            self._event(lambda now: self.node.failed(connection, reason, now))
        else:
            self._event(lambda now: [To(connection, effect) for effect in held])

    def _send(self, connection: int, effect: Effect) -> None:
        served = self._served.get(connection)
        if served is None:
            return
        match effect:
            case Send(frame):
                served.send(encode(frame))
            case SendLog(offset, size, header):
                body = self._log.read(offset, size)
                served.send(encode_head(header, body), body)
            case Stream():
                served.awaited = effect
                if not served.has_unsent:
                    self._begin_stream(connection, served)
            case SetUntil(until):
                served.set_until(until)
            case Heartbeat():
                served.heartbeat()

    # ---- the pump

    def _begin_stream(self, connection: int, served: SlaveLink) -> None:
        stream, served.awaited = served.awaited, None
        # A frame that came with the one that began the stream may have closed the connection.
        if stream is None or connection not in self.node.connections:
            return
        if not self.node.machine(connection).is_streaming:
            return
        slot = self._decisions.slot(connection)
        pumped = served.stream(stream, slot=slot, batch_bytes=self._batch_bytes)
        self._pumped[pumped] = connection
        self._decisions.hand_over(connection)

    def _pump_ready(self) -> None:
        reports = self._pump.poll()
        acked = [each.link for each in reports if each.reason == "acked"]
        if acked:
            self._event(lambda now: self._follow_pump(acked, now))
        for report in reports:
            connection = self._pumped.get(report.link)
            if connection is not None and report.reason != "acked":
                self._take_back(connection, self._served[connection], report)

    def _take_back(self, connection: int, served: SlaveLink, report: PumpReport) -> None:
        """Go on with a connection that the pump has handed back."""
        del self._pumped[report.link]
        self._decisions.take_back(connection)
        served.take_back(report)
        if report.reason == "closed":
            self._lost(connection, report.detail or "the slave closed the connection")
        elif report.reason == "error":
            self._event(lambda now: self.node.failed(connection, report.detail, now))
        else:
            has_leftover = bool(report.leftover)
            self._handle(connection, streamed(report, StreamEnded, has_leftover=has_leftover))
            if has_leftover and connection in self._served:
                self._received(connection, report.leftover)

    def _handle(self, connection: int, event: Event) -> None:
        self._event(lambda now: self.node.handle(connection, event, now))

    def _tick(self, now: int) -> list[NodeEffect]:
        """Let time pass, behind what pumped connections have come to."""
        return self._follow_pump(self._pumped, now) + self.node.tick(now)

    def _follow_pump(self, links: Iterable[int], now: int) -> list[NodeEffect]:
        """Give the node the progress of links.

        The progress is read within the decision, which has read the board before: an
        acknowledgement that is older than what the board holds would look like lost data, and the
        replica would be proposed out of its set.
        """
        reports = []
        for link in links:
            # The report of a link that has just ended is next.
            with suppress(ArgumentError):
                reports.append(self._pump.progress(link))

        effects: list[NodeEffect] = []
        for report in reports:
            connection = self._pumped.get(report.link)
            if connection is not None:
                effects += self.node.handle(connection, streamed(report), now)
        return effects

    def _note_states(self) -> None:
        has_changed = False
        for connection in self.node.connections:
            served, state = self._served[connection], self.node.machine(connection).state
            has_changed |= state is not served.state
            served.state = state
        if has_changed:
            self._owner.changed()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._runtime.now_ms()
        due = self.node.next_tick_ms()
        # Admission depends on how far replicas are behind, so on a log that grows without a word
        # to this thread.
        latest = now + _REVIEW_MS
        delay_ms = max(min(latest if due is None else due, latest) - now, 0)
        self._timer = self._runtime.later(delay_ms / 1000, self._event, self._tick)

    def _watch_log(self) -> None:
        """Be woken by the next byte, where a connection waits for one that is not the pump's."""
        if self._is_watching or self._is_over:
            return
        machines = (self.node.machine(each) for each in self.node.connections)
        if any(each.state is HaState.TRANSFER and not each.is_streaming for each in machines):
            self._is_watching = True
            if self._watch.arm(self.group.end_offset):
                self._runtime.soon(self._log_grew)

    def _log_grew(self) -> None:
        if not self._is_over:
            self._is_watching = False
            self._watch.clear()
            self._event(self.node.log_grew)

    # ---- connections

    def accept(self, new: NewLink, peer: Address) -> None:
        """Serve a slave at *peer* that has connected."""
        self._connections += 1
        connection = self._connections
        link = new.open(
            read_bytes=_READ_BYTES,
            on_data=lambda data: self._received(connection, data),
            on_drained=lambda: self._drained(connection),
            on_lost=lambda reason: self._lost(connection, reason),
        )
        self._served[connection] = SlaveLink(link, peer, self._pump, protocol=self._protocol)
        self._notices.info("connection %d from %s", connection, format_address(peer))
        address = str(ip_of(peer[0]))
        self._event(lambda now: self.node.accepted(connection, now, address=address))

    def _received(self, connection: int, data: bytes) -> None:
        frames, fault = self._served[connection].parse(data)

        def step(now: int) -> list[NodeEffect]:
            effects: list[NodeEffect] = []
            for frame in frames:
                # A stream that was requested before this frame is requested again after it.
                effects = [each for each in effects if not _begins_stream(each)]
                effects += self.node.received(connection, frame, now)
            if fault is not None:
                effects += self.node.failed(connection, str(fault), now)
            return effects

        if frames or fault is not None:
            self._event(step)

    def _drained(self, connection: int) -> None:
        served = self._served.get(connection)
        if served is None:
            return
        if served.awaited is None or not self.node.machine(connection).is_streaming:
            served.awaited = None
            self._event(lambda now: self.node.writable(connection, now))
            return
        try:
            self._begin_stream(connection, served)
        except StoreError as error:
            reason = str(error)
            self._event(lambda now: self.node.failed(connection, reason, now))

    def _lost(self, connection: int, reason: str) -> None:
        self._event(lambda now: [*self.node.closed(connection, now), To(connection, Close(reason))])

    def _drop(self, connection: int, reason: str) -> None:
        served = self._served.pop(connection, None)
        if served is None:
            return
        self._notices.info(
            "connection %d from %s closed: %s", connection, format_address(served.peer), reason
        )
        if served.pumped is not None:
            del self._pumped[served.pumped]
        served.stop_stream()
        served.close()
        self._owner.changed()

    # ---- status

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Return the status of every connection, in the order of their acceptance."""
        return tuple(self._status(number, each) for number, each in self._served.items())

    def _status(self, connection: int, served: SlaveLink) -> ReplicaStatus:
        machine = self.node.machine(connection)
        replica = self.group.replicas.on(connection)
        ack_offset = -1 if replica is None else replica.ack_offset
        hello = machine.slave if isinstance(machine, AutoSwitchMaster) else None
        return ReplicaStatus(
            broker_id=None if replica is None else replica.broker_id,
            address=served.peer,
            state=machine.state,
            is_learner=hello is not None and hello.is_learner,
            ack_offset=ack_offset,
            lag_bytes=max(self._log.end_offset - max(ack_offset, self._log.start_offset), 0),
            is_counted=replica is not None and replica.broker_id in self.group.standing.counted,
            connected_ms=0 if replica is None else replica.connected_ms,
            caught_up_ms=None if replica is None else replica.caught_up_ms,
        )


def _begins_stream(effect: NodeEffect) -> bool:
    return isinstance(effect, To) and isinstance(effect.effect, Stream)
