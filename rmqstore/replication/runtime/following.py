"""A slave at work: its connection to the master, and the machine's effects on the log.

Once the log is known to be the master's, the pump owns the connection: it appends, checks and
acknowledges until it meets another frame, and hands the connection back.

A change of the log or of a file waits for the disk, and must not block the loop: the thread of the
replica makes it. Until that is done the side reads neither from its connection nor from its pump;
other events wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from rmqstore._native.core import PumpReport
from rmqstore.errors import ArgumentError, StoreError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.sockets import Connection, make_socket
from rmqstore.replication.group.node import HaProtocol, SlaveNode
from rmqstore.replication.group.status import MasterStatus
from rmqstore.replication.protocol.events import (
    Append,
    Close,
    Closed,
    Damaged,
    Effect,
    Event,
    Failed,
    FlushLog,
    FrameReceived,
    Halt,
    HaOptions,
    HaState,
    Heartbeat,
    LogGrew,
    Opened,
    Ordered,
    PromiseConfirm,
    Receive,
    Received,
    ReceiveEnded,
    Restart,
    SaveEpochs,
    SaveEpochState,
    Send,
    Tick,
    TruncateTo,
)
from rmqstore.replication.protocol.frames import (
    ClassicData,
    ClassicDataParser,
    Frame,
    FrameError,
    HandshakeReply,
    MasterFrameParser,
    Transfer,
    encode,
)
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.replication.runtime.logger import log, now_ms
from rmqstore.replication.runtime.serving import Owner
from rmqstore.store.replica_view import ReplicaView

__all__ = ["SlaveSide"]

_READ_BYTES = 256 * 1024
_UNSENT_BYTES_MAX = 64 * 1024
_SLOW = (Append, TruncateTo, Restart, SaveEpochs, SaveEpochState, PromiseConfirm)
"""Effects that may wait for the disk."""

T = TypeVar("T")
_Work = Generator[Effect, None, T]
"""Yields effects that may wait for the disk; goes on when they are done."""
_Resolved = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


class SlaveSide:
    """The slave's role of one store under one master; all calls on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: ReplicaView,
        log_of_store: StoreLog,
        node: SlaveNode,
        owner: Owner,
        *,
        master: Address,
        protocol: HaProtocol,
        options: HaOptions,
    ) -> None:
        self._loop = loop
        self._log = log_of_store
        self._owner = owner
        self._protocol = protocol
        self._kind = "classic" if protocol == "classic" else "transfer"
        self._options = options
        self._link: Connection | None = None
        self._parser: ClassicDataParser | MasterFrameParser = MasterFrameParser()
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_over = False
        self._pump = store.make_pump()
        self._pumped: int | None = None
        """The pump's link while the connection is its."""
        self._awaited: Receive | None = None
        """The last request to receive. It begins once all sent bytes have left, unless the machine
        has withdrawn it (`is_receiving`)."""
        self._is_flushing = False
        """The machine waits for the disk; the pump reports the end of a sync."""
        self._state = HaState.READY
        self._synced_epoch = -1
        self._master_end = -1
        self._waiting: deque[Callable[[], list[Event]]] = deque()
        """Functions that return the events not handled yet, in the order of their turns."""
        self._working: asyncio.Future[None] | None = None
        """The work that waits for the disk."""
        self._is_handling = self._is_held = False
        self._is_listening = True
        self.node = node
        self.master = master
        loop.add_reader(self._pump.fileno(), self._pump_ready)

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
        while self._working is not None:
            await asyncio.wait([self._working])
        self._drop()
        await self._owner.work(self._pump.close)
        # No thread appends now. The last bytes may not be checked yet.
        with suppress(StoreError):
            await self._owner.work(self._log.check)

    def _stop(self) -> None:
        """Stop handling events."""
        if self._is_over:
            return
        self._is_over = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._listen()

    def _fail(self, error: Exception) -> None:
        if not self._is_over:
            self._stop()
            self._owner.failed(self, error)

    async def hold(self) -> None:
        """Let all events wait until `go_on`; return when no earlier one waits for the disk."""
        self._is_held = True
        self._listen()
        while self._working is not None:
            await asyncio.wait([self._working])

    async def go_on(self) -> None:
        """Handle events again; return when those that waited are handled."""
        self._is_held = False
        self._set_timer()
        self._handle_waiting()
        while self._working is not None:
            await asyncio.wait([self._working])

    def ordered(self, epoch: int) -> None:
        """Take an order to follow the same master in *epoch*, which is saved."""
        self._take(lambda: [*self._progress(), Ordered(epoch)])

    def refresh(self) -> None:
        """Handle bytes that other threads received."""
        if self._pumped is not None and self._is_listening:
            self._take(self._progress)

    def status(self) -> MasterStatus:
        """Return how things stand with the master."""
        self.refresh()
        machine = self.node.machine
        return MasterStatus(
            address=self.master,
            # While the disk works, the log differs from the machine's state.
            state=machine.state if self._working is None else self._state,
            acked_offset=machine.reported_offset,
            master_end=self._master_end,
            lag_bytes=max(self._master_end - machine.shared_end, 0),
            last_error=self.node.reason,
            halted_reason=self.node.halt_reason,
        )

    def has_caught_up(self, offset: int | None) -> bool:
        """Whether the log is known to be the master's up to *offset*; None: to the end that the
        master is known to have."""
        machine = self.node.machine
        if machine.state is not HaState.TRANSFER or self._master_end < 0:
            return False
        if self._working is not None:
            # The machine's decisions are not on the disk yet.
            return False
        held = min(machine.reported_offset, self._log.end_offset)
        return held >= (self._master_end if offset is None else offset)

    # ---- the connection

    async def _connect(self) -> None:
        host, port = self.master
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(self._options.handshake_ms / 1000):
                family, kind, number, _, address = (await self._resolve(host, port))[0]
                sock = make_socket(partial(socket.socket, family, kind, number))
                sock.setblocking(False)
                await self._loop.sock_connect(sock, address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The last connection may have ended before all that it appended was checked.
            await self._owner.work(self._log.check)
            self._connecting = None
            self._opened(sock)
        except Exception as error:
            # No caller awaits this task, so the error is handled here. The next attempt may
            # succeed, for example if there was no thread for the resolver.
            if sock is not None:
                sock.close()
            self._connecting = None
            self._refused(str(error) or "no answer in time")
        except BaseException:
            if sock is not None:
                sock.close()
            raise

    async def _resolve(self, host: str, port: int) -> Sequence[_Resolved]:
        with suppress(socket.gaierror):
            # A number needs no resolver, and no thread to wait for one.
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    def _refused(self, why: str) -> None:
        if self._is_over:
            return
        self.node.refused(
            f"cannot connect to {format_address(self.master)}: {why}",
            retry_after_ms=self._options.reconnect_ms,
            now_ms=now_ms(),
        )
        self._owner.changed()
        self._set_timer()

    def _opened(self, sock: socket.socket) -> None:
        if self._is_over:
            sock.close()
            return
        self._parser = ClassicDataParser() if self._protocol == "classic" else MasterFrameParser()
        self._link = Connection(
            self._loop,
            sock,
            read_bytes=_READ_BYTES,
            on_data=lambda data: self._take(partial(self._received, data)),
            on_drained=self._handle,
            on_lost=self._lost,
        )
        if not self._is_listening:
            self._link.pause()
        log().info("connected to master %s", format_address(self.master))
        self._handle(Opened())

    def _lost(self, reason: str) -> None:
        log().info("connection to %s lost: %s", format_address(self.master), reason)
        self._link = None
        self._handle(Closed())

    def _drop(self) -> None:
        self._awaited = None
        self._is_flushing = False
        if self._pumped is not None:
            pumped, self._pumped = self._pumped, None
            with suppress(StoreError):
                self._note(self._pump.stop(pumped))
        if self._link is not None:
            self._link.close()
            self._link = None

    # ---- the pump

    def _begin_receive(self) -> None:
        """Hand the connection over if that was requested and all sent bytes have left."""
        if self._link is None or self._link.unsent_bytes or not self.node.machine.is_receiving:
            return
        receive, self._awaited = self._awaited, None
        if receive is None:
            return
        label = {}
        if receive.epoch is not None:
            label = {"epoch": receive.epoch.epoch, "epoch_start": receive.epoch.start_offset}
        self._pumped = self._pump.receive(
            self._link.hand_over(),
            kind=self._kind,
            next_offset=receive.offset,
            acked_offset=receive.acked_offset,
            acked_epoch=receive.acked_epoch,
            is_checked=receive.is_checked,
            border=self._log.whole_end,
            ack_flushed=receive.ack_flushed,
            leftover=self._parser.release(),
            **label,
        )

    def _pump_ready(self) -> None:
        for report in self._pump.poll():
            self._take(partial(self._reported, report))
        if self._is_flushing:
            self._is_flushing = False
            # A connection that is the pump's waits for the disk by itself.
            self._take(lambda: [self._checked()] if self._pumped is None else [])

    def _reported(self, report: PumpReport) -> list[Event]:
        if report.link != self._pumped:
            return []
        self._note(report)
        return [_received(report)] if report.reason == "acked" else self._take_back(report)

    def _take_back(self, report: PumpReport) -> list[Event]:
        """Go on with the connection that the pump has handed back."""
        assert self._link is not None, "the pump holds the connection that is open"
        self._pumped = None
        self._link.take_back()
        self._link.send(report.unsent)
        match report.reason:
            case "closed":
                self._drop()
                return [Closed()]
            case "error":
                return [Failed(report.detail)]
            case "damaged":
                return [_received(report, ReceiveEnded), Damaged(report.offset, report.detail)]
        if report.leftover:
            self._waiting.appendleft(partial(self._received, report.leftover))
        return [_received(report, ReceiveEnded, has_leftover=bool(report.leftover))]

    def _progress(self) -> list[Event]:
        """Return the events of a pumped connection that come before all others."""
        if self._pumped is None:
            return []
        try:
            report = self._pump.progress(self._pumped)
        except ArgumentError:
            # It has just ended; that event is next.
            return []
        self._note(report)
        return [_received(report)]

    def _note(self, report: PumpReport) -> None:
        self._master_end = max(self._master_end, report.next_offset)
        # If the store refuses to record this, records are checked again.
        with suppress(StoreError):
            self._log.checked(report.border)

    # ---- frames

    def _received(self, data: bytes) -> list[Event]:
        if self._link is None:
            return []
        failure: list[Event] = []
        try:
            frames: list[Frame] = [*self._parser.feed(data)]
        except FrameError as error:
            frames = [*error.frames]
            failure.append(Failed(str(error)))
        for frame in frames:
            self._note_end(frame)
        return [*(FrameReceived(frame) for frame in frames), *failure]

    def _note_end(self, frame: Frame) -> None:
        match frame:
            case HandshakeReply(end_offset=end):
                self._master_end = end
            case ClassicData(offset, body) | Transfer(offset=offset, body=body):
                self._master_end = max(self._master_end, offset + len(body))

    # ---- events

    def _handle(self, *events: Event) -> None:
        """Send events to the machine, after the waiting events, and carry out their effects."""
        self._take(lambda: [*events])

    def _take(self, events: Callable[[], list[Event]]) -> None:
        """As `_handle`, with the events that *events* returns when it is their turn."""
        if not self._is_over:
            self._waiting.append(events)
            self._handle_waiting()

    def _handle_waiting(self) -> None:
        # Effects may lead back here.
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._waiting and self._working is None and not self._is_held:
                self._advance(self._handling(self._waiting.popleft()))
        finally:
            self._is_handling = False
        self._listen()

    def _advance(self, work: _Work[None], failure: BaseException | None = None) -> None:
        """Go on with *work* until it waits for the disk, or is done."""
        try:
            slow = next(work) if failure is None else work.throw(failure)
        except StopIteration:
            return
        self._working = self._owner.work(partial(self._log.carry_out, slow))
        self._working.add_done_callback(partial(self._worked, work))

    def _worked(self, work: _Work[None], done: asyncio.Future[None]) -> None:
        self._working = None
        if self._is_over or done.cancelled():
            work.close()
            return
        self._is_handling = True
        try:
            self._advance(work, done.exception())
        finally:
            self._is_handling = False
        self._handle_waiting()

    def _listen(self) -> None:
        """Read from connection and pump, unless events wait: later events must wait as well."""
        is_listening = not (self._is_over or self._is_held or self._working is not None)
        if is_listening == self._is_listening:
            return
        self._is_listening = is_listening
        if is_listening:
            self._loop.add_reader(self._pump.fileno(), self._pump_ready)
        else:
            self._loop.remove_reader(self._pump.fileno())
        if self._link is not None and is_listening:
            self._link.resume()
        elif self._link is not None:
            self._link.pause()

    def _handling(self, events_of: Callable[[], list[Event]]) -> _Work[None]:
        """Send events to the machine. Bytes of several frames are appended before the machine gets
        LogGrew, so that one acknowledgement covers them."""
        try:
            has_grown = False
            for event in events_of():
                effects = self.node.handle(event, now_ms())
                has_grown = (yield from self._carry_out(effects)) or has_grown
            while has_grown:
                effects = self.node.handle(self._checked(), now_ms())
                has_grown = yield from self._carry_out(effects)
            try:
                self._begin_receive()
            except StoreError as error:
                yield from self._carry_out(self.node.handle(Failed(str(error)), now_ms()))
        except Exception as error:
            self._fail(error)
            return
        self._set_timer()
        self._note_state()
        self._owner.moved()

    def _carry_out(self, effects: list[Effect]) -> _Work[bool]:
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
                failed = self.node.handle(Failed(str(error)), now_ms())
                return (yield from self._carry_out(failed))
            is_flushed = isinstance(effect, FlushLog) and not self._is_flushing
            has_grown |= isinstance(effect, Append) or is_flushed
            is_cut |= isinstance(effect, TruncateTo | Restart)
        if is_cut:
            # Whatever comes next counts on the cut.
            effects = self.node.handle(self._checked(), now_ms())
            return (yield from self._carry_out(effects)) or has_grown
        return has_grown

    def _checked(self) -> LogGrew | Damaged:
        damaged_at = self._log.check()
        return LogGrew() if damaged_at is None else Damaged(damaged_at, str(self._log.damage))

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(frame):
                if self._link is None:
                    return
                self._link.send(encode(frame))
                if self._link.unsent_bytes > _UNSENT_BYTES_MAX:
                    raise StoreError("the master reads no acknowledgements")
            case Receive():
                # A later frame withdraws the request: the machine then requests it again.
                self._awaited = effect
            case Heartbeat():
                if self._pumped is not None:
                    with suppress(ArgumentError):
                        self._pump.heartbeat(self._pumped)
            case Close(reason):
                log().info("connection to %s closed: %s", format_address(self.master), reason)
                self._drop()
            case Halt(reason):
                log().error("replication from %s halted: %s", format_address(self.master), reason)
                self._drop()
            case FlushLog():
                self._flush()
            case _:
                self._log.carry_out(effect)

    def _flush(self) -> None:
        """Start a flush of the log. This thread does not wait for it, because it serves
        `status`."""
        end = self._log.end_offset
        self._pump.flush(end)
        self._is_flushing = self._log.flushed_offset < end

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
            delay_ms = max(due - now_ms(), 0)
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._is_listening:
            # The timer is set again when the events that wait are handled.
            return
        connect_at = self.node.connect_at_ms
        if connect_at is None:
            self._take(lambda: [*self._progress(), Tick()])
        elif connect_at > now_ms():
            self._set_timer()
        elif self._connecting is None and self._link is None:
            self._connecting = self._loop.create_task(self._connect())


def _received(report: PumpReport, kind: type[Received] = Received, **more: bool) -> Received:
    return kind(
        next_offset=report.next_offset,
        acked_offset=report.acked_offset,
        acked_epoch=report.acked_epoch,
        heard_ms=report.heard_ms,
        wrote_ms=report.wrote_ms,
        confirm_offset=report.confirm_offset,
        **more,
    )
