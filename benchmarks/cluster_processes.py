"""Nameservers, controllers and brokers, of this library and of RocketMQ, as local processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from benchmarks import java
from benchmarks.remoting_link import Server
from tests.support.builds import REPOSITORY
from tests.support.hosts import Hosts
from tests.support.java import command

__all__ = ["Cluster", "GROUP", "Node", "TIMINGS", "Timing"]

GROUP = "broker-a"
START_S = 240.0
_SMALL_FILES = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 600_000,
    "maxHashSlotNum": 500_000,
    "maxIndexNum": 2_000_000,
    "timerWheelEnable": "false",
    "diskMaxUsedSpaceRatio": 95,
    # The remaining JVMs of a group fit into a small machine.
    "useEpollNativeSelector": "false",
}
_GROUP = {
    "brokerId": 0,
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "totalReplicas": 2,
    "inSyncReplicas": 2,
    "minInSyncReplicas": 1,
}

Timing = tuple[Mapping[str, object], Mapping[str, object]]
"""The settings of brokers and of controllers."""
TIMINGS: Mapping[str, Timing] = {
    "default": ({}, {}),
    "lease 7 s": ({"masterLeaseMillis": 7000}, {}),
    "3 s": (
        {
            "controllerHeartBeatTimeoutMills": 3000,
            "syncBrokerMetadataPeriod": 1000,
            "syncControllerMetadataPeriod": 2000,
        },
        {"scanNotActiveBrokerInterval": 1000, "scanInactiveMasterInterval": 1000},
    ),
    "tuned": (
        {
            "brokerHeartbeatInterval": 100,
            "controllerHeartBeatTimeoutMills": 1000,
            "syncBrokerMetadataPeriod": 500,
            "syncControllerMetadataPeriod": 500,
            "haSendHeartbeatInterval": 200,
        },
        {"scanNotActiveBrokerInterval": 100, "scanInactiveMasterInterval": 100},
    ),
}
"""RocketMQ's own times, with a longer lease as well; a third of them; and those of a site that
wants to switch quickly."""


class Node:
    """One process; its files are in *folder*."""

    def __init__(
        self, folder: Path, kind: str, config: Mapping[str, object], *, is_java: bool
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        file = folder / "server.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        if is_java:
            (folder / "tmp").mkdir(exist_ok=True)
            flags = [f"-Djava.io.tmpdir={folder / 'tmp'}", f"-Duser.home={folder}"]
            flags += ["-Dpeer.log.level=WARN", "-Djava.net.preferIPv4Stack=true"]
            program = "peer.cluster.Server"
            self._command = command(java.release(), program, kind, str(file), flags=flags)
        else:
            self._command = [sys.executable, "-m", "rmqstore", "serve", kind, "-c", str(file)]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process; it serves on return."""
        with (self._folder / "errors").open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            )
        limit = threading.Timer(START_S, self._process.kill)
        limit.start()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if " serves at " in line or '"ready"' in line:
                break
        else:
            raise ChildProcessError((self._folder / "errors").read_text()[-2000:])
        limit.cancel()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None, "it runs"
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL. Twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class Cluster:
    """A nameserver of this library, and what is added to it; all end with the context."""

    def __init__(self, root: Path) -> None:
        self._root = root
        hosts = Hosts()
        self._host, self._hosts = hosts.host(10), hosts
        self._nodes: list[Node] = []
        self.brokers: dict[str, Node] = {}
        """By the addresses that clients connect to."""
        self.controllers = ""
        self.controller_nodes: dict[str, Node] = {}
        """By their addresses."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._nodes:
            each.kill()

    def add_nameserver(self, *, is_java: bool = False) -> str:
        """Start a nameserver and return its address."""
        port = self._hosts.ports(self._host)
        config = {"bindAddress": self._host, "listenPort": port}
        if is_java:
            config |= self._home("namesrv")
        self._start("namesrv", "namesrv", config, is_java=is_java)
        self.nameserver = f"{self._host}:{port}"
        return self.nameserver

    def add_controllers(self, count: int, settings: Mapping[str, object], *, engine: str) -> None:
        """Start controllers: "ours", or RocketMQ's with "dledger" or "jraft"."""
        ports = [self._hosts.ports(self._host, 1000, 1) for _ in range(count)]
        peers = ";".join(f"n{number}-{self._host}:{port}" for number, port in enumerate(ports))
        self.controllers = ";".join(f"{self._host}:{port}" for port in ports)
        for number, port in enumerate(ports):
            name = f"controller-{number}"
            config: dict[str, object] = {
                "bindAddress": self._host,
                "controllerStorePath": self._root / name / "store",
                **settings,
            }
            if engine == "jraft":
                raft = ",".join(f"{self._host}:{each + 1}" for each in ports)
                config |= {
                    "controllerType": "jRaft",
                    "jRaftServerId": f"{self._host}:{port + 1}",
                    "jRaftInitConf": raft,
                    "jRaftControllerRPCAddr": self.controllers.replace(";", ","),
                }
                config.pop("scanInactiveMasterInterval", None)
            else:
                config |= {
                    "controllerDLegerGroup": "controllers",
                    "controllerDLegerPeers": peers,
                    "controllerDLegerSelfId": f"n{number}",
                }
            if engine != "ours":
                config |= {**self._home(name), "mappedFileSize": 1 << 20}
            node = self._start(name, "controller", config, is_java=engine != "ours")
            self.controller_nodes[f"{self._host}:{port}"] = node

    def add_broker(self, settings: Mapping[str, object], *, is_java: bool) -> Server:
        """Start a broker: a member of the group where there are controllers, else alone."""
        host = self._host
        port = self._hosts.ports(host, -2, 1)
        name = f"broker-{len(self.brokers)}"
        config: dict[str, object] = {
            **_SMALL_FILES,
            "bindAddress": host,
            "listenPort": port,
            "brokerIP1": host,
            "brokerIP2": host,
            "haListenPort": port + 1,
            "brokerName": GROUP,
            "namesrvAddr": self.nameserver,
            "storePathRootDir": self._root / name / "store",
            **self._home(name),
        }
        if self.controllers:
            config |= {**_GROUP, "controllerAddr": self.controllers}
        if is_java and self.controllers:
            config |= {"brokerId": -1, "brokerRole": "SLAVE"}
        if is_java:
            config["storePathCommitLog"] = self._root / name / "store" / "commitlog"
        node = self._start(name, "broker", config | dict(settings), is_java=is_java)
        self.brokers[f"{host}:{port}"] = node
        return Server(host, port, node.pid)

    def _home(self, name: str) -> dict[str, object]:
        return {"rocketmqHome": self._root / name}

    def _start(self, name: str, kind: str, config: Mapping[str, object], *, is_java: bool) -> Node:
        node = Node(self._root / name, kind, config, is_java=is_java)
        self._nodes.append(node)
        node.start()
        return node
