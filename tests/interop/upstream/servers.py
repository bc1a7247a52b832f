"""The servers that the tests expect: a nameserver, and three masters of one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.tls import TlsServer
from tests.interop.upstream import RELEASE
from tests.support.brokers import broker_config
from tests.support.java_broker import java_side

__all__ = ["HOST", "Servers", "java_servers", "our_servers"]

HOST = "127.0.0.1"
"""The tests reach their nameserver here only."""
NAMES = tuple(f"TestBrokerName_{number}" for number in range(3))
_CERTIFICATES = Path(__file__).parents[2] / "service" / "tls"
_LOG_FILE_BYTES = 16 << 20

_AS_UPSTREAM: Mapping[str, Any] = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": 0,
    "mappedFileSizeCommitLog": 104857600,
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferCountOnMessageInDisk": 1024,
    "enableConsumeQueueExt": "true",
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "appendAckAsync": "true",
    "appendCkAsync": "true",
    "recallMessageEnable": "true",
    "loadBalancePollNameServerInterval": 500,
    "popConsumerKVServiceInit": "true",
    "configManagerVersion": "v1",
    # A loaded machine must not make a broker refuse messages.
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": 30000,
    "timerWheelEnable": "true",
}
"""The settings that RocketMQ's tests give to a broker, and some of ours."""

# Each thread of a broker that puts messages takes 4 MiB, and there are dozens.
_JAVA_FLAGS = ("-Xmx512m", "-XX:MaxDirectMemorySize=1g", "-Dtls.server.mode=permissive")


@dataclass(frozen=True, slots=True)
class Servers:
    """The ports, at HOST, of a nameserver and three brokers."""

    namesrv: int
    brokers: tuple[int, ...]

    @property
    def flags(self) -> list[str]:
        """The flags that name them to the class IntegrationTestBase."""
        brokers = ",".join(map(str, self.brokers))
        return [f"-Dupstream.namesrv={self.namesrv}", f"-Dupstream.brokers={brokers}"]


@asynccontextmanager
async def our_servers(root: Path) -> AsyncIterator[Servers]:
    """Run servers of ours, with their files in *root*, within the block."""
    tls = TlsServer(certificate=_CERTIFICATES / "server.pem", key=_CERTIFICATES / "server.key")
    async with AsyncExitStack() as stack:
        config = NameserverConfig(bind_address=HOST, listen_port=0)
        nameserver = await stack.enter_async_context(Nameserver(config, tls=tls))
        namesrv = format_address(nameserver.address)

        brokers = []
        for name in NAMES:
            settings = broker_config(
                root / name,
                name=name,
                nameservers=(namesrv,),
                sql_filters=True,
                commit_log_file_size_bytes=_LOG_FILE_BYTES,
                recalls=True,
            )
            brokers.append(await stack.enter_async_context(Broker(settings, tls=tls)))

        for broker in brokers:
            await broker.registered()
        yield Servers(nameserver.address[1], tuple(broker.address[1] for broker in brokers))


@asynccontextmanager
async def java_servers(root: Path) -> AsyncIterator[Servers]:
    """Run servers of Java, with their files in *root*, within the block."""
    with java_side(RELEASE, root, host=HOST, flags=_JAVA_FLAGS) as java:
        namesrv = await java.nameserver()
        brokers = await asyncio.gather(
            *(java.broker(namesrv, brokerName=name, **_AS_UPSTREAM) for name in NAMES)
        )
        yield Servers(_port(namesrv), tuple(map(_port, brokers)))


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
