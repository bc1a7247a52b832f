"""The machine of a simulated broker: a replica whose orders come from the broker on its loop.

The broker and the replica are one process: they die together, and a pause stops both. What the
broker does is a turn of the process, as what the network does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from rmqstore.broker.membership.identity import parse_life
from rmqstore.broker.membership.roles import Role
from rmqstore.errors import DiskError, StoreError
from rmqstore.message import PutStatus
from rmqstore.replication.group.group import Effect as GroupEffect
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.roles import (
    AcceptPuts,
    Change,
    Follow,
    Reorder,
    RoleEffect,
    RoleMachine,
)
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.runtime.turns import Turn
from rmqstore.sim import disk
from rmqstore.sim.disk import Died
from rmqstore.sim.host import Directory
from rmqstore.sim.process import Process
from rmqstore.sim.replica import SLOW, Replica
from rmqstore.sim.timer_index import TimerLog
from rmqstore.sim.virtual_loop import ProcessEnded, VirtualLoop
from rmqstore.sim.witness import Put

__all__ = ["IDENTITY", "Member"]

T = TypeVar("T")

_LAST = (AcceptPuts, Follow, Reorder)
"""The steps with which a change of role is complete."""
_NO_SPACE = 28
IDENTITY = "identity/brokerIdentity"
"""The file of the broker's identity."""


class _Life(Process):
    """The process in one life, whose pauses are those of the machine."""

    def __init__(self, machine: Member, **options: Any) -> None:
        super().__init__(machine.number, **options)
        self._machine = machine

    def _enter(self, turn: Callable[[], object]) -> None:
        if not self.is_over:
            self._machine.disturb(turn)


class Member(Replica):
    """The replica *number* of a group of brokers. *begin* is called in the first turn of each life,
    on its loop."""

    def __init__(self, number: int, *, begin: Callable[[Member], None], **options: Any) -> None:
        super().__init__(number, **options)
        self.files: dict[str, bytes] = {}
        """The small files of the broker, by path."""
        self.removed_queues: dict[str, int] = {}
        """By deleted topic the offset before which its records are in no queue; on the disk."""
        self.timer_log = TimerLog()
        """The messages that wait for a time of their own; on the disk."""
        self.on_proposal: Callable[[Proposal], None] = _ignore
        """Called, on the loop, with a set that this master proposes."""
        self.after_turn: Callable[[], None] = _do_nothing
        """Called after each turn of the process."""
        self.stop_broker: Callable[[], Coroutine[Any, Any, None]] = _stop_nothing
        """Returns what ends the broker as a program does that is stopped."""
        self.broker_role = Role()
        """The role in which the broker serves clients."""
        self._begin_broker = begin
        self._process_now: _Life | None = None
        self._life_before = 0
        """The life that the directory named when the process began."""
        self._replaced_life = 0
        """The highest number of a life whose directory an old copy has replaced."""
        self._waiting: dict[int, Callable[[Put], None]] = {}
        self._trouble: Exception | None = None

    # ---- life

    @property
    def process(self) -> Process:
        """The process in its present life."""
        assert self._process_now is not None, "it was started"
        return self._process_now

    @property
    def loop(self) -> VirtualLoop:
        """The loop of the process."""
        return self.process.loop

    def _begin(self) -> None:
        # The life after an old copy has a number above the former one only by the time of day.
        behind_ms = self._replaced_life - self.clock.wall_ms()
        if behind_ms >= 0:
            self.clock.jump(behind_ms + 1)
        self._life_before = self.named_life
        self._waiting.clear()
        self.broker_role = Role()
        self.on_proposal, self.after_turn = _ignore, _do_nothing
        self.stop_broker = _stop_nothing
        self._process_now = _Life(
            self,
            timeline=self._timeline,
            network=self._network,
            clock=self.clock,
            failed=self._failed,
        )
        self._timeline.after(self._shape.flush_ms * 1000, self._enter, self.life, self._flush, True)
        self.process.run(lambda: self._begin_broker(self))

    def kill(self, *, loses_power: bool) -> None:
        if self.is_up:
            self.process.end(loses_power=loses_power)
            if loses_power:
                self.timer_log.power_loss()
        super().kill(loses_power=loses_power)

    def close(self) -> None:
        """End the process together with the world."""
        if self._process_now is not None and not self._process_now.is_over:
            self._process_now.end(loses_power=True)

    def stop(self, done: Callable[[], None]) -> None:
        async def stop() -> None:
            # A program whose disk is full ends with an error.
            with contextlib.suppress(DiskError):
                await self.stop_broker()
            self._timeline.after(0, done)

        self.process.run(lambda: self.loop.create_task(stop()))

    def copy_directory(self) -> Directory:
        tables = dict(self.files), dict(self.removed_queues), self.timer_log.copy()
        return replace(super().copy_directory(), lives=(self.named_life,), tables=tables)

    def put_back(self, directory: Directory) -> None:
        self._replaced_life = max(self._replaced_life, self.named_life)
        super().put_back(directory)
        files, removed, timer_log = directory.tables
        self.files, self.removed_queues = dict(files), dict(removed)
        self.timer_log = timer_log.copy()

    def replace_disk(self) -> None:
        super().replace_disk()
        self.removed_queues = {}
        self.timer_log = TimerLog()

    @property
    def named_life(self) -> int:
        found = parse_life(self.files.get(f"{IDENTITY}-life", b"").decode())
        return 0 if found is None else found[1].number

    @property
    def reported_life(self) -> int:
        return 0 if self.named_life == self._life_before else self.named_life

    def on_message(self, source: int, data: bytes) -> None:
        raise AssertionError("controllers use connections")

    # ---- turns

    def _act(self, action: Callable[..., object], *args: Any) -> None:
        super()._act(self._turn, action, *args)

    def _turn(self, action: Callable[..., object], *args: Any) -> None:
        life = self.life
        action(*args)
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        if self.is_up and life == self.life:
            self.after_turn()

    def enter(self, action: Callable[[], T]) -> T:
        """Return the result of *action*, which the broker calls on its loop. A death of the process
        ends the broker's work with ProcessEnded; what the broker must not hide from the world ends
        the turn."""
        if self.process.is_over:
            raise ProcessEnded
        try:
            return action()
        except Died:
            self._witness.on_death(self)
            raise ProcessEnded from None
        except disk.DiskError as error:
            raise DiskError(_NO_SPACE, str(error)) from error
        except StoreError:
            raise
        except Exception as error:
            self._trouble = error
            raise

    def failed(self, error: BaseException) -> None:
        """Report, at the end of the turn, what nothing in the process took."""
        if self._trouble is None:
            self._trouble = error if isinstance(error, Exception) else AssertionError(repr(error))

    def _failed(self, context: dict[str, Any]) -> None:
        self.failed(context.get("exception") or AssertionError(context["message"]))

    # ---- roles

    @property
    def roles(self) -> RoleMachine[int]:
        """The role machine of the present life."""
        return self._now.roles

    @property
    def connections(self) -> dict[int, int]:
        """The machine at the other end of each connection, by number."""
        return {number: link.end.peer.party.number for number, link in self._now.links.items()}

    def change_group(self, change: Callable[[MasterGroup, int], list[GroupEffect]]) -> None:
        """Call *change* with the group of this master and the time."""
        self.enter(lambda: self._change_group(change))

    def obeyed(self, epoch: int) -> None:
        """Report that an order of *epoch* was carried out."""
        self.enter(lambda: self._witness.on_obeyed(self, epoch))

    async def carry_out(self, change: Change[int], turn: Turn) -> None:
        """Run a change of role, as production does: when it fails, or its caller was cancelled
        between two steps, the replica has no role. Raises StoreError, ChangeGivenUp."""
        process = self._now
        process.change = change
        try:
            while (effect := self.enter(lambda: next(change, None))) is not None:
                await self._take(effect)
                if not isinstance(effect, _LAST):
                    turn.check()
        except Exception as error:
            if process is self._now:
                self.end_role(str(error) or type(error).__name__)
            raise
        finally:
            process.change = None

    async def _take(self, effect: RoleEffect[int]) -> None:
        self.enter(lambda: self._take_step(effect))
        if isinstance(effect, SLOW):
            await asyncio.sleep(self._shape.sync_ms / 1000)

    def end_role(self, failure: str) -> None:
        """End the role because of *failure*."""
        self._witness.say(f"replica {self.number} has no role: {failure}")

        def end() -> None:
            for effect in self._now.roles.fail(failure):
                self._take_step(effect)

        self.enter(end)

    def _changed(self) -> None:
        """Do nothing: the broker orders the changes of role."""

    def _propose(self, proposal: Proposal) -> None:
        self.loop.call_soon(self.on_proposal, proposal)

    # ---- the store of the broker

    def store_message(self, put: Put, done: Callable[[Put], None]) -> None:
        """Admit and append a message before this returns, as a store does, unless the process is
        stopped meanwhile; *done* is called on the loop once it is acknowledged or refused."""
        self._waiting[put.number] = done
        self.enter(lambda: self.put([put]))

    def _answer(self, put: Put, status: PutStatus, copies: int) -> None:
        super()._answer(put, status, copies)
        done = self._waiting.pop(put.number, None)
        if done is not None:
            self.loop.call_soon(done, put)

    def flush_log(self) -> None:
        """Bring the log to the disk."""
        self.enter(self.log.flush)

    def close_log(self) -> None:
        """Bring the log to the disk, and record that it was closed."""
        self.enter(self.log.close)


def _ignore(proposal: Proposal) -> None:
    """Do nothing: no replica is open."""


async def _stop_nothing() -> None:
    """Do nothing: no broker is begun."""


def _do_nothing() -> None:
    """Do nothing: no store and no replica is open."""
