"""Three brokers of ours with controllers and a nameserver, as processes, and clients under load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

from rmqstore.admin.controller import ControllerAdmin
from rmqstore.cli.demo.cluster_writer import ClusterClient
from rmqstore.controller.engines.raft import is_built
from rmqstore.errors import RemotingError
from rmqstore.net.loop_thread import LoopThread
from rmqstore.remoting.bodies.controller import ReplicasInfo
from tests.support.hosts import Hosts
from tests.support.linked_broker import LinkedBroker
from tests.support.log_files import have_equal_logs
from tests.support.our_server import OurServer
from tests.support.waiting import spin_until

BROKERS = 3
GROUP = "broker-a"
LIMIT_S = 240.0
"""For a process to start and for a group to be whole; a loaded machine takes a fraction of it."""
_PAUSE_S = 0.02
_SEND_S = 1.0
_AT_ONCE = 4
_BROKER = {
    "brokerName": GROUP,
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "flushDiskType": "ASYNC_FLUSH",
    "totalReplicas": BROKERS,
    "minInSyncReplicas": 2,
    "enableControllerMode": "true",
    "brokerHeartbeatInterval": 100,
    "controllerHeartBeatTimeoutMills": 2000,
    "syncControllerMetadataPeriod": 500,
    "haMaxTimeSlaveNotCatchup": 1500,
    "haSendHeartbeatInterval": 200,
    "haHousekeepingInterval": 2000,
}


class OurGroup:
    """A group whose brokers have *settings*; three controllers where C-Raft is built, else one."""

    def __init__(self, root: Path, settings: Mapping[str, object]) -> None:
        self.root = root
        self.hosts = Hosts()
        self.server_host = self.hosts.host(10)
        self.nameserver_port = self.hosts.ports(self.server_host)
        nodes = 3 if is_built() else 1
        # Nodes of a C-Raft group reach each other at the second port.
        self.controller_ports = [self.hosts.ports(self.server_host, 1000) for _ in range(nodes)]
        self.controllers: list[OurServer] = []
        self.brokers: list[LinkedBroker] = []
        self.masters: dict[int, int] = {}
        """The master of each epoch that the controllers reported."""
        self._places: dict[int, str] = {}
        self._thread = LoopThread("clients", what="the thread of the clients")
        self._admin = self._thread.call(lambda: ControllerAdmin(self._controllers, timeout=1.0))
        try:
            self._start(settings)
        except BaseException:
            self.close()
            raise

    def _start(self, settings: Mapping[str, object]) -> None:
        self.nameserver = OurServer(
            "namesrv",
            {"bindAddress": self.server_host, "listenPort": self.nameserver_port},
            root=self.root,
            name="namesrv",
        )
        nodes = (f"n{i}-{self.server_host}:{port}" for i, port in enumerate(self.controller_ports))
        peers = ";".join(nodes)
        for number in range(len(self.controller_ports)):
            config = {
                "bindAddress": self.server_host,
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{number}",
                "controllerStorePath": self.root / f"controller-{number}",
                "scanNotActiveBrokerInterval": 100,
                "scanInactiveMasterInterval": 100,
                # A leader that was paused may have been replaced, and would report the past.
                "isProcessReadEvent": "true",
            }
            name = f"controller-{number}"
            self.controllers.append(OurServer("controller", config, root=self.root, name=name))
        places = {
            "namesrvAddr": f"{self.server_host}:{self.nameserver_port}",
            "controllerAddr": self._controllers,
        }
        servers = (self.server_host, [self.nameserver_port, *self.controller_ports])
        for number in range(BROKERS):
            config = {**_BROKER, **settings, **places}
            broker = LinkedBroker(self.root, number, config, hosts=self.hosts, servers=servers)
            self.brokers.append(broker)
        for one, other in permutations(self.brokers, 2):
            one.link(other)
        for broker in self.brokers:
            broker.start()

    @property
    def _controllers(self) -> str:
        return ";".join(f"{self.server_host}:{port}" for port in self.controller_ports)

    def state(self) -> ReplicasInfo | None:
        """Return the group as the leading controller reports it; None where none answers."""
        try:
            found = self._thread.run(lambda: self._admin.sync_state_sets([GROUP]))
        except RemotingError:
            return None
        for each in found:
            self._note(each)
        return found[0] if found else None

    def _note(self, state: ReplicasInfo) -> None:
        for each in (*state.in_sync, *state.not_in_sync):
            place = self._places.setdefault(each.broker_id, each.address)
            assert place == each.address, f"id {each.broker_id} was given twice"
        if state.master_id is not None:
            former = self.masters.setdefault(state.master_epoch, state.master_id)
            assert former == state.master_id, f"two masters of epoch {state.master_epoch}"
        assert not self.masters or state.master_epoch >= max(self.masters), "the epoch went back"

    def wait_state(self, is_wanted: Callable[[ReplicasInfo], bool], what: str) -> ReplicasInfo:
        """Return the group once it is as wanted; *what* says so in words."""
        found: list[ReplicasInfo | None] = []

        def is_found() -> bool:
            found[:] = [self.state()]
            return found[0] is not None and is_wanted(found[0])

        try:
            spin_until(is_found, what, timeout=LIMIT_S, pause=_PAUSE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; the group: {found}") from None
        assert found[0] is not None
        return found[0]

    def wait_whole(self) -> ReplicasInfo:
        """Return the group once all brokers live and are in the set, one of them as the master."""

        def is_whole(state: ReplicasInfo) -> bool:
            living = [each for each in state.in_sync if each.is_alive]
            return state.master_id is not None and len(living) == BROKERS

        return self.wait_state(is_whole, "a whole group")

    def master(self) -> LinkedBroker:
        """Return the master of a whole group."""
        return self._at(self.wait_whole().master_address)

    def slave(self) -> LinkedBroker:
        """Return a slave of a whole group."""
        master = self.master()
        return next(each for each in self.brokers if each is not master)

    def _at(self, address: str) -> LinkedBroker:
        return next(each for each in self.brokers if each.address == address)

    def leader(self) -> OurServer:
        """Return the controller that leads."""
        return self.controllers[self._leader_number()]

    def follower(self) -> OurServer:
        """Return a controller that does not lead; of one node, that node."""
        return self.controllers[self._leader_number() - 1]

    def _leader_number(self) -> int:
        found: list[str | None] = [None]

        def is_found() -> bool:
            try:
                found[:] = [self._thread.run(self._admin.metadata).leader_id]
            except RemotingError:
                return False
            return bool(found[0])

        spin_until(is_found, "a leader", timeout=LIMIT_S, pause=_PAUSE_S)
        return int((found[0] or "").removeprefix("n"))

    # -- clients

    @contextmanager
    def sending(self, topic: str, *, waits: bool = True) -> Iterator[ClusterClient]:
        """Send messages to *topic* within the block."""
        client = self._thread.call(lambda: self._client(topic, waits=waits))
        self._thread.call(client.start)
        try:
            yield client
        finally:
            self._thread.run(client.close)

    def _client(self, topic: str, *, waits: bool = True) -> ClusterClient:
        place = f"{self.server_host}:{self.nameserver_port}"
        return ClusterClient(place, topic=topic, at_once=_AT_ONCE, send_s=_SEND_S, waits=waits)

    def read(self, topic: str) -> set[int]:
        """Return the numbers of the messages of *topic* that the master shows; none where there is
        no master to ask."""

        async def read() -> set[int]:
            client = self._client(topic)
            try:
                return await client.read_all()
            except RemotingError:
                return set()
            finally:
                await client.close()

        return self._thread.run(read)

    def wait_readable(self, topic: str, wanted: set[int]) -> None:
        """Return once all *wanted* messages of *topic* can be read."""
        missing: set[int] = set()

        def is_readable() -> bool:
            missing.clear()
            missing.update(wanted - self.read(topic))
            return not missing

        try:
            spin_until(is_readable, topic, timeout=LIMIT_S, pause=_PAUSE_S)
        except AssertionError:
            raise AssertionError(f"lost messages of {topic}: {sorted(missing)}") from None

    def wait_equal_logs(self) -> None:
        """Return once all logs hold the same bytes; nobody may send any more."""
        roots = [each.store for each in self.brokers]
        what = "equal logs"
        spin_until(lambda: have_equal_logs(*roots), what, timeout=LIMIT_S, pause=10 * _PAUSE_S)

    def close(self) -> None:
        """End everything."""
        for broker in self.brokers:
            broker.close()
        for server in (*self.controllers, *([self.nameserver] if self.controllers else [])):
            server.kill()
        self._thread.run(lambda: self._admin.__aexit__())
        self._thread.stop()
