"""One replica: what `rmqstore.replication.service` is to a store, over a model disk and network.

The nodes and machines are the real ones. Around them a process, which `host` starts, speaks to the
controller, takes roles, carries effects out, and takes puts while it is master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rmqstore.errors import ArgumentError, Fenced
from rmqstore.message import Durability, PutStatus
from rmqstore.replication.epoch_state import epoch_to_begin, known_epoch
from rmqstore.replication.events import (
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
    Ordered,
    Restart,
    SaveEpochState,
    Send,
    SendLog,
    SetConfirm,
    Tick,
    TruncateTo,
)
from rmqstore.replication.frames import (
    Frame,
    FrameError,
    MasterFrameParser,
    SlaveFrameParser,
    encode,
    encode_head,
)
from rmqstore.replication.group import ConfirmMoved, MasterGroup, Propose, Resolved
from rmqstore.replication.node import (
    MasterNode,
    NodeEffect,
    SlaveNode,
    To,
    steps_to_master,
    steps_to_slave,
)
from rmqstore.replication.quorum import Admission, Lease, Resolution
from rmqstore.replication.watermark import Watermark
from rmqstore.sim.controller import CONTROLLER, Controller, View
from rmqstore.sim.disk import Died, DiskError
from rmqstore.sim.host import DiskWait, Host, Link
from rmqstore.sim.network import End
from rmqstore.sim.operator import Answer, Operator
from rmqstore.sim.witness import Put

__all__ = ["Replica"]

_SETTLED = (Append, TruncateTo, Restart, FlushLog)
_CUTS = (TruncateTo, Restart)


class Replica(Host):
    """The replica *number* of a group."""

    controller: Controller

    # ---- turns

    def _begin(self) -> None:
        self._heartbeat(self.life)
        self._timeline.after(self._shape.flush_ms * 1000, self._enter, self.life, self._flush, True)

    def _act(self, action: Callable[..., None], *args: Any) -> None:
        try:
            action(*args)
            self._arm()
        except Died:
            self._witness.on_death(self)
        except Exception as error:
            self._witness.on_error(self, error)

    def _go_on(self, what: str, action: Callable[..., None], *args: Any) -> None:
        """Do the last thing of a turn, unless the process is stopped before it."""
        self._witness.on_moment(self, what)
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
            self._do(node.tick(now_ms))
        elif node is not None and node.connect_at_ms is None:
            self._do_slave(node.tell(Tick(), now_ms))
        elif node is not None and node.connect_at_ms is not None and now_ms >= node.connect_at_ms:
            process.is_connecting = True
            self._network.connect(self, process.master)

    # ---- the controller

    def _heartbeat(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        if self._timeline.now_us >= self.paused_until_us:
            self._network.send(
                self.number,
                CONTROLLER,
                self.controller.hear,
                self.number,
                life,
                self.log.whole_end,
                self.epoch,
                self.clock.monotonic_ms(),
            )
        self._timeline.after(self._shape.heartbeat_ms * 1000, self._heartbeat, life)

    def on_view(self, life: int, view: View) -> None:
        """Take the controller's word."""
        self._enter(life, self._follow_view, view)

    def on_late_view(self, view: View) -> None:
        """Take an order that may be meant for an earlier life."""
        self._enter(self.life, self._follow_view, view)

    def on_asked(self, life: int, ballot: int, ends_masters: bool) -> None:
        """Be compared with other replicas."""
        self._enter(life, self._compare, ballot, ends_masters)

    def on_refused_set(self, life: int, epoch: int, number: int) -> None:
        """Learn that a proposal was turned down."""
        self._enter(life, self._refuse_set, epoch, number)

    def _follow_view(self, view: View) -> None:
        process = self._now
        if view.master == 0 or view.epoch < max(known_epoch(self.log), self.asked_for):
            return
        node = process.node
        self.asked_for = -1
        is_other = (view.epoch, view.master) != (process.epoch, process.master)
        if view.order > process.order and is_other:
            if view.master == self.number:
                self._become_master(view)
            else:
                self._become_slave(view)
        elif (
            self._shape.has_set
            and isinstance(node, MasterNode)
            and view.set_epoch > node.group.sync_state_set.set_epoch
        ):
            now_ms = self.clock.monotonic_ms()
            confirmed = node.group.confirm_set(
                view.members, set_epoch=view.set_epoch, now_ms=now_ms
            )
            self._do(node.apply(confirmed))
        node = self._now.node
        if isinstance(node, MasterNode) and view.asked_ms >= 0 and view.epoch == self.epoch:
            node.group.writer.lease.renewed(asked_ms=view.asked_ms)

    def _compare(self, ballot: int, ends_masters: bool) -> None:
        operator, log = self.controller, self.log
        assert isinstance(operator, Operator)
        if ballot < max(self._now.epoch, self.asked_for):
            return
        if self.master_node is None or ends_masters:
            self._leave()
        self.asked_for = ballot
        last_epoch = log.epochs[-1].epoch if log.epochs else -1
        found = Answer(last_epoch, log.whole_end, self.master_node is not None)
        self._network.send(
            self.number, CONTROLLER, operator.answer, self.number, self.life, ballot, found
        )

    def _refuse_set(self, epoch: int, number: int) -> None:
        node = self._now.node
        if isinstance(node, MasterNode) and epoch == self.epoch:
            self._do(node.apply(node.group.refuse_proposal(number, self.clock.monotonic_ms())))

    # ---- roles

    def may_lead_again(self) -> bool:
        """Tell whether the program, started again without an epoch, becomes master."""
        try:
            epoch_to_begin(
                self.log,
                None,
                begun_epoch=-1,
                others_asked=False,
                allow_jump=False,
                place=str(self.number),
            )
        except ArgumentError as error:
            self._witness.say(f"replica {self.number} does not lead again: {error}")
            return False
        return True

    def _become_master(self, view: View) -> None:
        process, log = self._now, self.log
        node = process.node
        now_ms = self.clock.monotonic_ms()
        if not isinstance(node, MasterNode):
            # As a replicated store does: its sync-state set of that epoch may be another by now.
            if log.epochs and log.epochs[-1].epoch == view.epoch:
                self._witness.say(f"replica {self.number} was master of epoch {view.epoch} before")
                return
            self._leave()
        try:
            steps = steps_to_master(
                log,
                epoch=view.epoch,
                whole_end=log.whole_end,
                is_promise=self._shape.quorum.is_promise(self._shape.mode),
            )
            for step in steps:
                self._change_log(step)
        except DiskError as error:
            self._witness.say(f"replica {self.number} cannot become master: {error}")
            return
        except Fenced as error:
            self._witness.say(f"replica {self.number} is fenced: {error}")
            return
        if not isinstance(node, MasterNode):
            log.settle()
            group: MasterGroup[int] = MasterGroup(
                self.number,
                Watermark(
                    confirm_offset=log.confirm_offset,
                    start_offset=log.start_offset,
                    end_offset=log.end_offset,
                ),
                self._shape.quorum,
                self._shape.mode,
                lease=Lease(self._shape.lease_ms),
            )
            node = MasterNode(
                log,
                group,
                protocol="autoswitch",
                broker_id=self.number,
                options=self._shape.options,
            )
        process.node, process.epoch, process.master = node, view.epoch, self.number
        process.order = view.order
        self._witness.on_master(self)
        self._witness.on_moment(self, "lead")
        begun = node.group.become_master(
            view.epoch,
            end_offset=log.end_offset,
            now_ms=now_ms,
            members=view.members,
            set_epoch=view.set_epoch,
        )
        self._do(node.apply(begun))
        self._do(node.log_grew(now_ms))

    def _become_slave(self, view: View) -> None:
        process = self._now
        node = process.node
        try:
            for step in steps_to_slave(self.log, epoch=view.epoch):
                self._change_log(step)
        except DiskError as error:
            self._witness.say(f"replica {self.number} cannot take its order: {error}")
            return
        process.order = view.order
        if isinstance(node, SlaveNode) and process.master == view.master:
            process.epoch = view.epoch
            self._do_slave(node.tell(Ordered(view.epoch), self.clock.monotonic_ms()))
            return
        self._leave()
        process.node = SlaveNode(
            self.log,
            protocol="autoswitch",
            broker_id=self.number,
            options=self._shape.options,
            is_learner=self.is_learner,
            may_begin_anew=True,
        )
        process.epoch, process.master = view.epoch, view.master
        self._witness.say(f"replica {self.number} follows {view.master} in epoch {view.epoch}")

    def _leave(self) -> None:
        """End the role that there is."""
        process = self._now
        node, process.node = process.node, None
        if isinstance(node, MasterNode):
            stopped = node.group.stop()
            for effect in node.apply(stopped):
                if isinstance(effect, Resolved):
                    self._resolve(effect.resolution)
            for wait in process.disk_waits:
                self._answer(wait.put, PutStatus.FLUSH_DISK_TIMEOUT, 1)
            process.disk_waits.clear()
        for number in list(process.links):
            self._drop(number)
        process.is_connecting = False
        process.tick_us = None

    # ---- connections

    def on_accepted(self, end: End) -> bool:
        if not self.is_up or self.master_node is None:
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
        self._now.links[end.number] = Link(end, SlaveFrameParser())
        self._do(node.accepted(end.number, self.clock.monotonic_ms()))

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
        process.links[end.number] = Link(end, MasterFrameParser())
        self._do_slave(node.tell(Opened(), self.clock.monotonic_ms()))

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
                self._do(node.received(end.number, frame, now_ms))
            if fault is not None:
                self._do(node.failed(end.number, str(fault), now_ms))
        elif node is not None:
            has_moved = False
            holds_back = len(frames) > 1 and self._network.rng.random() < 0.5
            for frame in frames:
                moved = self._carry_out(node.tell(FrameReceived(frame), now_ms))
                has_moved |= moved
                if has_moved and not holds_back:
                    self._tell_growth(node)
                    has_moved = False
            if has_moved:
                self._tell_growth(node)
            if fault is not None:
                self._do_slave(node.tell(Failed(str(fault)), now_ms))
            self._send_out()

    def _writable(self, end: End) -> None:
        node = self._now.node
        if isinstance(node, MasterNode) and end.number in self._now.links:
            self._do(node.writable(end.number, self.clock.monotonic_ms()))

    def _closed(self, end: End) -> None:
        link = self._now.links.get(end.number)
        if link is None or link.end is not end:
            return
        del self._now.links[end.number]
        node = self._now.node
        if isinstance(node, MasterNode):
            self._do(node.closed(end.number, self.clock.monotonic_ms()))
        elif node is not None:
            self._do_slave(node.tell(Closed(), self.clock.monotonic_ms()))

    def _drop(self, number: int) -> None:
        link = self._now.links.pop(number, None)
        if link is not None:
            link.end.flush()
            link.end.close()

    # ---- effects of a master

    def _do(self, effects: list[NodeEffect[int]]) -> None:
        node = self._now.node
        assert isinstance(node, MasterNode)
        while effects:
            self._carry_out_master(effects)
            effects = []
            for number in self._written():
                if number in self._now.links:
                    effects += node.writable(number, self.clock.monotonic_ms())

    def _carry_out_master(self, effects: Iterable[NodeEffect[int]]) -> None:
        for effect in effects:
            match effect:
                case To(connection, told):
                    self._tell_slave(connection, told)
                case ConfirmMoved(offset):
                    self.log.confirm_offset = offset
                    self._witness.on_confirmed(self)
                case Resolved(resolution):
                    self._resolve(resolution)
                case Propose(proposal):
                    self._witness.on_moment(self, "propose")
                    self._network.send(
                        self.number,
                        CONTROLLER,
                        self.controller.propose,
                        self.number,
                        self.life,
                        self.epoch,
                        proposal,
                    )
                case _:
                    raise AssertionError(f"a master cannot do {effect}")

    def _tell_slave(self, connection: int, effect: Effect) -> None:
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
                try:
                    self._change_log(effect)
                except DiskError as error:
                    node = self.master_node
                    assert node is not None, "a master has connections"
                    failed = node.failed(connection, str(error), self.clock.monotonic_ms())
                    self._carry_out_master(failed)
            case Close(reason):
                self._witness.say(f"master {self.number} closes {connection}: {reason}")
                self._drop(connection)
            case _:
                raise AssertionError(f"a master cannot tell a slave {effect}")

    def _written(self) -> list[int]:
        """Send what was written; return the connections of which all has left."""
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
            self._tell_growth(node)
        self._send_out()

    def _tell_growth(self, node: SlaveNode) -> None:
        damaged_at = self.log.check()
        now_ms = self.clock.monotonic_ms()
        if damaged_at is not None:
            self._witness.say(f"slave {self.number} finds damage at {damaged_at}")
            has_changed = self._carry_out(node.tell(Damaged(damaged_at), now_ms))
        else:
            has_changed = self._carry_out(node.tell(LogGrew(), now_ms))
        if has_changed:
            self._tell_growth(node)

    def _send_out(self) -> None:
        for link in self._now.links.values():
            if link.end.has_output:
                link.end.flush()

    def _carry_out(self, effects: list[Effect]) -> bool:
        """Carry a slave's effects out; return whether the log has changed."""
        if not effects:
            return False
        has_changed = False
        for effect in effects:
            match effect:
                case Send(frame):
                    for link in self._now.links.values():
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
                        failed = node.tell(Failed(str(error)), self.clock.monotonic_ms())
                        return self._carry_out(failed) or has_changed
                    has_changed |= isinstance(effect, _SETTLED)
        # Not before: where the confirm offset goes back, a cut follows.
        self._witness.on_confirmed(self)
        return has_changed

    def _change_log(self, effect: Effect) -> None:
        if not isinstance(effect, SetConfirm):
            self._witness.on_change(self, effect)
            if isinstance(effect, _CUTS):
                self._witness.on_cut(self, effect.offset)
        self.log.carry_out(effect)

    # ---- puts

    def put(self, puts: list[Put]) -> None:
        """Take puts while being master; all others are refused."""
        node = self._now.node
        if not isinstance(node, MasterNode):
            for put in puts:
                self._answer(put, PutStatus.SERVICE_NOT_AVAILABLE, 0)
            return
        if puts:
            self._admit(node, puts[0], puts[1:])
            return
        self._do(node.log_grew(self.clock.monotonic_ms()))
        is_wanted = self._shape.is_durable or bool(self._now.disk_waits)
        if is_wanted and not self._now.is_flush_due:
            self._now.is_flush_due = True
            sync_us = self._shape.sync_ms * 1000
            self._timeline.after(sync_us, self._enter, self.life, self._flush, False)

    def _admit(self, node: MasterNode[int], put: Put, others: list[Put]) -> None:
        is_replicated = put.durability is Durability.REPLICATED
        admission = node.group.admit(
            now_ms=self.clock.monotonic_ms(),
            is_replicated=is_replicated,
            copies=put.copies if is_replicated else None,
        )
        if admission.status is not PutStatus.PUT_OK:
            self._answer(put, admission.status, 0)
            self.put(others)
            return
        self._go_on("append", self._append, node, put, admission, others)

    def _append(
        self, node: MasterNode[int], put: Put, admission: Admission, others: list[Put]
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
        self._go_on("put", self._wait, node, put, admission, others)

    def _wait(
        self, node: MasterNode[int], put: Put, admission: Admission, others: list[Put]
    ) -> None:
        assert put.record is not None
        now_ms = self.clock.monotonic_ms()
        if put.durability is Durability.MEMORY:
            self._answer(put, node.group.acknowledge(self.clock.monotonic_ms()), 1)
        elif put.durability is Durability.DISK:
            self._now.disk_waits.append(DiskWait(put))
        else:
            self._now.puts[put.number] = put
            waiting = node.group.wait(
                put.number,
                admission,
                end_offset=put.record.physical_offset + put.record.size,
                now_ms=now_ms,
            )
            self._carry_out_master(node.apply(waiting))
        self.put(others)

    def _resolve(self, resolution: Resolution[int]) -> None:
        put = self._now.puts.pop(resolution.token)
        assert put.record is not None
        end = put.record.physical_offset + put.record.size
        is_ok = resolution.status is PutStatus.PUT_OK
        if is_ok and self._shape.is_durable and self.log.flushed_offset < end:
            self._now.disk_waits.append(DiskWait(put, resolution.copies))
        else:
            self._answer(put, resolution.status, resolution.copies)

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
        self._witness.on_confirmed(self)
        self._go_on("flushed", self._flushed)

    def _flushed(self) -> None:
        waits, self._now.disk_waits = self._now.disk_waits, []
        node = self._now.node
        now_ms = self.clock.monotonic_ms()
        if isinstance(node, MasterNode):
            self._do(node.log_grew(now_ms))
            for wait in waits:
                self._answer(wait.put, node.group.acknowledge(now_ms), wait.copies)
        elif node is not None:
            self._do_slave(node.tell(LogGrew(), now_ms))

    def _answer(self, put: Put, status: PutStatus, copies: int) -> None:
        put.status = status
        self._witness.on_answer(self, put, copies)

    # ---- upkeep

    def expire(self) -> None:
        """Delete the oldest log file, if it is confirmed and not the last but one."""
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
            self._do(node.log_grew(self.clock.monotonic_ms()))
