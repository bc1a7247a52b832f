"""The broker of a simulated machine, in all lives of its process: production's own.

Its server, client, store, replica and files are those of the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rmqstore.broker.membership.identity import GroupName, format_identity
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.metadata.topics import TEMPLATE_TOPIC
from rmqstore.broker.node import Broker
from rmqstore.broker.open_broker import OpenBroker
from rmqstore.broker.parts import Parts
from rmqstore.config import BrokerConfig, FlushDiskType, ReplicaConfig, StoreConfig
from rmqstore.net.addresses import Address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.frames import Frame
from rmqstore.sim.controller_client import CLUSTER, CONTROLLERS, GROUP
from rmqstore.sim.machine_folder import MachineFolder
from rmqstore.sim.member import IDENTITY, Member
from rmqstore.sim.model_replica import ModelReplica
from rmqstore.sim.model_store import AsyncModelStore, Sends
from rmqstore.sim.network import Network
from rmqstore.sim.places import HA_PORT, broker_place, controller_place
from rmqstore.sim.registrar import TIMEOUT_MS
from rmqstore.sim.runtime import VirtualRuntime
from rmqstore.sim.timer_index import ModelTimerIndex
from rmqstore.sim.transport import SimClient, SimServer, Sockets, host_of
from rmqstore.store.metadata import GroupConfig, GroupTable, TopicConfig, TopicTable

__all__ = ["READERS", "SENT_MS", "BrokerHost"]

READERS = "readers"
"""The group of all consumers."""
SENT_MS = "sentMs"
"""The field of a broker's request that shows, to checkers, when it was sent."""
_QUEUES = 2
_TEMPLATE_PERM = 7
"""Read, write, and be the model of topics that messages make."""
_FIRST_TOPICS = ("orders", "refunds")
_PRECISION_MS, _WINDOW_SLOTS = 200, 12
"""Some timer messages are further away than the wheel, and are entered again."""
_ROOT = "store"

_LOG = logging.getLogger("rmqstore.sim.broker")
# The trace of the world replaces the broker's log.
_LOG.propagate = False
_LOG.addHandler(logging.NullHandler())


class BrokerHost:
    """The broker of *machine*. *changed* is called when its role has changed."""

    def __init__(
        self,
        machine: Member,
        *,
        network: Network,
        sends: Sends,
        nameservers: Sequence[str],
        changed: Callable[[], None],
    ) -> None:
        self.number = machine.number
        self.machine = machine
        self._network = network
        self._sends = sends
        self._changed = changed
        self._nameservers = tuple(nameservers)
        self._broker: Broker | None = None
        self._make_files()

    def _make_files(self) -> None:
        """Make the files that a new machine begins with."""
        files = self.machine.files
        folder = MachineFolder(files, self.machine.log, lambda change: None)
        topics = {each: TopicConfig(each, _QUEUES, _QUEUES) for each in _FIRST_TOPICS}
        topics[TEMPLATE_TOPIC] = TopicConfig(TEMPLATE_TOPIC, _QUEUES, _QUEUES, _TEMPLATE_PERM)
        TopicTable(topics).save(folder.at(_ROOT))
        GroupTable({READERS: GroupConfig(READERS)}).save(folder.at(_ROOT))
        files[IDENTITY] = format_identity(GroupName(CLUSTER, GROUP), self.number).encode()

    # ---- life

    def begin(self, machine: Member) -> None:
        """Begin the broker of another life, on the loop of its process."""
        sockets = machine.process.sockets
        runtime = VirtualRuntime(
            log=IdentityLog("rmqstore.sim.broker"),
            clock=machine.clock,
            client=_Client(sockets, now_ms=self._world_ms),
            disk_ms=machine.shape.sync_ms,
            on_failure=lambda failure: machine.failed(failure.error),
        )
        folder = MachineFolder(machine.files, machine.log, machine.enter)
        store: Any = partial(AsyncModelStore, machine, self._sends)
        replica: Any = partial(ModelReplica, machine, runtime)
        timer_index: Any = partial(ModelTimerIndex, machine)
        parts = Parts(
            server=partial(SimServer, sockets),
            store=store,
            replica=replica,
            timer_index=timer_index,
            folder=folder.at,
            boot=lambda: f"{machine.number}.{machine.boots}",
        )
        machine.stop_broker = self._stop
        broker = self._broker = Broker(
            _config(machine, self._nameservers), runtime=runtime, parts=parts
        )
        tasks = runtime.tasks("broker")
        tasks.start(self._run(broker), name="broker")

    async def _run(self, broker: Broker) -> None:
        await broker.start()
        async for role in broker.role_changes():
            self.machine.broker_role = role
            self._changed()

    async def _stop(self) -> None:
        assert self._broker is not None, "it was begun"
        await self._broker.close()

    def _world_ms(self) -> int:
        return self._network.timeline.now_us // 1000

    # ---- what checkers see

    @property
    def broker(self) -> OpenBroker:
        """The broker of the present life. Raises StoreClosedError before it is open."""
        assert self._broker is not None, "it was begun"
        return self._broker.open

    @property
    def metadata(self) -> Metadata:
        """The tables of the present life."""
        return self.broker.metadata

    @property
    def role(self) -> Role:
        """The present role."""
        return self.machine.broker_role


class _Client(SimClient):
    """The client of a broker, whose requests show when they were sent."""

    def __init__(self, sockets: Sockets, *, now_ms: Callable[[], int]) -> None:
        super().__init__(sockets)
        self._now_ms = now_ms

    async def call(self, address: str | Address, request: Frame, timeout: float = 3.0) -> Frame:
        request.ext_fields[SENT_MS] = str(self._now_ms())
        return await super().call(address, request, timeout)

    async def send_one_way(
        self, address: str | Address, request: Frame, timeout: float = 3.0
    ) -> None:
        request.ext_fields[SENT_MS] = str(self._now_ms())
        await super().send_one_way(address, request, timeout)


def _config(machine: Member, nameservers: tuple[str, ...]) -> BrokerConfig:
    """Return the settings of the broker of *machine* in its present life."""
    number, shape = machine.number, machine.shape
    quorum = shape.quorum
    flush = FlushDiskType.SYNC_FLUSH if shape.is_durable else FlushDiskType.ASYNC_FLUSH
    place = broker_place(number)
    replica = ReplicaConfig(
        controller_mode_enable=True,
        # Nameservers then get signs of life, and forget a broker without them soon.
        acting_master_enable=True,
        total_replicas=shape.replicas,
        in_sync_replicas=quorum.in_sync,
        min_in_sync_replicas=quorum.min_in_sync,
        all_ack_in_sync_state_set=quorum.all_ack,
        slave_timeout_ms=quorum.timeout_ms,
        ha_lag_ms_max=quorum.lag_ms_max,
        ha_listen_port=HA_PORT,
        async_learner=machine.is_learner,
    )
    values: dict[str, Any] = {
        "cluster_name": CLUSTER,
        "name": GROUP,
        "host": host_of(number),
        "bind_address": host_of(number),
        "listen_port": int(place.rpartition(":")[2]),
        "nameservers": nameservers,
        "controllers": tuple(controller_place(each) for each in CONTROLLERS),
        "identity_path": IDENTITY,
        "heartbeat_interval_ms": shape.heartbeat_ms,
        "heartbeat_timeout_ms": 1000,
        "not_active_timeout_ms": TIMEOUT_MS,
        "registration_timeout_ms": 1200,
        "controller_heartbeat_timeout_ms": shape.patience_ms,
        "lease_ms": shape.lease_ms,
        "group_poll_interval_ms": 4 * shape.heartbeat_ms,
        "controller_metadata_interval_ms": 8 * shape.heartbeat_ms,
        "slave_reads": True,
        "transaction_timeout_ms": 400,
        "transaction_check_interval_ms": 700,
        "transaction_checks_max": 1000,
        "transaction_note_interval_ms": 1500,
        "compatible_with_old_nameserver": False,
        "timer_precision_ms": _PRECISION_MS,
        "timer_window_slots": _WINDOW_SLOTS,
        "recalls": True,
    }
    store = StoreConfig(root_path=_ROOT, flush_disk_type=flush)
    return BrokerConfig(store=store, replica=replica, **values)
