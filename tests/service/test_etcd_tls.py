"""A controller whose log is in an etcd that speaks TLS and asks for certificates."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.config import ControllerConfig
from rmqstore.controller.server import Controller
from rmqstore.errors import StoreTimeout
from rmqstore.net.tls import TlsClient
from tests.support.etcd_cluster import EtcdCluster, needs_etcd
from tests.support.waiting import until

pytestmark = needs_etcd
FILES = Path(__file__).parent / "tls"
CA, OTHER_CA = FILES / "ca.pem", FILES / "other.pem"
CERTIFICATE, KEY = FILES / "client.pem", FILES / "client.key"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    options = {
        "cert-file": str(FILES / "server.pem"),
        "key-file": str(FILES / "server.key"),
        "trusted-ca-file": str(CA),
        "client-cert-auth": "true",
    }
    context = TlsClient(trusted=CA, certificate=CERTIFICATE, key=KEY).context()
    directory = tmp_path_factory.mktemp("etcd")
    with EtcdCluster(directory, options=options, context=context) as cluster:
        yield cluster


def controller(etcd: EtcdCluster, *, trusted: Path, shows: bool) -> Controller:
    return Controller(
        ControllerConfig(
            bind_address="127.0.0.1",
            peers="n0-127.0.0.1:0",
            self_id="n0",
            etcd_endpoints=tuple(etcd.endpoints),
            etcd_trusted=str(trusted),
            etcd_certificate=str(CERTIFICATE) if shows else "",
            etcd_key=str(KEY) if shows else "",
        )
    )


def test_controller_keeps_its_log_in_etcd_over_https(etcd: EtcdCluster) -> None:
    async def work() -> list[int]:
        terms = []
        for _ in range(2):
            async with controller(etcd, trusted=CA, shows=True) as node:
                await until(lambda: node.status().is_leader, "the controller leads")
                terms.append(node.status().term)
        return terms

    assert all(each.startswith("https://") for each in etcd.endpoints)
    first, second = asyncio.run(work())
    assert 0 < first < second, "the second start found what the first wrote"


# A connection whose wait ends in the first turn of its TLS handshake is left to the collector by
# asyncio, which warns of that.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("trusted", "shows", "reason"),
    [
        pytest.param(OTHER_CA, True, "certificate verify failed", id="unknown signer"),
        pytest.param(CA, False, "did not answer", id="no certificate"),
    ],
)
def test_etcd_is_not_used_without_the_right_certificates(
    etcd: EtcdCluster, trusted: Path, shows: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore.controller.engines.etcd._READ_S", 5.0)

    async def work() -> None:
        async with controller(etcd, trusted=trusted, shows=shows):
            pytest.fail("it serves")

    with pytest.raises(StoreTimeout, match=reason):
        asyncio.run(work())
    gc.collect()
