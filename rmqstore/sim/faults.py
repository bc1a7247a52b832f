"""The faults and their times, all drawn from the seed.

Most faults occur at any time and end after some time. The faults of `worst_moments` occur during a
replica's work: between two steps of a role change, before an append, a cut or a save, or when a put
is stored but not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Protocol

from rmqstore.replication.protocol.frames import Frame, Transfer
from rmqstore.sim.clock import Timeline
from rmqstore.sim.controllers import Controllers
from rmqstore.sim.disk import Died
from rmqstore.sim.network import End, Network
from rmqstore.sim.operator import Attendant
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape

__all__ = ["Fate", "Faults", "Scene"]

_WEIGHTS = {"lead": 20, "SaveEpochs": 10}
"""Factor for the probability of a fault at a rare moment."""
_LIKELY = {"rot": 0.15, "err": 0.15, "hold": 0.55, "late_order": 0.3, "restart_master": 0.3}
_LONG_MS = (4500, 9000)
_STOPPABLE = ("append", "put", "flushed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The relative weights of the faults; 0 for never.

    `Faults.drawn` makes the mixture of a seed, `Faults.none()` a world without faults.
    """

    mean_gap_ms: int = 700
    """Mean time between two faults."""
    worst_moments: float = 0.002
    """Probability of a fault at each of the chosen bad moments."""
    crash: int = 4
    """A process dies and is restarted."""
    power_loss: int = 3
    """A machine dies and loses all or some unflushed sectors."""
    blackout: int = 1
    """All machines lose their power at the same time."""
    election: int = 4
    """Another master is elected although the present master is alive."""
    depose: int = 2
    """Another controller leads; the former leader notices it late."""
    controller_crash: int = 2
    """A controller dies and restarts with an old snapshot."""
    cut: int = 4
    """A connection breaks after any byte; a side may not notice it."""
    partition: int = 3
    """A machine is cut off from some other machines or from electors."""
    one_way: int = 3
    """The same in one direction only."""
    isolation: int = 1
    """A machine is cut off from all others, or from all except the electors, for longer than every
    timeout."""
    delay: int = 2
    """All messages are slow, and may overtake each other."""
    loss: int = 2
    """Single messages get lost."""
    double: int = 2
    """Single messages arrive twice, the second time up to seconds later."""
    keep: int = 2
    """Single messages arrive seconds later, after later messages."""
    slow_reader: int = 2
    """A side of a connection reads a few bytes at a time."""
    pause: int = 3
    """A process is stopped; its clock goes on."""
    suspend: int = 1
    """A process is stopped for longer than every timeout."""
    stop: int = 2
    """A process is stopped between two steps of a put."""
    clock_jump: int = 2
    """The time of day is set forward or back."""
    full_disk: int = 2
    flip: int = 2
    """A bit flips in a body on the wire."""
    rot: int = 0
    """A bit flips on a disk."""
    expire: int = 3
    """A replica deletes its oldest log file."""
    hold: int = 3
    """A frame, often the first frame of an epoch, and all later frames arrive seconds later. They
    hold the log of a former master, or its slave's acknowledgements, when both have other roles."""
    late_order: int = 2
    """A replica receives its orders late, or an earlier order again."""
    restart_master: int = 2
    """The master's machine loses its power, and its program restarts as master."""
    err: int = 0
    """An operator promotes two replicas under one epoch."""

    @classmethod
    def none(cls) -> Faults:
        """Return a world without faults."""
        quiet = dict.fromkeys((each.name for each in fields(cls)), 0)
        return cls(**{**quiet, "mean_gap_ms": 1000})

    @classmethod
    def drawn(cls, rng: Random, shape: Shape) -> Faults:
        """Return a mixture: about half of all kinds, some of them often."""
        kept = {}
        for each in fields(cls)[2:]:
            likely = _LIKELY.get(each.name, 0.55)
            usual = max(getattr(cls(), each.name), 1)
            kept[each.name] = usual if rng.random() < likely else 0

        if not shape.is_durable and rng.random() < 0.7:
            # Messages in memory survive if machines lose power one at a time.
            kept["blackout"] = 0

        if shape.has_set or shape.protocol == "classic":
            # Epochs are counted, or no other replica is promoted.
            kept["err"] = 0

        if not shape.has_set:
            kept["depose"] = kept["controller_crash"] = 0

        if not shape.options.checks:
            kept["flip"] = 0

        return replace(
            cls(**kept),
            mean_gap_ms=rng.choice((250, 700, 2000)),
            worst_moments=rng.choice((0.0, 0.002, 0.01)),
        )

    def with_power_losses(self, rng: Random) -> Faults:
        """Return these faults, and losses of power."""
        return replace(
            self,
            power_loss=3,
            blackout=self.blackout if rng.random() < 0.7 else 1,
            restart_master=self.restart_master if rng.random() < 0.5 else 2,
        )


class Scene(Protocol):
    """The world in which faults occur."""

    timeline: Timeline
    network: Network
    replicas: dict[int, Replica]
    controller: Attendant | Controllers
    bystanders: tuple[int, ...]

    def say(self, text: str) -> None:
        """Write a line of the trace."""

    def kill(self, replica: Replica, *, loses_power: bool) -> None:
        """End a replica, which restarts later."""

    def restart_master(self) -> None:
        """Cut the power of the master's machine, and restart its program as master."""

    def err(self) -> None:
        """Let the operator promote a second replica under the present epoch."""

    def rot(self, replica: Replica) -> None:
        """Flip a bit on a replica's disk."""


class Fate:
    """Starts and ends the faults of one world."""

    def __init__(self, world: Scene, rng: Random, faults: Faults) -> None:
        self._world = world
        self._rng = rng
        self._faults = faults
        self._is_over = False
        self._is_resting = False
        self._plans = 0
        """Number of times that faults ended for some time."""
        self._stops = 0
        """Processes that are to be stopped during their work."""
        self._holds = 0
        """Connections on which a frame is to be delayed."""
        self._kinds = [each.name for each in fields(faults)[2:]]
        self._weights = [getattr(faults, each) for each in self._kinds]

    def start(self) -> None:
        """Begin."""
        if any(self._weights):
            self._plan()

    def end(self) -> None:
        """Start no further faults; present faults end by themselves or with `World.heal`."""
        self._is_over = True

    def rest(self) -> None:
        """Start no further faults until `go_on`."""
        self._plans += 1
        self._stops = self._holds = 0
        self._is_resting = True

    def go_on(self) -> None:
        """Start faults again."""
        self._is_resting = False
        self.start()

    def moment(self, replica: Replica, what: str) -> None:
        """Perhaps cause a fault at a bad moment in a replica's work. May raise Died."""
        if self._stops and what in _STOPPABLE and not self._is_over:
            self._stops -= 1
            self._pause(replica)

        # Only the master that begins a new epoch knows it yet.
        likely = self._faults.worst_moments * _WEIGHTS.get(what, 1)
        if self._is_over or self._is_resting or self._rng.random() >= likely:
            return

        world, rng = self._world, self._rng
        world.say(f"-- bad moment for replica {replica.number}: {what}")
        stroke = rng.choice((0, 4)) if what == "lead" else rng.randrange(5)

        if stroke == 0 and (self._faults.crash or self._faults.power_loss):
            raise Died
        if stroke == 1:
            replica.log.dies_in = rng.randrange(4) if self._faults.crash else -1
        elif stroke == 2:
            self._cut()
        elif stroke == 3:
            world.controller.elect()
        else:
            self._partition(replica.number)

    def frame(self, replica: Replica, frame: Frame, end: End) -> None:
        """Perhaps delay a frame that a replica is about to write."""
        if not self._holds or end.has_output:
            return
        entries = replica.log.epochs
        is_news = isinstance(frame, Transfer) and bool(entries) and frame.epoch == entries[-1].epoch
        if self._rng.random() < (0.5 if is_news else 0.1):
            self._holds -= 1
            ms = self._rng.choice((400, 1500, 3000))
            self._world.say(f"   {ms} ms: connection {end.number} from {frame}")
            end.hold(self._world.timeline.now_us + ms * 1000)

    def _plan(self) -> None:
        gap_ms = self._rng.expovariate(1 / self._faults.mean_gap_ms)
        self._world.timeline.after(int(gap_ms * 1000), self._strike, self._plans)

    def _strike(self, plans: int) -> None:
        if self._is_over or plans != self._plans:
            return
        kind = self._rng.choices(self._kinds, self._weights)[0]
        self._world.say(f"-- {kind.replace('_', ' ')}")
        action: Callable[[], None] = getattr(self, f"_{kind}")
        action()
        self._plan()

    # ---- one method for each kind

    def _crash(self) -> None:
        self._kill(self._anyone(), loses_power=False)

    def _power_loss(self) -> None:
        self._kill(self._anyone(), loses_power=True)

    def _blackout(self) -> None:
        for each in self._world.replicas.values():
            self._kill(each, loses_power=True)

    def _election(self) -> None:
        self._world.controller.elect()

    def _depose(self) -> None:
        controllers = self._world.controller
        assert isinstance(controllers, Controllers), "an operator is alone"
        controllers.depose()

    def _controller_crash(self) -> None:
        controllers = self._world.controller
        assert isinstance(controllers, Controllers), "an operator never dies"
        controllers.crash()

    def _cut(self) -> None:
        connections = self._world.network.connections()
        if connections:
            end = self._rng.choice(connections)
            self._world.say(f"   connection {end.number}")
            end.cut(notifies=self._rng.random() < 0.7)
            end.peer.cut(notifies=self._rng.random() < 0.7)

    def _partition(self, number: int | None = None) -> None:
        for way in self._ways(number):
            for source, target in (way, way[::-1]):
                self._block(source, target)

    def _one_way(self) -> None:
        for source, target in self._ways(None):
            way = (source, target) if self._rng.random() < 0.5 else (target, source)
            self._block(*way)

    def _isolation(self) -> None:
        one = self._anyone().number
        others = [each for each in self._world.replicas if each != one]
        if self._rng.random() < 0.6:
            others += self._world.controller.addresses
        others += [each for each in self._world.bystanders if self._rng.random() < 0.5]
        ms = self._rng.randint(*_LONG_MS)
        self._world.say(f"   replica {one} from {others} for {ms} ms")
        network = self._world.network
        for each in others:
            for source, target in ((one, each), (each, one)):
                network.block(source, target)
                self._world.timeline.after(ms * 1000, network.unblock, source, target)

    def _delay(self) -> None:
        network = self._world.network
        network.latency_ms = (0.1, self._rng.choice((20.0, 200.0)))
        self._later(self._restore_latency)

    def _loss(self) -> None:
        self._world.network.loss_rate = self._rng.choice((0.1, 0.5))
        self._later(setattr, self._world.network, "loss_rate", 0.0)

    def _double(self) -> None:
        self._world.network.double_rate = self._rng.choice((0.2, 1.0))
        self._later(setattr, self._world.network, "double_rate", 0.0)

    def _keep(self) -> None:
        self._world.network.keep_rate = self._rng.choice((0.1, 0.5))
        self._later(setattr, self._world.network, "keep_rate", 0.0)

    def _slow_reader(self) -> None:
        connections = self._world.network.connections()
        if connections:
            end = self._rng.choice(connections)
            # What leaves the end that opened it are acknowledgements; the log goes the other way.
            end = end if self._rng.random() < 0.3 else end.peer
            end.is_slow = True
            self._later(setattr, end, "is_slow", False)

    def _pause(self, replica: Replica | None = None) -> None:
        replica = self._anyone() if replica is None else replica
        self._stop_for(replica, self._rng.choice((50, 500, 2500)))

    def _suspend(self) -> None:
        self._stop_for(self._anyone(), self._rng.randint(*_LONG_MS))

    def _stop(self) -> None:
        self._stops += 1

    def _clock_jump(self) -> None:
        replica = self._anyone()
        ms = self._rng.choice((-3_600_000, -500, 500, 3_600_000))
        self._world.say(f"   replica {replica.number} by {ms} ms")
        replica.clock.jump(ms)

    def _full_disk(self) -> None:
        log = self._anyone().log
        log.is_full = True
        self._later(setattr, log, "is_full", False)

    def _flip(self) -> None:
        self._world.network.flips.left += 1

    def _rot(self) -> None:
        self._world.rot(self._anyone())

    def _expire(self) -> None:
        replica = self._anyone()
        replica.disturb(replica.expire)

    def _hold(self) -> None:
        self._holds += 1

    def _late_order(self) -> None:
        controller, ms = self._world.controller, self._rng.choice((400, 1500, 3000))
        if self._rng.random() < 0.5:
            self._world.say(f"   the one elected next, {ms} ms")
            controller.delay_next_order(ms)
            return
        replica = self._anyone()
        self._world.say(f"   replica {replica.number}, {ms} ms")
        controller.delay_orders(replica.number, ms)

    def _restart_master(self) -> None:
        self._world.restart_master()

    def _err(self) -> None:
        self._world.err()
        self._later(self._world.controller.elect)

    # ---- helpers

    def _anyone(self) -> Replica:
        return self._rng.choice(list(self._world.replicas.values()))

    def _stop_for(self, replica: Replica, ms: int) -> None:
        self._world.say(f"   replica {replica.number} for {ms} ms")
        replica.pause(ms)

    def _kill(self, replica: Replica, *, loses_power: bool) -> None:
        if replica.is_up:
            self._world.kill(replica, loses_power=loses_power)

    def _ways(self, number: int | None) -> list[tuple[int, int]]:
        """Return directions from one machine to some others, electors included."""
        one = self._anyone().number if number is None else number
        electors = self._world.controller.addresses
        machines = (*electors, *self._world.replicas, *self._world.bystanders)
        others = [each for each in machines if each != one]
        return [(one, each) for each in others if self._rng.random() < 0.6]

    def _block(self, source: int, target: int) -> None:
        self._world.say(f"   from {source} to {target}")
        self._world.network.block(source, target)
        self._later(self._world.network.unblock, source, target)

    def _later(self, action: Callable[..., None], *args: object) -> None:
        ms = self._rng.choice((50, 400, 1500, 3000))
        self._world.timeline.after(int(ms * 1000 * self._rng.random()), action, *args)

    def _restore_latency(self) -> None:
        self._world.network.latency_ms = (0.1, 1.0)
