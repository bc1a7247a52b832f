"""Nameservers for a simulated group, and their faults.

The group does not depend on them, and they have a separate network and separate random numbers:
the events of a group are equal with and without them. They die, restart empty, are stopped, and are
cut off from some or all replicas. `RouteChecker` checks their routes after every event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.nameserver_node import NameserverNode
from rmqstore.sim.network import Network
from rmqstore.sim.registrar import Herald, Registrar
from rmqstore.sim.replica import Replica
from rmqstore.sim.route_checker import PAUSE_MS_MAX, RouteChecker
from rmqstore.sim.shape import Shape
from rmqstore.sim.view import View

__all__ = ["NAMESERVERS", "Nameservers"]

NAMESERVERS = (-11, -12)
"""Where replicas reach the nameservers."""
_LOOK_MS = 250
_KINDS = {
    "crash": 2,
    "pause": 2,
    "cut": 3,
    "block": 4,
    "isolation": 1,
    "slow": 1,
    "hold": 4,
    "delay": 1,
}
_LAST_MS = (50, 400, 1500, 3000)
_LONG_MS = (4500, 9000)


class Nameservers:
    """The nameservers of one world: zero, one or two."""

    def __init__(
        self,
        timeline: Timeline,
        rng: Random,
        shape: Shape,
        replicas: Mapping[int, Replica],
        say: Callable[[str], None],
        *,
        network: Network | None = None,
    ) -> None:
        """*network*, that of a cluster, replaces their separate network; then there is at least one
        nameserver, and brokers register by themselves."""
        self._timeline = timeline
        self._rng = rng
        self._say = say
        self._network = network or Network(timeline, rng)
        self.checker = RouteChecker(replicas, lambda: timeline.now_us // 1000)
        self._is_over = False
        self._mean_gap_ms = rng.choice((300, 1000, 3000))
        has_acting_master = rng.random() < 0.3
        self.nodes = [
            NameserverNode(
                number,
                timeline=timeline,
                network=self._network,
                clock=MachineClock(
                    timeline,
                    begin_ms=rng.randrange(1_000_000),
                    drift_ppm=rng.randint(-shape.drift_ppm_max // 2, shape.drift_ppm_max // 2),
                ),
                shows_acting_master=has_acting_master,
                observer=self.checker,
            )
            for number in NAMESERVERS[: rng.choice((0 if network is None else 1, 1, 1, 2))]
        ]
        always_registers = rng.random() < 0.7
        self._numbers = tuple(replicas)
        self._registrars: dict[int, list[Registrar]] = {number: [] for number in replicas}
        if network is None:
            for number, replica in replicas.items():
                herald = Herald(replica, acts_as_master=has_acting_master)
                self._registrars[number] = [
                    Registrar(
                        replica,
                        herald,
                        node.port,
                        timeline=timeline,
                        network=self._network,
                        always_registers=always_registers,
                    )
                    for node in self.nodes
                ]

    def start(self, *, is_quiet: bool) -> None:
        """Start; a quiet world has no faults."""
        for node in self.nodes:
            node.start()
        for each in self._all_registrars():
            each.start()
        if self.nodes:
            self._look_again()
        if self.nodes and not is_quiet:
            self._plan()

    def heal(self) -> None:
        """End all faults; a stopped node continues without a call."""
        self._is_over = True
        self._network.heal()
        for node in self.nodes:
            node.start()

    def close(self) -> None:
        """End the processes."""
        for node in self.nodes:
            node.crash(loses_power=False)

    def apart(self, view: View) -> str:
        """Return a difference between a route and a group that has converged."""
        found = (self.checker.apart(node, view) for node in self.nodes)
        return next(filter(None, found), "")

    # ---- events of replicas

    def died(self, replica: Replica, *, loses_power: bool) -> None:
        """Record that a replica's process, or its machine, has ended."""
        for each in self._registrars[replica.number]:
            each.died(loses_power=loses_power)

    def changed(self, replica: Replica) -> None:
        """Let a replica register its new role."""
        self.checker.changed(replica.number)
        for each in self._registrars[replica.number]:
            each.changed()

    def _all_registrars(self) -> Iterator[Registrar]:
        return (each for some in self._registrars.values() for each in some)

    def _look_again(self) -> None:
        self._timeline.after(_LOOK_MS * 1000, self._look_again)
        for node in self.nodes:
            if node.is_up:
                self.checker.look(node)

    # ---- faults

    def _plan(self) -> None:
        gap_ms = self._rng.expovariate(1 / self._mean_gap_ms)
        self._timeline.after(int(gap_ms * 1000), self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        kind = self._rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        node = self._rng.choice(self.nodes)
        self._say(f"-- nameserver {node.number}: {kind}")
        getattr(self, f"_{kind}")(node)
        self._plan()

    def _crash(self, node: NameserverNode) -> None:
        if node.is_up:
            node.crash(loses_power=self._rng.random() < 0.5)
            self._later(node.start)

    def _pause(self, node: NameserverNode) -> None:
        node.pause(self._rng.randint(50, PAUSE_MS_MAX))

    def _cut(self, node: NameserverNode) -> None:
        connections = self._network.connections()
        if connections:
            end = self._rng.choice(connections)
            end.cut(notifies=self._rng.random() < 0.7)
            end.peer.cut(notifies=self._rng.random() < 0.7)

    def _block(self, node: NameserverNode) -> None:
        for number in self._numbers:
            ways = [(number, node.number), (node.number, number)]
            for source, target in self._rng.sample(ways, self._rng.choice((0, 1, 2))):
                self._network.block(source, target)
                self._later(self._network.unblock, source, target)

    def _isolation(self, node: NameserverNode) -> None:
        ms = self._rng.randint(*_LONG_MS)
        for number in self._numbers:
            for way in ((number, node.number), (node.number, number)):
                self._network.block(*way)
                self._timeline.after(ms * 1000, self._network.unblock, *way)

    def _slow(self, node: NameserverNode) -> None:
        connections = self._network.connections()
        if connections:
            end = self._rng.choice(connections)
            end.is_slow = True
            self._later(setattr, end, "is_slow", False)

    def _hold(self, node: NameserverNode) -> None:
        registrars = list(self._all_registrars())
        ms = self._rng.choice(_LAST_MS)
        if registrars:
            self._rng.choice(registrars).hold(ms, on_next=self._rng.random() < 0.6)
            return
        ends = [each for each in self._network.connections() if each.target == node.port]
        ends = [each for each in ends if not each.has_output]
        if ends:
            self._rng.choice(ends).hold(self._timeline.now_us + ms * 1000)

    def _delay(self, node: NameserverNode) -> None:
        self._network.latency_ms = (0.1, self._rng.choice((20.0, 200.0)))
        self._later(setattr, self._network, "latency_ms", (0.1, 1.0))

    def _later(self, action: Callable[..., None], *args: object) -> None:
        ms = self._rng.choice(_LAST_MS)
        self._timeline.after(int(ms * 1000 * self._rng.random()), action, *args)
