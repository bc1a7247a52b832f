"""The broker of a simulated replica: it serves clients and slaves, and registers at nameservers.

The request handlers, the tables of topics, groups and offsets, and their replication are production
code (`rmqstore.broker`). The log, the files of the tables and the connections are models. A broker
works in turns of its replica's process, which wait while the process is stopped, and end with it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.handlers.groups import GroupRequests
from rmqstore.broker.handlers.metadata_answers import MetadataRequests
from rmqstore.broker.handlers.offsets import OffsetRequests
from rmqstore.broker.handlers.pull import PullRequests
from rmqstore.broker.handlers.send import SendRequests
from rmqstore.broker.handlers.topics import TopicRequests
from rmqstore.broker.metadata.following import Follower
from rmqstore.broker.registration import Announcement, announced_id, announced_until_ms
from rmqstore.broker.request_table import ROWS
from rmqstore.broker.roles import Role
from rmqstore.broker.serving import RoleGate, merged
from rmqstore.broker.traffic import Traffic
from rmqstore.config import BrokerConfig
from rmqstore.errors import DiskError, RequestRefused
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.dispatch import FrameHandler, dispatched
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.sim import coroutines
from rmqstore.sim.broker_store import BrokerStore, Sends
from rmqstore.sim.broker_tables import BrokerTables, TableFiles
from rmqstore.sim.calls import Answer, Caller
from rmqstore.sim.clock import Timeline
from rmqstore.sim.controller_client import CLUSTER, GROUP
from rmqstore.sim.coroutines import Pause, Resume
from rmqstore.sim.held_pulls import HeldPulls
from rmqstore.sim.network import End, Network
from rmqstore.sim.registrar import announcement_of, lease_end_ms
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.witness import Put

__all__ = ["Broker", "port_of"]

_PORTS = 1000
_SAVE_OFFSETS_MS = 1000
_REGISTERED_MS = 20

_LOG = logging.getLogger("rmqstore.sim.broker")
# The trace of the world replaces the broker's log.
_LOG.propagate = False
_LOG.addHandler(logging.NullHandler())


def port_of(number: int) -> int:
    """Return the port of the broker of replica *number*."""
    return _PORTS + number


@lru_cache(maxsize=1)
def _config() -> BrokerConfig:
    return BrokerConfig(name=GROUP, cluster_name=CLUSTER, host="10.0.0.1", slave_reads=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Connection:
    """A client's connection, as handlers see it."""

    peer: Address
    end: End
    proxied_peer: Address | None = None
    is_open: bool = True
    is_writable: bool = True
    callbacks: list[Callable[[Any], None]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The client's address."""
        return format_address(self.peer)

    def send(self, answer: Frame) -> None:
        """Send the answer to a pull that was held."""
        self.end.write(encode(answer))
        self.end.flush()

    def on_close(self, callback: Callable[[Any], None]) -> None:
        """Call *callback* when the connection has ended."""
        self.callbacks.append(callback)

    def close(self, reason: str) -> None:
        """End the connection."""
        self.end.close()


class Broker:
    """The broker of *replica*, in all lives of its process.

    *changed* is called when its registration at nameservers has changed.
    """

    def __init__(
        self,
        replica: Replica,
        *,
        timeline: Timeline,
        network: Network,
        shape: Shape,
        sends: Sends,
        acts_as_master: bool,
        changed: Callable[[], None],
    ) -> None:
        self.number = replica.number
        self.replica = replica
        replica.waits_for_admission = True
        self.files = TableFiles()
        self.config = _config()
        self.log = IdentityLog("rmqstore.sim.broker", f"broker {replica.number}")
        self.store = BrokerStore(replica, sends)
        self.controllers = None
        self.ha_address = None
        self.address: Address = (f"10.0.0.{replica.number}", 10911)
        self._timeline = timeline
        self._network = network
        self._shape = shape
        self._acts_as_master = acts_as_master
        self._changed = changed
        self._life = 0
        self._caller = Caller(replica.number, timeline=timeline, network=network)
        self._decoders: dict[End, FrameDecoder] = {}
        self._connections: dict[End, _Connection] = {}
        self._held: HeldPulls | None = None
        self._handlers: Mapping[int, FrameHandler] = {}
        self._announced: tuple[object, Announcement] | None = None
        self._followed: tuple[Address, int, int] | None = None
        self._followings = 0
        self.traffic = Traffic()
        self.metadata = BrokerTables(self, self.files, process="0")
        network.listen(port_of(replica.number), self)

    # ---- life and death

    def begin(self) -> None:
        """Begin to serve, in a new life of the process."""
        self._life += 1
        self.metadata = BrokerTables(self, self.files, process=f"{self.number}.{self._life}")
        self._followed = None
        context: Any = self
        pulls = PullRequests(context, ClientTable())
        self._held = pulls.held = HeldPulls(
            self,
            look=pulls.look,
            give_up=pulls.give_up,
            end_of=pulls.end_of,
            now_ms=self.now_ms,
        )
        families = merged(
            [
                SendRequests(context),
                pulls,
                OffsetRequests(context),
                TopicRequests(context),
                GroupRequests(context),
                MetadataRequests(context),
            ]
        )
        self._handlers = dispatched(ROWS, families, gate=RoleGate(context))
        self.start(self._save_regularly())
        self.role_changed()

    def died(self, *, loses_power: bool) -> None:
        """End, because the process of the replica has ended."""
        self._life += 1
        for end in self._decoders:
            if loses_power:
                end.vanish()
            else:
                end.close()
        self._decoders.clear()
        self._connections.clear()
        self._held = None
        self._caller.drop(loses_power=loses_power)
        self.store.forget()

    def answered(self, put: Put) -> None:
        """Take the answer to a put of this process."""
        self.store.answered(put)

    async def _save_regularly(self) -> None:
        while True:
            await self.sleep(_SAVE_OFFSETS_MS)
            await self.metadata.save_offsets()

    # ---- the role

    @property
    def role(self) -> Role:
        """The present role."""
        return self.replica.role

    def role_changed(self) -> None:
        """Serve clients, or follow a master, according to the present role."""
        role = self.role
        self.metadata.take_role(role)
        if self._held is not None:
            self._held.look_at_all()
        self._changed()
        if role.followed == self._followed:
            return
        self._followed = role.followed
        self._followings += 1
        if role.followed is not None:
            address, broker_id, _ = role.followed
            following = _Following(self, port_of(int(address[0])))
            follower = Follower(following, self.metadata, master=address[0], broker_id=broker_id)
            number = self._followings
            self.start(follower.run(), is_wanted=lambda: number == self._followings)

    def announcement(self) -> Announcement | None:
        """Return the registration for nameservers, as production decides it."""
        role, now_ms = self.role, self.now_ms()
        if not self.replica.is_up:
            return None
        broker_id = announced_id(role, lease_end_ms=self._announced_until_ms, now_ms=now_ms)
        if broker_id is None:
            return None
        tables = self.metadata.tables
        known = tables.topics_version, broker_id
        if self._announced is None or self._announced[0] != known:
            found = announcement_of(
                self.number,
                broker_id,
                tables.topic_table(),
                acts_as_master=self._acts_as_master,
            )
            self._announced = known, found
        return self._announced[1]

    @property
    def _announced_until_ms(self) -> int | None:
        leads = self.replica.master_node is not None
        return announced_until_ms(self.role, leads=leads, lease_end_ms=lease_end_ms(self.replica))

    # ---- what the handlers and the tables use

    @property
    def is_leading(self) -> bool:
        """Whether this is the master, and no other one can have been elected."""
        until_ms = self._announced_until_ms
        return self.role.name == "master" and (until_ms is None or self.now_ms() < until_ms)

    @property
    def is_shown_as_master(self) -> bool:
        """Whether routes name this broker as the master although it is a slave: slaves answer
        pulls here without it."""
        return False

    def wall_ms(self) -> int:
        """Return the time of day of this machine."""
        return self.replica.clock.wall_ms()

    def now_ms(self) -> int:
        """Return the time of this machine's monotonic clock."""
        return self.replica.clock.monotonic_ms()

    @property
    def possible_members(self) -> frozenset[int]:
        """Replicas that may be elected instead of this master."""
        node = self.replica.master_node
        return frozenset() if node is None else node.group.sync_state_set.possible

    @property
    def members_without_reports(self) -> frozenset[int]:
        """Possible members that report no changes of topics."""
        node = self.replica.master_node
        return frozenset() if node is None else node.group.sync_state_set.without_reports

    @property
    def puts_need_members(self) -> bool:
        """Whether puts wait for other members of the set."""
        return self._shape.quorum.in_sync > 1 or self._shape.quorum.all_ack

    def admit(self, broker_ids: Collection[int]) -> None:
        """Allow only these brokers to join the sync-state set of this master."""
        self.replica.admit(broker_ids)

    def registration_due(self) -> None:
        """Register soon: the topics have changed."""
        self._changed()

    async def registered(self) -> None:
        """Return after a time in which all reachable nameservers get the topics."""
        self._changed()
        await self.sleep(_REGISTERED_MS)

    # ---- turns

    def later(self, ms: int, action: Callable[..., None], *args: Any) -> None:
        """Run *action* in a turn of this process, unless it ends before."""
        self._timeline.after(ms * 1000, self._enter, self._life, action, *args)

    def _enter(self, life: int, action: Callable[..., None], *args: Any) -> None:
        if life == self._life:
            self.replica.disturb(self._turn, life, action, *args)

    def _turn(self, life: int, action: Callable[..., None], *args: Any) -> None:
        if life == self._life:
            action(*args)

    async def sleep(self, ms: int) -> None:
        """Return after a time."""
        await Pause(lambda resume: self.later(ms, resume, None))

    async def sync(self) -> None:
        """Return when a file is on the disk. Raises DiskError on a full disk."""
        await self.sleep(self._shape.sync_ms)
        if self.replica.log.is_full:
            raise DiskError(errno.ENOSPC, "No space left on device")

    def start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        *,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> coroutines.Work:
        """Run a coroutine in the turns of this process."""
        work, life = coroutines.Work(), self._life

        def failed(error: RequestRefused) -> None:
            raise error

        coroutines.run(
            coroutine,
            is_alive=lambda: life == self._life and is_wanted(),
            done=work.end,
            failed=failed,
        )
        return work

    async def call(self, port: int, frame: Frame, timeout_ms: int) -> Frame:
        """Return the answer of the broker at *port*. Raises RemotingError."""

        def begin(resume: Resume) -> None:
            def done(answer: Answer) -> None:
                self.later(0, resume, answer)

            self._caller.call(port, frame, timeout_ms, done)

        answer: Answer = await Pause(begin)
        if not isinstance(answer, Frame):
            raise answer
        return answer

    # ---- connections of clients

    def on_accepted(self, end: End) -> bool:
        if self.replica.is_up:
            self._decoders[end] = FrameDecoder()
            peer = f"10.0.1.{end.peer.party.number}", 40_000
            self._connections[end] = _Connection(peer, end)
        return self.replica.is_up

    def on_bytes(self, end: End, data: bytes) -> None:
        self._enter(self._life, self._receive, end, data)

    def on_closed(self, end: End) -> None:
        self._decoders.pop(end, None)
        connection = self._connections.pop(end, None)
        if connection is None:
            return
        if self._held is not None:
            self._held.release(connection)
        for callback in connection.callbacks:
            callback(connection)

    def _receive(self, end: End, data: bytes) -> None:
        decoder = self._decoders.get(end)
        if decoder is None:
            return
        connection = self._connections[end]
        for request in decoder.feed(data):
            self._serve(connection, request, partial(self._respond, end, request))

    def _serve(
        self, connection: _Connection, request: Frame, respond: Callable[[Frame], None]
    ) -> None:
        def refuse(error: RequestRefused) -> None:
            respond(request.respond(error.code, str(error)))

        def done(answer: Frame | None) -> None:
            if answer is not None:
                respond(answer)

        life = self._life
        try:
            found = self._handlers[request.code](connection, request)
        except RequestRefused as error:
            refuse(error)
            return
        if isinstance(found, Coroutine):
            is_alive = partial(lambda: life == self._life)
            coroutines.run(found, is_alive=is_alive, done=done, failed=refuse)
        else:
            assert found is None or isinstance(found, Frame), "coroutines or plain functions"
            done(found)

    def _respond(self, end: End, request: Frame, answer: Frame) -> None:
        if end in self._decoders and not request.is_one_way:
            end.write(encode(answer))
            end.flush()

    def on_writable(self, end: End) -> None:
        """Do nothing: answers are not held back."""

    def on_opened(self, end: End) -> None:
        raise AssertionError("a server opens no connection")

    def on_refused(self, target: int) -> None:
        raise AssertionError("a server opens no connection")

    def on_message(self, source: int, data: bytes) -> None:
        raise AssertionError("clients reach a broker by connections")


class _Following:
    """The master at *port*, for the calls of a slave's follower."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.log = broker.log
        self._broker = broker
        self._port = port

    async def call(self, frame: Frame, timeout_ms: int) -> Frame:
        return await self._broker.call(self._port, frame, timeout_ms)

    async def sleep(self, ms: int) -> None:
        await self._broker.sleep(ms)
