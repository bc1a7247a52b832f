"""One replica: the counterpart of `rmqstore.replication.runtime` over a model disk and network.

This module applies the effects of the role machine one by one; `service` has the rest. After a step
that takes time, other events of the process may occur before the next step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from rmqstore.message import PutStatus
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.node import MasterNode, SlaveNode
from rmqstore.replication.group.quorum import Lease
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
    Serve,
    Settle,
)
from rmqstore.replication.protocol.events import (
    FlushLog,
    Ordered,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
)
from rmqstore.sim.board import VirtualBoard
from rmqstore.sim.disk import DiskError
from rmqstore.sim.service import Service

__all__ = ["SLOW", "Replica"]

SLOW = (
    RefusePuts,
    AcceptPuts,
    EndSide,
    Settle,
    AwaitDispatch,
    FlushLog,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
)
"""Steps of a role change after which other events may occur before the next step."""


class Replica(Service):
    """The replica *number* of a group; who gives it orders is a matter of its subclasses."""

    @abstractmethod
    def stop(self, done: Callable[[], None]) -> None:
        """End the role as a program does that is stopped, then call *done*."""

    @abstractmethod
    def _changed(self) -> None:
        """Go on after a change of role."""

    def _change(
        self,
        change: Change[int],
        done: Callable[[], None],
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Run a change of role, then call *done*."""
        self._now.change = change
        self._step(done, failed)

    def _step(self, done: Callable[[], None], failed: Callable[[], None] | None) -> None:
        process = self._now
        assert process.change is not None

        try:
            for effect in process.change:
                self._take_step(effect)
                if isinstance(effect, SLOW):
                    # Other events of the process come before the next step.
                    delay_us = self._shape.sync_ms * 1000
                    self._timeline.after(delay_us, self._enter, self.life, self._step, done, failed)
                    return
        except DiskError as error:
            self._witness.say(f"replica {self.number} cannot change its role: {error}")
            for effect in process.roles.fail(str(error)):
                self._take_step(effect)
            if failed is not None:
                failed()
        else:
            done()

        process.change = None
        self._changed()

    def _take_step(self, effect: RoleEffect[int]) -> None:
        process, log = self._now, self.log
        match effect:
            case RefusePuts():
                process.takes_puts = False
            case AcceptPuts():
                process.takes_puts = True
            case EndSide():
                self._end_side()
            case Settle():
                self._witness.on_moment(self, "settle")
                self._witness.on_cut(self, log.whole_end)
                log.settle()
            case Gate():
                # The confirm offset of a gated log always bounds its readers.
                pass
            case AwaitDispatch():
                assert log.confirm_offset >= 0, "records of this log are dispatched at once"
            case Serve():
                self._serve(effect)
            case Follow(master, may_begin_anew, epoch):
                self._follow(master, may_begin_anew, epoch)
            case Reorder(epoch, may_begin_anew, ordered):
                node = process.node
                assert isinstance(node, SlaveNode)
                process.epoch = epoch
                node.machine.may_begin_anew = may_begin_anew
                node.machine.ordered_epoch = ordered
                self._do_slave(node.handle(Ordered(epoch), self.clock.monotonic_ms()))
            case _:
                self._change_log(effect)

    def _serve(self, effect: Serve) -> None:
        process, log = self._now, self.log
        node = process.node

        if effect.is_new:
            group = MasterGroup(
                self.number,
                self._shape.quorum,
                effect.mode,
                lease=Lease(self._shape.lease_ms),
                is_gated=self._shape.is_gated,
                waits_for_admission=self.waits_for_admission,
            )
            node = MasterNode(
                log,
                group,
                protocol=self._shape.protocol,
                broker_id=self.number,
                options=self._shape.options,
            )
            process.board = VirtualBoard(node, log)

        assert isinstance(node, MasterNode)
        process.node, process.epoch, process.master = node, effect.epoch, self.number
        self._witness.on_master(self)
        self._witness.on_moment(self, "lead")

        self._change_group(
            lambda group, now_ms: group.become_master(
                effect.epoch,
                end_offset=log.end_offset,
                now_ms=now_ms,
                members=effect.members,
                set_epoch=effect.set_epoch,
            )
        )

        self._decide(node.log_grew)

    def _follow(self, master: int, may_begin_anew: bool, epoch: int) -> None:
        process = self._now
        process.node = SlaveNode(
            self.log,
            protocol=self._shape.protocol,
            broker_id=self.number,
            options=self._shape.options,
            is_learner=self.is_learner,
            sync_from_last_file=self.sync_from_last_file,
            learns_while_partial=self._shape.has_set,
            may_begin_anew=may_begin_anew,
        )
        process.node.machine.ordered_epoch = epoch
        process.epoch, process.master = process.roles.epoch, master
        self._witness.say(f"replica {self.number} follows {master} in epoch {process.epoch}")

    def _end_side(self) -> None:
        process = self._now
        board, process.node = process.board, None
        process.epoch, process.master = -1, 0
        if board is not None:
            board.stop()
            self._follow_board(board)
            process.board = None
            for wait in process.disk_waits:
                self._answer(wait.put, PutStatus.FLUSH_DISK_TIMEOUT, 1)
            process.disk_waits.clear()
        for number in list(process.links):
            self._drop(number)
        process.is_connecting = False
        process.tick_us = None
