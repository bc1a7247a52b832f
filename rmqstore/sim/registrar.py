"""What a replica sends to a nameserver: registrations, heartbeats, and the end of its role.

A replica registers over one connection to each nameserver, as a broker of RocketMQ 5 does: with
broker id 0 while it is master, with its own id while it is a slave, and with the epoch as the state
version of its topics. It repeats a registration until it is accepted. When the replica has no role
any more it unregisters. Where an answer is overdue it gives the connection up and opens another;
what is under way on the former one may still arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.broker.registration import Announcement, bodies_of
from rmqstore.remoting.bodies.route import MASTER_ID
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.sim.clock import Timeline
from rmqstore.sim.controller_client import CLUSTER, GROUP
from rmqstore.sim.network import End, Network
from rmqstore.sim.replica import Replica
from rmqstore.store.metadata import DataVersion, TopicConfig, TopicTable

__all__ = ["BEAT_MS", "TIMEOUT_MS", "TOPIC", "Registrar", "Role", "place", "role_of"]

BEAT_MS = 500
TIMEOUT_MS = 2000
"""Time without a heartbeat after which a broker counts as dead."""
TOPIC = "orders"

_REGISTER_EVERY = 4
"""Of so many heartbeats one is a registration."""
_ANSWER_MS = 1200
_TOPICS = {name: TopicConfig(name) for name in (TOPIC, "refunds")}
_READ_AND_WRITE = 6


@dataclass(frozen=True, slots=True)
class Role:
    """What a replica registers as."""

    epoch: int
    broker_id: int


def role_of(replica: Replica) -> Role | None:
    """Return the role of a replica, None for one that is down or has no role."""
    if not replica.is_up:
        return None
    if replica.master_node is not None:
        return Role(max(replica.epoch, 0), MASTER_ID)
    if replica.slave_node is not None:
        return Role(max(replica.epoch, 0), replica.number)
    return None


def place(number: int) -> str:
    """Return where the broker of a replica listens, in all its lives."""
    return f"10.0.0.{number}:10911"


class Registrar:
    """The connection of one replica to the nameserver at *target*."""

    def __init__(
        self,
        replica: Replica,
        target: int,
        *,
        timeline: Timeline,
        network: Network,
        acts_as_master: bool,
    ) -> None:
        """*acts_as_master*: a slave may act for the master."""
        self.number = replica.number
        self._replica = replica
        self._target = target
        self._timeline = timeline
        self._network = network
        self._acts_as_master = acts_as_master
        self._end: End | None = None
        self._decoder = FrameDecoder()
        self._is_connecting = False
        self._registered: Role | None = None
        """What was accepted last."""
        self._sent: Role | None = None
        """What was sent last, answered or not."""
        self._waiting: dict[int, Role | None] = {}
        """Requests without an answer, and what they register."""
        self._opaque = 0
        self._held_ms = 0
        """By how much what is written to the connection from now on is late."""
        self._beats = 0
        self._changes = 0
        self._announcement = self._announce(Role(0, self.number))
        """As it was sent last."""

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
        self._forget()
        self._registered = self._sent = None
        self._is_connecting = False

    def hold(self, ms: int, *, on_next: bool) -> None:
        """Let what is sent from now on come late, on this connection or on the next one, which
        replaces it."""
        if on_next and self._end is not None:
            self._end.close()
            self._forget()
        self._held_ms = ms

    def _beat(self) -> None:
        self._timeline.after(BEAT_MS * 1000, self._beat)
        self._beats += 1
        self.send(is_beat=True)

    def send(self, *, is_beat: bool = False) -> None:
        """Send what is due: at once after a change of the role, else with the beat."""
        replica, now_us = self._replica, self._timeline.now_us
        if not replica.is_up or now_us < replica.paused_until_us:
            return
        if self._waiting and now_us // 1000 - next(iter(self._waiting)) > _ANSWER_MS:
            assert self._end is not None, "requests wait for answers on a connection"
            self._end.close()
            self._forget()
        if self._end is None:
            self._connect()
            return

        role = role_of(replica)
        if role is None:
            if self._sent is not None:
                self._request(self._announcement.unregistration(), None)
            self._registered = self._sent = None
        elif role != self._sent or (is_beat and role != self._registered):
            self._register(role)
        elif is_beat and self._beats % _REGISTER_EVERY == 0:
            self._register(role)
        elif is_beat:
            self._write(self._announcement.heartbeat(compatible=False), is_one_way=True)

    def _connect(self) -> None:
        if not self._is_connecting:
            self._is_connecting = True
            self._network.connect(self, self._target)

    def _forget(self) -> None:
        self._end = None
        self._decoder = FrameDecoder()
        self._waiting.clear()

    # ---- requests

    def _register(self, role: Role) -> None:
        if role != self._sent:
            self._changes += 1
            self._announcement = self._announce(role)
        self._sent = role
        self._request(self._announcement.registration(), role)

    def _announce(self, role: Role) -> Announcement:
        version = DataVersion(state_version=role.epoch, counter=self._changes)
        body, version_json = bodies_of(
            TopicTable(_TOPICS, data_version=version), permission=_READ_AND_WRITE
        )
        return Announcement(
            cluster_name=CLUSTER,
            name=GROUP,
            broker_id=role.broker_id,
            address=place(self.number),
            ha_address="",
            acting_master=self._acts_as_master,
            timeout_ms=TIMEOUT_MS,
            body=body,
            version=version_json,
        )

    def _request(self, frame: Frame, role: Role | None) -> None:
        self._write(frame)
        self._waiting[self._opaque] = role

    def _write(self, frame: Frame, *, is_one_way: bool = False) -> None:
        assert self._end is not None, "it is connected"
        # The number of a request stands for the time when it was sent.
        self._opaque = max(self._opaque + 1, self._timeline.now_us // 1000)
        if self._held_ms and not self._end.has_output:
            self._end.hold(self._timeline.now_us + self._held_ms * 1000)
            self._held_ms = 0
        self._end.write(encode(frame.with_opaque(self._opaque, is_one_way=is_one_way)))
        self._end.flush()

    # ---- the connection

    def on_opened(self, end: End) -> None:
        self._is_connecting = False
        if self._end is not None or not self._replica.is_up or not end.is_open:
            end.close()
            return
        self._end = end
        self.send(is_beat=True)

    def on_refused(self, target: int) -> None:
        self._is_connecting = False

    def on_bytes(self, end: End, data: bytes) -> None:
        if end is not self._end:
            return
        for answer in self._decoder.feed(data):
            role = self._waiting.pop(answer.opaque, None)
            if role is not None and answer.code == ResponseCode.SUCCESS:
                self._registered = role

    def on_closed(self, end: End) -> None:
        if end is self._end:
            self._forget()

    def on_accepted(self, end: End) -> bool:
        """Refuse: nobody connects to the registrar of a replica."""
        return False

    def on_writable(self, end: End) -> None:
        """Do nothing: a request waits where it cannot be sent."""

    def on_message(self, source: int, data: bytes) -> None:
        raise AssertionError("a nameserver answers over the connection")
