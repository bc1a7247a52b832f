"""TLS of remoting: modes of the server, certificates of both sides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqstore.errors import ArgumentError, RemotingClosedError, RemotingConnectError
from rmqstore.net.tls import ClientAuth, TlsClient, TlsMode, TlsServer
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.server import RemotingServer
from tests.service.remoting_peers import (
    ECHO,
    HANDLERS,
    LATE_ECHO,
    NEVER,
    BarePeer,
    BigAnswers,
    check_memory_of_a_deaf_client,
    on_loop,
    serve,
)
from tests.support.waiting import WAIT_S, until

FILES = Path(__file__).parent / "tls"
TRUSTING = TlsClient(trusted=FILES / "ca.pem")
SHOWING = TlsClient(
    trusted=FILES / "ca.pem", certificate=FILES / "client.pem", key=FILES / "client.key"
)


def tls(mode: TlsMode = TlsMode.PERMISSIVE, auth: ClientAuth = ClientAuth.NONE) -> TlsServer:
    return TlsServer(
        certificate=FILES / "server.pem",
        key=FILES / "server.key",
        trusted=FILES / "ca.pem",
        client_auth=auth,
        mode=mode,
    )


async def is_served(server: RemotingServer, client_tls: TlsClient | None) -> bool:
    async with RemotingClient(tls=client_tls) as client:
        request = Frame.request(ECHO, body=b"x" * 100_000)
        try:
            answer = await client.call(server.address, request, timeout=WAIT_S)
        except (RemotingConnectError, RemotingClosedError):
            return False
        assert answer.body == request.body
        return True


@pytest.mark.parametrize(
    ("server_tls", "client_tls", "expected"),
    [
        (tls(TlsMode.DISABLED), None, True),
        (tls(TlsMode.DISABLED), TRUSTING, False),
        (None, TRUSTING, False),
        (tls(TlsMode.PERMISSIVE), None, True),
        (tls(TlsMode.PERMISSIVE), TRUSTING, True),
        (tls(TlsMode.ENFORCING), None, False),
        (tls(TlsMode.ENFORCING), TRUSTING, True),
        (tls(TlsMode.ENFORCING), TlsClient(trusted=FILES / "other.pem"), False),
        (tls(TlsMode.ENFORCING), TlsClient(), False),
        (tls(TlsMode.ENFORCING), TlsClient(is_server_verified=False), True),
        (tls(auth=ClientAuth.REQUIRE), TRUSTING, False),
        (tls(auth=ClientAuth.REQUIRE), SHOWING, True),
        (tls(auth=ClientAuth.OPTIONAL), TRUSTING, True),
        (tls(auth=ClientAuth.OPTIONAL), SHOWING, True),
    ],
)
@on_loop
async def test_modes_and_certificates_decide_who_is_served(
    server_tls: TlsServer | None, client_tls: TlsClient | None, expected: bool
) -> None:
    async with serve(tls=server_tls) as server:
        assert await is_served(server, client_tls) is expected
        assert not server.status().task_failures


@on_loop
async def test_a_client_certificate_of_another_signer_is_refused() -> None:
    required = TlsServer(
        certificate=FILES / "server.pem",
        key=FILES / "server.key",
        trusted=FILES / "other.pem",
        client_auth=ClientAuth.REQUIRE,
    )
    async with serve(tls=required) as server:
        assert not await is_served(server, SHOWING)
        # A plain client is served in the permissive mode.
        assert await is_served(server, None)


@on_loop
async def test_the_host_of_the_certificate_is_checked() -> None:
    async with serve(tls=tls()) as server, RemotingClient(tls=TRUSTING) as client:
        by_name = ("localhost", server.address[1])
        answer = await client.call(by_name, Frame.request(ECHO, body=b"x"), timeout=WAIT_S)
        assert answer.body == b"x"
        with pytest.raises(RemotingConnectError, match="certificate"):
            await client.call(("127.1", server.address[1]), Frame.request(ECHO), timeout=WAIT_S)


@on_loop
async def test_a_preface_may_come_before_tls() -> None:
    async with serve(tls=tls(TlsMode.ENFORCING)) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"PROXY TCP4 10.1.2.3 10.0.0.1 51000 9876\r\n")
        await writer.start_tls(TRUSTING.context(), server_hostname="127.0.0.1")
        peer = BarePeer(reader, writer)
        await peer.send(Frame(ECHO, opaque=6))
        assert (await peer.receive()).opaque == 6
        assert server.connections[0].proxied_peer == ("10.1.2.3", 51000)
        await peer.close()


@on_loop
async def test_a_handshake_that_stops_does_not_keep_the_server_from_closing() -> None:
    async with serve(tls=tls()) as server:
        peer = await BarePeer.to(server)
        await peer.send(b"\x16\x03\x01")
        await until(lambda: server.connections, "the handshake begins")
    assert await peer.is_closed()
    await peer.close()


@on_loop
async def test_closing_waits_for_tls_connections_too() -> None:
    async with serve(tls=tls(), close_timeout=0.01) as server:
        async with RemotingClient(tls=TRUSTING) as client:
            await client.call(server.address, Frame.request(ECHO), timeout=WAIT_S)
            call = asyncio.create_task(client.call(server.address, Frame.request(NEVER), WAIT_S))
            await until(lambda: server.status().requests_in_progress, "the request is in progress")
            await server.close()
            assert server.status().connections == 0
            with pytest.raises(RemotingClosedError):
                await call


@on_loop
async def test_a_client_that_does_not_read_holds_bounded_memory_with_tls_too() -> None:
    answers = BigAnswers()
    async with serve(handlers={ECHO: answers, LATE_ECHO: HANDLERS[ECHO]}, tls=tls()) as server:
        deaf, other = [
            await BarePeer.to(server, ssl=TRUSTING.context(), server_hostname="127.0.0.1")
            for _ in range(2)
        ]
        await check_memory_of_a_deaf_client(server, answers, deaf, other)


def test_an_encrypted_key_needs_its_password() -> None:
    files = {"certificate": FILES / "server.pem", "key": FILES / "locked.key"}
    assert TlsServer(**files, key_password="secret").context()
    with pytest.raises(ArgumentError, match="key_password for an encrypted key"):
        TlsServer(**files).context()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"missing\.pem"):
        TlsServer(certificate=tmp_path / "missing.pem", key=FILES / "server.key").context()
    with pytest.raises(ArgumentError, match="belong together"):
        TlsServer(certificate=FILES / "server.pem", key=FILES / "client.key").context()
    with pytest.raises(ArgumentError, match=r"trusted certificates .*missing\.pem"):
        TlsClient(trusted=tmp_path / "missing.pem").context()
    with pytest.raises(ArgumentError, match="without trusted certificates"):
        TlsServer(
            certificate=FILES / "server.pem",
            key=FILES / "server.key",
            client_auth=ClientAuth.REQUIRE,
        ).context()
