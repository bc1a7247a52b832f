"""A replica group in virtual time, with faults of all kinds; one integer repeats a run.

    outcome = rmqstore.sim.run(4711)
    assert outcome.is_sound, outcome.violation

A run of about 20 s of virtual time takes about 100 ms of real time, one of a cluster five times as
long. All decisions are made by production code: nodes, machines, epochs, quorum and frame codecs of
`rmqstore.replication`, the decisions and request handlers of `rmqstore.controller`, and in clusters
the whole `rmqstore.broker`. Network, disks, clocks, the log of the controllers and users are
models, which depend only on the seed: no clock is read, no thread runs, nothing is written.

    python -m rmqstore.sim 4711              one run, with a trace to read
    python -m rmqstore.sim --seconds 60      new seeds, on all cores
"""

from rmqstore.sim.checker import Violation
from rmqstore.sim.cluster import Cluster
from rmqstore.sim.faults import Faults
from rmqstore.sim.hazards import Hazards
from rmqstore.sim.shape import Shape
from rmqstore.sim.world import Outcome, World

__all__ = ["Cluster", "Faults", "Hazards", "Outcome", "Shape", "Violation", "World", "run"]


def run(
    seed: int,
    *,
    replicas: int = 3,
    steps: int = 100,
    faults: Faults | None = None,
    shape: Shape | None = None,
    hazards: Hazards | None = None,
    is_traced: bool = False,
    cluster: bool = False,
) -> Outcome:
    """Run one world to its end and return the outcome.

    *steps* is the number of bursts of puts; after them all faults heal, and the group must
    converge. *faults*, *shape* and *hazards* replace the values that the seed would draw; with
    *faults* alone there are no hazards. With *cluster* the
    replicas are brokers with clients, found by nameservers. A violation is not raised:
    `Outcome.violation` names it.
    """
    kind = Cluster if cluster else World
    world = kind(
        seed,
        replicas=replicas,
        steps=steps,
        faults=faults,
        shape=shape,
        hazards=hazards,
        is_traced=is_traced,
    )
    return world.run()
