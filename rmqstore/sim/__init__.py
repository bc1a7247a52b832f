"""A replica group in virtual time, with everything that can go wrong, repeated by one integer.

    outcome = rmqstore.sim.run(4711)
    assert outcome.is_sound, outcome.violation

A run takes some 100 ms of real time for some 20 s of virtual time. The decisions are the product's:
nodes, machines, epochs, quorum and frame codecs of `rmqstore.replication`, and the decisions and
request handlers of `rmqstore.controller`, unchanged. Network, disks, clocks, the log of the
controllers and users are models, driven by the seed alone: no clock is read, no thread runs,
nothing is written.

    python -m rmqstore.sim 4711              one run, with a trace to read
    python -m rmqstore.sim --seconds 60      seeds nobody has run before, on all cores
"""

from rmqstore.sim.checker import Violation
from rmqstore.sim.cluster import Cluster
from rmqstore.sim.faults import Faults
from rmqstore.sim.shape import Shape
from rmqstore.sim.world import Outcome, World

__all__ = ["Cluster", "Faults", "Outcome", "Shape", "Violation", "World", "run"]


def run(
    seed: int,
    *,
    replicas: int = 3,
    steps: int = 100,
    faults: Faults | None = None,
    shape: Shape | None = None,
    is_traced: bool = False,
    cluster: bool = False,
) -> Outcome:
    """Run one world to its end and return how it went.

    *steps* is the number of bursts of puts; when they are over all faults heal, and the group has
    to come together. *faults* and *shape* take the place of what the seed would draw. With
    *cluster* the replicas are brokers with clients, found by nameservers. Nothing is raised for a
    violation: `Outcome.violation` names it.
    """
    kind = Cluster if cluster else World
    world = kind(
        seed, replicas=replicas, steps=steps, faults=faults, shape=shape, is_traced=is_traced
    )
    return world.run()
