"""A slave at work: when it connects to its master, and the machine's effects on the log."""

from __future__ import annotations

from contextlib import suppress

from rmqstore.errors import StoreError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.runtime import Runtime, Task, Timer
from rmqstore.replication.group.node import HaProtocol, SlaveNode
from rmqstore.replication.group.status import MasterStatus
from rmqstore.replication.protocol.events import (
    Append,
    Close,
    Effect,
    Event,
    Failed,
    FlushLog,
    Halt,
    HaOptions,
    HaState,
    Heartbeat,
    Opened,
    Ordered,
    PromiseConfirm,
    Receive,
    Restart,
    SaveEpochs,
    SaveEpochState,
    Send,
    Tick,
    TruncateTo,
)
from rmqstore.replication.runtime.connections import Connect, NewLink, connect
from rmqstore.replication.runtime.event_queue import EventQueue, Events, Work
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.replication.runtime.logger import log
from rmqstore.replication.runtime.master_link import MasterLink, checked
from rmqstore.replication.runtime.owner import Owner
from rmqstore.store.replica_view import ReplicaView

__all__ = ["SlaveSide"]

_SLOW = (Append, TruncateTo, Restart, SaveEpochs, SaveEpochState, PromiseConfirm)
"""Effects that may wait for the disk."""


class SlaveSide:
    """The slave's role of one store under one master; all calls on the loop. *make_link* connects
    to the master."""

    def __init__(
        self,
        runtime: Runtime,
        store: ReplicaView,
        log_of_store: StoreLog,
        node: SlaveNode,
        owner: Owner,
        *,
        master: Address,
        protocol: HaProtocol,
        options: HaOptions,
        make_link: Connect = connect,
    ) -> None:
        self._runtime = runtime
        self._log = log_of_store
        self._owner = owner
        self._options = options
        self._make_link = make_link
        self._tasks = runtime.tasks("slave")
        self._timer: Timer | None = None
        self._connecting: Task[None] | None = None
        self._is_over = False
        self._state = HaState.READY
        self._synced_epoch = -1
        self.node = node
        self.master = master
        self._events = EventQueue(
            runtime, handle=self._handling, carry_out=log_of_store.carry_out, listen=self._listen
        )
        self._link = MasterLink(
            runtime,
            store,
            log_of_store,
            self._events,
            master=master,
            protocol=protocol,
            on_drained=self._handle_none,
        )
        self._link.listen(True)

    # ---- the role

    def begin(self) -> None:
        """Connect, and go on until `end`."""
        self._set_timer()

    @property
    def is_over(self) -> bool:
        """Whether the side has ended, or failed."""
        return self._is_over

    async def end(self) -> None:
        """End the role; after the return the role no longer changes the log."""
        self._stop()
        await self._events.settled()
        await self._tasks.close()
        self._link.drop()
        await self._runtime.on_disk(self._link.close_pump)
        # No thread appends now. The last bytes may not be checked yet.
        with suppress(StoreError):
            await self._runtime.on_disk(self._log.check)

    def _stop(self) -> None:
        """Stop handling events."""
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._events.stop()

    def _fail(self, error: Exception) -> None:
        if not self._is_over:
            self._stop()
            self._owner.failed(self, error)

    async def hold(self) -> None:
        """Let all events wait until `go_on`; return when no earlier one waits for the disk."""
        await self._events.hold()

    async def go_on(self) -> None:
        """Handle events again; return when those that waited are handled."""
        self._set_timer()
        await self._events.go_on()

    def ordered(self, epoch: int) -> None:
        """Take an order to follow the same master in *epoch*, which is saved."""
        self._events.add(lambda: [*self._link.progress(), Ordered(epoch)])

    def refresh(self) -> None:
        """Handle bytes that other threads received."""
        if self._link.is_pumped and self._events.is_listening:
            self._events.add(self._link.progress)

    def status(self) -> MasterStatus:
        """Return how things stand with the master."""
        self.refresh()
        machine, master_end = self.node.machine, self._link.master_end
        return MasterStatus(
            address=self.master,
            # While the disk works, the log differs from the machine's state.
            state=self._state if self._events.is_working else machine.state,
            acked_offset=machine.reported_offset,
            master_end=master_end,
            lag_bytes=max(master_end - machine.shared_end, 0),
            last_error=self.node.reason,
            halted_reason=self.node.halt_reason,
        )

    def has_caught_up(self, offset: int | None) -> bool:
        """Whether the log is known to be the master's up to *offset*; None: to the end that the
        master is known to have."""
        machine, master_end = self.node.machine, self._link.master_end
        if machine.state is not HaState.TRANSFER or master_end < 0:
            return False
        if self._events.is_working:
            # The machine's decisions are not on the disk yet.
            return False
        held = min(machine.reported_offset, self._log.end_offset)
        return held >= (master_end if offset is None else offset)

    # ---- connecting

    async def _connect(self) -> None:
        link: NewLink | None = None
        try:
            link = await self._make_link(self.master, limit_s=self._options.handshake_ms / 1000)
            # The last connection may have ended before all that it appended was checked.
            await self._runtime.on_disk(self._log.check)
            self._connecting = None
            self._link.open(link)
            self._events.add(lambda: [Opened()])
        except Exception as error:
            # No caller awaits this task, so the error is handled here. The next attempt may
            # succeed, for example if there was no thread for the resolver.
            if link is not None:
                link.close()
            self._connecting = None
            self._refused(str(error) or "no answer in time")
        except BaseException:
            if link is not None:
                link.close()
            raise

    def _refused(self, why: str) -> None:
        if self._is_over:
            return
        self.node.refused(
            f"cannot connect to {format_address(self.master)}: {why}",
            retry_after_ms=self._options.reconnect_ms,
            now_ms=self._runtime.now_ms(),
        )
        self._owner.changed()
        self._set_timer()

    # ---- events

    def _handle_none(self) -> None:
        """Go on where something waited until all sent bytes had left."""
        self._events.add(list)

    def _listen(self, is_listening: bool) -> None:
        self._link.listen(is_listening)

    def _handling(self, events_of: Events) -> Work[None]:
        """Send events to the machine. Bytes of several frames are appended before the machine gets
        LogGrew, so that one acknowledgement covers them."""
        try:
            has_grown = False
            for event in events_of():
                effects = self._tell(event)
                has_grown = (yield from self._carry_out(effects)) or has_grown
            while has_grown:
                effects = self._tell(checked(self._log))
                has_grown = yield from self._carry_out(effects)
            try:
                if self.node.machine.is_receiving:
                    self._link.begin_receive()
            except StoreError as error:
                yield from self._carry_out(self._tell(Failed(str(error))))
        except Exception as error:
            self._fail(error)
            return
        self._set_timer()
        self._note_state()
        self._owner.moved()

    def _carry_out(self, effects: list[Effect]) -> Work[bool]:
        """Carry *effects* out until one fails; return whether the machine is to get LogGrew."""
        has_grown = is_cut = False
        for effect in effects:
            try:
                if isinstance(effect, _SLOW):
                    yield effect
                else:
                    self._do(effect)
            except StoreError as error:
                log().warning("master %s: %s", format_address(self.master), error)
                failed = self._tell(Failed(str(error)))
                return (yield from self._carry_out(failed))
            is_flushed = isinstance(effect, FlushLog) and not self._link.is_flushing
            has_grown |= isinstance(effect, Append) or is_flushed
            is_cut |= isinstance(effect, TruncateTo | Restart)
        if is_cut:
            # Whatever comes next counts on the cut.
            effects = self._tell(checked(self._log))
            return (yield from self._carry_out(effects)) or has_grown
        return has_grown

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(frame):
                self._link.send(frame)
            case Receive():
                # A later frame withdraws the request: the machine then requests it again.
                self._link.awaited = effect
            case Heartbeat():
                self._link.heartbeat()
            case Close(reason):
                log().info("connection to %s closed: %s", format_address(self.master), reason)
                self._link.drop()
            case Halt(reason):
                log().error("replication from %s halted: %s", format_address(self.master), reason)
                self._link.drop()
            case FlushLog():
                self._link.flush()
            case _:
                self._log.carry_out(effect)

    def _tell(self, event: Event) -> list[Effect]:
        return self.node.handle(event, self._runtime.now_ms())

    def _note_state(self) -> None:
        machine = self.node.machine
        has_synced = machine.synced_epoch > self._synced_epoch
        if has_synced:
            self._synced_epoch = machine.synced_epoch
            self._owner.synced(self._synced_epoch)
        if has_synced or machine.state is not self._state:
            self._state = machine.state
            self._owner.changed()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.node.next_tick_ms()
        if due is not None and not self._is_over:
            delay_ms = max(due - self._runtime.now_ms(), 0)
            self._timer = self._runtime.later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._events.is_listening:
            # The timer is set again when the events that wait are handled.
            return
        connect_at = self.node.connect_at_ms
        if connect_at is None:
            self._events.add(lambda: [*self._link.progress(), Tick()])
        elif connect_at > self._runtime.now_ms():
            self._set_timer()
        elif self._connecting is None and not self._link.is_open:
            self._connecting = self._tasks.start(self._connect(), name="connecting to the master")
