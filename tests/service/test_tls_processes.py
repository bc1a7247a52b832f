"""`rmqstore serve` and `rmqstore admin` with RocketMQ's tls.* keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.cli.errors import ExitCode
from tests.service.server_processes import first_line, refusal, serving
from tests.support.admin_command import admin

FILES = Path(__file__).parent / "tls"
CLIENT = f"""
tls.enable=true
tls.client.authServer=true
tls.client.trustCertPath={FILES / "ca.pem"}
"""
SHOWING = f"""{CLIENT}
tls.client.certPath={FILES / "client.pem"}
tls.client.keyPath={FILES / "client.key"}
"""
SERVER = f"""
tls.server.certPath={FILES / "server.pem"}
tls.server.keyPath={FILES / "server.key"}
"""
REQUIRING = f"""{SERVER}
tls.server.need.client.auth=require
tls.server.trustCertPath={FILES / "ca.pem"}
"""
PLAIN = "tls.enable=false\n"


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_controller_that_enforces_tls_serves_clients_with_a_certificate_alone(
    tmp_path: Path,
) -> None:
    config = written(
        tmp_path / "controller.conf",
        f"bindAddress=127.0.0.1\nlistenPort=0\ncontrollerStorePath={tmp_path / 'log'}\n",
    )
    tls = written(tmp_path / "tls.properties", REQUIRING)
    keys = (f"-Dtls.config.file={tls}", "-Dtls.server.mode=enforcing")
    with serving("controller", "-c", config, *keys) as process:
        address = first_line(process).split()[-1]
        for settings, code in (
            (SHOWING, ExitCode.OK),
            (CLIENT, ExitCode.FAILED),
            (PLAIN, ExitCode.FAILED),
        ):
            file = written(tmp_path / "client.properties", settings)
            admin("--tls-config", file, "getControllerMetaData", "-a", address, code=code)


def test_a_permissive_nameserver_serves_both_kinds_of_connection(tmp_path: Path) -> None:
    config = written(tmp_path / "namesrv.conf", "bindAddress=127.0.0.1\nlistenPort=0\n")
    tls = written(tmp_path / "tls.properties", SERVER)
    with serving("namesrv", "-c", config, "--tls-config", tls) as process:
        address = first_line(process).split()[-1]
        for settings in (CLIENT, PLAIN):
            file = written(tmp_path / "client.properties", settings)
            admin("--tls-config", file, "clusterList", "-n", address)
        admin("-Dtls.enable=true", "clusterList", "-n", address)


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        (("-Dtls.server.mode=enforcing", "-Dtls.enabled=true"), "did you mean tls.enable"),
        (("-Dtls.enable",), "KEY=VALUE"),
    ],
)
def test_a_command_with_a_wrong_key_is_refused(pairs: tuple[str, ...], named: str) -> None:
    assert named in admin(*pairs, "clusterList", code=ExitCode.USAGE)


def test_files_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    missing = f"{SERVER}tls.server.keyPath={tmp_path / 'none.key'}\n"
    tls = written(tmp_path / "tls.properties", missing)
    config = written(tmp_path / "namesrv.conf", "bindAddress=127.0.0.1\nlistenPort=0\n")
    assert "none.key" in refusal("namesrv", "-c", config, "--tls-config", tls)
