"""Production's remoting over the simulated network: the server, the client, and their sockets.

    server = SimServer(process.sockets, "10.0.0.1:9876", handlers)
    client = SimClient(process.sockets)

The connections are production's `RemotingConnection`. Their transports are ends of the network's
connections. As with a kernel, a connection is accepted, opened and closed, and its bytes arrive,
even while the program is paused; the program handles them in later turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

from rmqstore.errors import RemotingTimeout
from rmqstore.net.addresses import Address, parse_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.connection import Handler, RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.server import FAST_PORT_DISTANCE, ConnectionMaker, RemotingServer
from rmqstore.sim.network import End, Network
from rmqstore.sim.virtual_loop import VirtualLoop

__all__ = [
    "SimClient",
    "SimServer",
    "SimTransport",
    "Sockets",
    "host_of",
    "machine_of",
    "port_number",
]

_HOST = "10.0.0."
_MACHINES = 1000
_EPHEMERAL = 32_768
_GIVES_UP = 0.4
"""The share of calls without an answer in time after which the machine drops the connection."""


def host_of(number: int) -> str:
    """Return the host address of the machine *number*."""
    return f"{_HOST}{number}"


def machine_of(place: str | Address) -> int:
    """Return the number of the machine of "10.0.0.N:port"."""
    host, _ = parse_address(place)
    assert host.startswith(_HOST), f"{host} is not a machine of this network"
    return int(host.removeprefix(_HOST))


def port_number(place: str | Address) -> int:
    """Return the address in the network of a port, given as "10.0.0.N:port"."""
    return parse_address(place)[1] * _MACHINES + machine_of(place)


class Process(Protocol):
    """The process that owns sockets."""

    @property
    def number(self) -> int:
        """The number of its machine."""

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""

    @property
    def loop(self) -> VirtualLoop:
        """Its loop."""

    def run(self, action: Callable[[], object]) -> None:
        """Run *action* on the loop, in a turn of the process."""


class Sockets:
    """All sockets of one life of *process*."""

    def __init__(self, process: Process, network: Network) -> None:
        self.process = process
        self.network = network
        self._ends: dict[End, None] = {}

    def add(self, end: End) -> None:
        """Own *end* until it is removed."""
        self._ends[end] = None

    def remove(self, end: End) -> None:
        """Forget an end that was closed."""
        self._ends.pop(end, None)

    def drop(self, *, loses_power: bool) -> None:
        """End all connections, because the process or its machine has ended. Nothing is written to
        them from now on."""
        ends, self._ends = self._ends, {}
        for end in ends:
            if loses_power:
                end.vanish()
            else:
                end.close()

    async def connect(self, place: Address, protocol: asyncio.Protocol) -> None:
        """Connect *protocol* to *place*. Raises ConnectionRefusedError."""
        opening = _Opening(self)
        self.network.connect(opening, port_number(place))
        try:
            end = await opening.end
        except BaseException:
            opening.give_up()
            raise
        protocol.connection_made(SimTransport(self, end, protocol))


class _Socket:
    """What all sockets have in common: a party of the network that gets no single messages."""

    def __init__(self, sockets: Sockets) -> None:
        self.number = sockets.process.number
        self._sockets = sockets
        self._process = sockets.process

    def on_accepted(self, end: End) -> bool:
        raise AssertionError("only a listener accepts connections")

    def on_opened(self, end: End) -> None:
        raise AssertionError("only a client opens connections")

    def on_refused(self, target: int) -> None:
        raise AssertionError("only a client opens connections")

    def on_bytes(self, end: End, data: bytes) -> None:
        raise AssertionError("bytes arrive at a transport")

    def on_writable(self, end: End) -> None:
        raise AssertionError("a transport writes")

    def on_closed(self, end: End) -> None:
        raise AssertionError("a transport closes")

    def on_message(self, source: int, data: bytes) -> None:
        raise AssertionError("remoting uses connections")


class _Opening(_Socket):
    """A connection that is being opened. Bytes that arrive before the program uses the connection
    wait."""

    def __init__(self, sockets: Sockets) -> None:
        super().__init__(sockets)
        self.end: asyncio.Future[End] = sockets.process.loop.create_future()
        self._opened: End | None = None
        self._is_given_up = False

    def give_up(self) -> None:
        """Close the connection, as soon as it is open."""
        self._is_given_up = True
        if self._opened is not None:
            self._sockets.remove(self._opened)
            self._opened.close()

    def on_opened(self, end: End) -> None:
        if self._process.is_over or self._is_given_up or not end.is_open:
            end.close()
            return
        self._opened = end
        end.party = _Waiting(self._sockets, end)
        self._process.run(lambda: None if self.end.done() else self.end.set_result(end))

    def on_refused(self, target: int) -> None:
        error = ConnectionRefusedError("Connection refused")
        self._process.run(lambda: None if self.end.done() else self.end.set_exception(error))


class _Waiting(_Socket):
    """An open connection that the program does not use yet: the kernel keeps what arrives."""

    def __init__(self, sockets: Sockets, end: End) -> None:
        super().__init__(sockets)
        self.data = b""
        self.has_ended = False
        sockets.add(end)

    def on_bytes(self, end: End, data: bytes) -> None:
        self.data += data

    def on_closed(self, end: End) -> None:
        self.has_ended = True
        self._sockets.remove(end)


class _Listener(_Socket):
    """A bound port. Connections wait until `begin`."""

    def __init__(self, sockets: Sockets, place: Address) -> None:
        super().__init__(sockets)
        self._is_open = True
        self._take: Callable[[End], None] | None = None
        self._backlog: list[End] = []
        sockets.network.listen(port_number(place), self)

    def begin(self, take: Callable[[End], None]) -> None:
        """Call *take* with each connection."""
        self._take = take
        backlog, self._backlog = self._backlog, []
        for end in backlog:
            take(end)

    def close(self) -> None:
        """Accept no further connections."""
        self._is_open = False
        for end in self._backlog:
            self._sockets.remove(end)
            end.close()

    def on_accepted(self, end: End) -> bool:
        if self._process.is_over or not self._is_open:
            return False
        end.party = _Waiting(self._sockets, end)
        self._process.run(lambda: self._accept(end))
        return True

    def _accept(self, end: End) -> None:
        if self._take is None:
            self._backlog.append(end)
        elif self._is_open:
            self._take(end)
        else:
            self._sockets.remove(end)
            end.close()


class SimTransport(_Socket, asyncio.Transport):
    """The transport of *protocol* over *end*."""

    def __init__(self, sockets: Sockets, end: End, protocol: asyncio.Protocol) -> None:
        _Socket.__init__(self, sockets)
        asyncio.Transport.__init__(self)
        self._end = end
        self._protocol = protocol
        self._high_bytes = 64 * 1024
        self._is_full = False
        self._is_closing = self._is_lost = False
        self._is_reading = True
        self._unread: list[bytes | None] = []
        """Bytes that arrived while reading was paused; None is the end of the connection."""
        waiting = cast(_Waiting, end.party)
        end.party = self
        if waiting.data:
            self._receive(waiting.data)
        if waiting.has_ended:
            self._receive(None)

    # ---- what the protocol calls

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        self._end.write(data)
        self._end.flush()
        if not self._is_full and self.get_write_buffer_size() > self._high_bytes:
            self._is_full = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._end.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = 64 * 1024 if high is None else high

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self._receive(data)

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._end.has_output:
                self._finish()

    def abort(self) -> None:
        self._is_closing = True
        self._finish()

    def _finish(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._sockets.remove(self._end)
        self._end.close()
        self._process.loop.call_soon(self._protocol.connection_lost, None)

    # ---- what the network calls

    def on_bytes(self, end: End, data: bytes) -> None:
        self._receive(data)

    def on_closed(self, end: End) -> None:
        self._sockets.remove(end)
        self._receive(None)

    def on_writable(self, end: End) -> None:
        self._process.run(self._drained)

    def _drained(self) -> None:
        if self._is_closing:
            self._finish()
        elif self._is_full:
            self._is_full = False
            self._protocol.resume_writing()

    def _receive(self, data: bytes | None) -> None:
        self._process.run(lambda: self._deliver(data))

    def _deliver(self, data: bytes | None) -> None:
        if self._is_lost:
            return
        if not self._is_reading:
            self._unread.append(data)
        elif data is None:
            self._is_closing = True
            self._finish()
        elif not self._is_closing:
            self._protocol.data_received(data)


class SimServer(RemotingServer):
    """A server at the port *listen* of the machine that *sockets* belong to."""

    def __init__(
        self,
        sockets: Sockets,
        listen: str | Address,
        handlers: Mapping[int, Handler],
        **options: Any,
    ) -> None:
        super().__init__(listen, handlers, **options)
        self._ports: list[_Listener] = []
        self._owner = sockets

    def _bind(self, place: Address, *, has_fast_port: bool) -> list[Address]:
        host, port = place
        places = [place, (host, port - FAST_PORT_DISTANCE)] if has_fast_port else [place]
        self._ports = [_Listener(self._owner, each) for each in places]
        return places

    def _accept(self, makers: Sequence[ConnectionMaker]) -> None:
        for port, make in zip(self._ports, makers, strict=True):
            port.begin(partial(self._take, make))

    def _stop_listening(self) -> None:
        for port in self._ports:
            port.close()

    def _take(self, make: ConnectionMaker, end: End) -> None:
        peer = host_of(end.peer.party.number), _EPHEMERAL + end.number % _EPHEMERAL
        connection = make(peer, number=end.number)
        connection.connection_made(SimTransport(self._owner, end, connection))


class SimClient(RemotingClient):
    """A client on the machine that *sockets* belong to."""

    def __init__(self, sockets: Sockets, **options: Any) -> None:
        super().__init__(**options)
        self._owner = sockets

    async def call(self, address: str | Address, request: Frame, timeout: float = 3.0) -> Frame:
        try:
            return await super().call(address, request, timeout)
        except RemotingTimeout:
            if self._owner.network.rng.random() < _GIVES_UP:
                self.disconnect(address)
            raise

    async def _connect(self, place: Address, connection: RemotingConnection) -> None:
        await self._owner.connect(place, connection)
