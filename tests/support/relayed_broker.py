"""A Java broker of a group, which one call cuts off from everybody, in both directions.

Clients and controllers know a broker by the address of a relay. The broker knows the servers and
each of the other brokers by relays of its own, which rename them in all that it receives. So the
others still reach one another while it is cut off.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.support.hosts import Hosts
from tests.support.java_replica import Replica, mend_epoch_file
from tests.support.relay import Relay

if TYPE_CHECKING:
    from tests.support.java_cluster import JavaCluster

CLUSTER = "PeerCluster"
GROUP = "broker-a"

_POOLS = (
    *("sendMessage", "putMessageFuture", "pullMessage", "litePullMessage", "ackMessage"),
    *("processReplyMessage", "queryMessage", "adminBroker", "clientManage"),
    *("consumerManage", "heartbeat", "endTransaction"),
)
SMALL = {
    "brokerClusterName": CLUSTER,
    "brokerName": GROUP,
    "mappedFileSizeCommitLog": 1048576,
    "mappedFileSizeConsumeQueue": 20000,
    "mappedFileSizeTimerLog": 1048576,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "timerWheelEnable": "false",
    "useEpollNativeSelector": "false",
    "diskMaxUsedSpaceRatio": 95,
    "registerNameServerPeriod": 10000,
    # A broker of 5.5.0 keeps a core busy until this time after its start; by default, ten seconds.
    "transactionMetricFlushInterval": 200,
    **{f"{pool}ThreadPoolNums": 2 for pool in _POOLS},
}
"""Settings of a Java broker of few threads and small files."""

_SETTINGS = {
    **SMALL,
    "brokerId": -1,
    "brokerRole": "SLAVE",
    "flushDiskType": "SYNC_FLUSH",
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "inSyncReplicas": 2,
    "minInSyncReplicas": 1,
    "brokerHeartbeatInterval": 300,
    "controllerHeartBeatTimeoutMills": 2000,
    "syncBrokerMetadataPeriod": 500,
    "syncControllerMetadataPeriod": 1000,
    "checkSyncStateSetPeriod": 500,
    "haMaxTimeSlaveNotCatchup": 3000,
    "haSendHeartbeatInterval": 500,
    "haHousekeepingInterval": 4000,
    "defaultTopicQueueNums": 4,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker listens, and the host by which clients and controllers know it."""

    host: str
    shown: str
    port: int

    @classmethod
    def of(cls, number: int, hosts: Hosts) -> Place:
        """Return the place of a broker."""
        host, shown = (hosts.host(tens + number) for tens in (20, 30))
        return cls(host, shown, hosts.ports(host, -2, 1))

    @property
    def remoting_ports(self) -> tuple[int, int]:
        """The ports for clients."""
        return self.port, self.port - 2

    @property
    def ha_port(self) -> int:
        """The port for slaves."""
        return self.port + 1


class Broker:
    """A Java broker in controller mode, behind relays.

    *settings* are those that differ from the cluster's.
    """

    def __init__(
        self,
        cluster: JavaCluster,
        number: int,
        *,
        release: str | None = None,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.release = release or cluster.release
        """The release of the Java program."""
        self._cluster = cluster
        self._number = number
        self._root = cluster.root / f"broker-{number}"
        self._root.mkdir()
        self._config = self._root / "server.conf"
        self._process: Replica | None = None

        place = cluster.places[number]
        self.address = f"{place.shown}:{place.port}"
        outward = cluster.hosts.host(40 + number)
        servers = [each.split(":") for each in (*cluster.nameservers, *cluster.controllers_at)]
        count = len(cluster.places)
        # The hosts by which it knows the others.
        others = {
            each: cluster.hosts.host(50 + count * number + each)
            for each in range(count)
            if each != number
        }
        change = _renaming(
            {host: outward for host, _ in servers}
            | {cluster.places[each].shown: seen for each, seen in others.items()}
        )

        self._relays = _relays(place.host, place.remoting_ports, place.shown, change)
        self._to_controllers: list[Relay] = []
        for host, port in servers:
            made = _relays(host, [int(port)], outward, change)
            self._relays += made
            if f"{host}:{port}" in cluster.controllers_at:
                self._to_controllers += made
        self._to_brokers: dict[int, list[Relay]] = {}
        """Its relays to each other broker; the one for copies is the first."""
        for each, seen in others.items():
            other = cluster.places[each]
            # The bytes of a log pass as they are.
            copying = Relay((other.host, other.ha_port), listen=(seen, other.ha_port))
            asking = _relays(other.host, other.remoting_ports, seen, change)
            self._to_brokers[each] = [copying, *asking]

        own = {
            "bindAddress": place.host,
            "listenPort": place.port,
            "brokerIP1": place.shown,
            "brokerIP2": place.shown,
            "haListenPort": place.ha_port,
            "namesrvAddr": _shown_at(outward, cluster.nameservers),
            "controllerAddr": _shown_at(outward, cluster.controllers_at),
            "totalReplicas": count,
            "rocketmqHome": self._root,
            "storePathRootDir": self._root / "store",
            "storePathCommitLog": self.log_path,
        }
        all_settings = {**_SETTINGS, **own, **cluster.settings, **settings}
        self._config.write_text("".join(f"{key}={value}\n" for key, value in all_settings.items()))

    @property
    def log_path(self) -> Path:
        """The directory of its commit log."""
        return self._root / "store" / "commitlog"

    def start(self) -> Replica:
        """Start the process without waiting for it."""
        mend_epoch_file(self._root / "store")
        self._process = self._cluster.java(
            "peer.cluster.Server", self._root, "broker", self._config, release=self.release
        )
        return self._process

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Pause or continue the process."""
        assert self._process is not None
        self._process.process.send_signal(number)

    def cut(self) -> None:
        """Cut the broker off from everybody, in both directions.

        All ways are stopped before the first connection ends. Otherwise the broker could report to
        some what it saw of the cut elsewhere.
        """
        for each in self._ways():
            each.stop()
        for each in self._ways():
            each.drop()

    def mend(self) -> None:
        """End the cut."""
        for each in self._ways():
            each.mend()

    @contextmanager
    def without_copies(self) -> Iterator[None]:
        """Hold back the copies to and from this broker within the block, and nothing else."""
        ways = [ways[0] for ways in self._to_brokers.values()]
        ways += [each._to_brokers[self._number][0] for each in self._others]
        for each in ways:
            each.cut()
        try:
            yield
        finally:
            for each in ways:
                each.mend()

    def drop_slaves(self) -> None:
        """End the connections by which others copy from this broker."""
        for each in self._others:
            each._to_brokers[self._number][0].drop()

    def drop_controllers(self) -> None:
        """End the connections to the controllers, as a broker does after an unanswered call."""
        for each in self._to_controllers:
            each.drop()

    @property
    def _others(self) -> list[Broker]:
        return [each for each in self._cluster.brokers if each is not self]

    def _ways(self) -> list[Relay]:
        """Returns the relays to and from this broker."""
        return [
            *(way for ways in self._to_brokers.values() for way in ways),
            *(way for each in self._others for way in each._to_brokers[self._number]),
            *self._relays,
        ]

    def close(self) -> None:
        """End the process and its relays."""
        self.kill()
        for each in (*self._relays, *(way for ways in self._to_brokers.values() for way in ways)):
            each.close()


_Change = Callable[[bool], Callable[[bytes], bytes]]


def _renaming(names: Mapping[str, str]) -> _Change:
    """Returns the change of relays that show hosts by other names."""
    pairs = [(f"{old}:".encode(), f"{new}:".encode()) for old, new in names.items()]
    assert all(len(old) == len(new) for old, new in pairs), "frames have length fields"

    def rename(data: bytes) -> bytes:
        for old, new in pairs:
            data = data.replace(old, new)
        return data

    return lambda _: rename


def _relays(host: str, ports: Iterable[int], shown: str, change: _Change) -> list[Relay]:
    """Returns relays to the ports of *host*, with the same numbers at *shown*."""
    return [Relay((host, port), change, listen=(shown, port)) for port in ports]


def _shown_at(host: str, addresses: Iterable[str]) -> str:
    return ";".join(f"{host}:{each.rpartition(':')[2]}" for each in addresses)
