"""The servers of `demo`'s cluster: each is a process that runs `rmqstore serve`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from rmqstore.errors import StoreError

__all__ = ["BROKER_NAME", "Cluster", "Server", "cluster"]

BROKER_NAME = "ledger"
_START_S = 240.0
_END_S = 120.0
_BROKERS = 3


class Server:
    """One process; *config* is the content of its file."""

    def __init__(self, folder: Path, kind: str, name: str, config: Mapping[str, object]) -> None:
        self.kind, self.name, self.address = kind, name, ""
        self._file = folder / f"{name}.conf"
        self._log = folder / f"{name}.log"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; it serves on return. Raises StoreError with the log after a
        failure."""
        command = (sys.executable, "-m", "rmqstore", "serve", self.kind, "-c", str(self._file))
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(_START_S):
            line = (await self._process.stdout.readline()).decode()
        if " serves at " not in line:
            raise StoreError(f"{self.name} does not start: {self._log.read_text()[-1000:]}")
        self.address = line.split()[-1]

    async def end(self, number: signal.Signals) -> None:
        """End the process with a signal. A second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(_END_S):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()


class Cluster:
    """Controllers, a nameserver and a group of three brokers, in processes."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        count = len(ports) // 2
        self.controllers = [
            Server(folder, "controller", f"controller-{number}", config)
            for number, config in enumerate(_controllers(folder, ports[:count], ports[count:]))
        ]
        self.nameserver = Server(
            folder, "namesrv", "namesrv", {"bindAddress": "127.0.0.1", "listenPort": 0}
        )
        self.brokers: list[Server] = []
        self.controller_addresses = ";".join(f"127.0.0.1:{port}" for port in ports[:count])

    async def start(self) -> None:
        """Start all; the controllers elect a master later."""
        await asyncio.gather(*(each.start() for each in (*self.controllers, self.nameserver)))
        self.brokers = [
            Server(self.folder, "broker", f"broker-{number}", self._broker(number))
            for number in range(_BROKERS)
        ]
        await asyncio.gather(*(each.start() for each in self.brokers))

    async def end(self, number: signal.Signals) -> None:
        """End all running servers."""
        await asyncio.gather(*(each.end(number) for each in self.brokers))
        await asyncio.gather(*(each.end(number) for each in (self.nameserver, *self.controllers)))

    def stores(self) -> list[Path]:
        """Return the directories of the brokers' stores."""
        return [self.folder / f"broker-{number}" for number in range(_BROKERS)]

    def _broker(self, number: int) -> dict[str, object]:
        return {
            "brokerName": BROKER_NAME,
            "bindAddress": "127.0.0.1",
            "listenPort": 0,
            "haListenPort": 0,
            "namesrvAddr": self.nameserver.address,
            "enableControllerMode": "true",
            "controllerAddr": self.controller_addresses,
            "storePathRootDir": self.stores()[number],
            "mappedFileSizeCommitLog": 16 << 20,
            "maxHashSlotNum": 5000,
            "maxIndexNum": 20_000,
            "inSyncReplicas": 2,
            "minInSyncReplicas": 2,
            "brokerHeartbeatInterval": 100,
            "controllerHeartBeatTimeoutMills": 2000,
            "haSendHeartbeatInterval": 200,
            "haHousekeepingInterval": 2000,
            "messageDelayLevel": "1s 1s 1s",
        }


def _controllers(
    folder: Path, ports: list[int], raft_ports: list[int]
) -> Iterator[dict[str, object]]:
    peers, raft_peers = (
        ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(some))
        for some in (ports, raft_ports)
    )
    for number in range(len(ports)):
        yield {
            "bindAddress": "127.0.0.1",
            "controllerDLegerPeers": peers,
            **({"controllerRaftPeers": raft_peers} if len(ports) > 1 else {}),
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": folder / f"controller-{number}",
            "scanInactiveMasterInterval": 100,
            "scanNotActiveBrokerInterval": 100,
        }


@contextlib.asynccontextmanager
async def cluster(folder: Path, controllers: int) -> AsyncIterator[Cluster]:
    """Run a cluster with this number of controllers; no process is left at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with _free_ports(2 * controllers) as ports:
        running = Cluster(folder, ports)
        try:
            await running.start()
            yield running
        finally:
            await running.end(signal.SIGKILL)


@contextlib.contextmanager
def _free_ports(count: int) -> Iterator[list[int]]:
    """Reserves ports for servers whose port must be known before they start: a bound socket that
    does not listen keeps its port free for the server."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
        yield ports
