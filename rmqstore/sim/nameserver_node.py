"""A nameserver for a simulated group: production's route table and handlers over the network.

A node has all its state in memory. It dies, restarts empty, and is stopped for some time; then
requests that arrived meanwhile are handled before the next scan.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from rmqstore.config import NameserverConfig, with_changes
from rmqstore.errors import RequestRefused
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.requests import Requests
from rmqstore.nameserver.routes import CloseConnection, Effect, RouteOptions, RouteTable
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.network import End

__all__ = ["SCAN_MS", "NameserverNode", "Observer"]

SCAN_MS = 400
"""Between two scans for brokers that expired."""

_LOG = logging.getLogger("rmqstore.sim.nameserver")
# The trace of the world replaces the node's log.
_LOG.propagate = False
_LOG.addHandler(logging.NullHandler())


class Observer(Protocol):
    """Receives the events of a node."""

    def on_request(self, node: NameserverNode, number: int, request: Frame, *, code: int) -> None:
        """Called when a request of connection *number* was answered with *code*."""

    def on_end(self, node: NameserverNode, number: int) -> None:
        """Called when the end of connection *number* was handled."""

    def on_scan(self, node: NameserverNode) -> None:
        """Called when the node looked for brokers that expired."""


class NameserverNode:
    """The nameserver at *number*."""

    def __init__(
        self,
        number: int,
        *,
        timeline: Timeline,
        clock: MachineClock,
        shows_acting_master: bool,
        observer: Observer,
    ) -> None:
        self.number = number
        self.is_up = False
        self.life = 0
        self.config = NameserverConfig(acting_master=shows_acting_master)
        self.kv = KvConfig()
        self.log = _LOG
        self._options = RouteOptions(acting_master=shows_acting_master, scan_interval_ms=SCAN_MS)
        self._timeline = timeline
        self._clock = clock
        self._observer = observer
        self._paused_until_us = 0
        self._pauses_us: list[tuple[int, int]] = []
        self._put_off: deque[Callable[[], None]] = deque()
        """Events that arrived during a pause, in order."""
        self._started_ms = 0
        self._decoders: dict[End, FrameDecoder] = {}
        self.table = RouteTable(self._options)

    # ---- life and death

    def start(self) -> None:
        """Begin a life, with an empty table."""
        if self.is_up:
            return
        self.is_up = True
        self.life += 1
        self._started_ms = self.now_ms()
        self.table = RouteTable(self._options)
        self._handlers = Requests(self.table, self).dispatched()
        self._timeline.after(SCAN_MS * 1000, self._scan, self.life)

    def crash(self, *, loses_power: bool) -> None:
        """End the process, or the machine; then no broker is notified."""
        self.is_up = False
        self._paused_until_us = 0
        self._put_off.clear()
        for end in self._decoders:
            if loses_power:
                end.vanish()
            else:
                end.close()
        self._decoders.clear()

    def pause(self, ms: int) -> None:
        """Stop the process for some time; its clock goes on."""
        now_us = self._timeline.now_us
        self._paused_until_us = now_us + ms * 1000
        self._pauses_us.append((now_us, self._paused_until_us))

    def paused_ms(self, since_ms: int) -> int:
        """Return for how long, at most, the process was stopped since a moment of the world."""
        since_us, now_us = since_ms * 1000, self._timeline.now_us
        overlaps = (min(end, now_us) - max(start, since_us) for start, end in self._pauses_us)
        return sum(max(0, each) for each in overlaps) // 1000 + 1

    def _turn(self, action: Callable[[], None]) -> None:
        """Run *action* now, or after a pause, unless the process dies before."""
        if self._timeline.now_us >= self._paused_until_us and not self._put_off:
            action()
            return
        self._put_off.append(action)
        if len(self._put_off) == 1:
            self._timeline.at(self._paused_until_us, self._go_on, self.life)

    def _go_on(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        if self._timeline.now_us < self._paused_until_us:
            self._timeline.at(self._paused_until_us, self._go_on, life)
            return
        while self._put_off:
            self._put_off.popleft()()

    def _scan(self, life: int) -> None:
        def scan() -> None:
            self.carry_out(self.table.expire(self.now_ms()))
            self._observer.on_scan(self)
            self._timeline.after(SCAN_MS * 1000, self._scan, life)

        if life == self.life and self.is_up:
            self._turn(scan)

    # ---- connections; their numbers grow in the order in which they are accepted

    def on_accepted(self, end: End) -> bool:
        if self.is_up:
            self._decoders[end] = FrameDecoder()
        return self.is_up

    def on_bytes(self, end: End, data: bytes) -> None:
        self._turn(lambda: self._receive(end, data))

    def on_closed(self, end: End) -> None:
        self._turn(lambda: self._closed(end))

    def on_writable(self, end: End) -> None:
        """Do nothing: answers are not held back."""

    def on_opened(self, end: End) -> None:
        raise AssertionError("a nameserver opens no connection")

    def on_refused(self, target: int) -> None:
        raise AssertionError("a nameserver opens no connection")

    def on_message(self, source: int, data: bytes) -> None:
        raise AssertionError("brokers reach a nameserver by connections")

    def _receive(self, end: End, data: bytes) -> None:
        decoder = self._decoders.get(end)
        if decoder is None:
            return
        for request in decoder.feed(data):
            response = self.answer(end, request)
            self._observer.on_request(self, end.number, request, code=response.code)
            if not request.is_one_way:
                end.write(encode(response))
        end.flush()

    def _closed(self, end: End) -> None:
        if self._decoders.pop(end, None) is not None:
            self.carry_out(self.table.connection_closed(self.number_of(end)))
            self._observer.on_end(self, end.number)

    def answer(self, end: End | None, request: Frame) -> Frame:
        """Return the answer to a request; a request without *end* changes nothing."""
        try:
            found = self._handlers[request.code](end, request)
        except RequestRefused as error:
            return request.respond(error.code, str(error))
        assert isinstance(found, Frame), "brokers send no requests that wait for a file"
        return found

    def route(self, topic: str) -> TopicRoute | None:
        """Return the route of *topic* as a client gets it, None for an unknown one."""
        fields = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True).to_fields()
        answer = self.answer(None, Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields))
        return TopicRoute.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None

    # ---- the handlers' host

    @property
    def age_ms(self) -> int:
        """The time since the start."""
        return self.now_ms() - self._started_ms

    def now_ms(self) -> int:
        """Return the time of this machine's monotonic clock."""
        return self._clock.monotonic_ms()

    def number_of(self, connection: End) -> int:
        """Return the number of a connection."""
        return connection.number

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        """Close connections. These nodes have notifications off."""
        for effect in effects:
            assert isinstance(effect, CloseConnection), "notifications are off"
            for end in [e for e in self._decoders if self.number_of(e) == effect.connection]:
                del self._decoders[end]
                end.close()
                self._observer.on_end(self, end.number)

    async def change_kv(self, change: Callable[[KvConfig], KvConfig]) -> None:
        """Change the key-value configuration, until this life ends."""
        self.kv = change(self.kv)

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Use another configuration, until this life ends."""
        self.config = with_changes(self.config, changes)
