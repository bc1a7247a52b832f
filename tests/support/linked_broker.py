"""A broker of ours as a process each of whose links is a relay of its own.

Every other process knows the broker by the address of a relay. Two brokers reach each other by a
pair of hosts that nobody else uses, and servers by a host of this broker: any one link can be cut.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.hosts import Hosts
from tests.support.our_server import OurServer
from tests.support.relay import Relay

_BROKERS_MAX = 3
_SLAVES_OFFSET = 1
"""Of the port for slaves from that for clients; the fast port is two below."""
_OFFSETS = (0, -2, _SLAVES_OFFSET)


class LinkedBroker:
    """Broker *number* with the settings of *config*, which servers at *servers* know."""

    def __init__(
        self,
        root: Path,
        number: int,
        config: Mapping[str, object],
        *,
        hosts: Hosts,
        servers: tuple[str, Sequence[int]],
    ) -> None:
        assert number < _BROKERS_MAX
        self.number = number
        self._root = root
        self._config = config
        self._hosts = hosts
        self._host, self._shown, self._outward = (hosts.host(10 * n + number) for n in (2, 3, 4))
        self._port = hosts.ports(self._host, *_OFFSETS[1:])
        self.address = f"{self._shown}:{self._port}"
        self._names: dict[bytes, bytes] = {}
        """The hosts of relays to others, by the hosts that those announce."""
        self._add_name(servers[0], self._outward)
        self._of_clients = [
            Relay(
                (self._host, self._port + offset),
                self._to_this_broker,
                listen=(self._shown, self._port + offset),
            )
            for offset in _OFFSETS
        ]
        self._of_servers = [
            Relay((servers[0], port), self._from_target, listen=(self._outward, port))
            for port in servers[1]
        ]
        self._from: dict[int, list[Relay]] = {}
        """The relays that other brokers connect to, by their numbers."""
        self._others: list[LinkedBroker] = []
        self._server: OurServer | None = None

    def link(self, other: LinkedBroker) -> None:
        """Let this broker reach *other*."""
        host = self._hosts.host(50 + _BROKERS_MAX * self.number + other.number)
        self._add_name(other._shown, host)
        other._from[self.number] = [
            Relay(
                (other._host, other._port + offset),
                self._from_target if offset != _SLAVES_OFFSET else lambda _: bytes,
                listen=(host, other._port + offset),
            )
            for offset in _OFFSETS
        ]
        self._others.append(other)

    def _add_name(self, announced: str, host: str) -> None:
        assert len(announced) == len(host), "frames have length fields"
        self._names[f"{announced}:".encode()] = f"{host}:".encode()

    def _from_target(self, is_from_target: bool) -> Callable[[bytes], bytes]:
        return self._renamed if is_from_target else bytes

    def _to_this_broker(self, is_from_target: bool) -> Callable[[bytes], bytes]:
        return bytes if is_from_target else self._renamed

    def _renamed(self, data: bytes) -> bytes:
        for announced, host in self._names.items():
            data = data.replace(announced, host)
        return data

    # -- the process

    def start(self) -> None:
        """Start the process; it serves on return."""
        if self._server is not None:
            self._server.start()
            return
        own = {
            "bindAddress": self._host,
            "listenPort": self._port,
            "brokerIP1": self._shown,
            "brokerIP2": self._shown,
            "haListenPort": self._port + _SLAVES_OFFSET,
            "storePathRootDir": self.store,
        }
        name = f"broker-{self.number}"
        config = {**self._config, **own}
        for key in ("namesrvAddr", "controllerAddr"):
            config[key] = self._renamed(str(config[key]).encode()).decode()
        self._server = OurServer("broker", config, root=self._root, name=name)

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return self._root / f"broker-{self.number}"

    def kill(self) -> None:
        """SIGKILL."""
        if self._server is not None:
            self._server.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Pause or continue the process."""
        assert self._server is not None
        self._server.send_signal(number)

    def close(self) -> None:
        """End the process and its relays."""
        self.kill()
        for each in (*self._of_clients, *self._of_servers, *self._between(self._from)):
            each.close()

    # -- links

    def _between(self, numbers: Mapping[int, object] | Sequence[int]) -> list[Relay]:
        return [relay for number in numbers for relay in self._from.get(number, ())]

    def _links_to(self, other: LinkedBroker) -> list[Relay]:
        return [*self._between([other.number]), *other._between([self.number])]

    def cut(self) -> None:
        """Cut the broker off from everybody, in both directions."""
        for each in self._all_links():
            each.cut()

    def cut_servers(self) -> None:
        """Cut the links to controllers and nameserver; clients and other brokers reach it."""
        for each in self._of_servers:
            each.cut()

    def cut_from(self, other: LinkedBroker) -> None:
        """Cut the links between this broker and *other*."""
        for each in self._links_to(other):
            each.cut()

    def cut_brokers(self) -> None:
        """Cut the links to all other brokers; clients and servers reach it."""
        for other in self._others:
            self.cut_from(other)

    def mend(self) -> None:
        """End all cuts of links of this broker."""
        for each in self._all_links():
            each.mend()

    def _all_links(self) -> list[Relay]:
        between = [relay for other in self._others for relay in self._links_to(other)]
        return [*self._of_clients, *self._of_servers, *between]
