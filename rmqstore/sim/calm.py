"""Times without faults, in which a group must accept puts.

A calm begins with the end of all faults. Once everything is well, its hazard occurs: the elected
replica has a full disk, or a slave reaches no controller and another replica dies. A put that waits
for copies must be acknowledged within a bounded time, although the hazard lasts, and although no
controller was started again and no other one was made the leader. The check is left out where the
group is not certain to recover without help: where a replica has halted or a disk is useless.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from rmqstore.message import PutStatus
from rmqstore.sim.checker import Checker, Violation
from rmqstore.sim.clock import Timeline
from rmqstore.sim.controllers import Controllers
from rmqstore.sim.faults import Fate
from rmqstore.sim.hazards import Mishaps
from rmqstore.sim.network import Network
from rmqstore.sim.operator import Attendant
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.witness import Put
from rmqstore.sim.workload import Workload

__all__ = ["Calm", "Scene"]

_LOOK_MS = 100
_BEGIN_MS = 20_000
"""Time in which everything must become well; otherwise the calm ends without a check."""
_BOUND_MS = 25_000
"""Time in which a put must be acknowledged."""
_ELECT_MS = 2500
"""Time between two requests of an operator for an election."""


class Scene(Protocol):
    """The world in which calms occur."""

    timeline: Timeline
    network: Network
    replicas: dict[int, Replica]
    controller: Attendant | Controllers
    checker: Checker
    workload: Workload
    fate: Fate
    mishaps: Mishaps
    shape: Shape

    def say(self, text: str) -> None:
        """Write a line of the trace."""

    def kill(self, replica: Replica, *, loses_power: bool, away_ms: int | None = None) -> None:
        """End a replica, which restarts later."""


class Calm:
    """One time without faults."""

    def __init__(self, world: Scene, rng: Random, kind: str) -> None:
        self._world = world
        self._rng = rng
        self._kind = kind
        self._left_ms = _BEGIN_MS
        self._since_ms: int | None = None
        self._puts: list[Put] = []
        self._full: set[int] = set()
        """Replicas that were elected and have a full disk since."""
        self._hidden = 0
        self._dead = 0
        self._has_killed = False
        self.is_over = False
        self.has_checked = False
        """Whether a put was acknowledged after the hazard occurred."""

    def start(self) -> None:
        """Begin."""
        self._world.fate.rest()
        self._world.mishaps.rest(is_resting=True)
        self._world.network.heal()
        self._look()

    def end(self) -> None:
        """End, without a check."""
        if self.is_over:
            return
        self.is_over = True
        self._world.say("-- the calm ends")
        for number in self._full:
            self._world.replicas[number].log.is_full = False
        self._hide(is_hidden=False)
        self._world.fate.go_on()
        self._world.mishaps.rest(is_resting=False)

    def decided(self, master: int) -> None:
        """Fill the disk of a replica that was elected, if enough others remain."""
        has_begun = self._since_ms is not None and not self.is_over
        if self._kind == "full_master" and has_begun and not self._full:
            self._world.say(f"-- the disk of {master} is full")
            self._full.add(master)
            self._puts, self._left_ms = [], _BOUND_MS
            self._world.replicas[master].log.is_full = True

    def _look(self) -> None:
        if self.is_over:
            return
        world = self._world
        self._left_ms -= _LOOK_MS
        if any(each.status is PutStatus.PUT_OK for each in self._puts) and self._has_occurred:
            self.has_checked = True
            self.end()
            return
        if not self._is_well():
            self._since_ms, self._puts = None, []
        elif self._since_ms is None:
            self._since_ms, self._left_ms = world.timeline.now_us // 1000, _BOUND_MS
            self._occur()
        else:
            is_full = self._kind == "full_master"
            if is_full and not self._has_occurred and self._left_ms % _ELECT_MS == 0:
                # The request of an operator may be refused.
                world.controller.elect()
            self._hide(is_hidden=True)
            self._puts += world.workload.probe()
        if self._left_ms <= 0:
            if self._since_ms is not None and self._has_occurred:
                raise Violation(self._reason())
            self.end()
            return
        world.timeline.after(_LOOK_MS * 1000, self._look)

    @property
    def _has_occurred(self) -> bool:
        if self._kind == "full_master":
            return bool(self._full)
        return not self._hidden or self._has_killed

    def _reason(self) -> str:
        view = self._world.controller.view
        return (
            f"no put is acknowledged for {_BOUND_MS} ms without faults ({self._kind}): master "
            f"{view.master} of epoch {view.epoch}, set {sorted(view.members)}"
        )

    def _is_well(self) -> bool:
        world = self._world
        controllers = world.controller
        assert isinstance(controllers, Controllers), "only these have calms"
        if not controllers.is_well or world.checker.has_excuse:
            return False
        for number, each in world.replicas.items():
            node = each.slave_node
            is_well = each.is_up and not each.paused
            is_well = is_well and (number in self._full or not each.log.is_full)
            has_halted = node is not None and node.halt_reason is not None
            if number != self._dead and (not is_well or has_halted):
                return False
        return self._kind == "calm" or self._since_ms is not None or self._is_complete()

    def _is_complete(self) -> bool:
        """Whether all replicas are members of the set, and have the settings of the group."""
        world = self._world
        voters = {number for number, each in world.replicas.items() if not each.is_learner}
        has_settings = all(each.shape == world.shape for each in world.replicas.values())
        return has_settings and world.controller.view.members == voters

    def _occur(self) -> None:
        """Let the hazard occur, once everything is well."""
        world, quorum, view = self._world, self._world.shape.quorum, self._world.controller.view
        slaves = sorted(view.members - {view.master})
        if self._kind == "full_master":
            # Without a second copy no other replica may replace the master.
            copies = quorum.min_in_sync if quorum.all_ack else quorum.in_sync
            has_second = quorum.all_ack or quorum.in_sync > 1
            if has_second and len(slaves) >= max(copies, quorum.min_in_sync):
                world.controller.elect()
            else:
                self._kind = "calm"
        elif self._kind == "hidden_slave" and len(slaves) > 1 and quorum.all_ack:
            self._hidden, self._dead = self._rng.sample(slaves, 2)
            world.say(f"   replica {self._hidden} reaches no controllers")
            self._hide(is_hidden=True)
            wait_us = 2 * world.shape.patience_ms * 1000
            world.timeline.after(wait_us, self._kill, world.replicas[self._dead])

    def _kill(self, replica: Replica) -> None:
        if self.is_over or not replica.is_up:
            return
        view = self._world.controller.view
        if not {self._hidden, self._dead} <= view.members - {view.master}:
            # After an election the hidden replica cannot join, and no put may have a second copy.
            self.end()
            return
        self._world.kill(replica, loses_power=False, away_ms=_BOUND_MS)
        self._puts, self._left_ms, self._has_killed = [], _BOUND_MS, True

    def _hide(self, *, is_hidden: bool) -> None:
        if not self._hidden:
            return
        world = self._world
        for address in world.controller.addresses:
            for way in ((self._hidden, address), (address, self._hidden)):
                # The end of an earlier block may end this one as well.
                if is_hidden and not world.network.is_blocked(*way):
                    world.network.block(*way)
                elif not is_hidden:
                    world.network.unblock(*way)
