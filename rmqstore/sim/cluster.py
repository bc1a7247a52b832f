"""A whole cluster in virtual time: controllers, nameservers, brokers and clients on one network.

    outcome = rmqstore.sim.run(4711, cluster=True)

It is a group with a sync-state set (`world`) whose replicas are brokers (`broker_host`), found by
their routes (`nameservers`) and used by clients (`clients`). The network is blocked between any two
machines.

The settings of these groups guarantee that no acknowledged message is lost under the chosen faults,
unless an election named a risk: no disk loses bits. If acknowledgements mean memory, machines lose
their power only with `Hazards.loses_power`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from rmqstore.message import Durability
from rmqstore.sim.broker_host import BrokerHost
from rmqstore.sim.clients import CLIENTS, Client, Consumer, Operator, Producer
from rmqstore.sim.clock import MachineClock
from rmqstore.sim.cluster_checker import ClusterChecker
from rmqstore.sim.cluster_controllers import ClusterControllers
from rmqstore.sim.contents import Content, Contents
from rmqstore.sim.faults import Faults
from rmqstore.sim.hazards import Hazards
from rmqstore.sim.member import Member
from rmqstore.sim.nameservers import Nameservers
from rmqstore.sim.places import nameserver_place
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.timed_client import TimedProducer
from rmqstore.sim.transactional_client import TransactionalProducer
from rmqstore.sim.view import View
from rmqstore.sim.witness import Put
from rmqstore.sim.workload import Workload
from rmqstore.sim.world import World

__all__ = ["Cluster"]

_PART_MS = 3000
_LAST_MS = (400, 1500, 6000)
_PROBES = "probes"
"""The topic of the puts that are not made by clients."""
_CHANGES = 0.5
"""The share of the steps in which the operator makes a topic or a group."""

_TRANSACTIONS = 0.5
"""The share of the steps in which a half message is sent."""
_TIMED = 0.5
"""The share of the steps in which a timer message is sent."""


class Clients(Workload):
    """The clients of one cluster: in each step some of them send."""

    def attach(self, cluster: Cluster) -> None:
        """Make the clients."""
        self.contents = cluster.contents
        rng = self._rng
        numbers = tuple(each.number for each in cluster.nameservers.nodes)
        nameservers = tuple(nameserver_place(each) for each in numbers)
        options: dict[str, Any] = {
            "timeline": cluster.timeline,
            "network": cluster.network,
            "rng": rng,
            "nameservers": nameservers,
            "record": cluster.clients_checker,
        }
        first, second, third, fourth, fifth, sixth = CLIENTS
        self.producers = [Producer(number, **options) for number in (first, second)]
        self.consumer = Consumer(third, **options)
        self.operator = Operator(fourth, **options)
        self.transactions = TransactionalProducer(fifth, **options)
        self.timed = TimedProducer(sixth, **options)
        self._record = cluster.clients_checker
        self._network = cluster.network
        self._nameservers = numbers
        self._parts = Random(f"clients {cluster.seed}")
        self.is_cut_off = cluster.faults != Faults.none()
        """Whether the network between clients and nameservers is sometimes blocked."""

    def start(self) -> None:
        """Begin."""
        super().start()
        for each in self._all():
            each.start()
        self._part_later()

    def close(self) -> None:
        """End the processes of the clients."""
        for each in self._all():
            each.close()

    def _all(self) -> tuple[Client, ...]:
        return (*self.producers, self.consumer, self.operator, self.transactions, self.timed)

    def _part_later(self) -> None:
        gap_ms = self._parts.expovariate(1 / _PART_MS)
        self._timeline.after(int(gap_ms * 1000), self._part)

    def _part(self) -> None:
        """Cut a client off from a nameserver for some time, in one or both directions."""
        if not self.is_cut_off:
            return
        way = self._parts.choice(CLIENTS), self._parts.choice(self._nameservers)
        last_us = int(self._parts.choice(_LAST_MS) * 1000 * self._parts.random())
        for source, target in self._parts.sample((way, way[::-1]), self._parts.choice((1, 2))):
            self._network.block(source, target)
            self._timeline.after(last_us, self._network.unblock, source, target)
        self._part_later()

    def new_put(self, content: Content, durability: Durability, clock: MachineClock) -> Put:
        """Return the put of a message that a broker is about to store."""
        queue = self.contents.queue_number(content.topic, content.queue)
        put = Put(len(self.puts) + 1, durability, None, queue, len(content.body))
        self.puts.append(put)
        self.contents.add(put.number, content)
        self._record.stored_as(put.number, content, clock)
        return put

    def _drawn(self, number: int) -> Put:
        put = super()._drawn(number)
        put.queue = self.contents.queue_number(_PROBES, put.queue)
        place = self.contents.queue_named(put.queue)
        key = f"probe-{number}"
        self.contents.add(number, Content(*place, bytes(put.size), {"UNIQ_KEY": key}))
        return put

    def burst(self, number_of_puts: int) -> None:
        """Have clients send messages."""
        for _ in range(number_of_puts):
            self._rng.choice(self.producers).send()
        if self._rng.random() < _CHANGES:
            self.operator.change()
        if self._rng.random() < _TRANSACTIONS:
            self.transactions.send()
        if self._rng.random() < _TIMED:
            self.timed.send()


class Cluster(World):
    """One run: make it, then `run` it."""

    workload: Clients
    settles_ms = 40_000

    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 3,
        steps: int = 100,
        faults: Faults | None = None,
        shape: Shape | None = None,
        hazards: Hazards | None = None,
        is_traced: bool = False,
    ) -> None:
        self.brokers: dict[int, BrokerHost] = {}
        self.contents = Contents()
        super().__init__(
            seed,
            replicas=replicas,
            steps=steps,
            faults=faults,
            shape=shape,
            hazards=hazards,
            is_traced=is_traced,
        )
        self.clients_checker = ClusterChecker(
            self.checker, self.contents, has_all_ack=self.shape.quorum.all_ack
        )
        places = [nameserver_place(each.number) for each in self.nameservers.nodes]
        for number, replica in self.replicas.items():
            assert isinstance(replica, Member), "each replica has a broker"
            self.brokers[number] = BrokerHost(
                replica,
                network=self.network,
                sends=self.workload,
                nameservers=places,
                changed=partial(self._role_changed, replica),
            )
        self.workload.attach(self)
        self.controllers.is_careful = True
        self.bystanders = (*(each.number for each in self.nameservers.nodes), *CLIENTS)

    def _drawn_shape(self, rng: Random, replicas: int) -> Shape:
        while True:
            shape = Shape.drawn(rng, replicas=replicas)
            if shape.has_set and shape.is_gated and shape.options.checks:
                return shape

    def _drawn_faults(self, rng: Random) -> Faults:
        # No single messages are sent in a cluster.
        drawn = replace(Faults.drawn(rng, self.shape), rot=0, loss=0, double=0, keep=0)
        if not self.shape.is_durable:
            drawn = replace(drawn, power_loss=0, blackout=0, restart_master=0)
        return drawn

    def _new_workload(self, rng: Random, steps: int) -> Clients:
        return Clients(self, self.timeline, rng, self.shape, steps=steps)

    def _new_nameservers(self, rng: Random) -> Nameservers:
        return Nameservers(
            self.timeline,
            rng,
            self.shape,
            self.replicas,
            self.say,
            network=self.network,
        )

    def _new_replica(self, number: int, **options: Any) -> Replica:
        return Member(number, begin=lambda member: self.brokers[number].begin(member), **options)

    def _new_elector(self) -> ClusterControllers:
        return ClusterControllers(
            self.timeline, self.network, self.shape, self.replicas, self.on_decision
        )

    def close(self) -> None:
        super().close()
        for replica in self.replicas.values():
            assert isinstance(replica, Member), "each replica has a broker"
            replica.close()
        self.controllers.close()
        self.workload.close()

    def on_decision(self, view: View) -> None:
        super().on_decision(view)
        if view.is_risky:
            self.clients_checker.warned()
        elif self.checker.has_lost:
            self.clients_checker.lost_reads()

    @property
    def controllers(self) -> ClusterControllers:
        """The controllers of the group."""
        assert isinstance(self.controller, ClusterControllers), "the group has a set"
        return self.controller

    # ---- what replicas do

    def _role_changed(self, replica: Replica) -> None:
        """Take that the broker of *replica* serves clients in another role, or with another set."""
        broker = self.brokers[replica.number]
        role = broker.role
        self.say(f"broker {replica.number}: {role}")
        self.clients_checker.kept_from(replica.log.start_offset)
        self.nameservers.changed(replica)
        if role.is_master and role.epoch == self.controller.view.epoch:
            self.clients_checker.elected(broker)

    # ---- the end

    def _settle(self) -> None:
        self.workload.is_cut_off = False
        super()._settle()
        master = self.controller.view.master
        self.clients_checker.final(self.replicas[master].log, self.brokers[master])

    def _apart(self) -> str:
        missing = super()._apart() or self.nameservers.apart(self.controller.view)
        if missing:
            return missing
        missing = self.clients_checker.apart(self.brokers, self.controller.view.master)
        if missing:
            return missing
        master = self.replicas[self.controller.view.master]
        self.clients_checker.kept_from(master.log.start_offset)
        missing = self.clients_checker.undelivered(master.log, master.clock.wall_ms())
        missing = missing or self.clients_checker.undecided(master.log)
        if missing:
            return missing
        producer = self.workload.producers[0]
        if not producer.is_done:
            producer.send()
            return "no message of a client is acknowledged"
        return ""
