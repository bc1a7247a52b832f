"""The part of a replica's process that all roles share, over a model disk and network.

The nodes and machines are production code. This module applies their effects, exchanges frames with
other replicas, and accepts puts while the replica is master. `replica` adds the roles.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rmqstore._native.core import Admission
from rmqstore.errors import PutError
from rmqstore.message import Durability, PutStatus
from rmqstore.replication.group.board import Step
from rmqstore.replication.group.group import Effect as GroupEffect
from rmqstore.replication.group.group import MasterGroup, Propose
from rmqstore.replication.group.node import (
    MasterNode,
    NodeEffect,
    SlaveNode,
    To,
)
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.protocol.events import (
    Append,
    Close,
    Closed,
    Damaged,
    Effect,
    Failed,
    FlushLog,
    FrameReceived,
    Halt,
    LogGrew,
    Opened,
    Restart,
    SaveEpochState,
    Send,
    SendLog,
    SetConfirm,
    Tick,
    TruncateTo,
)
from rmqstore.replication.protocol.frames import (
    ClassicDataParser,
    Frame,
    FrameError,
    MasterFrameParser,
    ReportParser,
    SlaveFrameParser,
    encode,
    encode_head,
)
from rmqstore.sim.board import Resolution, VirtualBoard
from rmqstore.sim.disk import Died, DiskError
from rmqstore.sim.host import DiskWait, Host, Link
from rmqstore.sim.network import End
from rmqstore.sim.witness import Put

__all__ = ["Service"]

_SETTLED = (Append, TruncateTo, Restart, FlushLog)
_CUTS = (TruncateTo, Restart)


class Service(Host):
    """Connections, effects and puts of the replica *number* of a group."""

    # ---- turns

    def _act(self, action: Callable[..., object], *args: Any) -> None:
        try:
            action(*args)
            self._arm()
        except Died:
            self._witness.on_death(self)
        except Exception as error:
            self._witness.on_error(self, error)

    def _go_on(self, moment: str, action: Callable[..., None], *args: Any) -> None:
        """Run the last action of a turn, unless the process is stopped before it."""
        self._witness.on_moment(self, moment)
        if self._is_stopped():
            self._put_off.append((self.life, action, args))
        else:
            action(*args)

    def _arm(self) -> None:
        process = self._now
        node = process.node
        if node is None:
            return
        due_ms = node.next_tick_ms()
        if due_ms is None or process.is_connecting:
            return
        due_us = max(self.clock.world_us(due_ms), self._timeline.now_us + 1000)
        if process.tick_us is None or due_us < process.tick_us:
            process.tick_us = due_us
            self._timeline.at(due_us, self._enter, self.life, self._tick, due_us)

    def _tick(self, planned_us: int) -> None:
        process = self._now
        if process.tick_us != planned_us:
            return
        process.tick_us = None
        now_ms = self.clock.monotonic_ms()
        node = process.node
        if isinstance(node, MasterNode):
            self._decide(node.tick)
        elif node is not None and node.connect_at_ms is None:
            self._do_slave(node.handle(Tick(), now_ms))
        elif node is not None and node.connect_at_ms is not None and now_ms >= node.connect_at_ms:
            process.is_connecting = True
            self._network.connect(self, process.master)

    # ---- connections

    def on_accepted(self, end: End) -> bool:
        if not self.is_up or self._now.roles.role != "master":
            return False
        self._enter(self.life, self._accept, end)
        return self.is_up

    def on_opened(self, end: End) -> None:
        if self.is_up:
            self._enter(self.life, self._open, end)
        else:
            end.close()

    def on_refused(self, target: int) -> None:
        self._enter(self.life, self._refused, target)

    def on_bytes(self, end: End, data: bytes) -> None:
        self._enter(self.life, self._receive, end, data)

    def on_writable(self, end: End) -> None:
        self._enter(self.life, self._writable, end)

    def on_closed(self, end: End) -> None:
        self._enter(self.life, self._closed, end)

    def _accept(self, end: End) -> None:
        node = self._now.node
        if not isinstance(node, MasterNode):
            end.close()
            return
        self._now.links[end.number] = Link(
            end, ReportParser() if self._shape.protocol == "classic" else SlaveFrameParser()
        )
        address = f"replica {end.peer.party.number}"
        self._decide(partial(node.accepted, end.number, address=address))

    def _open(self, end: End) -> None:
        process = self._now
        node = process.node
        is_wanted = process.is_connecting and end.peer.party.number == process.master
        if not isinstance(node, SlaveNode) or not is_wanted or not end.is_open:
            end.close()
            if is_wanted:
                self._refused(process.master)
            return
        process.is_connecting = False
        process.links[end.number] = Link(
            end, ClassicDataParser() if self._shape.protocol == "classic" else MasterFrameParser()
        )
        self._do_slave(node.handle(Opened(), self.clock.monotonic_ms()))

    def _refused(self, target: int) -> None:
        process = self._now
        if isinstance(process.node, SlaveNode) and process.is_connecting:
            if target == process.master:
                process.is_connecting = False
                process.node.refused(
                    "refused",
                    retry_after_ms=self._shape.options.reconnect_ms,
                    now_ms=self.clock.monotonic_ms(),
                )

    def _receive(self, end: End, data: bytes) -> None:
        link = self._now.links.get(end.number)
        if link is None or link.end is not end:
            return

        fault: FrameError | None = None
        frames: list[Frame] = []
        try:
            frames += link.parser.feed(data)
        except FrameError as error:
            fault = error
            frames += error.frames

        now_ms = self.clock.monotonic_ms()
        node = self._now.node

        if isinstance(node, MasterNode):
            for frame in frames:
                self._decide(partial(node.received, end.number, frame))
            if fault is not None:
                self._decide(partial(node.failed, end.number, str(fault)))
        elif node is not None:
            has_moved = False
            holds_back = len(frames) > 1 and self._network.rng.random() < 0.5
            for frame in frames:
                moved = self._carry_out(node.handle(FrameReceived(frame), now_ms))
                has_moved |= moved
                if has_moved and not holds_back:
                    self._handle_growth(node)
                    has_moved = False
            if has_moved:
                self._handle_growth(node)
            if fault is not None:
                self._do_slave(node.handle(Failed(str(fault)), now_ms))

            self._send_out()

    def _writable(self, end: End) -> None:
        node = self._now.node
        if isinstance(node, MasterNode) and end.number in self._now.links:
            self._decide(partial(node.writable, end.number))

    def _closed(self, end: End) -> None:
        link = self._now.links.get(end.number)
        if link is None or link.end is not end:
            return
        del self._now.links[end.number]
        node = self._now.node
        if isinstance(node, MasterNode):
            self._decide(partial(node.closed, end.number))
        elif node is not None:
            self._do_slave(node.handle(Closed(), self.clock.monotonic_ms()))

    def _drop(self, number: int) -> None:
        link = self._now.links.pop(number, None)
        if link is not None:
            link.end.flush()
            link.end.close()

    # ---- effects of a master

    def _change_group(self, change: Callable[[MasterGroup, int], list[GroupEffect]]) -> None:
        """Call *change* with the group and the time."""
        node = self.master_node
        assert node is not None
        self._decide(lambda now_ms: node.apply(change(node.group, now_ms)))

    def _decide(self, *steps: Step) -> None:
        """Run each step as a decision about the board; apply its effects."""
        board, node = self._now.board, self.master_node
        assert board is not None
        assert node is not None
        while steps:
            for step in steps:
                board.now_ms = self.clock.monotonic_ms()
                effects = board.decide(step)
                self._follow_board(board)
                self._carry_out_master(effects)
            steps = tuple(
                partial(node.writable, number)
                for number in self._written()
                if number in self._now.links
            )

    def _follow_board(self, board: VirtualBoard[int]) -> None:
        """Apply the board's confirm offset, and answer the puts that the board has resolved."""
        if board is self._now.board:
            if self.log.is_gated and board.confirm_offset > self.log.confirm_offset:
                self.log.confirm_offset = board.confirm_offset
            self._witness.on_confirmed(self)
        # After the confirm offset: a put can be read when its caller is answered.
        for each in board.resolved():
            self._resolve(each)

    def _carry_out_master(self, effects: Iterable[NodeEffect]) -> None:
        failed: dict[int, str] = {}
        for effect in effects:
            match effect:
                case To(connection, reply) if connection not in failed:
                    try:
                        self._to_slave(connection, reply)
                    except DiskError as error:
                        failed[connection] = str(error)
                case Propose(proposal):
                    self._witness.on_moment(self, "propose")
                    self._propose(proposal)
        node = self.master_node
        if failed and node is not None:
            self._decide(*(partial(node.failed, at, why) for at, why in failed.items()))

    @abstractmethod
    def _propose(self, proposal: Proposal) -> None:
        """Take a set to the controllers."""

    def _to_slave(self, connection: int, effect: Effect) -> None:
        link = self._now.links.get(connection)
        match effect:
            case SendLog(offset, size, header):
                if link is not None:
                    self._witness.on_frame(self, header, link.end)
                    body = self.log.read(offset, size)
                    link.end.write(encode_head(header, body))
                    link.end.write(body)
            case Send(frame):
                if link is not None:
                    self._witness.on_frame(self, frame, link.end)
                    link.end.write(encode(frame))
            case SaveEpochState():
                self._change_log(effect)
            case Close(reason):
                self._witness.say(f"master {self.number} closes {connection}: {reason}")
                self._drop(connection)
            case _:
                raise AssertionError(f"a master cannot send {effect} to a slave")

    def _written(self) -> list[int]:
        """Send written bytes; return the connections without unsent bytes."""
        found = []
        for number, link in list(self._now.links.items()):
            if link.end.has_output and link.end.flush():
                found.append(number)
        return found

    # ---- effects of a slave

    def _do_slave(self, effects: list[Effect]) -> None:
        node = self._now.node
        assert isinstance(node, SlaveNode)
        if self._carry_out(effects):
            self._handle_growth(node)
        self._send_out()

    def _handle_growth(self, node: SlaveNode) -> None:
        damaged_at = self.log.check()
        now_ms = self.clock.monotonic_ms()
        if damaged_at is not None:
            self._witness.say(f"slave {self.number} finds damage at {damaged_at}")
            has_changed = self._carry_out(node.handle(Damaged(damaged_at), now_ms))
        else:
            has_changed = self._carry_out(node.handle(LogGrew(), now_ms))
        if has_changed:
            self._handle_growth(node)

    def _send_out(self) -> None:
        for link in self._now.links.values():
            if link.end.has_output:
                link.end.flush()

    def _carry_out(self, effects: list[Effect]) -> bool:
        """Apply a slave's effects; return whether the log has changed."""
        if not effects:
            return False
        has_changed = False

        for effect in effects:
            match effect:
                case Send(frame):
                    for link in self._now.links.values():
                        self._witness.on_frame(self, frame, link.end)
                        link.end.write(encode(frame))
                case Close(reason) | Halt(reason):
                    self._witness.say(f"slave {self.number}: {type(effect).__name__}: {reason}")
                    for number in list(self._now.links):
                        self._drop(number)
                case _:
                    try:
                        self._change_log(effect)
                    except DiskError as error:
                        node = self._now.node
                        assert isinstance(node, SlaveNode)
                        failed = node.handle(Failed(str(error)), self.clock.monotonic_ms())
                        return self._carry_out(failed) or has_changed
                    has_changed |= isinstance(effect, _SETTLED)

        node = self._now.node
        if isinstance(node, SlaveNode):
            self._now.roles.note_synced(node.machine.synced_epoch)
        # Not earlier: when the confirm offset decreases, a cut follows.
        self._witness.on_confirmed(self)
        return has_changed

    def _change_log(self, effect: Effect) -> None:
        if not isinstance(effect, SetConfirm):
            self._witness.on_change(self, effect)
            if isinstance(effect, _CUTS):
                self._witness.on_cut(self, effect.offset)
        self.log.carry_out(effect)
        self._log_moved()

    def _log_moved(self) -> None:
        """Let the board follow the log immediately, as a store's board does."""
        board = self._now.board
        if board is not None:
            board.now_ms = self.clock.monotonic_ms()
            board.follow_log()
            self._follow_board(board)

    # ---- puts

    def put(self, puts: list[Put]) -> None:
        """Accept puts if the role allows them; otherwise refuse them."""
        node = self._now.node
        if not self.takes_puts:
            for put in puts:
                self._answer(put, PutStatus.SERVICE_NOT_AVAILABLE, 0)
            return
        assert isinstance(node, MasterNode), "puts are accepted without a master that counts copies"
        if puts:
            self._admit(puts[0], puts[1:])
            return
        self._decide(node.log_grew)
        is_wanted = self._shape.is_durable or bool(self._now.disk_waits)
        if is_wanted and not self._now.is_flush_due:
            self._now.is_flush_due = True
            sync_us = self._shape.sync_ms * 1000
            self._timeline.after(sync_us, self._enter, self.life, self._flush, False)

    def _admit(self, put: Put, others: list[Put]) -> None:
        board = self._now.board
        assert board is not None
        is_replicated = put.durability is Durability.REPLICATED
        board.now_ms = self.clock.monotonic_ms()
        try:
            admission = board.admit(
                put.copies if is_replicated else None, is_replicated=is_replicated
            )
        except PutError as error:
            self._answer(put, PutStatus(error.status), 0)
            self.put(others)
            return
        self._go_on("append", self._append, board, put, admission, others)

    def _append(
        self, board: VirtualBoard[int], put: Put, admission: Admission, others: list[Put]
    ) -> None:
        try:
            put.record = self.log.put(
                number=put.number,
                epoch=self.epoch,
                queue=put.queue,
                size=put.size,
                wall_ms=self.clock.wall_ms(),
            )
        except DiskError:
            self._answer(put, PutStatus.SERVICE_NOT_AVAILABLE, 0)
            self.put(others)
            return
        put.master, put.life = self.number, self.life
        self._go_on("put", self._wait, board, put, admission, others)

    def _wait(
        self, board: VirtualBoard[int], put: Put, admission: Admission, others: list[Put]
    ) -> None:
        assert put.record is not None
        # If the role has ended since the admission, the board resolves the put immediately.
        now_ms = board.now_ms = self.clock.monotonic_ms()
        if put.durability is Durability.MEMORY:
            self._answer(put, admission.acknowledge(), 1)
        elif put.durability is Durability.DISK:
            self._now.disk_waits.append(DiskWait(put, admission))
        else:
            self._now.puts[put.number] = put, admission
            board.wait(put.number, admission, put.record.physical_offset + put.record.size)
            self._follow_board(board)
            due_us = self.clock.world_us(now_ms + self._shape.quorum.timeout_ms)
            self._timeline.at(due_us, self._enter, self.life, self._expire_put, put.number)
        self.put(others)

    def _expire_put(self, number: int) -> None:
        board = self._now.board
        resolution = None if board is None else board.expire(number)
        if resolution is not None:
            self._resolve(resolution)

    def _resolve(self, resolution: Resolution[int]) -> None:
        put, admission = self._now.puts.pop(resolution.token)
        assert put.record is not None
        end = put.record.physical_offset + put.record.size
        is_ok = resolution.status is PutStatus.PUT_OK
        if is_ok and self._shape.is_durable and self.log.flushed_offset < end:
            self._now.disk_waits.append(DiskWait(put, admission, resolution.copies))
        else:
            status = admission.acknowledge() if is_ok else resolution.status
            self._answer(put, status, resolution.copies)

    def _flush(self, is_periodic: bool) -> None:
        if is_periodic:
            self._timeline.after(
                self._shape.flush_ms * 1000, self._enter, self.life, self._flush, True
            )
        else:
            self._now.is_flush_due = False
        if self.log.flushed_offset == self.log.end_offset and not self._now.disk_waits:
            return
        self.log.flush()
        self._log_moved()
        self._witness.on_confirmed(self)
        self._go_on("flushed", self._flushed)

    def _flushed(self) -> None:
        waits, self._now.disk_waits = self._now.disk_waits, []
        node = self._now.node
        if isinstance(node, MasterNode):
            self._decide(node.log_grew)
            for wait in waits:
                self._answer(wait.put, wait.admission.acknowledge(), wait.copies)
        elif node is not None:
            self._do_slave(node.handle(LogGrew(), self.clock.monotonic_ms()))

    def _answer(self, put: Put, status: PutStatus, copies: int) -> None:
        put.status = status
        self._witness.on_answer(self, put, copies)

    # ---- upkeep

    def expire(self) -> None:
        """Delete the oldest log file, if it is confirmed and not one of the last two."""
        log = self.log
        end = log.file_end(log.start_offset)
        if end + log.file_size > min(log.whole_end, self.visible_end, log.flushed_offset):
            return
        self._witness.on_moment(self, "expire")
        self._witness.say(f"replica {self.number} deletes its log before {end}")
        try:
            log.expire(end)
        except DiskError as error:
            self._witness.say(f"replica {self.number} cannot: {error}")
            return
        node = self._now.node
        if isinstance(node, MasterNode):
            self._decide(node.log_grew)
