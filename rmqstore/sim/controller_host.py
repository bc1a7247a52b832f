"""A controller of a cluster: production's own, in all lives of its process.

Its clock, server and clients are those of a simulated process, its engine is over the log of the
world.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rmqstore.config import ControllerConfig
from rmqstore.controller.leader import Election, Leader
from rmqstore.controller.parts import Parts
from rmqstore.controller.server import Controller
from rmqstore.errors import StoreError
from rmqstore.net.addresses import Address, parse_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.sim.checker import Violation
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.controller_client import CONTROLLERS
from rmqstore.sim.controller_engine import Kept, SimEngine, node_id
from rmqstore.sim.decision_log import DecisionLog
from rmqstore.sim.network import Network
from rmqstore.sim.places import controller_place
from rmqstore.sim.process import Process
from rmqstore.sim.runtime import VirtualRuntime
from rmqstore.sim.transport import SimClient, SimServer, Sockets

__all__ = ["REVIEW_MS", "ControllerHost"]

REVIEW_MS = 100
"""Between two searches for brokers without heartbeats, or groups without a master."""
_NOTICE_MS = 3000

_LOG = logging.getLogger("rmqstore.sim.controller")
# The trace of the world replaces the controller's log.
_LOG.propagate = False
_LOG.addHandler(logging.NullHandler())


class ControllerHost:
    """The controller *number* of the group.

    *elected* is called with each election that it writes, *noticed* with each notice that it sends,
    *started* when it begins to apply entries, and *stuck* when the outcome of a proposal stays
    unknown.
    """

    def __init__(
        self,
        number: int,
        *,
        timeline: Timeline,
        network: Network,
        clock: MachineClock,
        log: DecisionLog,
        elected: Callable[[ControllerHost, Election], None],
        noticed: Callable[[Frame], None],
        started: Callable[[ControllerHost], None],
        stuck: Callable[[ControllerHost], None],
    ) -> None:
        self.number = number
        self.is_alive = False
        self.life = 0
        self._machine = CONTROLLERS[number]
        self._timeline = timeline
        self._network = network
        self._clock = clock
        self._log = log
        self._elected = elected
        self._noticed = noticed
        self._started = started
        self._stuck = stuck
        self._kept = Kept()
        self._process: Process
        self._engine: SimEngine
        self._controller: Controller

    # ---- life

    def restart(self) -> None:
        """Start another life with the last snapshot, unless the controller runs."""
        if self.is_alive:
            return
        self.is_alive = True
        self.life += 1
        process = self._process = Process(
            self._machine,
            timeline=self._timeline,
            network=self._network,
            clock=self._clock,
            failed=self._failed,
        )
        self._engine = SimEngine(
            number=self.number,
            log=self._log,
            process=process,
            kept=self._kept,
            started=partial(self._later, self._started),
            stuck=partial(self._later, self._stuck),
        )
        process.run(self._begin)

    def _begin(self) -> None:
        sockets = self._process.sockets
        runtime = VirtualRuntime(
            log=IdentityLog(_LOG.name),
            clock=self._clock,
            client=_Client(sockets, self._noticed),
            on_failure=lambda failure: self._failed({"exception": failure.error}),
        )
        parts = Parts(
            server=partial(SimServer, sockets),
            client=partial(SimClient, sockets),
            engine=lambda config: self._engine,
            process_id=lambda: f"{self.number}.{self.life}",
        )
        elected = partial(self._elected, self)
        self._controller = _Controller(
            _config(self.number), elected=elected, runtime=runtime, parts=parts
        )
        self._process.loop.create_task(self._controller.start())

    def crash(self) -> None:
        """End this life."""
        self.is_alive = False
        self._kept = self._engine.kept
        self._process.end(loses_power=False)

    def close(self) -> None:
        """End the process together with the world."""
        if self.is_alive:
            self._process.end(loses_power=True)

    def _later(self, action: Callable[[ControllerHost], None]) -> None:
        """Calls the world outside of the turn of the process."""
        self._timeline.after(0, action, self)

    def _failed(self, context: Mapping[str, Any]) -> None:
        """Takes what raised in the process."""
        error = context.get("exception") or AssertionError(context["message"])
        if isinstance(error, Violation):
            raise error
        raise Violation(f"controller {self.number} raised {error!r}") from error

    # ---- the engine

    @property
    def leader(self) -> Leader | None:
        """The decisions of this node; None while it does not lead."""
        return self._controller.leader if self.is_alive else None

    @property
    def applied(self) -> int:
        """The number of entries that were applied."""
        return self._engine.applied

    @property
    def term(self) -> int:
        """The last term in which this node led."""
        return self._engine.term

    def lead(self, term: int) -> None:
        """Begin to decide; everything up to the beginning of the term is applied."""
        self._process.run(lambda: self._engine.lead(term))

    def resign(self, term: int) -> None:
        """Stop deciding, because *term* has ended."""
        self._process.run(lambda: self._engine.resign(term))

    def apply_next(self) -> None:
        """Apply the next entry, if there is one."""
        self._process.run(self._engine.apply_next)

    def keep_snapshot(self) -> None:
        """Store a snapshot for the start of the next life."""
        self._engine.keep_snapshot()

    # ---- notices

    def notify(self, address: str, notice: Frame) -> None:
        """Send an earlier notice again."""
        self._process.run(lambda: self._process.loop.create_task(self._send(address, notice)))

    async def _send(self, address: str, notice: Frame) -> None:
        client = self._controller.runtime.client
        try:
            await client.send_one_way(address, notice, _NOTICE_MS / 1000)
        except StoreError:
            return


class _Controller(Controller):
    """Production's controller, which shows its elections to the world."""

    def __init__(
        self, config: ControllerConfig, *, elected: Callable[[Election], None], **options: Any
    ) -> None:
        super().__init__(config, **options)
        self._elected = elected

    def holds(self, election: Election) -> None:
        super().holds(election)
        self._elected(election)


class _Client(SimClient):
    """The client of a controller, which shows its notices to the world."""

    def __init__(self, sockets: Sockets, noticed: Callable[[Frame], None]) -> None:
        super().__init__(sockets)
        self._noticed = noticed

    async def send_one_way(
        self, address: str | Address, request: Frame, timeout: float = 3.0
    ) -> None:
        if request.code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
            self._noticed(request)
        await super().send_one_way(address, request, timeout)


def _config(number: int) -> ControllerConfig:
    """Return the settings of a controller."""
    places = [controller_place(each) for each in CONTROLLERS]
    host, _ = parse_address(places[number])
    return ControllerConfig(
        peers=";".join(f"{node_id(each)}-{place}" for each, place in enumerate(places)),
        self_id=node_id(number),
        bind_address=host,
        scan_brokers_interval_ms=REVIEW_MS,
        scan_masters_interval_ms=REVIEW_MS,
    )
