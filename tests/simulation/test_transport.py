"""Production's remoting server and client over the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from rmqstore.errors import RemotingClosedError, RemotingConnectError, RemotingTimeout
from rmqstore.net.addresses import Address
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.network import Network
from rmqstore.sim.process import Process
from rmqstore.sim.transport import SimClient, SimServer

_ECHO, _HOLD, _COUNT, _FLOOD = 1, 2, 3, 4
_SERVER: Address = ("10.0.0.1", 9876)


class _World:
    """A server on machine 1, a client on machine 2."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(seed))
        self.failures: list[dict[str, Any]] = []
        self.events: list[tuple[int, object]] = []
        """What happened, with the time."""
        self.server_process = self.process(1)
        self.client_process = self.process(2)
        self.counted = 0
        self.server: SimServer
        self.client: SimClient
        self.server_process.run(self._serve)
        self.client_process.run(self._make_client)

    def process(self, number: int) -> Process:
        clock = MachineClock(self.timeline, begin_ms=1000 * number, drift_ppm=100 * number)
        return Process(
            number,
            timeline=self.timeline,
            network=self.network,
            clock=clock,
            failed=self.failures.append,
        )

    def _serve(self) -> None:
        handlers = {_ECHO: _echo, _HOLD: _hold, _COUNT: self._count, _FLOOD: _flood}
        self.server = SimServer(self.server_process.sockets, _SERVER, handlers)
        self.server.start()

    def _make_client(self) -> None:
        self.client = SimClient(self.client_process.sockets)

    def _count(self, _connection: RemotingConnection, _request: Frame) -> None:
        self.counted += 1
        self.say("counted")

    def say(self, what: object) -> None:
        self.events.append((self.timeline.now_us, what))

    async def call(
        self, code: int, body: bytes = b"", *, to: Address = _SERVER, timeout: float = 3.0
    ) -> Any:
        """Returns the answer's body, or the error."""
        try:
            answer = await self.client.call(to, Frame.request(code, body=body), timeout)
        except (RemotingClosedError, RemotingConnectError, RemotingTimeout) as error:
            self.say(type(error).__name__)
            return error
        self.say(answer.body)
        return answer.body

    def pass_ms(self, ms: int) -> None:
        self.timeline.run(self.timeline.now_us + ms * 1000)
        assert not self.failures, self.failures

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts *work* in the client's process."""
        tasks: list[asyncio.Task[Any]] = []
        loop = self.client_process.loop
        self.client_process.run(lambda: tasks.append(loop.create_task(work)))
        return tasks[0]

    def run(self, work: Coroutine[Any, Any, Any], *, limit_ms: int = 60_000) -> Any:
        task = self.begin(work)
        for _ in range(limit_ms):
            if task.done():
                return task.result()
            self.pass_ms(1)
        raise AssertionError(f"not done after {limit_ms} ms")


def _echo(connection: RemotingConnection, request: Frame) -> Frame:
    return request.respond(0, body=request.body)


async def _hold(connection: RemotingConnection, request: Frame) -> Frame:
    await asyncio.sleep(1.0)
    return request.respond(0, body=request.body)


def _flood(connection: RemotingConnection, request: Frame) -> Frame:
    return request.respond(0, body=bytes(1_000_000))


def test_a_call_is_answered_after_the_time_of_its_way() -> None:
    world = _World()
    assert world.run(world.call(_ECHO, b"word")) == b"word"
    assert 200 <= world.timeline.now_us <= 6_000
    assert world.server.connections[0].peer[0] == "10.0.0.2"


def test_many_calls_share_one_connection_and_their_answers_overtake_each_other() -> None:
    world = _World()

    async def both() -> list[Any]:
        held = asyncio.create_task(world.call(_HOLD, b"held"))
        await asyncio.sleep(0.1)
        works = [world.call(_ECHO, b"%d" % number) for number in range(20)]
        return [*await asyncio.gather(*works), await held]

    assert world.run(both()) == [*(b"%d" % number for number in range(20)), b"held"]
    assert world.events[-1][1] == b"held"
    assert len(world.server.connections) == len(world.client.connections) == 1


def test_after_a_timeout_the_connection_stays_or_is_dropped() -> None:
    kept = set()
    for seed in range(12):
        world = _World(seed)
        error = world.run(world.call(_HOLD, timeout=0.5))
        assert isinstance(error, RemotingTimeout)
        world.pass_ms(2000)
        kept.add(len(world.server.connections))
        assert world.run(world.call(_ECHO, b"next")) == b"next"
    assert kept == {0, 1}


def test_a_connection_is_refused_where_nothing_listens() -> None:
    world = _World()
    for place in (("10.0.0.1", 9999), ("10.0.0.7", 9876)):
        error = world.run(world.call(_ECHO, to=place))
        assert isinstance(error, RemotingConnectError)
        assert "refused" in str(error)


def test_a_port_that_is_bound_accepts_connections_and_answers_after_the_start() -> None:
    world = _World()
    servers: list[SimServer] = []

    def bind() -> None:
        servers.append(SimServer(world.server_process.sockets, "10.0.0.1:80", {_ECHO: _echo}))
        servers[0].bind()

    world.server_process.run(bind)
    early = world.begin(world.call(_ECHO, b"early", to=("10.0.0.1", 80)))
    world.pass_ms(1000)
    assert not early.done()
    world.server_process.run(servers[0].start)
    world.pass_ms(10)
    assert early.result() == b"early"


def test_a_server_that_closes_answers_the_calls_under_way() -> None:
    world = _World()
    held = world.begin(world.call(_HOLD, b"held"))
    world.pass_ms(500)
    loop = world.server_process.loop
    world.server_process.run(lambda: loop.create_task(world.server.close()))
    world.pass_ms(1000)
    assert held.result() == b"held"
    assert isinstance(world.run(world.call(_ECHO)), RemotingConnectError)


@pytest.mark.parametrize(
    ("loses_power", "kind", "after_ms"),
    [(False, RemotingClosedError, 0), (True, RemotingTimeout, 2000)],
)
def test_calls_of_a_server_that_dies_end(
    loses_power: bool, kind: type[Exception], after_ms: int
) -> None:
    world = _World()
    held = [world.begin(world.call(_HOLD, timeout=2.5)) for _ in range(3)]
    world.pass_ms(500)
    world.server_process.end(loses_power=loses_power)
    world.pass_ms(10 + after_ms)
    assert [type(each.result()) for each in held] == [kind] * 3
    assert isinstance(world.run(world.call(_ECHO)), RemotingConnectError | RemotingClosedError)

    world.server_process = world.process(1)
    world.server_process.run(world._serve)
    assert world.run(world.call(_ECHO, b"again")) == b"again"


def test_a_paused_server_handles_its_requests_after_the_pause_in_their_order() -> None:
    world = _World()
    assert world.run(world.call(_ECHO, b"first")) == b"first"
    world.server_process.pause(5000)
    late = [world.begin(world.call(_ECHO, b"%d" % each, timeout=9.0)) for each in range(3)]
    world.pass_ms(4990)
    assert not any(each.done() for each in late)
    world.pass_ms(100)
    assert [each.result() for each in late] == [b"0", b"1", b"2"]


def test_a_one_way_request_arrives_and_is_not_answered() -> None:
    world = _World()
    world.run(world.client.send_one_way(_SERVER, Frame.request(_COUNT)))
    world.pass_ms(10)
    assert world.counted == 1
    assert world.client.connections[0].calls_waiting == 0


def test_a_server_stops_reading_from_a_client_that_reads_slowly() -> None:
    world = _World()
    assert world.run(world.call(_ECHO, b"first")) == b"first"
    [end] = world.network.connections()
    end.peer.is_slow = True
    late = [world.begin(world.call(_FLOOD, timeout=200.0)) for _ in range(3)]
    world.pass_ms(1000)
    assert not world.server.connections[0].is_writable
    end.peer.is_slow = False
    world.pass_ms(3000)
    assert [len(each.result()) for each in late] == [1_000_000] * 3
    assert world.server.connections[0].is_writable


def test_a_dead_process_has_no_effect_and_two_runs_are_equal() -> None:
    def one_run() -> tuple[list[tuple[int, object]], list[str]]:
        world = _World(7)
        process, client = world.client_process, world.client
        ended: list[str] = []

        async def chatter(name: str) -> None:
            try:
                for number in range(1000):
                    await world.call(_ECHO, b"%d" % number)
            finally:
                ended.append(name)
                process.loop.create_task(world.call(_COUNT))
                for connection in client.connections:
                    connection.send(Frame.request(_COUNT))
                    connection.close()
                await client.call(_SERVER, Frame.request(_COUNT))

        for name in ("first", "second", "third"):
            world.begin(chatter(name))
        world.pass_ms(100)
        process.end(loses_power=False)
        assert ended == ["first", "second", "third"]

        dead = len(world.events)
        world.client_process = world.process(2)
        world.client_process.run(world._make_client)
        world.run(world.call(_ECHO, b"new"))
        world.pass_ms(3000)
        assert len(world.events) == dead + 1
        assert world.counted == 0
        return world.events, ended

    assert one_run() == one_run()
