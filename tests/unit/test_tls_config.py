"""TLS settings: RocketMQ's keys, and what servers and clients make of them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rmqstore.config import ClientAuth, TlsConfig, TlsMode
from rmqstore.errors import ConfigError
from rmqstore.net.tls import TlsClient, TlsServer

SERVER = "tls.server.certPath=s.pem\ntls.server.keyPath=s.key\n"


def test_without_keys_neither_side_uses_tls() -> None:
    config = TlsConfig.from_properties(None)
    assert config == TlsConfig()
    assert TlsServer.from_config(config) is None
    assert TlsClient.from_config(config) is None


def test_a_file_of_rocketmq_sets_both_sides(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        f"{SERVER}tls.server.keyPassword=secret\ntls.server.need.client.auth=REQUIRE\n"
        "tls.server.authClient=true\ntls.server.trustCertPath=ca.pem\n"
        "tls.client.certPath=c.pem\ntls.client.keyPath=c.key\ntls.client.authServer=true\n"
        "tls.client.trustCertPath=ca.pem\n"
    )
    config = TlsConfig.from_properties(
        file, {"tls.enable": "true", "tls.server.mode": "enforcing", "tls.client.keyPath": "d.key"}
    )
    assert TlsServer.from_config(config) == TlsServer(
        certificate="s.pem",
        key="s.key",
        key_password="secret",
        trusted="ca.pem",
        client_auth=ClientAuth.REQUIRE,
        mode=TlsMode.ENFORCING,
    )
    assert TlsClient.from_config(config) == TlsClient(
        trusted="ca.pem", certificate="c.pem", key="d.key", is_host_checked=False
    )


def test_a_disabled_server_needs_no_files() -> None:
    config = TlsConfig.from_properties(f"{SERVER}tls.server.mode=disabled")
    assert TlsServer.from_config(config) is None


def test_a_client_verifies_nothing_unless_it_is_told_to() -> None:
    client = TlsClient.from_config(TlsConfig(enable=True))
    assert client == TlsClient(is_server_verified=False, is_host_checked=False)


def test_optional_certificates_that_are_not_verified_are_not_requested() -> None:
    text = f"{SERVER}tls.server.need.client.auth=optional\n"
    server = TlsServer.from_config(TlsConfig.from_properties(text))
    assert server is not None
    assert (server.client_auth, server.trusted) == (ClientAuth.NONE, None)
    verified = TlsConfig.from_properties(
        f"{text}tls.server.authClient=true\ntls.server.trustCertPath=ca.pem"
    )
    server = TlsServer.from_config(verified)
    assert server is not None
    assert (server.client_auth, server.trusted) == (ClientAuth.OPTIONAL, "ca.pem")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tls.server.mode=perhaps", "disabled or permissive or enforcing"),
        ("tls.server.mode=enforcing", "tls.server.certPath"),
        ("tls.server.certPath=s.pem", "tls.server.keyPath"),
        ("tls.client.keyPath=c.key", "tls.client.certPath"),
        (f"{SERVER}tls.server.need.client.auth=require", "tls.server.trustCertPath"),
        ("tls.server.certPaht=s.pem", "did you mean tls.server.certPath"),
        ("listenPort=1", "unknown key"),
    ],
)
def test_every_mistake_is_named_by_its_key(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        TlsConfig.from_properties(text)


def test_the_test_mode_of_rocketmq_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rmqstore"):
        TlsConfig.from_properties("tls.test.mode.enable=true")
    assert "tls.test.mode.enable" in caplog.text
