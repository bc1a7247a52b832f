"""Servers, clients and bare sockets for the tests of remoting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.server import RemotingServer
from tests.support.loops import on_loop as on_loop
from tests.support.waiting import WAIT_S, until

ECHO, LATE_ECHO, FAIL, NEVER, CALL_BACK = 9001, 9002, 9003, 9004, 9005


def echo(connection: RemotingConnection, request: Frame) -> Frame:
    """Answer with the request's fields and body."""
    return request.respond(ResponseCode.SUCCESS, None, request.ext_fields, request.body)


async def late_echo(connection: RemotingConnection, request: Frame) -> Frame:
    """Answer as `echo` does, in a task and one turn of the loop later."""
    await asyncio.sleep(0)
    return echo(connection, request)


class HeldEcho:
    """A handler that answers as `echo` does, once the test has set *go_on*."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()

    async def __call__(self, connection: RemotingConnection, request: Frame) -> Frame:
        self.begun += 1
        await self.go_on.wait()
        return echo(connection, request)


def fail(connection: RemotingConnection, request: Frame) -> Frame:
    """Raise."""
    raise ZeroDivisionError("of a handler")


async def never(connection: RemotingConnection, request: Frame) -> None:
    """Do not answer."""
    await asyncio.Event().wait()


async def call_back(connection: RemotingConnection, request: Frame) -> Frame:
    """Send the request's body to the peer as a request; answer with the body of its answer."""
    answer = await connection.call(Frame.request(ECHO, body=request.body), timeout=WAIT_S)
    return request.respond(ResponseCode.SUCCESS, body=b"back: " + answer.body)


HANDLERS: dict[int, Callable[..., Awaitable[Frame | None] | Frame | None]] = {
    ECHO: echo,
    LATE_ECHO: late_echo,
    FAIL: fail,
    NEVER: never,
    CALL_BACK: call_back,
}


def serve(**named: Any) -> RemotingServer:
    """Return a server of HANDLERS at a free port of the loopback interface."""
    return RemotingServer("127.0.0.1:0", named.pop("handlers", HANDLERS), **named)


class BarePeer:
    """A connection to a server that sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    @classmethod
    async def to(cls, server: RemotingServer, **named: Any) -> BarePeer:
        """Return a peer that is connected to *server*."""
        return cls(*await asyncio.open_connection(*server.address, **named))

    async def send(self, *what: Frame | bytes) -> None:
        """Send frames and bytes."""
        self.writer.write(
            b"".join(each if isinstance(each, bytes) else encode(each) for each in what)
        )
        await self.writer.drain()

    async def receive(self) -> Frame:
        """Return the next frame."""
        while not self._frames:
            data = await self._reader.read(65536)
            assert data, "the server closed the connection"
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def is_closed(self) -> bool:
        """Return whether the server closes the connection, without a further frame."""
        try:
            return await self._reader.read() == b"" and not self._frames
        except ConnectionError:
            return True

    async def close(self) -> None:
        """Close this end."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, OSError):
            pass


class BigAnswers:
    """A handler that answers each request with 1 MiB."""

    def __init__(self) -> None:
        self.handled = 0

    def __call__(self, connection: RemotingConnection, request: Frame) -> Frame:
        self.handled += 1
        return request.respond(ResponseCode.SUCCESS, body=bytes(1 << 20))


async def check_memory_of_a_deaf_client(
    server: RemotingServer, answers: BigAnswers, deaf: BarePeer, other: BarePeer
) -> None:
    """Check that *server* holds bounded memory for *deaf* until that client reads.

    *answers* handles ECHO, `echo` handles LATE_ECHO. *other* is a client that does read.
    """
    requests = [Frame(ECHO, opaque=number) for number in range(120)]
    deaf.writer.write(b"".join(map(encode, requests)))
    await until(lambda: answers.handled, "the first request")

    # The server answers another client meanwhile, so its loop went on.
    for number in range(50):
        await other.send(Frame(LATE_ECHO, opaque=number))
        assert (await other.receive()).opaque == number
        assert server.status().held_bytes < 16 << 20
    assert answers.handled < 120

    # A client that reads again gets every answer.
    for number in range(120):
        assert (await deaf.receive()).opaque == number
    assert answers.handled == 120
    await deaf.close()
    await other.close()
