"""A controller on an event loop: the sockets, timers and the log around the pure parts.

    async with Controller(ControllerConfig(listen_port=0, store_path="controller")) as controller:
        print(controller.address)

Any number of controllers may run on one loop, each with a directory of its own.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rmqstore.config import ControllerConfig, with_changes
from rmqstore.controller.commands import Command, decode_command, encode_command
from rmqstore.controller.decisions import Decisions, NotWritten, not_leader
from rmqstore.controller.engines.engine import Engine, Leadership, Outcome
from rmqstore.controller.group import Group
from rmqstore.controller.inquiry import Standing, standing_of
from rmqstore.controller.leader import Election, Leader, Waiting
from rmqstore.controller.liveness import PULSE_MS, Liveness
from rmqstore.controller.metrics import ControllerMetrics
from rmqstore.controller.notices import Notices
from rmqstore.controller.parts import Parts
from rmqstore.controller.requests import RUNNING_KEYS, Requests
from rmqstore.controller.state import ControllerState, Result, Verdict, decode_result, encode_result
from rmqstore.errors import DiskError, RequestRefused, StoreError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.metrics import Family
from rmqstore.net.metrics_endpoint import MetricsEndpoint
from rmqstore.net.one_run import OneRun
from rmqstore.net.runtime import LoopRuntime, Runtime, Task, Timer
from rmqstore.net.supervisor import TaskFailure
from rmqstore.net.tls import TlsClient, TlsServer
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.headers.controller import GetControllerMetadataResponseHeader
from rmqstore.remoting.server import RemotingServer
from rmqstore.store.server_files import save_changes, stored_config
from rmqstore.typed_calls import typed

__all__ = ["Controller", "ControllerStatus"]

_COMMIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """The present state of a controller."""

    node_id: str
    is_leader: bool
    term: int
    groups: int
    living_brokers: int
    waiting: Mapping[str, Waiting]
    """Groups whose master cannot be elected yet, and the replicas that they wait for."""
    failure: StoreError | None
    """The reason why the log ended; then the controller refuses all requests."""
    task_failures: tuple[TaskFailure, ...]


@typed("__init__", "from_file")
class Controller(OneRun):
    """Serves brokers and administrators from entering the context to leaving it.

    *config_file* is the file that a configuration changed by UPDATE_CONTROLLER_CONFIG is written to
    where configStorePath is empty; without both, changes are lost when the process ends. *tls* sets
    the TLS mode of the server, *client_tls* the TLS of requests to brokers.

    Entering raises ConfigError for a configuration that cannot be served, ArgumentError if the
    address cannot be used, StoreLockedError, UnsupportedStoreError, CorruptionError or DiskError
    for the directory, and StoreTimeout if etcd does not answer; then nothing stays open.
    """

    def __init__(
        self,
        config: ControllerConfig,
        *,
        config_file: str | os.PathLike[str] | None = None,
        tls: TlsServer | None = None,
        client_tls: TlsClient | None = None,
        runtime: Runtime | None = None,
        parts: Parts | None = None,
    ) -> None:
        self._parts = parts = parts or Parts(client=partial(RemotingClient, tls=client_tls))
        self._client: RemotingClient | None = None
        self._own_runtime: LoopRuntime | None = None
        if runtime is None:
            log = IdentityLog("rmqstore.controller")
            self._client = parts.client()
            runtime = self._own_runtime = LoopRuntime("controller", log=log, client=self._client)
        self.runtime = runtime
        runtime.log.identity = f"{runtime.log.identity} controller {config.self_id}".strip()
        super().__init__("controller", runtime.log)
        self.config = config
        self.state = ControllerState()
        self.liveness = Liveness()
        self._config_file = None if config_file is None else Path(config_file)
        self._tls = tls
        self._process_id = parts.process_id()
        self._engine: Engine | None = None
        self._leader: Leader | None = None
        self._server: RemotingServer | None = None
        self._metrics = ControllerMetrics()
        self._endpoint = MetricsEndpoint.from_config(config, self._families)
        self._tasks = runtime.tasks("controller")
        self._notices = Notices(self._tasks, runtime)
        self._silent: dict[str, int] = {}
        """The master of each group that did not answer the last query."""
        self._decisions = Decisions(self)
        self._timers: dict[str, Timer] = {}
        self._watched: set[RemotingConnection] = set()
        self._reported: dict[str, Waiting] = {}
        """The last logged state of the waiting groups."""
        self._files = runtime.lock()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> Controller:
        """Return a controller with the settings of RocketMQ's controller.conf."""
        return cls(ControllerConfig.from_properties(Path(path)), config_file=path, **options)

    @property
    def address(self) -> Address:
        """Host and port at which the controller listens. Raises StoreClosedError before the
        start."""
        if self._server is None:
            raise self._not_started()
        return self._server.address

    @property
    def metrics_address(self) -> Address | None:
        """Host and port that serve metrics, None without metricsExporterType=PROM."""
        return None if self._endpoint is None else self._endpoint.address

    def _families(self) -> Iterator[Family]:
        status = self.status()
        node = {
            "address": format_address(self.address),
            "group": self.config.group,
            "peer_id": self.config.self_id,
        }
        return self._metrics.families(
            node,
            self.state.groups(),
            self.liveness,
            status.waiting,
            is_leader=status.is_leader,
            term=status.term,
            task_failures=len(status.task_failures),
            disk_bytes=None if self.config.etcd_endpoints else _size_of(self.config.store_path),
            now_ms=self.now_ms(),
        )

    def status(self) -> ControllerStatus:
        """Return the present state of the controller."""
        engine, leader = self._engine, self._leader
        return ControllerStatus(
            node_id=self.config.self_id,
            is_leader=leader is not None,
            term=0 if engine is None else engine.leadership().term,
            groups=len(self.state.groups()),
            living_brokers=self.liveness.count(self.now_ms()),
            waiting={} if leader is None else dict(leader.waiting),
            failure=None if engine is None else engine.failure,
            task_failures=tuple(self._tasks.failures),
        )

    async def _start(self) -> None:
        runtime = self.runtime
        self.config = await runtime.on_disk(lambda: stored_config(self.config, RUNNING_KEYS))
        place, engine = _place_of(self.config), self._parts.engine(self.config)
        engine.watch(self._leadership_changed)
        await engine.start(self._apply, self.state.snapshot, self.state.restore)
        self._engine = engine
        observe = None if self._endpoint is None else self._metrics.observe
        handlers = Requests(self).dispatched(observe=observe, clock=time.perf_counter)
        if self._endpoint is not None:
            await self._endpoint.start()
        server = self._parts.server(place, handlers, tls=self._tls)
        server.start()
        self._server = server
        self._tasks.start(self._pulse(), name="pulse")
        self._tasks.start(self._scan_brokers(), name="scan of brokers")
        self._tasks.start(self._scan_masters(), name="scan of masters")
        self.log.info("started at %s", format_address(server.address))
        if self._endpoint is not None:
            self.log.info("metrics are served at %s", format_address(self._endpoint.address))

    async def _close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._server is not None:
            await self._server.close()
        if self._endpoint is not None:
            await self._endpoint.close()
        await self._tasks.close()
        if self._client is not None:
            await self._client.close()
        if self._own_runtime is not None:
            self._own_runtime.close()
        if self._engine is not None:
            await self._engine.close()
            self.log.info("closed")

    def _apply(self, index: int, term: int, command: bytes) -> bytes:
        return encode_result(self.state.apply(decode_command(command)))

    def _leadership_changed(self, leadership: Leadership) -> None:
        if not leadership.is_leader:
            self._leader = None
            return
        self._leader = Leader(
            self.state,
            self.liveness,
            since_ms=self.now_ms(),
            allows_unclean=self.config.elect_unclean_master,
        )
        self.log.info("leads in term %d", leadership.term)

    # Used by the handlers.

    @property
    def leader(self) -> Leader | None:
        """The decisions of this node; None while it does not lead."""
        return self._leader

    @property
    def process_id(self) -> str:
        """Identifies this process among all controller processes."""
        return self._process_id

    def now_ms(self) -> int:
        """Return the time of the monotonic clock. Each call shows that this node runs."""
        now_ms = self.runtime.now_ms()
        self.liveness.ran(now_ms)
        return now_ms

    def metadata(self) -> Mapping[str, str]:
        """Return the extFields of an answer to GET_METADATA_INFO."""
        own = self.config.own_node
        address = self.address if own is None or not own.port else own[1:]
        nodes = self.config.nodes or ((self.config.self_id, *address),)
        places = {node: (host, port) for node, host, port in nodes} | {self.config.self_id: address}
        leads = self._leader is not None
        leader = self.config.self_id if leads else self._known_leader()
        place = places.get(leader or "")
        return GetControllerMetadataResponseHeader(
            group=self.config.group or None,
            leader_id=leader,
            leader_address=None if place is None else format_address(place),
            is_leader=leads,
            peers="".join(f"{node}:{host}:{port};" for node, host, port in nodes),
        ).to_fields()

    def _known_leader(self) -> str | None:
        """Returns the other node that leads, according to this node."""
        found = None if self._engine is None else self._engine.leadership().leader_id
        return None if found == self.config.self_id else found

    def watch(self, connection: RemotingConnection) -> None:
        """End the brokers that send heartbeats on *connection* when it closes."""
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._connection_closed)

    def _connection_closed(self, connection: RemotingConnection) -> None:
        self._watched.discard(connection)
        for group, broker_id in self.liveness.closed(connection, self.now_ms()):
            self.log.info("broker %d of %s: its connection closed", broker_id, group)
            self.review(group)

    async def leads(self) -> bool:
        """Return whether this node led after the call began."""
        engine = self._engine
        if engine is None or self._leader is None:
            return False
        return await engine.read_barrier(timeout=_COMMIT_TIMEOUT_S) is not None

    async def commit(self, command: Command) -> Result:
        """Commit *command*. Raises NotWritten if it never takes effect, RequestRefused if the
        outcome is not certain."""
        engine = self._engine
        assert engine is not None, "the controller is started"
        began = time.perf_counter()
        status = "failed"
        try:
            outcome, applied = await engine.propose(
                encode_command(command), timeout=_COMMIT_TIMEOUT_S
            )
            if outcome is not Outcome.NOT_LEADER:
                status = "timeout" if applied is None else "success"
        except DiskError as error:
            raise NotWritten(str(error), code=ResponseCode.SYSTEM_ERROR) from error
        finally:
            self._metrics.committed(status, time.perf_counter() - began)
        if outcome is Outcome.NOT_LEADER:
            raise not_leader()
        if applied is None:
            raise RequestRefused(
                "it is unknown whether the request took effect; repeat it",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return decode_result(applied.result)

    async def elect(
        self, group: str, cluster: str, broker_id: int | None, *, is_designated: bool
    ) -> tuple[Election, Group | None]:
        """Hold an election. Return it, and the group afterwards if it took effect."""
        found = await self._decisions.elect(group, cluster, broker_id, is_designated=is_designated)
        if found[0].command is None and found[0].verdict is Verdict.UNCHANGED:
            self._metrics.kept()
        return found

    def review(self, group: str) -> None:
        """Do the work that is due for *group*, after this call."""
        if not self._is_closing:
            self._decisions.review(group)

    async def reviewed(self, group: str) -> None:
        """Wait until the work that was due for *group* is done."""
        await self._decisions.reviewed(group)

    # Used by the decisions.

    async def sleep(self, ms: int) -> None:
        """Wait on the event loop."""
        await self.runtime.sleep(ms / 1000)

    def carry_out(self, work: Coroutine[Any, Any, None], *, group: str) -> Task[Any]:
        """Run *work* in a supervised task."""
        return self._tasks.start(work, name=f"decision for {group}")

    async def finished(self, work: Task[Any]) -> None:
        """Wait for the end of a task."""
        await self.runtime.ended(work)

    async def serves(self, group: str, broker_id: int) -> bool:
        """Query a broker whether it is the master of *group*; return False without an answer."""
        found = self.state.group(group)
        broker = None if found is None else found.brokers.get(broker_id)
        if broker is None:
            return False
        self._silent.pop(group, None)
        standing = await standing_of(broker.address, group, self._parts.client)
        if standing is Standing.SILENT:
            self._silent[group] = broker_id
        if standing is Standing.SERVES:
            self.log.warning(
                "broker %d of %s sends no heartbeats, but serves as master", broker_id, group
            )
        return standing is Standing.SERVES

    def holds(self, election: Election) -> None:
        """Log that an election is being written."""
        self.log.debug("an election is written: %s", election.command)

    def held(self, election: Election, group: Group) -> None:
        """Log an election that took effect, count it, and notify the brokers."""
        self._metrics.elected(group.master_id, is_risky=bool(election.risk))
        silent = self._silent.pop(group.name, None)
        if group.master_id is None:
            self.log.warning(
                "%s has no master in epoch %d: %s", group.name, group.master_epoch, election.reason
            )
            return
        self.log.info(
            "%s: broker %d is master of epoch %d; reports of %s were compared",
            group.name,
            group.master_id,
            group.master_epoch,
            sorted(election.asked) or "none",
        )
        if election.risk:
            self.log.warning("%s: %s", group.name, election.risk)
        if self.config.notify_role_changed:
            now_ms = self.now_ms()
            living = self.liveness.living(group.name, group.brokers, now_ms)
            self._notices.master_changed(
                group, [each.beat.broker_id for each in living], silent=silent
            )

    def reviewed_as(self, group: str, due: Command | Election | None) -> None:
        """Log a change of the replicas that a group waits for, and plan the next review."""
        leader = self._leader
        waiting = None if leader is None else leader.waiting.get(group)
        if waiting is None:
            self._reported.pop(group, None)
        elif not waiting.is_short and waiting != self._reported.get(group):
            self.log.warning("%s waits for a master: %s", group, waiting.reason)
            self._reported[group] = waiting
        if isinstance(due, Election) and due.command is None and due.retry_at_ms is not None:
            self._review_at(group, due.retry_at_ms)

    def failed(self, group: str, error: RequestRefused) -> None:
        """Log that a due command may not be written."""
        self.log.warning("%s: %s", group, error)

    def _review_at(self, group: str, at_ms: int) -> None:
        former = self._timers.pop(group, None)
        if former is not None:
            former.cancel()

        def review() -> None:
            self._timers.pop(group, None)
            self.review(group)

        delay_s = max(0.0, (at_ms - self.now_ms()) / 1000)
        self._timers[group] = self.runtime.later(delay_s, review)

    async def _pulse(self) -> None:
        while True:
            self.now_ms()
            await self.runtime.sleep(PULSE_MS / 1000)

    async def _scan_brokers(self) -> None:
        while True:
            await self.runtime.sleep(self.config.scan_brokers_interval_ms / 1000)
            for group, broker_id in self.liveness.expire(self.now_ms()):
                self.log.warning("broker %d of %s sends no heartbeats", broker_id, group)
                self.review(group)

    async def _scan_masters(self) -> None:
        while True:
            await self.runtime.sleep(self.config.scan_masters_interval_ms / 1000)
            for group in self.state.groups():
                self.review(group.name)

    # Configuration.

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings, first in their file. Raises ConfigError, DiskError; then nothing has
        changed."""
        async with self._files:
            changed = with_changes(self.config, changes)
            await self.runtime.on_disk(lambda: save_changes(changed, self._config_file, changes))
            self.config = changed
            if self._leader is not None:
                self._leader.allows_unclean = changed.elect_unclean_master


def _place_of(config: ControllerConfig) -> Address:
    own = config.own_node
    return config.bind_address, config.listen_port if own is None else own.port


def _size_of(directory: str) -> int:
    """Returns the bytes of all files below *directory*."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            # The engine may remove a file meanwhile.
            with contextlib.suppress(FileNotFoundError):
                total += Path(folder, name).stat().st_size
    return total
