"""RocketMQ's client with `tls.*` properties, against a nameserver and a broker of ours."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.tls import ClientAuth, TlsClient, TlsMode, TlsServer
from tests.support.brokers import broker_config
from tests.support.java_broker import JavaSide, java_side
from tests.support.java_cluster import LIMIT_S
from tests.support.loops import on_loop
from tests.support.releases import NEW, OLD, with_releases
from tests.support.waiting import until

FILES = Path(__file__).parents[1] / "service" / "tls"
FEW = 5
OURS = TlsClient(
    trusted=FILES / "ca.pem", certificate=FILES / "client.pem", key=FILES / "client.key"
)
"""With which our broker registers at our nameserver."""

Properties = Mapping[str, object]
PLAIN: Properties = {}
ANY_SERVER: Properties = {"tls.enable": "true"}
"""RocketMQ's test mode, its default: the client shows no certificate and accepts any."""
VERIFYING: Properties = {
    "tls.enable": "true",
    "tls.test.mode.enable": "false",
    "tls.client.authServer": "true",
    "tls.client.trustCertPath": FILES / "ca.pem",
}
STRANGER: Properties = {**VERIFYING, "tls.client.trustCertPath": FILES / "other.pem"}
SHOWING: Properties = {
    **VERIFYING,
    "tls.client.certPath": FILES / "client.pem",
    "tls.client.keyPath": FILES / "client.key",
}
_topics = (f"tls-{number}" for number in itertools.count())


async def check_client(
    java: JavaSide, namesrv: str, properties: Properties, *, is_served: bool
) -> None:
    """Have a new client send messages, and pull all of them where it can send."""
    client, topic = await java.client(properties), next(_topics)

    async def ask(line: str) -> Mapping[str, Any]:
        return await asyncio.to_thread(client.ask, line, timeout=LIMIT_S)

    await ask(f"produce {namesrv} {topic}")
    kind = "sent" if is_served else "failed"
    await until(lambda: len(client.events_of(kind)) >= FEW, kind, timeout=LIMIT_S)
    await ask("stop")
    sent = client.events_of("sent")
    if is_served:
        found = (await ask(f"read {namesrv} {topic}"))["numbers"]
        assert {each["n"] for each in sent if each["status"] == "SEND_OK"} <= set(found)
    else:
        assert not sent, properties


@dataclass(frozen=True, slots=True)
class Case:
    """What the servers demand, which clients send and which fail."""

    mode: TlsMode
    auth: ClientAuth
    served: Sequence[Properties]
    refused: Sequence[Properties]


_PERMISSIVE = Case(TlsMode.PERMISSIVE, ClientAuth.NONE, [PLAIN, ANY_SERVER, VERIFYING], [STRANGER])
_ENFORCING = Case(TlsMode.ENFORCING, ClientAuth.REQUIRE, [SHOWING], [PLAIN, ANY_SERVER])


@with_releases("case", {"permissive": (_PERMISSIVE, OLD), "enforcing": (_ENFORCING, NEW)})
@on_loop
async def test_java_clients_with_the_right_certificates_send_and_pull(
    java_release: str, tmp_path: Path, case: Case
) -> None:
    tls = TlsServer(
        certificate=FILES / "server.pem",
        key=FILES / "server.key",
        trusted=FILES / "ca.pem",
        client_auth=case.auth,
        mode=case.mode,
    )
    config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
    with java_side(java_release, tmp_path) as java:
        async with Nameserver(config, tls=tls, client_tls=OURS) as nameserver:
            namesrv = format_address(nameserver.address)
            broker = broker_config(tmp_path / "broker", nameservers=(namesrv,))
            async with Broker(broker, tls=tls, client_tls=OURS) as running:
                await running.registered()
                for properties in case.served:
                    await check_client(java, namesrv, properties, is_served=True)
                for properties in case.refused:
                    await check_client(java, namesrv, properties, is_served=False)
