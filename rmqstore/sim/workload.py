"""The users of a group: bursts of puts of every durability, at the presumed master."""

from __future__ import annotations

from random import Random
from typing import Protocol

from rmqstore.message import Durability
from rmqstore.sim.clock import Timeline
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.witness import Put

__all__ = ["Workload"]

_QUEUES = 2
_BURST_MAX = 6
_DURABILITIES = (
    (Durability.REPLICATED, None),
    (Durability.REPLICATED, None),
    (Durability.REPLICATED, None),
    (Durability.REPLICATED, 2),
    (Durability.DISK, None),
    (Durability.MEMORY, None),
)


class _Ground(Protocol):
    replicas: dict[int, Replica]


class Workload:
    """Puts of one world, *steps* bursts of them."""

    def __init__(
        self, ground: _Ground, timeline: Timeline, rng: Random, shape: Shape, *, steps: int
    ) -> None:
        self.puts: list[Put] = []
        self.steps_left = steps
        self._ground = ground
        self._timeline = timeline
        self._rng = rng
        self._voters = shape.replicas - shape.learners
        self._is_small = rng.random() < 0.5
        self._gap_ms = rng.choice((40, 120, 200))

    def start(self) -> None:
        """Begin to put."""
        self._timeline.after(100_000, self._step)

    def burst(self, number_of_puts: int) -> None:
        """Have some messages stored."""
        self.put(number_of_puts)

    def probe(self) -> list[Put]:
        """Put a message that waits for as many copies as the master's settings name."""
        return self.put(1, is_probe=True)

    def put(self, number_of_puts: int, *, is_probe: bool = False) -> list[Put]:
        """Put at a replica that considers itself master; return the puts, answered or not."""
        masters = [
            each for each in self._ground.replicas.values() if each.is_up and each.takes_puts
        ]
        if not masters:
            return []
        target = self._rng.choice(masters)
        first = len(self.puts) + 1
        puts = [self._drawn(first + at) for at in range(number_of_puts)]
        if is_probe:
            for put in puts:
                put.durability, put.copies = Durability.REPLICATED, None
        self.puts += puts
        target.disturb(target.put, puts)
        return puts

    def _step(self) -> None:
        self.steps_left -= 1
        self.burst(self._rng.randint(1, _BURST_MAX))
        if self.steps_left > 0:
            # Sometimes a long pause, in which only heartbeats are sent.
            mean_ms = self._gap_ms if self._rng.random() < 0.97 else 15 * self._gap_ms
            self._timeline.after(int(mean_ms * 2000 * self._rng.random()), self._step)

    def _drawn(self, number: int) -> Put:
        rng = self._rng
        durability, copies = rng.choice(_DURABILITIES)
        if copies is not None and copies > self._voters:
            copies = None
        size = rng.randrange(20) if self._is_small else rng.randrange(400)
        return Put(number, durability, copies, rng.randrange(_QUEUES), size)
