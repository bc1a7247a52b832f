"""Nameservers and controllers of ours, and brokers, nameservers and clients of Java, as processes.

All listen at hosts of 127.0.0.0/8 that belong to the test process alone. Brokers are behind relays.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rmqstore.admin.controller import ControllerAdmin
from rmqstore.errors import RemotingError
from rmqstore.remoting import fastjson
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from tests.support import java
from tests.support.etcd_cluster import EtcdCluster
from tests.support.hosts import Hosts
from tests.support.java_replica import Replica
from tests.support.java_store import PeerError
from tests.support.our_server import OurServer
from tests.support.relayed_broker import CLUSTER, GROUP, Broker, Place
from tests.support.waiting import spin_until

__all__ = ["CLUSTER", "GROUP", "LIMIT_S", "Broker", "Engine", "GroupState", "JavaCluster"]

LIMIT_S = 240.0
"""For a process to start and for a group to be whole; a loaded machine takes a fraction of it."""
_MEMORY = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")
_ASK_TIMEOUT_S = 3.0
_PAUSE_S = 0.1
_TOPICS_KEPT = 3


class Engine(enum.Enum):
    """Where the controllers keep their log: one node with a file, three with etcd or C-Raft."""

    OWN_FILE = "own file"
    ETCD = "etcd"
    RAFT = "raft"


@dataclass(frozen=True, slots=True)
class GroupState:
    """The group of brokers, as its controller reports it."""

    master_id: int | None
    epoch: int
    set_epoch: int
    members: frozenset[int]
    living: frozenset[int]


class JavaCluster:
    """A group of Java brokers and a Java client, with servers of ours.

    *settings* are those of the brokers that differ from the usual ones.
    """

    def __init__(
        self,
        release: str,
        root: Path,
        *,
        with_java_nameserver: bool = False,
        engine: Engine = Engine.OWN_FILE,
        brokers: int = 2,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.release = release
        self.root = root
        self.hosts = Hosts()
        self.server_host = self.hosts.host(10)
        self.nameserver_port = self.hosts.ports(self.server_host)
        nodes = 1 if engine is Engine.OWN_FILE else 3
        # Nodes of a C-Raft group reach each other at the second port.
        self.controller_ports = [self.hosts.ports(self.server_host, 1000) for _ in range(nodes)]
        self.nameserver_metrics = self._metrics_address()
        self.controller_metrics = [self._metrics_address() for _ in range(nodes)]
        """Where the servers serve metrics; nowhere without the extra."""
        self.nameservers = [self.namesrv]
        """The addresses of the nameservers of the brokers, ours first."""
        self.places = [Place.of(number, self.hosts) for number in range(brokers)]
        self.settings = settings
        self.ids = frozenset(range(1, brokers + 1))
        """The ids that a controller gives to the brokers."""
        self.masters: dict[int, int] = {}
        """The master of each epoch that the controller reported."""
        self._places: dict[int, str] = {}
        """The address of each id that the controller reported."""
        self._topics: dict[str, set[int]] = {}
        """The numbers of the acknowledged messages of the last topics."""
        self._topic: str | None = None
        """The topic that gets messages now."""
        self._names = itertools.count()
        self._processes: list[Replica] = []
        self._servers: list[OurServer] = []
        self.brokers: list[Broker] = []
        self._leading = 0
        self._stack = ExitStack()
        self._etcd: EtcdCluster | None = None
        self._engine = engine
        try:
            self._start(with_java_nameserver=with_java_nameserver)
        except BaseException:
            self.close()
            raise

    def _start(self, *, with_java_nameserver: bool) -> None:
        if self._engine is Engine.ETCD:
            self._etcd = self._stack.enter_context(EtcdCluster(self.root))
        if with_java_nameserver:
            self._start_java_nameserver()
        self.nameserver = self._ours("namesrv", self._nameserver_config())
        self.controllers = [
            self._ours("controller", self._controller_config(number))
            for number in range(len(self.controller_ports))
        ]
        self.client = self.java("peer.cluster.Client", self.root / "client")
        self.brokers = [Broker(self, number) for number in range(len(self.places))]
        for starting in [broker.start() for broker in self.brokers]:
            starting.wait_ready(timeout=LIMIT_S)
        self.client.wait_ready(timeout=LIMIT_S)

    def _ours(self, server: str, config: Mapping[str, object]) -> OurServer:
        name = f"{server}-{next(self._names)}"
        made = OurServer(server, config, root=self.root, name=name)
        self._servers.append(made)
        return made

    def _metrics_address(self) -> str:
        return f"{self.server_host}:{self.hosts.ports(self.server_host)}"

    def _nameserver_config(self) -> Mapping[str, object]:
        return {
            "bindAddress": self.server_host,
            "listenPort": self.nameserver_port,
            "kvConfigPath": self.root / "kvConfig.json",
            **_metrics_at(self.nameserver_metrics),
        }

    def _controller_config(self, number: int) -> Mapping[str, object]:
        nodes = (f"n{i}-{self.server_host}:{port}" for i, port in enumerate(self.controller_ports))
        engine: dict[str, object] = {"controllerStorePath": self.root / f"controller-{number}"}
        if self._etcd is not None:
            engine = {"etcdEndpoints": ";".join(self._etcd.endpoints), "etcdLeaseSeconds": 2}
        return {
            "bindAddress": self.server_host,
            "controllerDLegerGroup": "peer-controller",
            "controllerDLegerPeers": ";".join(nodes),
            "controllerDLegerSelfId": f"n{number}",
            **engine,
            "scanNotActiveBrokerInterval": 300,
            **_metrics_at(self.controller_metrics[number]),
        }

    def _start_java_nameserver(self) -> None:
        host = self.hosts.host(11)
        port, controller_port = self.hosts.ports(host), self.hosts.ports(host)
        home = self.root / "java-namesrv"
        home.mkdir()
        config = home / "server.conf"
        settings = {
            "bindAddress": host,
            "listenPort": port,
            "rocketmqHome": home,
            "kvConfigPath": home / "kvConfig.json",
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "java-controller",
            "controllerDLegerPeers": f"n0-{host}:{controller_port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "controller",
            "mappedFileSize": 1048576,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.java("peer.cluster.Server", home, "namesrv", config).wait_ready(timeout=LIMIT_S)
        self.java_namesrv = f"{host}:{port}"
        """The address of Java's nameserver."""
        self.java_controller = f"{host}:{controller_port}"
        """The address of the controller in its process; the brokers do not know it."""
        self.nameservers.append(self.java_namesrv)

    @property
    def kv_files(self) -> tuple[Path, Path]:
        """The files of the key-value configurations of our nameserver and of Java's."""
        return self.root / "kvConfig.json", self.root / "java-namesrv" / "kvConfig.json"

    @property
    def namesrv(self) -> str:
        """The address of our nameserver."""
        return f"{self.server_host}:{self.nameserver_port}"

    @property
    def controller(self) -> str:
        """The addresses of our controllers, separated by semicolons."""
        return ";".join(self.controllers_at)

    @property
    def controllers_at(self) -> list[str]:
        """The addresses of our controllers."""
        return [f"{self.server_host}:{port}" for port in self.controller_ports]

    def java(
        self, program: str, home: Path, *arguments: str | Path, release: str | None = None
    ) -> Replica:
        """Start a Java program whose files are in *home*; of the cluster's release by default."""
        release = release or self.release
        home.mkdir(exist_ok=True)
        temporary = home / "tmp"
        temporary.mkdir(exist_ok=True)
        flags = (
            *(*java.quick_flags(release), *_MEMORY, "-Dpeer.log.level=WARN"),
            *(f"-D{name}={home}" for name in ("user.home", "rocketmq.home.dir")),
            # Else each server makes a key and a certificate of its own when it starts.
            *("-Dtls.server.mode=disabled", f"-Djava.io.tmpdir={temporary}"),
            "-Djava.net.preferIPv4Stack=true",
        )
        command = java.command(release, program, *map(str, arguments), flags=flags)
        name = f"{home.name}-{next(self._names)}"
        started = Replica(command, name=name, scratch=self.root, environment={})
        self._processes.append(started)
        return started

    def admin(self, *arguments: str) -> str:
        """Return what mqadmin prints."""
        printed: str = self.client.ask(f"admin {' '.join(arguments)}", timeout=LIMIT_S)["printed"]
        return printed

    def group(self) -> GroupState | None:
        """Return the group as the controllers report it; None where no controller answers."""
        return asyncio.run(self._ask_group())

    async def _ask_group(self) -> GroupState | None:
        async with RemotingClient() as client:
            for number, port in enumerate(self.controller_ports):
                address = (self.server_host, port)
                body = fastjson.dumps([GROUP])
                request = Frame.request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, body)
                with suppress(RemotingError):
                    answer = await client.call(address, request, timeout=_ASK_TIMEOUT_S)
                    table = fastjson.loads(answer.raise_for_code().body)["replicasInfoTable"]
                    self._leading = number
                    return self._noted(table[GROUP]) if GROUP in table else None
        return None

    def _noted(self, info: Mapping[str, Any]) -> GroupState:
        replicas = [*info["inSyncReplicas"], *info["notInSyncReplicas"]]
        assert {each["brokerId"] for each in replicas} <= self.ids, replicas
        for each in replicas:
            place = self._places.setdefault(each["brokerId"], each["brokerAddress"])
            assert place == each["brokerAddress"], f"id {each['brokerId']} was given twice"
        state = GroupState(
            master_id=info.get("masterBrokerId"),
            epoch=info["masterEpoch"],
            set_epoch=info["syncStateSetEpoch"],
            members=frozenset(each["brokerId"] for each in info["inSyncReplicas"]),
            living=frozenset(each["brokerId"] for each in replicas if each["alive"]),
        )
        if state.master_id is not None:
            former = self.masters.setdefault(state.epoch, state.master_id)
            assert former == state.master_id, f"two masters of epoch {state.epoch}"
        assert not self.masters or state.epoch >= max(self.masters), "the epoch went back"
        return state

    def leader(self) -> OurServer:
        """Return the controller that answered last."""
        return self.controllers[self._leading]

    def wait_group(self, is_wanted: Callable[[GroupState], bool], what: str) -> GroupState:
        """Return the group once it is as wanted; *what* says so in words."""
        found: list[GroupState | None] = []

        def is_found() -> bool:
            found[:] = [self.group()]
            return found[0] is not None and is_wanted(found[0])

        try:
            spin_until(is_found, what, timeout=LIMIT_S, pause=_PAUSE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; the group: {found}") from None
        assert found[0] is not None
        return found[0]

    def wait_outside(self, broker_id: int) -> None:
        """Return once a broker is not in the set."""
        self.wait_group(lambda group: broker_id not in group.members, "a smaller set")

    def wait_whole(self) -> GroupState:
        """Return the group once all brokers live and are in the set, one of them as the master.

        A Java slave serves copies too, and another slave may have gone to it while it was master.
        That one stays there, outside the set, until the connection ends: end it.
        """

        def is_whole(group: GroupState) -> bool:
            if group.master_id is not None:
                for each in self.ids & self._places.keys() - {group.master_id}:
                    self.broker(each).drop_slaves()
            return group.master_id in self.ids == group.members == group.living

        return self.wait_group(is_whole, "a whole group")

    def wait_successor(self, former_id: int) -> bool:
        """Return True once the group has another master.

        Return False where all others have left the set: only the former master can lead then.
        """
        group = self.wait_group(
            lambda group: group.master_id not in (None, former_id) or group.members <= {former_id},
            "another master",
        )
        return group.master_id not in (None, former_id)

    def broker(self, broker_id: int) -> Broker:
        """Return the broker to which the controller gave an id."""
        return next(each for each in self.brokers if each.address == self._places[broker_id])

    def acknowledged(self) -> set[int]:
        """Return the numbers of the acknowledged messages of this topic."""
        sent = self.client.events_of("sent")
        return {each["n"] for each in sent if each["status"] == "SEND_OK"}

    def wait_acknowledged(self, more: int) -> None:
        """Return once *more* messages have been acknowledged after the call."""
        first = len(self.acknowledged()) + more
        what = f"{first} acknowledged messages"
        spin_until(lambda: len(self.acknowledged()) >= first, what, timeout=LIMIT_S, pause=_PAUSE_S)

    @contextmanager
    def producing(self, topic: str) -> Iterator[None]:
        """Let the Java client send messages to *topic* within the block."""
        self.client.events.clear()
        self.client.ask(f"produce {self.namesrv} {topic}")
        self._topic = topic
        try:
            yield
        finally:
            self.client.ask("stop")
            self._topic = None
        self._topics[topic] = self.acknowledged()

    def wait_readable(self) -> None:
        """Return once all acknowledged messages of the last topics can be read.

        Those of a topic that still gets messages are the ones acknowledged before the call.
        """
        if self._topic is not None:
            self._topics[self._topic] = self.acknowledged()
        for topic, wanted in self._topics.items():
            self._wait_readable(topic, wanted)
        while len(self._topics) > _TOPICS_KEPT:
            del self._topics[next(iter(self._topics))]

    def _wait_readable(self, topic: str, wanted: set[int]) -> None:
        missing: set[int] = set()

        def is_readable() -> bool:
            try:
                found = self.client.ask(f"read {self.namesrv} {topic}")["numbers"]
            except PeerError:  # no route yet
                return False
            missing.clear()
            missing.update(wanted.difference(found))
            return not missing

        try:
            spin_until(is_readable, topic, timeout=LIMIT_S, pause=_PAUSE_S)
        except AssertionError:
            raise AssertionError(f"lost messages of {topic}: {sorted(missing)}") from None

    def wait_equal_logs(self) -> None:
        """Return once all brokers have the same log; no messages are sent meanwhile."""
        ends: list[int] = []

        def are_equal() -> bool:
            with suppress(RemotingError):
                ends[:] = asyncio.run(self._ends())
                return len(set(ends)) == 1
            return False

        spin_until(are_equal, "logs of equal length", timeout=LIMIT_S, pause=_PAUSE_S)
        first, *others = [_log(each.log_path, ends[0]) for each in self.brokers]
        for each in others:
            assert each.keys() == first.keys()
            assert [name for name in each if each[name] != first[name]] == []

    async def _ends(self) -> list[int]:
        async with ControllerAdmin(self.controller) as admin:
            caches = [await admin.epoch_cache(each.address) for each in self.brokers]
        return [each.end_offset for each in caches]

    def close(self) -> None:
        """End everything."""
        for broker in self.brokers:
            broker.close()
        for process in self._processes:
            process.stop()
        for server in self._servers:
            server.kill()
        self._stack.close()


def _metrics_at(address: str) -> Mapping[str, object]:
    if find_spec("prometheus_client") is None:
        return {}
    host, port = address.split(":")
    place = {"metricsPromExporterHost": host, "metricsPromExporterPort": port}
    return {"metricsExporterType": "PROM", **place}


def _log(path: Path, end: int) -> dict[str, bytes]:
    """Returns the files of a commit log up to the offset *end*; Java makes others in advance."""
    files = {int(file.name): file for file in path.iterdir() if int(file.name) < end}
    return {file.name: file.read_bytes()[: end - start] for start, file in sorted(files.items())}
