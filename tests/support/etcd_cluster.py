"""An etcd cluster on the loopback interface, whose members a test kills and cuts off.

Every address that a member is known by is a relay's, which stays over restarts; the member itself
listens at a free port, another one in each start.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from rmqstore.controller.engines.etcd_gateway import Gateway
from tests.support.relay import Relay
from tests.support.waiting import spin_until

START_S = 150.0
ATTEMPTS = 5

needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None, reason="etcd is not installed (Debian: etcd-server)"
)


class Member:
    """One process of a cluster."""

    def __init__(
        self,
        name: str,
        directory: Path,
        options: Mapping[str, str],
        context: ssl.SSLContext | None,
    ) -> None:
        self.name = name
        self._context = context
        self._options = options
        self.peers, self.clients = Relay(), Relay()
        self.process: subprocess.Popen[bytes] | None = None
        self._directory = directory
        self._log = directory.parent / f"{name}.log"
        self._state = "new"

    @property
    def url(self) -> str:
        """Where clients reach the member, through its relay."""
        return _url(self.clients.address, is_secure=self._context is not None)

    def launch(self, cluster: str) -> None:
        """Start the process; it may still end because a port was taken."""
        peers, clients = _free_port(), _free_port()
        self.peers.target, self.clients.target = ("127.0.0.1", peers), ("127.0.0.1", clients)
        options = {
            "name": self.name,
            "data-dir": str(self._directory),
            "initial-cluster": cluster,
            "initial-cluster-state": self._state,
            "initial-advertise-peer-urls": _url(self.peers.address),
            "listen-peer-urls": _url(("127.0.0.1", peers)),
            "advertise-client-urls": self.url,
            "listen-client-urls": _url(("127.0.0.1", clients), is_secure=self._context is not None),
            "logger": "zap",
            **self._options,
        }
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                ["etcd", *(f"--{name}={value}" for name, value in options.items())],
                stdout=log,
                stderr=log,
            )

    def is_healthy(self) -> bool:
        """Whether it serves, with a quorum."""
        target = self.clients.target
        if target is None or self.has_ended():
            return False
        if self._context is None:
            connection = http.client.HTTPConnection(*target, timeout=5)
        else:
            connection = http.client.HTTPSConnection(*target, timeout=5, context=self._context)
        try:
            connection.request("GET", "/health")
            return bool(json.load(connection.getresponse())["health"] == "true")
        except (OSError, ValueError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process is None or self.process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def empty(self) -> None:
        """Remove the data, so that the next start joins a cluster that runs."""
        assert self.has_ended()
        for each in self._directory.iterdir():
            shutil.rmtree(each)
        self._state = "existing"

    def close(self) -> None:
        """End the process and the relays."""
        self.kill()
        self.peers.close()
        self.clients.close()

    def said(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])


class EtcdCluster:
    """Members that agree, started with *options* besides; leaving the context ends them.

    *context* is what clients need where *options* have the members speak TLS with them.
    """

    def __init__(
        self,
        directory: Path,
        *,
        members: int = 1,
        options: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._stack = ExitStack()
        self.members: list[Member] = []
        for number in range(members):
            member = Member(f"m{number}", directory / f"m{number}", options or {}, context)
            self._stack.callback(member.close)
            self.members.append(member)
        self._cluster = ",".join(f"{m.name}={_url(m.peers.address)}" for m in self.members)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def endpoints(self) -> list[str]:
        """The URLs of the members."""
        return [each.url for each in self.members]

    def start(self, *names: Member) -> None:
        """Start members that do not run, all without names; return when the cluster serves."""
        members = list(names) or self.members
        attempts = dict.fromkeys((each.name for each in members), ATTEMPTS)

        def serves() -> bool:
            for each in members:
                if each.has_ended():
                    attempts[each.name] -= 1
                    assert attempts[each.name] >= 0, f"{each.name} ends: {each.said()}"
                    each.launch(self._cluster)
            return all(each.is_healthy() for each in members)

        spin_until(serves, "every member of etcd serves", timeout=START_S)

    def replace(self, member: Member) -> None:
        """Put an empty member in the place of *member*, which has ended, as etcd asks for where a
        disk lost what it had reported as synced."""
        member.empty()
        others = [each.url for each in self.members if each is not member]
        asyncio.run(_replace(others, member.name, _url(member.peers.address)))

    def kill(self) -> None:
        """Kill all members at once."""
        for each in self.members:
            if each.process is not None:
                each.process.kill()
        for each in self.members:
            each.kill()


async def _replace(endpoints: Sequence[str], name: str, peer_url: str) -> None:
    gateway = Gateway(endpoints)
    members = (await gateway.call("/v3/cluster/member/list", {}, timeout=60)).body["members"]
    former = next(each["ID"] for each in members if each["name"] == name)
    await gateway.call("/v3/cluster/member/remove", {"ID": former}, timeout=60)
    await gateway.call("/v3/cluster/member/add", {"peerURLs": [peer_url]}, timeout=60)
    await gateway.close()


def _url(address: tuple[str, int], *, is_secure: bool = False) -> str:
    host, port = address
    return f"{'https' if is_secure else 'http'}://{host}:{port}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
