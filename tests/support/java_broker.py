"""Single Java brokers and controllers, and Java's client, beside servers on our own loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support import java
from tests.support.hosts import Hosts
from tests.support.java_cluster import LIMIT_S
from tests.support.java_replica import Replica
from tests.support.relayed_broker import SMALL

_MEMORY = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m")


def controller_settings(host: str, port: int, home: Path, *, is_jraft: bool) -> dict[str, Any]:
    """Return the configuration of a group of one controller; JRaft takes the next port, too."""
    common: dict[str, Any] = {
        "bindAddress": host,
        "rocketmqHome": home,
        "controllerStorePath": home / "controller",
        "scanNotActiveBrokerInterval": 500,
        "scanInactiveMasterInterval": 500,
        "mappedFileSize": 1048576,
    }
    if is_jraft:
        return common | {
            "controllerType": "jRaft",
            "jRaftServerId": f"{host}:{port + 1}",
            "jRaftInitConf": f"{host}:{port + 1}",
            "jRaftControllerRPCAddr": f"{host}:{port}",
        }
    return common | {
        "listenPort": port,
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{host}:{port}",
        "controllerDLegerSelfId": "n0",
    }


async def admin_output(client: Replica, *arguments: str) -> tuple[str, str]:
    """Return what mqadmin prints in the JVM of a client, and what it writes to its standard
    error."""
    line = f"admin {' '.join(arguments)}"
    answer = await asyncio.to_thread(client.ask, line, timeout=LIMIT_S)
    return answer["printed"], answer["errors"]


class JavaSide:
    """The Java processes of one test; all end with it."""

    def __init__(
        self,
        release: str,
        root: Path,
        *,
        host: str | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.release = release
        self._flags = flags
        self.hosts = Hosts()
        self.host = host or self.hosts.host(10)
        self._root = root
        self._names = itertools.count()
        self._processes: list[Replica] = []
        self._client: Replica | None = None

    async def nameserver(self) -> str:
        """Start a nameserver and return its address once it is up."""
        port = self.hosts.ports(self.host)
        home = self._root / f"java-{next(self._names)}"
        home.mkdir(parents=True)
        config = home / "server.conf"
        own = {
            "bindAddress": self.host,
            "listenPort": port,
            "rocketmqHome": home,
            "kvConfigPath": home / "kvConfig.json",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        started = self._start("peer.cluster.Server", home, "namesrv", str(config))
        await asyncio.to_thread(started.wait_ready, timeout=LIMIT_S)
        return f"{self.host}:{port}"

    async def broker(self, namesrv: str, **settings: Any) -> str:
        """Start a broker and return its address once it is up."""
        port = self.hosts.ports(self.host, -2, 1)
        home = self._root / f"java-{next(self._names)}"
        home.mkdir(parents=True)
        config = home / "server.conf"
        own = {
            "bindAddress": self.host,
            "listenPort": port,
            "brokerIP1": self.host,
            "brokerIP2": self.host,
            "haListenPort": port + 1,
            "namesrvAddr": namesrv,
            "rocketmqHome": home,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
        }
        lines = (f"{key}={value}\n" for key, value in {**SMALL, **own, **settings}.items())
        config.write_text("".join(lines))
        started = self._start("peer.cluster.Server", home, "broker", str(config))
        await asyncio.to_thread(started.wait_ready, timeout=LIMIT_S)
        return f"{self.host}:{port}"

    async def controller(self, *, is_jraft: bool) -> str:
        """Start a group of one controller and return its address once it is up."""
        port = self.hosts.ports(self.host, -2, 1)
        home = self._root / f"java-{next(self._names)}"
        home.mkdir(parents=True)
        config = home / "server.conf"
        own = controller_settings(self.host, port, home, is_jraft=is_jraft)
        config.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        started = self._start("peer.cluster.Server", home, "controller", str(config))
        await asyncio.to_thread(started.wait_ready, timeout=LIMIT_S)
        return f"{self.host}:{port}"

    async def admin(self, *arguments: str) -> str:
        """Return what mqadmin prints."""
        if self._client is None:
            self._client = await self.client()
        return (await admin_output(self._client, *arguments))[0]

    async def client(self, properties: Mapping[str, object] = MappingProxyType({})) -> Replica:
        """Start a client with properties of Java's, and return it once it is up."""
        home = self._root / f"java-{next(self._names)}"
        home.mkdir(parents=True)
        started = self._start("peer.cluster.Client", home, properties=properties)
        await asyncio.to_thread(started.wait_ready, timeout=LIMIT_S)
        return started

    def _start(
        self,
        program: str,
        home: Path,
        *arguments: str,
        properties: Mapping[str, object] = MappingProxyType({}),
    ) -> Replica:
        temporary = home / "tmp"
        temporary.mkdir()
        flags = (
            *(
                *java.quick_flags(self.release),
                *_MEMORY,
                f"-Djava.io.tmpdir={temporary}",
                "-Dpeer.log.level=WARN",
            ),
            *(f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"),
            # Else each server makes a key and a certificate of its own when it starts.
            *("-Dtls.server.mode=disabled", "-Djava.net.preferIPv4Stack=true"),
            *(f"-D{key}={value}" for key, value in properties.items()),
            *self._flags,
        )
        command = java.command(self.release, program, *arguments, flags=flags)
        started = Replica(command, name=home.name, scratch=self._root, environment={})
        self._processes.append(started)
        return started

    def close(self) -> None:
        """End every process."""
        for each in self._processes:
            each.kill()


@contextmanager
def java_side(
    release: str,
    root: Path,
    *,
    host: str | None = None,
    flags: Sequence[str] = (),
) -> Iterator[JavaSide]:
    """Return the Java processes of a test, which end with the block.

    They listen at *host*, by default at a host that belongs to the test process alone, and get
    *flags* after their own.
    """
    made = JavaSide(release, root, host=host, flags=flags)
    try:
        yield made
    finally:
        made.close()
