"""A slave at work: its connection to the master, and what the machine asks of the log.

Once the log is known to be the master's, the connection is the pump's: it appends, checks and
acknowledges until it meets what is not for it, and hands the connection back.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial

from rmqstore._native.core import HaReport
from rmqstore.errors import ArgumentError, StoreError
from rmqstore.replication.events import (
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
    Receive,
    Received,
    ReceiveEnded,
    Restart,
    Send,
    Tick,
    TruncateTo,
)
from rmqstore.replication.frames import (
    ClassicData,
    ClassicDataParser,
    Frame,
    FrameError,
    HandshakeReply,
    MasterFrameParser,
    Transfer,
    encode,
)
from rmqstore.replication.links import (
    Address,
    Link,
    log,
    make_pump,
    make_socket,
    now_ms,
    told,
)
from rmqstore.replication.log import StoreLog
from rmqstore.replication.node import HaProtocol, SlaveNode
from rmqstore.replication.serving import Owner
from rmqstore.replication.status import MasterStatus
from rmqstore.store import Store

__all__ = ["SlaveSide"]

_READ_BYTES = 256 * 1024
_UNSENT_BYTES_MAX = 64 * 1024


class SlaveSide:
    """The slave's role of one store under one master; all calls on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
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
        self._link: Link | None = None
        self._parser: ClassicDataParser | MasterFrameParser = MasterFrameParser()
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_over = False
        self._pump = make_pump(store)
        self._pumped: int | None = None
        """The pump's link while the connection is its."""
        self._awaited: Receive | None = None
        """What begins once all that was sent has left."""
        self._is_flushing = False
        """The machine waits for the disk; the pump tells when a sync is over."""
        self._is_last = True
        self._state = HaState.READY
        self._master_end = -1
        self.node = node
        self.master = master
        loop.add_reader(self._pump.fileno(), self._pump_told)

    # ---- the role

    def begin(self) -> None:
        """Connect, and go on until `stop`."""
        self._set_timer()

    def stop(self) -> None:
        """End the role; on return nothing touches the log any more."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._drop()
        self._loop.remove_reader(self._pump.fileno())
        self._pump.close()

    def ordered(self, epoch: int) -> None:
        """Take an order to follow the same master in *epoch*, which is saved."""
        self._tell(*self._progress(), Ordered(epoch))

    def refresh(self) -> None:
        """Take in what was received by others than this thread."""
        if self._pumped is not None:
            self._tell(*self._progress())

    def status(self) -> MasterStatus:
        """Return how things stand with the master."""
        self.refresh()
        machine = self.node.machine
        return MasterStatus(
            address=self.master,
            state=machine.state,
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
        held = min(machine.reported_offset, self._log.end_offset)
        return held >= (self._master_end if offset is None else offset)

    # ---- the connection

    async def _connect(self) -> None:
        host, port = self.master
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(self._options.handshake_ms / 1000):
                found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                family, kind, number, _, address = found[0]
                sock = make_socket(partial(socket.socket, family, kind, number))
                sock.setblocking(False)
                await self._loop.sock_connect(sock, address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connecting = None
            self._opened(sock)
        except Exception as error:
            # Nobody awaits this task. Whatever it was, no thread for the resolver, say, may be
            # better the next time.
            if sock is not None:
                sock.close()
            self._connecting = None
            self._refused(str(error) or "no answer in time")
        except BaseException:
            if sock is not None:
                sock.close()
            raise

    def _refused(self, why: str) -> None:
        if self._is_over:
            return
        self.node.refused(
            f"cannot connect to {told(self.master)}: {why}",
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
        self._link = Link(
            self._loop,
            sock,
            read_bytes=_READ_BYTES,
            on_data=self._received,
            on_drained=self._tell,
            on_lost=self._lost,
        )
        log().info("connected to master %s", told(self.master))
        self._tell(Opened())

    def _lost(self, reason: str) -> None:
        log().info("connection to %s lost: %s", told(self.master), reason)
        self._link = None
        self._tell(Closed())

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
        """Hand the connection over where that was asked for, and all that was sent has left."""
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

    def _pump_told(self) -> None:
        for report in self._pump.poll():
            if report.link != self._pumped:
                continue
            self._note(report)
            if report.reason == "acked":
                self._tell(_received(report))
            else:
                self._take_back(report)
        if self._is_flushing:
            self._is_flushing = False
            # A connection that is the pump's waits for the disk by itself.
            if self._pumped is None:
                self._tell(self._checked())

    def _take_back(self, report: HaReport) -> None:
        """Go on with the connection that the pump has handed back."""
        assert self._link is not None, "the pump holds the connection that is open"
        self._pumped = None
        self._link.take_back()
        self._link.send(report.unsent)
        has_leftover = bool(report.leftover)
        match report.reason:
            case "closed":
                self._drop()
                self._tell(Closed())
            case "error":
                self._tell(Failed(report.detail))
            case "damaged":
                damage = Damaged(report.offset, report.detail)
                self._tell(_received(report, ReceiveEnded), damage)
            case _:
                self._tell(_received(report, ReceiveEnded, has_leftover=has_leftover))
                if has_leftover and self._link is not None:
                    self._received(report.leftover)

    def _progress(self) -> list[Event]:
        """Return what the machine is told of a pumped connection before anything else."""
        if self._pumped is None:
            return []
        try:
            report = self._pump.progress(self._pumped)
        except ArgumentError:
            # It has just ended; that is told next.
            return []
        self._note(report)
        return [_received(report)]

    def _note(self, report: HaReport) -> None:
        self._master_end = max(self._master_end, report.next_offset)
        # Where the store refuses to take note, records are checked again.
        with suppress(StoreError):
            self._log.checked(report.border)

    # ---- frames

    def _received(self, data: bytes) -> None:
        events: list[Event] = []
        try:
            frames: list[Frame] = [*self._parser.feed(data)]
        except FrameError as error:
            frames = [*error.frames]
            events.append(Failed(str(error)))
        for frame in frames:
            self._note_end(frame)
        self._tell(*(FrameReceived(frame) for frame in frames), *events)

    def _note_end(self, frame: Frame) -> None:
        match frame:
            case HandshakeReply(end_offset=end):
                self._master_end = end
            case ClassicData(offset, body) | Transfer(offset=offset, body=body):
                self._master_end = max(self._master_end, offset + len(body))

    # ---- events

    def _tell(self, *events: Event) -> None:
        """Tell the machine events and carry out what follows. Bytes of several frames are appended
        before the machine hears that the log grew, so that one acknowledgement stands for them."""
        if self._is_over:
            return
        try:
            has_grown = False
            for at, event in enumerate(events):
                # What is asked for before all that has come is told is asked for anew behind it.
                self._is_last = at == len(events) - 1
                has_grown = self._carry_out(self.node.tell(event, now_ms())) or has_grown
            self._is_last = True
            while has_grown:
                has_grown = self._carry_out(self.node.tell(self._checked(), now_ms()))
            try:
                self._begin_receive()
            except StoreError as error:
                self._carry_out(self.node.tell(Failed(str(error)), now_ms()))
        except Exception as error:
            self._owner.failed(error)
            return
        self._set_timer()
        self._note_state()
        self._owner.moved()

    def _carry_out(self, effects: list[Effect]) -> bool:
        """Carry *effects* out until one fails; tell whether the machine is to hear of the log."""
        has_grown = is_cut = False
        for effect in effects:
            try:
                self._do(effect)
            except StoreError as error:
                log().warning("master %s: %s", told(self.master), error)
                return self._carry_out(self.node.tell(Failed(str(error)), now_ms()))
            is_flushed = isinstance(effect, FlushLog) and not self._is_flushing
            has_grown |= isinstance(effect, Append) or is_flushed
            is_cut |= isinstance(effect, TruncateTo | Restart)
        if is_cut:
            # Whatever comes next counts on the cut.
            return self._carry_out(self.node.tell(self._checked(), now_ms())) or has_grown
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
                self._awaited = effect if self._is_last else None
            case Heartbeat():
                if self._pumped is not None:
                    with suppress(ArgumentError):
                        self._pump.heartbeat(self._pumped)
            case Close(reason):
                log().info("connection to %s closed: %s", told(self.master), reason)
                self._drop()
            case Halt(reason):
                log().error("replication from %s halted: %s", told(self.master), reason)
                self._drop()
            case FlushLog():
                self._flush()
            case _:
                self._log.carry_out(effect)

    def _flush(self) -> None:
        """Have the log brought to the disk, for which this thread, whom everybody asks how things
        stand, does not wait."""
        end = self._log.end_offset
        self._pump.flush(end)
        self._is_flushing = self._log.flushed_offset < end

    def _note_state(self) -> None:
        state = self.node.machine.state
        if state is not self._state:
            self._state = state
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
        connect_at = self.node.connect_at_ms
        if connect_at is None:
            self._tell(*self._progress(), Tick())
        elif connect_at > now_ms():
            self._set_timer()
        elif self._connecting is None and self._link is None:
            self._connecting = self._loop.create_task(self._connect())


def _received(report: HaReport, kind: type[Received] = Received, **more: bool) -> Received:
    return kind(
        next_offset=report.next_offset,
        acked_offset=report.acked_offset,
        acked_epoch=report.acked_epoch,
        heard_ms=report.heard_ms,
        wrote_ms=report.wrote_ms,
        confirm_offset=report.confirm_offset,
        **more,
    )
