"""Hazards of a group under controllers: what changes disks, directories and settings.

They come in addition to the faults of `faults`, from random numbers of their own. `--hazards` of
the command line draws the named ones in each seed. `last_file` is drawn so only: where it makes a
voter a learner, a group may rightly refuse all puts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random
from typing import Protocol

from rmqstore.sim.clock import Timeline
from rmqstore.sim.controllers import Controllers
from rmqstore.sim.host import Directory
from rmqstore.sim.network import Network
from rmqstore.sim.operator import Attendant
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape

__all__ = ["Hazards", "Mishaps", "Scene"]

_SHARE = 0.5
"""Share of the groups under controllers that have hazards."""
_TRIES, _AGAIN_MS = 8, 1000
"""How often, and how late, a copy is started if it cannot be started earlier."""
_BY_NAME_ONLY = frozenset({"last_file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """The relative weights of the hazards; 0 for never."""

    mean_gap_ms: int = 2500
    """Mean time between two hazards."""
    loses_power: bool = False
    """Machines lose their power although acknowledgements mean memory."""
    clean_restart: int = 0
    """A program is stopped, and started again."""
    old_copy: int = 0
    """A directory is copied, and later, after another process was in sync with the directory, the
    copy is started in its place."""
    full_controllers: int = 0
    """The disks of the controllers are full: all that is proposed is refused."""
    slow_controllers: int = 0
    """The disks of the controllers are slow: the outcome of a proposal is known seconds later."""
    new_terms: int = 0
    """A program is started again with other numbers of copies."""
    new_lease: int = 0
    """The lease in the settings of a running program changes."""
    late_reports: int = 0
    """An operator designates a replica while all messages are slow."""
    struck_master: int = 0
    """The machine of the replica that is elected next loses its power before the order arrives."""
    last_file: int = 0
    """A replica gets an empty disk, and begins at the last file of its master."""
    calm: int = 0
    """All other faults end for some time; then the group must accept puts."""
    full_master: int = 0
    """In such a time the disk of the elected replica is full."""
    hidden_slave: int = 0
    """In such a time a slave reaches no controller, and another replica dies."""

    @classmethod
    def none(cls) -> Hazards:
        """Return a world without hazards."""
        return cls()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the hazards that occur at some moments."""
        return tuple(each.name for each in fields(self)[2:])

    @property
    def has_any(self) -> bool:
        """Whether hazards occur."""
        return any(getattr(self, each) for each in self.kinds)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names that `named` takes."""
        return ("power", *(each.name for each in fields(cls)[2:]))

    @classmethod
    def named(cls, names: Collection[str]) -> Hazards:
        """Return the hazards *names*, equally often."""
        weights = dict.fromkeys(set(names) - {"power"}, 1)
        return cls(loses_power="power" in names, **weights)

    def of(self, shape: Shape) -> Hazards:
        """Return the hazards that groups of *shape* can have."""
        if not shape.has_set:
            return self.none()
        is_in_memory = self.loses_power and not shape.is_durable
        struck = self.struck_master if is_in_memory or shape.is_durable else 0
        return replace(self, loses_power=is_in_memory, struck_master=struck)

    @classmethod
    def drawn(cls, rng: Random, shape: Shape) -> Hazards:
        """Return the hazards of a seed."""
        is_chosen = rng.random() < _SHARE
        if not shape.has_set or not is_chosen:
            return cls.none()
        names = [each for each in cls.names() if rng.random() < 0.5]
        found = cls.named([each for each in names if each not in _BY_NAME_ONLY]).of(shape)
        return replace(found, mean_gap_ms=rng.choice((1200, 2500, 5000)))


class Scene(Protocol):
    """The world in which hazards occur."""

    timeline: Timeline
    network: Network
    replicas: dict[int, Replica]
    controller: Attendant | Controllers
    shape: Shape

    def say(self, text: str) -> None:
        """Write a line of the trace."""

    def kill(self, replica: Replica, *, loses_power: bool, away_ms: int | None = None) -> None:
        """End a replica, which restarts later."""

    def copy_directory(self, replica: Replica) -> Directory:
        """Return a copy of a replica's directory."""

    def put_back(self, replica: Replica, directory: Directory) -> None:
        """Kill a replica, and replace its directory by a copy."""

    def empty(self, replica: Replica) -> None:
        """Kill a replica, and replace its disk once no election depends on it."""

    def calm_down(self, kind: str) -> None:
        """End all faults for some time, in which the hazard *kind* occurs."""


class Mishaps:
    """Starts the hazards of one world."""

    def __init__(self, world: Scene, rng: Random, hazards: Hazards) -> None:
        self._world = world
        self._rng = rng
        self._hazards = hazards
        self._is_over = False
        self._is_resting = False
        self._strikes_next = False
        """Whether the replica that is elected next loses its power."""
        self._kinds = hazards.kinds
        self._weights = [getattr(hazards, each) for each in self._kinds]

    def start(self) -> None:
        """Begin."""
        if self._hazards.has_any:
            self._plan()

    def end(self) -> None:
        """Start no further hazards."""
        self._is_over = True

    def rest(self, *, is_resting: bool) -> None:
        """Start no hazards for some time."""
        self._is_resting = is_resting

    def decided(self, master: int) -> None:
        """Take the election of *master* into account."""
        if self._strikes_next and not (self._is_resting or self._is_over):
            self._strikes_next = False
            self._world.timeline.after(0, self._strike_down, self._world.replicas[master])

    def _strike_down(self, replica: Replica) -> None:
        if replica.is_up:
            self._world.kill(replica, loses_power=True, away_ms=1)

    @property
    def _controllers(self) -> Controllers:
        controllers = self._world.controller
        assert isinstance(controllers, Controllers), "hazards occur under controllers"
        return controllers

    def _plan(self) -> None:
        gap_ms = self._rng.expovariate(1 / self._hazards.mean_gap_ms)
        self._world.timeline.after(int(gap_ms * 1000), self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        if not self._is_resting:
            kind = self._rng.choices(self._kinds, self._weights)[0]
            self._world.say(f"-- {kind.replace('_', ' ')}")
            action: Callable[[], None] = getattr(self, f"_{kind}")
            action()
        self._plan()

    # ---- one method for each kind

    def _clean_restart(self) -> None:
        replica = self._anyone()
        if replica is not None:
            self._stop(replica, partial(self._world.kill, replica, loses_power=False))

    def _old_copy(self) -> None:
        replica = self._anyone()
        if replica is None:
            return
        if self._rng.random() < 0.5:
            self._copied(replica)
            return

        def stopped() -> None:
            self._world.kill(replica, loses_power=False)
            self._copied(replica)

        self._stop(replica, stopped)

    def _copied(self, replica: Replica) -> None:
        self._world.say(f"   the directory of {replica.number} is copied")
        copied, ms = self._world.copy_directory(replica), self._rng.choice((200, 1500, 6000))
        self._world.timeline.after(ms * 1000, self._put_back, replica, copied)

    def _put_back(self, replica: Replica, copied: Directory, tries: int = _TRIES) -> None:
        # Nothing distinguishes a copy from the directory if no other process was in sync since.
        known = self._controllers.group.brokers[replica.number].incarnation
        is_old = known is not None and known.life > copied.lives[-1]
        if self._is_over:
            return
        if is_old and replica.is_up and not self._is_resting:
            self._world.put_back(replica, copied)
        elif tries:
            again_us = 1000 * _AGAIN_MS
            self._world.timeline.after(again_us, self._put_back, replica, copied, tries - 1)

    def _full_controllers(self) -> None:
        self._controllers.log.is_full = True
        self._later(setattr, self._controllers.log, "is_full", False)

    def _slow_controllers(self) -> None:
        self._controllers.log.is_slow = True
        self._later(setattr, self._controllers.log, "is_slow", False)

    def _new_terms(self) -> None:
        replica, shape, rng = self._anyone(), self._world.shape, self._rng
        if replica is None:
            return
        in_sync = rng.randint(1, min(2, shape.voters))
        quorum = replace(
            shape.quorum,
            in_sync=in_sync,
            min_in_sync=rng.randint(1, in_sync),
            all_ack=rng.random() < 0.5,
        )
        # Without a lease, a number of copies is not enough.
        lease_ms = rng.choice((300, 600, 1200))
        if quorum.all_ack and rng.random() < 0.3:
            lease_ms = 0
        self._world.say(f"   replica {replica.number}: {quorum}, lease {lease_ms} ms")
        replica.configure(replace(shape, quorum=quorum, lease_ms=lease_ms))
        self._stop(replica, partial(self._world.kill, replica, loses_power=False))

    def _new_lease(self) -> None:
        replica = self._world.replicas.get(self._controllers.view.master)
        if replica is not None and replica.shape.lease_ms:
            lease_ms = self._rng.choice((100, 300, 1200))
            self._world.say(f"   replica {replica.number}: {lease_ms} ms")
            replica.configure(replace(replica.shape, lease_ms=lease_ms))

    def _late_reports(self) -> None:
        network = self._world.network
        network.latency_ms = (0.1, 250.0)
        self._world.timeline.after(700_000, self._world.controller.elect)
        self._world.timeline.after(3_000_000, setattr, network, "latency_ms", (0.1, 1.0))

    def _struck_master(self) -> None:
        self._strikes_next = True
        self._world.controller.elect()

    def _last_file(self) -> None:
        replica = self._anyone()
        if replica is None or replica.number == self._controllers.view.master:
            return
        others = [each for each in self._world.replicas.values() if each is not replica]
        if not any(each.sync_from_last_file for each in others):
            replica.sync_from_last_file = True
            self._world.empty(replica)

    def _calm(self) -> None:
        self._world.calm_down("calm")

    def _full_master(self) -> None:
        self._world.calm_down("full_master")

    def _hidden_slave(self) -> None:
        self._world.calm_down("hidden_slave")

    # ---- helpers

    def _anyone(self) -> Replica | None:
        living = [each for each in self._world.replicas.values() if each.is_up]
        return self._rng.choice(living) if living else None

    def _stop(self, replica: Replica, stopped: Callable[[], None]) -> None:
        def later() -> None:
            if replica.is_up:
                stopped()

        replica.disturb(replica.stop, partial(self._world.timeline.after, 0, later))

    def _later(self, action: Callable[..., None], *args: object) -> None:
        ms = self._rng.choice((400, 2500, 6000))
        self._world.timeline.after(ms * 1000, action, *args)
