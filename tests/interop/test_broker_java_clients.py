"""Unmodified producers and consumers of RocketMQ against a broker and a nameserver of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.net.tls import TlsMode, TlsServer
from tests.interop.clients import Tls, java_program, play
from tests.interop.test_java_tls import FILES, OURS, VERIFYING
from tests.support.releases import BEFORE, NEW, OLD, with_releases

JSON = ()
BINARY = ("-Drocketmq.serialize.type=ROCKETMQ",)
TLS_FLAGS = tuple(f"-D{key}={value}" for key, value in VERIFYING.items())
ENFORCED = Tls(
    TlsServer(certificate=FILES / "server.pem", key=FILES / "server.key", mode=TlsMode.ENFORCING),
    OURS,
)
SEEN: Mapping[str, Any] = {
    "sync": "SEND_OK",
    "async": True,
    "batch": "SEND_OK 8",
    "requested": "re: hello",
    "pulled": 20,
    "tagged": [0, 11],
    "by key": "1 5",
    "by id": "0",
    "by unique key": "0",
    "pushed": 20,
    "shared": {"first": 2, "second": 2},
    "pushed to both": 60,
    "left": 4,
    "selected": ["3", "4", "5"],
    "delayed": True,
    "timed": True,
    "tries": 2,
    "tried": 1,
    "dead": 1,
    "fewest tries": 3,
    "in order": {"0": True, "1": True, "2": True},
    "broadcast": [60, 60],
    "polled": 60,
    "committed": True,
}


@with_releases("flags", {"json": (JSON, NEW), "binary": (BINARY, OLD)})
def test_java_clients_send_find_and_consume(
    java_release: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    seen = play(java_program(java_release, *flags), tmp_path)
    assert seen == {**SEEN, **({"requested": "not awaited"} if java_release == OLD else {})}


@pytest.mark.java
@pytest.mark.parametrize(
    ("flags", "tls"),
    [
        pytest.param(JSON, None, id="json"),
        pytest.param((*BINARY, *TLS_FLAGS), ENFORCED, id="binary over TLS"),
    ],
)
def test_java_clients_of_4_9_send_find_and_consume(
    tmp_path: Path, flags: tuple[str, ...], tls: Tls | None
) -> None:
    assert play(java_program(BEFORE, *flags), tmp_path, tls) == SEEN
