"""Requests over connections of the simulated network, and their answers: a remoting client.

Each address has one connection for all requests. After a request without an answer in time the
connection stays open, as in production's client, or the machine drops it; then bytes in transit may
still arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rmqstore.errors import RemotingClosedError, RemotingConnectError, RemotingTimeout
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.sim.clock import Timeline
from rmqstore.sim.network import End, Network

__all__ = ["Answer", "Caller", "Done"]

Answer = Frame | RemotingConnectError | RemotingClosedError | RemotingTimeout
Done = Callable[[Answer], None]
"""Receives the answer to a request, or the error."""
_GIVES_UP = 0.4


@dataclass(slots=True)
class _Way:
    """The connection and requests to one address."""

    end: End | None = None
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    unsent: list[tuple[int, Frame]] = field(default_factory=list)
    """Requests that wait for the connection."""


class Caller:
    """The client of the machine *number*."""

    def __init__(self, number: int, *, timeline: Timeline, network: Network) -> None:
        self.number = number
        self._timeline = timeline
        self._network = network
        self._ways: dict[int, _Way] = {}
        self._waiting: dict[int, tuple[int, Done]] = {}
        self._opaque = 0

    def call(self, address: int, request: Frame, timeout_ms: int, done: Done) -> None:
        """Send *request* to the server at *address*."""
        self._opaque += 1
        opaque = self._opaque
        self._waiting[opaque] = address, done
        self._timeline.after(timeout_ms * 1000, self._overdue, opaque)
        way = self._ways.get(address)
        if way is None:
            way = self._ways[address] = _Way()
            self._network.connect(self, address)
        if way.end is None:
            way.unsent.append((opaque, request))
        else:
            self._write(way.end, opaque, request)

    def drop(self, *, loses_power: bool) -> None:
        """End all connections, because the process or the machine ended. Requests get no answer."""
        ways, self._ways = self._ways, {}
        self._waiting.clear()
        for way in ways.values():
            if way.end is not None:
                if loses_power:
                    way.end.vanish()
                else:
                    way.end.close()

    def _write(self, end: End, opaque: int, request: Frame) -> None:
        end.write(encode(request.with_opaque(opaque, is_one_way=False)))
        end.flush()

    def _overdue(self, opaque: int) -> None:
        found = self._waiting.pop(opaque, None)
        if found is None:
            return
        address, done = found
        way = self._ways.get(address)
        if way is not None and way.end is not None and self._network.rng.random() < _GIVES_UP:
            way.end.close()
            self._end(address, way, "given up")
        done(RemotingTimeout("no answer in time"))

    def _end(self, address: int, way: _Way, why: str) -> None:
        if self._ways.get(address) is way:
            del self._ways[address]
        unsent = {opaque for opaque, _ in way.unsent}
        for opaque in [each for each, (at, _) in self._waiting.items() if at == address]:
            _, done = self._waiting.pop(opaque)
            kind = RemotingConnectError if opaque in unsent else RemotingClosedError
            done(kind(why))

    # ---- the connections

    def on_opened(self, end: End) -> None:
        way = self._ways.get(end.target)
        if way is None or way.end is not None or not end.is_open:
            end.close()
            return
        way.end = end
        unsent, way.unsent = way.unsent, []
        for opaque, request in unsent:
            if opaque in self._waiting:
                self._write(end, opaque, request)

    def on_refused(self, target: int) -> None:
        way = self._ways.get(target)
        if way is not None and way.end is None:
            self._end(target, way, "refused")

    def on_bytes(self, end: End, data: bytes) -> None:
        way = self._ways.get(end.target)
        if way is None or way.end is not end:
            return
        for answer in way.decoder.feed(data):
            found = self._waiting.pop(answer.opaque, None)
            if found is not None:
                found[1](answer)

    def on_closed(self, end: End) -> None:
        way = self._ways.get(end.target)
        if way is not None and way.end is end:
            self._end(end.target, way, "closed")

    def on_accepted(self, end: End) -> bool:
        """Refuse: this is a client."""
        return False

    def on_writable(self, end: End) -> None:
        """Do nothing: a request waits where it cannot be sent."""

    def on_message(self, source: int, data: bytes) -> None:
        raise AssertionError("answers come over connections")
