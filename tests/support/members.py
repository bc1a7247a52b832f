"""A small group of brokers' machines in virtual time, without brokers: tests give the orders."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from rmqstore.config import Configuration, ReplicaConfig, StoreConfig
from rmqstore.message import Durability
from rmqstore.net.identity_log import IdentityLog
from rmqstore.replication.group.quorum import Lease, Mode, Quorum
from rmqstore.replication.group.status import Status
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.protocol.events import HaOptions
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.contents import Content, Contents
from rmqstore.sim.member import Member
from rmqstore.sim.model_replica import ModelReplica
from rmqstore.sim.model_store import AsyncModelStore
from rmqstore.sim.network import Network
from rmqstore.sim.runtime import VirtualRuntime
from rmqstore.sim.shape import Shape
from rmqstore.sim.transport import host_of
from rmqstore.sim.witness import Put

__all__ = ["MemberGroup"]

_SHAPE = Shape(
    replicas=3,
    learners=0,
    mode=Mode.SYNC_STATE_SET,
    protocol="autoswitch",
    is_gated=True,
    quorum=Quorum(total=3, in_sync=2, min_in_sync=1, all_ack=True, timeout_ms=1000),
    options=HaOptions(
        heartbeat_ms=250,
        housekeeping_ms=1000,
        handshake_ms=500,
        reconnect_ms=50,
        ack_flushed=False,
        checks=True,
    ),
    is_durable=False,
    lease_ms=600,
    checks_all=True,
    file_size=4096,
    heartbeat_ms=150,
    patience_ms=700,
    flush_ms=200,
    sync_ms=5,
    drift_ppm_max=0,
)


class _Witness:
    """Takes all events; an unexpected error fails the test."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None

    def on_error(self, replica: Member, error: Exception) -> None:
        raise error

    def on_death(self, replica: Member) -> None:
        replica.kill(loses_power=False)


class MemberGroup:
    """Machines 1 to *count*, each with its store and its replica, all up."""

    def __init__(self, count: int = 3) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(1))
        self.contents = Contents()
        self.puts: list[Put] = []
        self.proposals: list[Proposal] = []
        self.statuses: dict[int, list[Status]] = {}
        self.stores: dict[int, AsyncModelStore] = {}
        self.replicas: dict[int, ModelReplica] = {}
        self.members: dict[int, Member] = {}
        for number in range(1, count + 1):
            member = self.members[number] = Member(
                number,
                begin=self._begin,
                is_learner=False,
                shape=_SHAPE,
                timeline=self.timeline,
                network=self.network,
                clock=MachineClock(self.timeline, begin_ms=1000 * number),
                witness=_Witness(),
            )
            self.network.add(member)
            member.start()

    def _begin(self, member: Member) -> None:
        config = Configuration(store=StoreConfig(), replica=ReplicaConfig())
        store = self.stores[member.number] = AsyncModelStore(member, self, config)
        statuses = self.statuses[member.number] = []
        runtime = VirtualRuntime(log=IdentityLog("rmqstore.test"), clock=member.clock)
        self.replicas[member.number] = ModelReplica(
            member,
            runtime,
            store.store,
            broker_id=member.number,
            listen=("0.0.0.0", 10912),
            lease=Lease(600),
            waits_for_admission=True,
            on_proposal=self.proposals.append,
            on_change=statuses.append,
        )

    def new_put(self, content: Content, durability: Durability, clock: MachineClock) -> Put:
        """Return the put of a message."""
        queue = self.contents.queue_number(content.topic, content.queue)
        put = Put(len(self.puts) + 1, durability, None, queue, len(content.body))
        self.contents.add(put.number, content)
        self.puts.append(put)
        return put

    def pass_ms(self, ms: int) -> None:
        """Run all events of the next *ms*."""
        self.timeline.run(self.timeline.now_us + ms * 1000)

    def begin(self, number: int, work: Coroutine[Any, Any, Any]) -> Any:
        """Start *work* in the process of a machine; return its task."""
        member, tasks = self.members[number], []
        member.process.run(lambda: tasks.append(member.loop.create_task(work)))
        return tasks[0]

    def run(self, number: int, work: Coroutine[Any, Any, Any], *, limit_ms: int = 20_000) -> Any:
        """Return the result of *work* in the process of a machine."""
        task = self.begin(number, work)
        for _ in range(limit_ms):
            if task.done():
                return task.result()
            self.pass_ms(1)
        raise AssertionError(f"not done after {limit_ms} ms")

    def lead(
        self, number: int, epoch: int, *, members: tuple[int, ...], set_epoch: int = 1
    ) -> None:
        """Make a machine the master of *epoch*, all others its slaves; it has a lease."""
        replica = self.replicas[number]
        self.run(number, replica.become_master(epoch, members=members, set_epoch=set_epoch))
        self.renew(number)
        for other in self.replicas.keys() - {number}:
            self.run(other, self.replicas[other].become_slave(f"{host_of(number)}:10912", epoch))
        self.pass_ms(300)

    def renew(self, number: int, ms: int = 10_000_000) -> None:
        """Give a master a lease of *ms* more than usual."""
        now_ms = self.members[number].clock.monotonic_ms()
        member = self.members[number]
        member.process.run(lambda: self.replicas[number].renew_lease(now_ms + ms))

    def put(self, number: int, topic: str, body: bytes = b"m", **properties: str) -> Any:
        """Return the receipt of a message that is put to a machine. Raises PutError."""
        named = {"UNIQ_KEY": f"{len(self.puts) + 1:032X}", **properties}

        async def put() -> Any:
            return await self.stores[number].append(lambda: Content(topic, 0, body, named))

        return self.run(number, put())
