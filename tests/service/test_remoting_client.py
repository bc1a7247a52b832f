"""A remoting client: calls, pushed requests, and servers that fail it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from rmqstore.errors import (
    ArgumentError,
    RemotingClosedError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
)
from rmqstore.net.sockets import listen_on
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.connection import ConnectionLimits, RemotingConnection
from rmqstore.remoting.frames import Frame, encode
from tests.service.remoting_peers import (
    CALL_BACK,
    ECHO,
    FAIL,
    HANDLERS,
    NEVER,
    HeldEcho,
    echo,
    on_loop,
    serve,
)
from tests.support.waiting import WAIT_S, until


@on_loop
async def test_a_call_returns_the_answer_whatever_its_code() -> None:
    async with serve() as server, RemotingClient() as client:
        host, port = server.address
        answer = await client.call(f"{host}:{port}", Frame.request(ECHO, {"a": "1"}, b"body"))
        assert (answer.ext_fields, answer.body) == ({"a": "1"}, b"body")
        answer = await client.call(server.address, Frame.request(FAIL))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        with pytest.raises(RemotingError, match="ZeroDivisionError") as caught:
            answer.raise_for_code()
        assert caught.value.code == ResponseCode.SYSTEM_ERROR
        assert len(client.connections) == 1


@on_loop
async def test_many_calls_wait_on_one_connection() -> None:
    waiting: list[tuple[RemotingConnection, Frame]] = []

    def keep(connection: RemotingConnection, request: Frame) -> None:
        waiting.append((connection, request))

    async with serve(handlers={ECHO: keep}) as server, RemotingClient() as client:

        async def one(number: int) -> None:
            request = Frame.request(ECHO, body=str(number).encode())
            answer = await client.call(server.address, request, timeout=WAIT_S)
            assert answer.body == str(number).encode()

        calls = asyncio.gather(*(one(number) for number in range(300)))
        await until(lambda: len(waiting) == 300, "all requests arrive")
        assert len(server.connections) == len(client.connections) == 1
        assert client.connections[0].calls_waiting == 300

        # Answers come back in another order than the requests.
        for connection, request in reversed(waiting):
            connection.send(echo(connection, request))
        await calls
        assert client.connections[0].calls_waiting == 0


@on_loop
async def test_one_frame_may_go_to_many_servers_at_once() -> None:
    async with serve() as one, serve() as other, RemotingClient() as client:
        request = Frame.request(ECHO, body=b"same")
        answers = await asyncio.gather(
            *(client.call(server.address, request) for server in (one, other) for _ in range(5))
        )
        assert {answer.body for answer in answers} == {b"same"}
        assert request == Frame.request(ECHO, body=b"same")


@on_loop
async def test_one_way_requests_arrive() -> None:
    seen: list[Frame] = []

    def take(connection: RemotingConnection, request: Frame) -> None:
        seen.append(request)

    async with serve(handlers={ECHO: take}) as server, RemotingClient() as client:
        await client.send_one_way(server.address, Frame.request(ECHO, body=b"x"))
        await until(lambda: seen, "the request")
        assert seen[0].is_one_way
        assert seen[0].body == b"x"


@on_loop
async def test_requests_of_the_server_are_answered_by_handlers() -> None:
    async with serve() as server, RemotingClient({ECHO: echo}) as client:
        request = Frame.request(CALL_BACK, body=b"ball")
        answer = await client.call(server.address, request, timeout=WAIT_S)
        assert answer.body == b"back: ball"
        await until(lambda: server.connections, "the connection")
        refused = await server.connections[0].call(Frame.request(FAIL), timeout=WAIT_S)
        assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@on_loop
async def test_no_answer_in_time_raises_and_the_late_one_is_dropped() -> None:
    held = HeldEcho()
    async with serve(handlers={ECHO: held}) as server, RemotingClient() as client:
        with pytest.raises(RemotingTimeout, match=r"did not answer request 9001 within") as caught:
            await client.call(server.address, Frame.request(ECHO, body=b"first"), timeout=0.05)
        assert isinstance(caught.value, TimeoutError)
        await until(lambda: held.begun, "the request arrives")

        # The late answer is sent before the next one, on the same connection.
        held.go_on.set()
        answer = await client.call(
            server.address, Frame.request(ECHO, body=b"next"), timeout=WAIT_S
        )
        assert answer.body == b"next"
        assert len(server.connections) == len(client.connections) == 1
        assert client.connections[0].calls_waiting == 0


@on_loop
async def test_a_refused_connection_names_address_and_cure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = unused.getsockname()
        async with RemotingClient() as client:
            with pytest.raises(RemotingConnectError, match="cannot connect to 127") as caught:
                await client.call(address, Frame.request(ECHO))
            assert isinstance(caught.value, ConnectionError)
            assert "check the address and that the server runs" in str(caught.value)


@on_loop
async def test_a_name_that_does_not_resolve_raises() -> None:
    async with RemotingClient() as client:
        with pytest.raises(RemotingConnectError, match=r"cannot connect to host\.invalid:9876"):
            await client.call("host.invalid:9876", Frame.request(ECHO), timeout=WAIT_S)
        with pytest.raises(ArgumentError, match="is not an address"):
            await client.call("no address", Frame.request(ECHO))


@on_loop
async def test_a_host_name_is_resolved() -> None:
    async with serve() as server, RemotingClient() as client:
        answer = await client.call(
            ("localhost", server.address[1]), Frame.request(ECHO, body=b"x"), timeout=WAIT_S
        )
        assert answer.body == b"x"


@on_loop
async def test_a_name_that_did_not_resolve_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    failures = [socket.gaierror(socket.EAI_AGAIN, "try again")]
    look_up = loop.getaddrinfo

    async def fails_at_first(host: str, port: int, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await look_up("127.0.0.1", port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", fails_at_first)
    async with serve() as server, RemotingClient() as client:
        place = f"controller.invalid:{server.address[1]}"
        with pytest.raises(RemotingConnectError, match="try again"):
            await client.call(place, Frame.request(ECHO), timeout=WAIT_S)
        answer = await client.call(place, Frame.request(ECHO, body=b"x"), timeout=WAIT_S)
        assert answer.body == b"x"


@on_loop
async def test_a_server_that_accepts_nothing_ends_in_a_connect_error() -> None:
    listener = listen_on(("127.0.0.1", 0))
    fillers = []
    try:
        # The kernel completes connections up to the backlog; later clients wait.
        for _ in range(200):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        async with RemotingClient(connect_timeout=0.2) as client:
            with pytest.raises(RemotingConnectError, match=r"no answer within 0\.2 s"):
                await client.call(listener.getsockname(), Frame.request(ECHO), timeout=WAIT_S)
            with pytest.raises(RemotingConnectError, match="was not sent"):
                await client.call(listener.getsockname(), Frame.request(ECHO), timeout=0.05)
    finally:
        for filler in (*fillers, listener):
            filler.close()


@on_loop
async def test_calls_that_wait_raise_when_the_connection_ends() -> None:
    async with serve(close_timeout=0.01) as server, RemotingClient() as client:
        calls = [
            asyncio.create_task(client.call(server.address, Frame.request(NEVER), timeout=WAIT_S))
            for _ in range(5)
        ]
        await until(
            lambda: server.status().requests_in_progress == 5, "the requests are in progress"
        )
        server.connections[0].abort("by the test")
        for call in calls:
            with pytest.raises(RemotingClosedError, match="ended before the answer"):
                await call
        # The next call opens another connection.
        answer = await client.call(server.address, Frame.request(ECHO, body=b"again"))
        assert answer.body == b"again"


@on_loop
async def test_a_server_that_returns_is_found_again() -> None:
    async with RemotingClient() as client:
        server = serve()
        server.start()
        address = server.address
        await client.call(address, Frame.request(ECHO))
        await server.close()
        await until(lambda: not client.connections, "the connection is gone")
        with pytest.raises(RemotingConnectError):
            await client.call(address, Frame.request(ECHO))
        # Another process may have taken the port meanwhile; then this test cannot continue.
        again = serve()
        again._listen = address
        try:
            again.start()
        except ArgumentError:
            pytest.skip("the port was taken")
        answer = await client.call(address, Frame.request(ECHO, body=b"again"))
        assert answer.body == b"again"
        await again.close()


@on_loop
async def test_closing_the_client_ends_its_calls() -> None:
    async with serve(close_timeout=0.01) as server:
        client = RemotingClient()
        call = asyncio.create_task(
            client.call(server.address, Frame.request(NEVER), timeout=WAIT_S)
        )
        await until(lambda: server.status().requests_in_progress, "the request is in progress")
        await client.close()
        with pytest.raises(RemotingClosedError, match="the client closes"):
            await call
        with pytest.raises(RemotingClosedError, match="the client is closed"):
            await client.call(server.address, Frame.request(ECHO))
        await client.close()


@on_loop
async def test_a_cancelled_call_leaves_the_connection_to_others() -> None:
    async with serve(close_timeout=0.01) as server, RemotingClient() as client:
        first = asyncio.create_task(client.call(server.address, Frame.request(NEVER)))
        second = asyncio.create_task(client.call(server.address, Frame.request(ECHO, body=b"2")))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).body == b"2"
        with pytest.raises(asyncio.CancelledError):
            await first
        assert client.connections[0].calls_waiting == 0


@on_loop
async def test_the_least_used_connection_makes_room_for_another() -> None:
    async with serve() as one, serve() as two, serve(close_timeout=0.01) as three:
        async with RemotingClient(connections_max=2) as client:
            for server in (one, two, one, three):
                await client.call(server.address, Frame.request(ECHO))
            peers = [connection.peer for connection in client.connections]
            assert peers == [one.address, three.address]
            waiting = [
                asyncio.create_task(client.call(each.address, Frame.request(NEVER), timeout=WAIT_S))
                for each in (one, three)
            ]
            await until(lambda: three.status().requests_in_progress, "the requests are in progress")
            await until(lambda: one.status().requests_in_progress, "the requests are in progress")
            with pytest.raises(RemotingConnectError, match="the limit is 2"):
                await client.call(two.address, Frame.request(ECHO))
            for call in waiting:
                call.cancel()
            await asyncio.wait(waiting)
            one.connections[0].abort("by the test")


@on_loop
async def test_calls_beyond_the_limit_are_refused() -> None:
    limits = ConnectionLimits(calls_max=2)
    async with serve(close_timeout=0.01) as server, RemotingClient(limits=limits) as client:
        calls = [
            asyncio.create_task(client.call(server.address, Frame.request(NEVER), timeout=WAIT_S))
            for _ in range(2)
        ]
        await until(
            lambda: server.status().requests_in_progress == 2, "the requests are in progress"
        )
        with pytest.raises(RemotingError, match="the limit is 2; send the next one after"):
            await client.call(server.address, Frame.request(ECHO))
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


@on_loop
async def test_a_server_that_does_not_read_lets_one_way_requests_time_out() -> None:
    accepted: list[asyncio.StreamWriter] = []

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        accepted.append(writer)

    deaf = await asyncio.start_server(ignore, "127.0.0.1", 0)
    address = deaf.sockets[0].getsockname()
    async with RemotingClient() as client:
        big = Frame.request(ECHO, body=bytes(1 << 20))

        async def flood() -> None:
            for _ in range(200):
                await client.send_one_way(address, big, timeout=0.2)

        with pytest.raises(RemotingTimeout, match="did not read request"):
            await flood()
        assert client.connections[0].held_bytes < 8 << 20
        client.connections[0].abort("by the test")
    for writer in accepted:
        writer.transport.abort()  # type: ignore[attr-defined]
    deaf.close()
    await deaf.wait_closed()


@on_loop
async def test_answers_nobody_asked_for_and_foreign_bytes_are_survived() -> None:
    sent = [
        encode(Frame(0, flag=1, opaque=12345)),
        encode(Frame(0, flag=1, opaque=0)),
        b"\xff" * 32,
    ]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"".join(sent))
        await reader.read()
        writer.close()

    odd = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with RemotingClient() as client:
        with pytest.raises(RemotingClosedError, match="announces 4294967299 bytes"):
            await client.call(odd.sockets[0].getsockname(), Frame.request(ECHO), timeout=WAIT_S)
    odd.close()
    await odd.wait_closed()


@on_loop
async def test_an_idle_connection_is_closed_and_opened_again() -> None:
    limits = ConnectionLimits(idle_timeout_s=0.2)
    async with serve() as server, RemotingClient(limits=limits) as client:
        await client.call(server.address, Frame.request(ECHO), timeout=WAIT_S)
        await until(lambda: not client.connections, "the idle connection is gone")
        await until(lambda: not server.connections, "the server knows")
        await client.call(server.address, Frame.request(ECHO), timeout=WAIT_S)


@on_loop
async def test_disconnecting_closes_one_connection() -> None:
    async with serve() as server, RemotingClient(HANDLERS) as client:
        await client.call(server.address, Frame.request(ECHO))
        client.disconnect(server.address)
        client.disconnect(server.address)
        await until(lambda: not server.connections, "the connection is gone")
        await client.call(server.address, Frame.request(ECHO))
