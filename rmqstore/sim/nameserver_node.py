"""A nameserver for a simulated group: production's own, in all lives of its process.

Its clock, server and client are those of a simulated process. A node has all its state in memory.
It dies, restarts empty, and is stopped for some time; then requests that arrived meanwhile are
handled before the next scan.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from rmqstore.config import NameserverConfig
from rmqstore.errors import RequestRefused
from rmqstore.nameserver.routes import RouteTable
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import Address, parse_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import Handler, RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader
from rmqstore.remoting.server import RemotingServer
from rmqstore.sim.checker import Violation
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.network import Network
from rmqstore.sim.places import nameserver_place
from rmqstore.sim.process import Process
from rmqstore.sim.runtime import VirtualRuntime
from rmqstore.sim.transport import SimClient, SimServer, port_number

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


class NameserverNode:
    """The nameserver at *number*."""

    def __init__(
        self,
        number: int,
        *,
        timeline: Timeline,
        network: Network,
        clock: MachineClock,
        shows_acting_master: bool,
        observer: Observer,
    ) -> None:
        self.number = number
        place = nameserver_place(number)
        self.port = port_number(place)
        """Where others connect to."""
        self.is_up = False
        self.life = 0
        host, port = parse_address(place)
        self._config = NameserverConfig(
            acting_master=shows_acting_master,
            scan_interval_ms=SCAN_MS,
            bind_address=host,
            listen_port=port,
        )
        self._timeline = timeline
        self._network = network
        self._clock = clock
        self._observer = observer
        self._pauses_us: list[tuple[int, int]] = []
        self._begin_life()

    def _begin_life(self) -> None:
        self._process = Process(
            self.number,
            timeline=self._timeline,
            network=self._network,
            clock=self._clock,
            failed=self._failed,
        )
        self._handlers: Mapping[int, Handler] = {}
        self._watched: set[int] = set()
        self._process.run(self._make)

    def _make(self) -> None:
        runtime: Any = VirtualRuntime(
            log=IdentityLog(_LOG.name),
            clock=self._clock,
            client=SimClient(self._process.sockets),
            on_failure=lambda failure: self._failed({"exception": failure.error}),
        )
        self._nameserver = Nameserver(self._config, runtime=runtime, serve=self._serve)

    # ---- life and death

    def start(self) -> None:
        """Begin a life, with an empty table."""
        if self.is_up:
            return
        self.is_up = True
        self.life += 1
        self._begin_life()
        loop, nameserver = self._process.loop, self._nameserver
        self._process.run(lambda: loop.create_task(nameserver.start()))

    def crash(self, *, loses_power: bool) -> None:
        """End the process, or the machine; then no broker is notified."""
        self.is_up = False
        self._process.end(loses_power=loses_power)

    def pause(self, ms: int) -> None:
        """Stop the process for some time; its clock goes on."""
        now_us = self._timeline.now_us
        self._pauses_us.append((now_us, now_us + ms * 1000))
        self._process.pause(ms)

    def paused_ms(self, since_ms: int) -> int:
        """Return for how long, at most, the process was stopped since a moment of the world."""
        since_us, now_us = since_ms * 1000, self._timeline.now_us
        overlaps = (min(end, now_us) - max(start, since_us) for start, end in self._pauses_us)
        return sum(max(0, each) for each in overlaps) // 1000 + 1

    def _failed(self, context: Mapping[str, Any]) -> None:
        """Takes what raised in the process."""
        error = context["exception"]
        if isinstance(error, Violation):
            raise error
        raise Violation(f"nameserver {self.number} raised {error!r}") from error

    # ---- what checkers see

    @property
    def table(self) -> RouteTable:
        """The route table of the present life."""
        return self._nameserver.table

    def route(self, topic: str) -> TopicRoute | None:
        """Return the route of *topic* as a client gets it, None for an unknown one."""
        handler: Any = self._handlers.get(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        if handler is None:
            return None
        fields = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True).to_fields()
        try:
            answer = handler(None, Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields))
        except RequestRefused:
            return None
        return TopicRoute.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None

    # ---- what its server does

    def _serve(
        self, place: Address, handlers: Mapping[int, Handler], **options: Any
    ) -> RemotingServer:
        self._handlers = handlers
        observed = {code: self._observed(handler) for code, handler in handlers.items()}
        return SimServer(self._process.sockets, place, observed, **options)

    def _observed(self, handler: Handler) -> Handler:
        def handle(connection: RemotingConnection, request: Frame) -> Any:
            try:
                answer = handler(connection, request)
            except RequestRefused as refused:
                self._answered(connection, request, refused.code)
                raise
            except Exception as error:
                # The connection answers, and goes on.
                self._report(error)
                raise
            assert isinstance(answer, Frame), "brokers send no requests that wait for a file"
            self._answered(connection, request, answer.code)
            return answer

        return handle

    def _answered(self, connection: RemotingConnection, request: Frame, code: int) -> None:
        if connection.number not in self._watched:
            self._watched.add(connection.number)
            connection.on_close(self._closed)
        try:
            self._observer.on_request(self, connection.number, request, code=code)
        except Violation as violation:
            self._report(violation)

    def _closed(self, connection: RemotingConnection) -> None:
        # The nameserver's own callback may come after this one.
        loop = self._process.loop
        loop.call_soon(self._observer.on_end, self, connection.number)

    def _report(self, error: Exception) -> None:
        """Ends the run, since what a handler raises is answered by its connection."""
        self._process.loop.call_soon(self._failed, {"exception": error})
