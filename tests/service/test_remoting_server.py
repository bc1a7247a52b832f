"""A remoting server: answers, limits, and peers that misbehave."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import time

import pytest

from rmqstore.errors import ArgumentError, InvalidFieldError
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import ConnectionLimits, RemotingConnection
from rmqstore.remoting.frames import Frame, SerializeType, encode
from rmqstore.remoting.server import FAST_PORT_DISTANCE, RemotingServer
from tests.service.remoting_peers import (
    ECHO,
    FAIL,
    HANDLERS,
    LATE_ECHO,
    NEVER,
    BarePeer,
    BigAnswers,
    HeldEcho,
    check_memory_of_a_deaf_client,
    on_loop,
    serve,
)
from tests.support.waiting import WAIT_S, until

UNKNOWN = 31999
"""A request code that no handler is for."""


@on_loop
async def test_requests_are_answered_with_their_opaque_and_type_of_header() -> None:
    async with serve() as server:
        peer = await BarePeer.to(server)
        for kind in SerializeType:
            request = Frame(ECHO, opaque=41 + kind, body=b"body", serialize_type=kind)
            await peer.send(request)
            answer = await peer.receive()
            assert (answer.opaque, answer.flag, answer.code) == (41 + kind, 1, 0)
            assert (answer.serialize_type, answer.body) == (kind, b"body")
        await peer.close()


@on_loop
async def test_unknown_codes_get_the_answer_of_java() -> None:
    async with serve() as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(UNKNOWN, opaque=5))
        answer = await peer.receive()
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {UNKNOWN} not supported"
        await peer.close()


@on_loop
async def test_a_handler_that_raises_is_logged_and_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve() as server:
        peer = await BarePeer.to(server)
        with caplog.at_level(logging.ERROR, "rmqstore.remoting"):
            await peer.send(Frame(FAIL, opaque=1), Frame(ECHO, opaque=2))
            answers = [await peer.receive(), await peer.receive()]
        assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR, 0]
        assert answers[0].remark == "ZeroDivisionError: of a handler"
        assert "request 9003 failed" in caplog.text
        await peer.close()


@on_loop
async def test_a_handler_whose_wait_is_cancelled_is_answered() -> None:
    async def wait(connection: RemotingConnection, request: Frame) -> Frame:
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        return await gone

    async with serve(handlers={ECHO: wait}) as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(ECHO, opaque=1))
        answer = await peer.receive()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "was cancelled" in (answer.remark or "")
        await peer.close()


@on_loop
async def test_a_refused_request_is_answered_with_the_code_of_the_refusal() -> None:
    def refuse(connection: RemotingConnection, request: Frame) -> Frame:
        raise InvalidFieldError("field topic is missing: send a text", field="topic")

    async with serve(handlers={ECHO: refuse}) as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(ECHO, opaque=1))
        answer = await peer.receive()
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == "field topic is missing: send a text"
        await peer.close()


@on_loop
async def test_an_answer_that_cannot_be_written_becomes_an_error() -> None:
    answers = {
        ECHO: lambda connection, request: request.respond(70000),
        LATE_ECHO: lambda connection, request: "no frame",
        FAIL: lambda connection, request: request.respond(0, fields={"a": 5}),
    }
    async with serve(handlers=answers) as server:
        peer = await BarePeer.to(server)
        for code in answers:
            await peer.send(Frame(code, opaque=code, serialize_type=SerializeType.ROCKETMQ))
            answer = await peer.receive()
            assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, code)
        await peer.close()


@on_loop
async def test_one_way_requests_get_no_answer_not_even_an_error() -> None:
    async with serve() as server:
        peer = await BarePeer.to(server)
        for code in (ECHO, FAIL, LATE_ECHO, UNKNOWN):
            await peer.send(Frame(code, flag=2, opaque=code))
        await peer.send(Frame(ECHO, opaque=7))
        assert (await peer.receive()).opaque == 7

        await until(lambda: not server.status().requests_in_progress, "all handlers have ended")
        await peer.send(Frame(ECHO, opaque=8))
        assert (await peer.receive()).opaque == 8
        await peer.close()


@on_loop
async def test_answers_leave_when_they_are_ready_and_not_in_order() -> None:
    held = HeldEcho()
    async with serve(handlers=HANDLERS | {LATE_ECHO: held}, close_timeout=0.01) as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(NEVER, opaque=1), Frame(LATE_ECHO, opaque=2), Frame(ECHO, opaque=3))
        assert (await peer.receive()).opaque == 3
        held.go_on.set()
        assert (await peer.receive()).opaque == 2
        assert server.status().requests_in_progress == 1
        await peer.close()


@on_loop
async def test_a_server_that_closes_sends_new_requests_away_and_finishes_those_in_progress() -> (
    None
):
    held = HeldEcho()
    async with serve(handlers=HANDLERS | {LATE_ECHO: held}, close_timeout=WAIT_S) as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(LATE_ECHO, opaque=1))
        await until(lambda: server.status().requests_in_progress, "the request is in progress")
        (connection,) = server.connections
        closing = asyncio.create_task(server.close())
        await until(lambda: connection._is_stopped, "the server closes")

        older = Frame(ECHO, opaque=2, version=475)
        await peer.send(older, Frame(ECHO, flag=2, opaque=3), Frame(ECHO, opaque=4, version=476))
        answer = await peer.receive()
        assert (answer.opaque, answer.code) == (4, ResponseCode.GO_AWAY)
        assert answer.remark == "please go away"
        held.go_on.set()
        assert ((await peer.receive()).opaque, held.begun) == (1, 1)
        assert await peer.is_closed()
        await closing
        await peer.close()


@on_loop
async def test_handlers_may_answer_later() -> None:
    waiting: list[tuple[RemotingConnection, Frame]] = []

    def keep(connection: RemotingConnection, request: Frame) -> None:
        waiting.append((connection, request))

    async with serve(handlers={ECHO: keep}) as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(ECHO, opaque=8))
        await until(lambda: waiting, "the request arrives")
        connection, request = waiting.pop()
        connection.send(request.respond(ResponseCode.SUCCESS, "late"))
        assert (await peer.receive()).remark == "late"
        await peer.close()
        await connection.wait_closed()
        connection.send(request.respond(ResponseCode.SUCCESS, "too late"))


@on_loop
async def test_close_callbacks_are_called_once_and_may_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []

    def watch(connection: RemotingConnection, request: Frame) -> None:
        connection.on_close(lambda gone: 1 // 0)
        connection.on_close(lambda gone: seen.append(gone.close_reason))

    async with serve(handlers={ECHO: watch}) as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(ECHO))
        await until(lambda: server.connections, "the connection")
        [connection] = server.connections
        await until(lambda: connection._on_close, "the request arrives")
        await peer.close()
        await until(lambda: seen, "the callback")
        assert "a close callback failed" in caplog.text
        assert not server.connections
        connection.on_close(lambda gone: seen.append("again"))
        await until(lambda: len(seen) == 2, "the callback on a closed connection")
    assert seen == ["the peer closed the connection", "again"]


@on_loop
async def test_the_fast_port_is_two_below_and_has_its_own_handlers() -> None:
    async with serve(fast_handlers={LATE_ECHO: HANDLERS[LATE_ECHO]}) as server:
        assert server.fast_address is not None
        assert server.fast_address[1] == server.address[1] - FAST_PORT_DISTANCE
        peer = BarePeer(*await asyncio.open_connection(*server.fast_address))
        await peer.send(Frame(LATE_ECHO, opaque=1))
        assert (await peer.receive()).code == ResponseCode.SUCCESS
        await peer.send(Frame(ECHO, opaque=2))
        assert (await peer.receive()).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await peer.close()


@on_loop
async def test_ports_that_cannot_be_had_are_named() -> None:
    async with serve() as server:
        with pytest.raises(ArgumentError, match="cannot listen at"):
            await RemotingServer(server.address, HANDLERS).__aenter__()
        with pytest.raises(ArgumentError, match="runs already"):
            server.start()
    with pytest.raises(ArgumentError, match="has no fast port"):
        RemotingServer("127.0.0.1:2", HANDLERS, fast_handlers=HANDLERS)


PREFACE_2 = b"\r\n\r\n\0\r\nQUIT\n"


@pytest.mark.parametrize(
    ("preface", "source"),
    [
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 51000 9876\r\n", ("10.1.2.3", 51000)),
        (b"PROXY TCP6 fe80::1 ::1 51000 9876\r\n", ("fe80::1", 51000)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY TCP4 nonsense x y z\r\n", None),
        (
            PREFACE_2
            + b"\x21\x11"
            + struct.pack(">H4s4sHH", 12, b"\n\1\2\3", b"\n\0\0\1", 51000, 1),
            ("10.1.2.3", 51000),
        ),
        (PREFACE_2 + b"\x21\x11" + struct.pack(">H", 20) + bytes(20), ("0.0.0.0", 0)),
        (PREFACE_2 + b"\x21\x21" + struct.pack(">H", 36) + bytes(36), ("::", 0)),
        (PREFACE_2 + b"\x20\x00" + struct.pack(">H", 0), None),
        (PREFACE_2 + b"\x21\x31" + struct.pack(">H", 300) + bytes(300), None),
    ],
    ids=["v1", "v1-6", "v1-unknown", "v1-odd", "v2", "v2-more", "v2-6", "v2-local", "v2-unix"],
)
@on_loop
async def test_the_preface_of_a_proxy_is_tolerated(
    preface: bytes, source: tuple[str, int] | None
) -> None:
    async with serve() as server:
        for is_cut in (False, True):
            peer = await BarePeer.to(server)
            if is_cut:
                for at in range(len(preface)):
                    await peer.send(preface[at : at + 1])
                    await asyncio.sleep(0)
                await peer.send(Frame(ECHO, opaque=4))
            else:
                await peer.send(preface, Frame(ECHO, opaque=4))
            assert (await peer.receive()).opaque == 4
            [connection] = server.connections
            assert connection.proxied_peer == source
            assert connection.peer == peer.writer.get_extra_info("sockname")
            await peer.close()
            await connection.wait_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY " + b"x" * 200,
        b"PROXX",
        PREFACE_2[:8] + b"nothing",
        PREFACE_2 + b"\x11\x11\0\0",
        b"\x16\x03\x01\x02\x00\x01",
        struct.pack(">II", 1 << 25, 0),
        struct.pack(">II", 4, 9 << 24),
        struct.pack(">II", 5, 2) + b"x",
        struct.pack(">II", 6, 2) + b"[]",
        b"\xff" * 1000,
        b"\0\0\0\0",
    ],
)
@on_loop
async def test_foreign_bytes_close_the_connection_without_an_answer(data: bytes) -> None:
    async with serve() as server:
        peer = await BarePeer.to(server)
        await peer.send(data)
        assert await peer.is_closed()
        await peer.close()
        other = await BarePeer.to(server)
        await other.send(Frame(ECHO, opaque=1))
        assert (await other.receive()).opaque == 1
        await other.close()


@on_loop
async def test_requests_before_foreign_bytes_are_answered() -> None:
    async with serve() as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(ECHO, opaque=1), Frame(ECHO, opaque=2), b"\xff" * 8)
        assert [(await peer.receive()).opaque for _ in range(2)] == [1, 2]
        assert await peer.is_closed()
        await peer.close()


@on_loop
async def test_half_a_frame_is_waited_for_and_then_dropped_as_idle() -> None:
    limits = ConnectionLimits(idle_timeout_s=0.3)
    async with serve(limits=limits) as server:
        peer = await BarePeer.to(server)
        await peer.send(encode(Frame(ECHO, body=b"x" * 100))[:-1])
        assert await peer.is_closed()
        silent = await BarePeer.to(server)
        assert await silent.is_closed()
        await until(lambda: not server.status().held_bytes, "the half frame is given up")
        await peer.close()
        await silent.close()


@on_loop
async def test_connections_beyond_the_limit_are_closed() -> None:
    async with serve(connections_max=2) as server:
        peers = [await BarePeer.to(server) for _ in range(2)]
        for number, peer in enumerate(peers):
            await peer.send(Frame(ECHO, opaque=number))
            assert (await peer.receive()).opaque == number
        third = await BarePeer.to(server)
        assert await third.is_closed()
        assert server.status().refused_connections == 1
        await third.close()
        await peers[0].close()
        await until(lambda: len(server.connections) == 1, "a place is free")
        fourth = await BarePeer.to(server)
        await fourth.send(Frame(ECHO, opaque=9))
        assert (await fourth.receive()).opaque == 9
        for peer in (peers[1], fourth):
            await peer.close()


@on_loop
async def test_a_client_that_does_not_read_holds_bounded_memory() -> None:
    """Requests stay in the client's socket while answers to it are not sent."""
    answers = BigAnswers()
    async with serve(handlers={ECHO: answers, LATE_ECHO: HANDLERS[ECHO]}) as server:
        deaf, other = await BarePeer.to(server), await BarePeer.to(server)
        await check_memory_of_a_deaf_client(server, answers, deaf, other)


@on_loop
async def test_a_client_whose_unsent_answers_pass_the_limit_is_cut_off() -> None:
    connections: list[RemotingConnection] = []

    def subscribe(connection: RemotingConnection, request: Frame) -> None:
        connections.append(connection)

    limits = ConnectionLimits(unsent_bytes_max=1 << 20)
    async with serve(handlers={ECHO: subscribe}, limits=limits) as server:
        deaf = await BarePeer.to(server)
        await deaf.send(Frame(ECHO))
        await until(lambda: connections, "the request")
        [connection] = connections
        for _ in range(100):
            if connection.is_open:
                connection.send(Frame(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, body=bytes(1 << 20)))
                await asyncio.sleep(0)
        assert "the peer does not read" in connection.close_reason
        await deaf.close()


@on_loop
async def test_unfinished_frames_of_many_clients_share_one_limit() -> None:
    async with serve(held_bytes_max=1 << 20) as server:
        peers = [await BarePeer.to(server) for _ in range(9)]
        for peer in peers:
            await peer.send(Frame(ECHO))
            await peer.receive()
        innocent, *hoarders = peers
        for peer in hoarders:
            peer.writer.write(encode(Frame(ECHO, body=bytes(300_000)))[:-1])
        await until(lambda: len(server.connections) < 9, "some are cut off")
        await until(lambda: server.status().held_bytes <= 1 << 20, "the limit is kept")
        await innocent.send(Frame(ECHO, opaque=5))
        assert (await innocent.receive()).opaque == 5
        for peer in peers:
            await peer.close()


async def _serve_another_client(server: RemotingServer) -> None:
    """Return once the loop of *server* has answered a client on a connection of its own."""
    async with RemotingClient() as client:
        answer = await client.call(server.address, Frame.request(UNKNOWN), timeout=WAIT_S)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@on_loop
async def test_requests_in_progress_are_bounded_and_the_rest_stay_unread() -> None:
    held = HeldEcho()
    limits = ConnectionLimits(requests_max=3)
    async with serve(handlers={ECHO: held}, limits=limits) as server:
        peer = await BarePeer.to(server)
        await peer.send(*(Frame(ECHO, opaque=number) for number in range(10)))
        await until(lambda: held.begun == 3, "three begin")
        # Answers to another client show that the server's loop went on.
        await _serve_another_client(server)
        assert (held.begun, server.status().requests_in_progress) == (3, 3)
        held.go_on.set()
        assert sorted([(await peer.receive()).opaque for _ in range(10)]) == list(range(10))
        await peer.close()


@on_loop
async def test_bodies_in_progress_are_bounded_too() -> None:
    held = HeldEcho()
    limits = ConnectionLimits(requests_bytes_max=1500)
    async with serve(handlers={ECHO: held}, limits=limits) as server:
        peer = await BarePeer.to(server)
        await peer.send(*(Frame(ECHO, opaque=number, body=bytes(1000)) for number in range(6)))
        await until(lambda: held.begun == 2, "two begin")
        await _serve_another_client(server)
        assert (held.begun, server.status().requests_in_progress) == (2, 2)
        held.go_on.set()
        assert sorted([(await peer.receive()).opaque for _ in range(6)]) == list(range(6))
        await peer.close()


@on_loop
async def test_closing_lets_requests_in_progress_finish() -> None:
    held = HeldEcho()
    server = serve(handlers={ECHO: held}, close_timeout=WAIT_S)
    server.start()
    peer = await BarePeer.to(server)
    await peer.send(Frame(ECHO, opaque=3))
    await until(lambda: held.begun, "the request is in progress")

    closing = asyncio.create_task(server.close())
    await until(lambda: not server._listeners, "closing has begun")
    assert not closing.done()
    held.go_on.set()
    assert (await peer.receive()).opaque == 3
    assert await peer.is_closed()
    await closing
    with pytest.raises(ConnectionError):
        await asyncio.open_connection(*server.address)
    await peer.close()


@on_loop
async def test_closing_does_not_wait_for_requests_that_never_finish() -> None:
    async with serve(close_timeout=0.05) as server:
        peer = await BarePeer.to(server)
        silent = await BarePeer.to(server)
        await peer.send(Frame(NEVER, opaque=3))
        await until(lambda: server.status().requests_in_progress, "the request is in progress")
    assert server.status().connections == 0
    assert server.status().held_bytes == 0
    assert await peer.is_closed()
    await silent.close()
    await peer.close()


@on_loop
async def test_many_clients_pipeline_at_once() -> None:
    async with serve() as server:

        async def one(number: int) -> None:
            peer = await BarePeer.to(server)
            frames = [
                Frame(LATE_ECHO if n % 3 else ECHO, opaque=n, body=json.dumps([number, n]).encode())
                for n in range(100)
            ]
            await peer.send(*frames)
            found = {
                answer.opaque: answer.body for answer in [await peer.receive() for _ in frames]
            }
            assert found == {frame.opaque: frame.body for frame in frames}
            await peer.close()

        await asyncio.gather(*(one(number) for number in range(20)))
        await until(lambda: not server.connections, "all are gone")
        assert server.status().held_bytes == 0
        assert not server.status().task_failures


@on_loop
async def test_many_requests_of_one_connection_hardly_delay_another() -> None:
    """Requests of one read are handled in turns, between which another connection is served."""
    handled: list[int] = []

    def busy(connection: RemotingConnection, request: Frame) -> Frame:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        handled.append(request.opaque)
        return request.respond(ResponseCode.SUCCESS)

    async def longest_turn() -> int:
        """Return the most requests that are handled between two rounds of the loop."""
        longest = known = 0
        while len(handled) < 300:
            await asyncio.sleep(0)
            longest, known = max(longest, len(handled) - known), len(handled)
        return longest

    async with serve(handlers={ECHO: busy}) as server:
        many, one = await BarePeer.to(server), await BarePeer.to(server)
        turns = asyncio.create_task(longest_turn())
        await many.send(*(Frame(ECHO, opaque=number) for number in range(299)))
        await until(lambda: handled, "the first one is handled")
        await one.send(Frame(ECHO, opaque=5000))
        assert (await one.receive()).opaque == 5000
        assert handled.index(5000) < 200
        assert [(await many.receive()).opaque for _ in range(299)] == list(range(299))
        # One that is answered at once may come between.
        assert await turns <= 8 + 1
        await many.close()
        await one.close()


@on_loop
async def test_one_way_requests_are_handled_although_their_client_has_gone() -> None:
    handled: list[int] = []

    def take(connection: RemotingConnection, request: Frame) -> None:
        handled.append(request.opaque)

    async with serve(handlers={ECHO: take}) as server:
        peer = await BarePeer.to(server)
        frames = [
            Frame(ECHO, opaque=number).with_opaque(number, is_one_way=True)
            for number in range(1000)
        ]
        await peer.send(*frames)
        await peer.close()
        await until(lambda: len(handled) == 1000, "all are handled")
        assert handled == list(range(1000))


@on_loop
async def test_answers_pass_requests_that_wait_for_others() -> None:
    """A peer that answers while the requests that it sent before wait for its answer."""

    async def ask(connection: RemotingConnection, request: Frame) -> Frame:
        answer = await connection.call(Frame(LATE_ECHO), WAIT_S)
        return request.respond(answer.code)

    limits = ConnectionLimits(requests_max=1)
    async with serve(handlers={ECHO: ask}, limits=limits) as server:
        peer = await BarePeer.to(server)
        await peer.send(Frame(ECHO, opaque=1))
        question = await peer.receive()
        answer = question.respond(ResponseCode.SUCCESS)
        await peer.send(*(Frame(ECHO, opaque=number) for number in range(2, 100)), answer)
        assert (await peer.receive()).opaque in (1, question.opaque + 1)
        await peer.close()
