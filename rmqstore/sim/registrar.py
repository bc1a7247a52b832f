"""A replica's requests to a nameserver: registrations, heartbeats, and unregistration.

A replica registers over one connection to each nameserver, as a broker of RocketMQ 5 does: with
broker id 0 while it is master, with its own id while it is a slave, and with the epoch as the state
version of its topics. Production code decides what is sent and when
(`rmqstore.broker.nameserver_calls`); this module sends it over the network. Bytes in transit on an
abandoned connection may still arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rmqstore.broker.nameserver_calls import NameserverCalls, Requests
from rmqstore.broker.registration import Announcement, bodies_of
from rmqstore.errors import RemotingError
from rmqstore.permissions import PERM_READ_WRITE
from rmqstore.remoting.bodies.route import MASTER_ID
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.sim.clock import Timeline
from rmqstore.sim.controller_client import CLUSTER, GROUP
from rmqstore.sim.network import End, Network
from rmqstore.sim.replica import Replica
from rmqstore.store.metadata import DataVersion, TopicConfig, TopicTable

__all__ = [
    "BEAT_MS",
    "TIMEOUT_MS",
    "TOPIC",
    "Announcer",
    "Herald",
    "Registrar",
    "Role",
    "lease_end_ms",
    "place",
    "role_of",
]

BEAT_MS = 500
TIMEOUT_MS = 2000
"""Time without a heartbeat after which a broker counts as dead."""
TOPIC = "orders"

_PERIOD_MS = 4 * BEAT_MS
_ANSWER_MS = 1200
_TOPICS = {name: TopicConfig(name) for name in (TOPIC, "refunds")}


@dataclass(frozen=True, slots=True)
class Role:
    """The role in a replica's registration."""

    epoch: int
    broker_id: int


def lease_end_ms(replica: Replica) -> int | None:
    """Return when the lease of a master ends; None without a lease or in another role."""
    node = replica.master_node
    return None if node is None else node.group.policy.lease.end_ms


def role_of(replica: Replica) -> Role | None:
    """Return the role that a replica registers; None if it is down or has no role.

    A master without a lease registers as a slave.
    """
    if not replica.is_up:
        return None
    if replica.master_node is not None:
        until_ms = lease_end_ms(replica)
        if until_ms is not None and replica.clock.monotonic_ms() >= until_ms:
            return Role(max(replica.epoch, 0), replica.number)
        return Role(max(replica.epoch, 0), MASTER_ID)
    if replica.slave_node is not None:
        return Role(max(replica.epoch, 0), replica.number)
    return None


def place(number: int) -> str:
    """Return the address of a replica's broker, the same in all its lives."""
    return f"10.0.0.{number}:10911"


def announcement_of(
    number: int, broker_id: int, topics: TopicTable, *, acts_as_master: bool
) -> Announcement:
    """Return the registration of a replica's broker."""
    body, version = bodies_of(topics, permission=PERM_READ_WRITE)
    return Announcement(
        cluster_name=CLUSTER,
        name=GROUP,
        broker_id=broker_id,
        address=place(number),
        ha_address="",
        acting_master=acts_as_master,
        timeout_ms=TIMEOUT_MS,
        body=body,
        version=version,
    )


class Announcer(Protocol):
    """The source of registrations."""

    def announcement(self) -> Announcement | None:
        """Return the registration; None while the broker serves no clients."""


class Herald:
    """Announces a replica with constant topics. *acts_as_master*: a slave may act for the
    master."""

    def __init__(self, replica: Replica, *, acts_as_master: bool) -> None:
        self._replica = replica
        self._acts_as_master = acts_as_master
        self._changes = 0
        self._last: tuple[Role, Announcement] | None = None

    def announcement(self) -> Announcement | None:
        """Return the present registration."""
        role = role_of(self._replica)
        if role is None:
            return None
        if self._last is None or self._last[0] != role:
            self._changes += 1
            version = DataVersion(state_version=role.epoch, counter=self._changes)
            found = announcement_of(
                self._replica.number,
                role.broker_id,
                TopicTable(_TOPICS, data_version=version),
                acts_as_master=self._acts_as_master,
            )
            self._last = role, found
        return self._last[1]


class Registrar:
    """The connection of one replica to the nameserver at *target*."""

    def __init__(
        self,
        replica: Replica,
        announcer: Announcer,
        target: int,
        *,
        timeline: Timeline,
        network: Network,
        always_registers: bool,
    ) -> None:
        """*always_registers*: register without querying the version first (forceRegister)."""
        self.number = replica.number
        self._replica = replica
        self._announcer = announcer
        self._target = target
        self._timeline = timeline
        self._network = network
        self._always_registers = always_registers
        self._life = 0
        self._calls = NameserverCalls()
        self._end: End | None = None
        self._decoder = FrameDecoder()
        self._is_connecting = False
        self._requests: Requests | None = None
        """The call in progress."""
        self._unsent: Frame | None = None
        """A request that waits for the connection."""
        self._waiting = -1
        """The number of the request that waits for its answer."""
        self._tries = 0
        self._opaque = 0
        self._held_ms = 0
        """Delay of bytes that are written to the connection from now on."""
        self._look_us: int | None = None

    def start(self) -> None:
        """Begin to send."""
        self._timeline.after(self._network.rng.randrange(BEAT_MS * 1000), self._beat)

    def died(self, *, loses_power: bool) -> None:
        """End with the process of the replica."""
        if self._end is not None:
            if loses_power:
                self._end.vanish()
            else:
                self._end.close()
        self._life += 1
        self._calls = NameserverCalls()
        self._drop()
        self._requests, self._waiting = None, -1
        self._is_connecting = False

    def hold(self, ms: int, *, on_next: bool) -> None:
        """Delay bytes that are sent from now on, on this connection or on its replacement."""
        if on_next and self._end is not None:
            self._end.close()
            self._lost()
        self._held_ms = ms

    def changed(self) -> None:
        """Call soon: the broker has changed."""
        self._calls.changed(self._now_ms())
        self._look()

    # ---- when

    def _now_ms(self) -> int:
        return self._replica.clock.monotonic_ms()

    def _is_stopped(self) -> bool:
        return not self._replica.is_up or self._timeline.now_us < self._replica.paused_until_us

    def _look(self) -> None:
        """Start a due call; plan the next check."""
        if not self._replica.is_up or self._requests is not None:
            return
        if self._is_stopped():
            self._look_at(self._replica.paused_until_us)
            return
        now_ms, announcement = self._now_ms(), self._announcer.announcement()
        if self._calls.is_due(announcement, now_ms):
            self._requests = self._calls.call(
                announcement, always_registers=self._always_registers, looks_for_twin=False
            )
            self._go_on(self._requests.__next__)
            return
        until_ms = None if announcement is None else lease_end_ms(self._replica)
        self._look_at(self._replica.clock.world_us(self._calls.due_ms(now_ms, until_ms)))

    def _look_at(self, when_us: int) -> None:
        if self._look_us is None or when_us < self._look_us:
            self._look_us = when_us
            self._timeline.at(when_us, self._look_again, when_us)

    def _look_again(self, planned_us: int) -> None:
        if self._look_us == planned_us:
            self._look_us = None
            self._look()

    def _beat(self) -> None:
        self._timeline.after(BEAT_MS * 1000, self._beat)
        if self._is_stopped():
            return
        frame = self._calls.heartbeat(self._announcer.announcement(), compatible=False)
        if frame is not None and self._end is not None:
            self._write(frame, is_one_way=True)
        self._look()

    # ---- a call

    def _go_on(self, step: Callable[..., Frame], *answer: Frame) -> None:
        """Run the next step of the call in progress."""
        self._waiting = -1
        try:
            request = step(*answer)
        except StopIteration:
            self._ended("")
        except RemotingError as error:
            self._ended(str(error) or "refused")
        else:
            self._tries += 1
            self._timeline.after(_ANSWER_MS * 1000, self._overdue, self._life, self._tries)
            self._request(request)

    def _ended(self, failure: str) -> None:
        self._requests, self._unsent, self._waiting = None, None, -1
        self._tries += 1
        self._calls.ended(self._now_ms(), period_ms=_PERIOD_MS, failure=failure)
        self._look()

    def _overdue(self, life: int, tries: int) -> None:
        if (life, tries) != (self._life, self._tries) or self._requests is None:
            return
        if self._end is not None and self._network.rng.random() < 0.5:
            # The machine drops the connection, as TCP does after some retransmissions.
            self._end.close()
            self._lost()
        else:
            self._ended("no answer")

    def _request(self, frame: Frame) -> None:
        if self._end is None:
            self._unsent = frame
            self._connect()
            return
        self._write(frame)
        self._waiting = self._opaque

    def _write(self, frame: Frame, *, is_one_way: bool = False) -> None:
        assert self._end is not None, "it is connected"
        # The number of a request encodes its send time.
        self._opaque = max(self._opaque + 1, self._timeline.now_us // 1000)
        if self._held_ms and not self._end.has_output:
            self._end.hold(self._timeline.now_us + self._held_ms * 1000)
            self._held_ms = 0
        self._end.write(encode(frame.with_opaque(self._opaque, is_one_way=is_one_way)))
        self._end.flush()

    # ---- the connection

    def _connect(self) -> None:
        if not self._is_connecting:
            self._is_connecting = True
            self._network.connect(self, self._target)

    def _drop(self) -> None:
        self._end = None
        self._decoder = FrameDecoder()
        self._unsent = None

    def _lost(self) -> None:
        self._drop()
        self._calls.lost(self._now_ms())
        if self._requests is not None:
            self._ended("the connection has ended")
        else:
            self._look()

    def on_opened(self, end: End) -> None:
        self._is_connecting = False
        if self._end is not None or not self._replica.is_up or not end.is_open:
            end.close()
            return
        self._end = end
        frame, self._unsent = self._unsent, None
        if frame is not None:
            self._request(frame)

    def on_refused(self, target: int) -> None:
        self._is_connecting = False
        if self._unsent is not None:
            self._ended("refused")

    def on_bytes(self, end: End, data: bytes) -> None:
        if end is not self._end:
            return
        for answer in self._decoder.feed(data):
            if answer.opaque == self._waiting and self._requests is not None:
                self._go_on(self._requests.send, answer)

    def on_closed(self, end: End) -> None:
        if end is self._end:
            self._lost()

    def on_accepted(self, end: End) -> bool:
        """Refuse: a registrar accepts no connections."""
        return False

    def on_writable(self, end: End) -> None:
        """Do nothing: a request waits where it cannot be sent."""

    def on_message(self, source: int, data: bytes) -> Any:
        raise AssertionError("a nameserver answers over the connection")
