"""The host of a replica: a machine with a disk and a clock, and a process that starts and dies.

A process works in turns. A turn for an earlier life is dropped; a turn during a pause is
postponed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from rmqstore._native.core import Admission
from rmqstore.broker.membership.orders import Orders
from rmqstore.replication.group.node import MasterNode, SlaveNode
from rmqstore.replication.group.roles import Change, RoleMachine
from rmqstore.replication.protocol.frames import (
    ClassicDataParser,
    MasterFrameParser,
    ReportParser,
    SlaveFrameParser,
)
from rmqstore.sim.board import VirtualBoard
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.controller_client import ControllerClient
from rmqstore.sim.disk import DiskError, ModelLog, RotError
from rmqstore.sim.network import End, Network
from rmqstore.sim.shape import Shape
from rmqstore.sim.witness import Put, Witness

__all__ = ["Directory", "DiskWait", "Host", "Link", "Process"]

_LIVES_MAX = 16
"""Number of lives that a directory records."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A copy of a replica's directory."""

    log: ModelLog
    lives: tuple[int, ...]
    tables: Any = None
    """The files of a broker's tables, where the replica is a broker."""


@dataclass(slots=True)
class Link:
    """A connection of the process."""

    end: End
    parser: MasterFrameParser | SlaveFrameParser | ClassicDataParser | ReportParser


@dataclass(slots=True)
class DiskWait:
    """A put that waits for the disk of this replica."""

    put: Put
    admission: Admission
    copies: int = 1


@dataclass(slots=True)
class Process:
    """State that dies with the process."""

    roles: RoleMachine[int]
    node: MasterNode | SlaveNode | None = None
    board: VirtualBoard[int] | None = None
    """The board of a master's node."""
    change: Change[int] | None = None
    """The change of role in progress."""
    ballots: list[tuple[int, bool]] = field(default_factory=list)
    """A request that arrived during the change."""
    takes_puts: bool = False
    epoch: int = -1
    order: int = -1
    """Of the view that it follows."""
    master: int = 0
    links: dict[int, Link] = field(default_factory=dict)
    puts: dict[int, tuple[Put, Admission]] = field(default_factory=dict)
    """Puts that wait for copies."""
    disk_waits: list[DiskWait] = field(default_factory=list)
    client: ControllerClient | None = None
    """If controllers elect the master."""
    orders: Orders | None = None
    """With *client*."""
    is_connecting: bool = False
    is_flush_due: bool = False
    tick_us: int | None = None


class Host(ABC):
    """The machine *number* of a group."""

    def __init__(
        self,
        number: int,
        *,
        is_learner: bool,
        shape: Shape,
        timeline: Timeline,
        network: Network,
        clock: MachineClock,
        witness: Witness[Any],
    ) -> None:
        self.number = number
        self.is_learner = is_learner
        self.log = self._empty_log(shape)
        self.clock = clock

        self.life = 0
        """How often the process was started."""
        self.boots = 1
        """How often the machine was started; what was only in memory ends with each of them."""
        self.lives: tuple[int, ...] = ()
        """The last lives of processes that used the directory, recorded in it."""
        self.sync_from_last_file = False
        """Whether an empty log begins at the last file of the master."""
        self.is_up = False
        self.has_rotten = False
        """Whether recovery refused the log; an operator must act."""

        self.paused_until_us = 0
        """End of the pause of the process."""

        self.waits_for_admission = False
        """Whether a broker decides which replicas may join the set."""

        self.asked_for = -1
        """The ballot for which the operator ended this replica's role; kept on the machine, not by
        the process, until an order of that ballot or a later one arrives."""

        self._put_off: list[tuple[int, Callable[..., object], tuple[Any, ...]]] = []

        self._shape = shape
        self._next_shape = shape
        self._timeline = timeline
        self._network = network
        self._witness = witness
        self._now = self._process()

    def _process(self) -> Process:
        shape = self._shape
        return Process(
            RoleMachine(self.log, quorum=shape.quorum, mode=shape.mode, place=str(self.number))
        )

    # ---- state

    @property
    def master_node(self) -> MasterNode | None:
        """The node of a master, None in other roles."""
        node = self._now.node
        return node if isinstance(node, MasterNode) else None

    @property
    def takes_puts(self) -> bool:
        """Whether this replica accepts puts."""
        return self._now.takes_puts

    @property
    def slave_node(self) -> SlaveNode | None:
        """The node of a slave, None in other roles."""
        node = self._now.node
        return node if isinstance(node, SlaveNode) else None

    @property
    def master(self) -> int:
        """The replica that it follows, or itself; 0 without a role."""
        return self._now.master

    @property
    def named_life(self) -> int:
        """The life that the directory names."""
        return self.life

    @property
    def reported_life(self) -> int:
        """The number by which controllers know the present process; 0 before it has one."""
        return self.life

    @property
    def epoch(self) -> int:
        """The epoch of its role, -1 without a role."""
        return self._now.epoch

    @property
    def visible_end(self) -> int:
        """End of the last message that readers of this replica see."""
        if not self.log.is_gated:
            return self.log.whole_end
        confirm = self.log.confirm_offset
        if self._shape.is_durable:
            confirm = min(confirm, self.log.flushed_offset)
        return self.log.whole_below(confirm)

    @property
    def shape(self) -> Shape:
        """The settings of the process."""
        return self._shape

    @property
    def paused(self) -> bool:
        """Whether the process is stopped."""
        return self._is_stopped()

    def answer(self) -> str:
        """Return a short text about its state."""
        log, node = self.log, self._now.node
        role = "no role" if node is None else "master" if self.master_node else "slave"
        if isinstance(node, SlaveNode):
            role += f" of {self._now.master}, {node.machine.state.name.lower()}"
            role += f" ({node.reason})" if node.reason else ""
        life = "up" if self.is_up else "rotten" if self.has_rotten else "down"
        epochs = " ".join(f"{each.epoch}@{each.start_offset}" for each in log.epochs)
        return (
            f"replica {self.number} {life}, {role} in epoch {self.epoch}: log {log.start_offset} "
            f"to {log.end_offset}, flushed {log.flushed_offset}, confirm {log.confirm_offset}, "
            f"epochs {epochs or 'none'}"
        )

    # ---- life and death

    def start(self) -> None:
        """Start the process: it reads its disk and requests its role."""
        if self.is_up:
            return

        self.life += 1
        self.paused_until_us = 0
        self._put_off.clear()
        self._shape = self._next_shape

        try:
            self.log.recover()
        except RotError as error:
            self.has_rotten = True
            self._witness.say(f"replica {self.number} refuses its log: {error}")
            return
        except DiskError as error:
            self._witness.say(f"replica {self.number} cannot start: {error}")
            return

        self.is_up, self.has_rotten = True, False
        self.lives = (*self.lives, self.life)[-_LIVES_MAX:]
        self._now = self._process()
        self._witness.say(self.answer())
        self._begin()

    def kill(self, *, loses_power: bool) -> None:
        """End the process, or the machine, immediately."""
        if not self.is_up:
            return
        self.is_up = False
        for link in self._now.links.values():
            if loses_power:
                link.end.vanish()
            else:
                link.end.close()
        self._now = self._process()
        if loses_power:
            self.boots += 1
            self.log.power_loss(self._network.rng)
        else:
            self.log.crash()

    def has_link_to(self, number: int) -> bool:
        """Return whether the process knows a connection with replica *number*."""
        return any(link.end.peer.party.number == number for link in self._now.links.values())

    def replace_disk(self) -> None:
        """Replace the log by an empty log, after the process has ended."""
        assert not self.is_up
        self.log, self.lives = self._empty_log(self._shape), ()
        self.has_rotten = False

    def copy_directory(self) -> Directory:
        """Return a copy of the directory, as it is now."""
        return Directory(deepcopy(self.log), self.lives)

    def put_back(self, directory: Directory) -> None:
        """Replace the directory by an earlier copy, after the process has ended."""
        assert not self.is_up
        self.log, self.lives = deepcopy(directory.log), directory.lives
        self.log.crash()

    def configure(self, shape: Shape) -> None:
        """Change the settings of the processes that are started from now on."""
        self._next_shape = shape

    @staticmethod
    def _empty_log(shape: Shape) -> ModelLog:
        return ModelLog(
            file_size=shape.file_size,
            checks_all=shape.checks_all,
            is_gated=shape.is_confirming,
        )

    def pause(self, ms: int) -> None:
        """Stop the process for some time. The world, its clock and its lease go on."""
        self.paused_until_us = max(self.paused_until_us, self._timeline.now_us + ms * 1000)
        self._timeline.at(self.paused_until_us, self._wake)

    def disturb(self, action: Callable[..., object], *args: Any) -> None:
        """Run *action* as an event of this process."""
        self._enter(self.life, action, *args)

    def _enter(self, life: int, action: Callable[..., object], *args: Any) -> None:
        """Run a turn of the process, in the life for which it was planned."""
        if life != self.life or not self.is_up:
            return
        if self._is_stopped():
            self._put_off.append((life, action, args))
            return
        self._act(action, *args)

    def _wake(self) -> None:
        """Run the postponed turns, in order."""
        if self._timeline.now_us < self.paused_until_us:
            return
        put_off, self._put_off = self._put_off, []
        while put_off and not self._is_stopped():
            life, action, args = put_off.pop(0)
            if life == self.life and self.is_up:
                self._act(action, *args)
        self._put_off += put_off

    def _is_stopped(self) -> bool:
        """Return whether the process is stopped."""
        return self._timeline.now_us < self.paused_until_us or bool(self._put_off)

    @abstractmethod
    def _begin(self) -> None:
        """Run the first turn of a process."""

    @abstractmethod
    def _act(self, action: Callable[..., object], *args: Any) -> None:
        """Take a turn."""

    @abstractmethod
    def on_message(self, source: int, data: bytes) -> None:
        """Take a message of a controller or the operator."""
