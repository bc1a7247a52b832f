"""Requests of a replica to the controllers, in remoting frames, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ControllerHeartbeatRequestHeader,
    ControllerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.sim.view import View

__all__ = [
    "CLUSTER",
    "CONTROLLERS",
    "GROUP",
    "ControllerClient",
    "SetAnswer",
    "address_of",
    "place_of",
]

CLUSTER, GROUP = "c", "g"
CONTROLLERS = (-1, -2, -3)
"""Where replicas reach the controllers."""
_ALL_EVERY = 4
"""Of so many heartbeats one goes to all controllers, the others to the leader alone."""
_CALLS_MAX = 64
_OPAQUES = 100_000


def address_of(number: int, life: int) -> str:
    """Return where a replica listens in a life, as it registers."""
    return f"{number}:{life}"


def place_of(address: str) -> int:
    """Return the replica that listens, or listened, at *address*."""
    return int(address.partition(":")[0])


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """The answer to an attempt at the proposal *number* that was made in *epoch*.

    *is_refused*: it takes effect neither now nor later. *now* is the set that is in force, as far
    as the answer names it.
    """

    epoch: int
    number: int
    is_refused: bool
    is_lost: bool
    now: SyncStateSetBody | None


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that waits for its answer."""

    code: int
    sent_ms: int = -1
    epoch: int = -1
    proposal: int = -1


class ControllerClient:
    """The calls of one life of the replica *number*."""

    def __init__(self, number: int, life: int, send: Callable[..., None]) -> None:
        """*send* takes the address of a controller, the bytes, and whether they arrive once at
        most."""
        self._number = number
        self._life = life
        self._send = send
        self._calls: dict[int, _Call] = {}
        # Another connection in each life: its answers are not those to an earlier one.
        self._opaque = life * _OPAQUES
        self._beats = 0
        self._unanswered = 0
        """Heartbeats since the last answer of a leader."""
        self._leader: int | None = None
        self._seen: dict[int, tuple[str, int]] = {}
        self._is_registered = False
        self._has_master = False

    # ---- requests

    def beat(self, now_ms: int, header: Callable[..., ControllerHeartbeatRequestHeader]) -> None:
        """Send a heartbeat, and what else is to be asked. *header* gets the fields that differ
        between controllers."""
        self._beats += 1
        self._unanswered += 1
        if self._unanswered > 2:
            self._leader = None
        for address in self._targets():
            node, seen_ms = self._seen.get(address, (None, -1))
            fields = header(
                cluster_name=CLUSTER,
                broker_address=address_of(self._number, self._life),
                broker_name=GROUP,
                broker_id=self._number,
                life=self._life,
                number=self._beats,
                controller_node=node,
                controller_ms=seen_ms,
            ).to_fields()
            frame = Frame.request(RequestCode.BROKER_HEARTBEAT, fields)
            self._call(address, frame, _Call(frame.code, sent_ms=now_ms))
        if self._leader is None:
            return
        if not self._is_registered:
            self._register(self._leader)
        elif not self._has_master:
            self._request_election(self._leader)

    def _targets(self) -> tuple[int, ...]:
        if self._leader is None or self._beats % _ALL_EVERY == 0:
            return CONTROLLERS
        return (self._leader,)

    def _register(self, address: int) -> None:
        fields = RegisterBrokerToControllerRequestHeader(
            cluster_name=CLUSTER,
            broker_name=GROUP,
            broker_id=self._number,
            broker_address=address_of(self._number, self._life),
        ).to_fields()
        frame = Frame.request(RequestCode.CONTROLLER_REGISTER_BROKER, fields)
        self._call(address, frame, _Call(frame.code))

    def _request_election(self, address: int) -> None:
        fields = ElectMasterRequestHeader(
            cluster_name=CLUSTER, broker_name=GROUP, broker_id=self._number
        ).to_fields()
        frame = Frame.request(RequestCode.CONTROLLER_ELECT_MASTER, fields)
        self._call(address, frame, _Call(frame.code))

    def propose(self, proposal: Proposal, epoch: int) -> None:
        """Propose a set to the leader, as far as it is known."""
        fields = AlterSyncStateSetRequestHeader(
            broker_name=GROUP, master_broker_id=self._number, master_epoch=epoch
        ).to_fields()
        body = SyncStateSetBody(proposal.members, proposal.set_epoch).encode()
        frame = Frame.request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body)
        call = _Call(frame.code, epoch=epoch, proposal=proposal.number)
        self._call(self._leader or CONTROLLERS[0], frame, call, is_once=True)

    def _call(self, address: int, frame: Frame, call: _Call, *, is_once: bool = False) -> None:
        self._opaque += 1
        self._calls[self._opaque] = call
        if len(self._calls) > _CALLS_MAX:
            del self._calls[next(iter(self._calls))]
        frame.opaque = self._opaque
        self._send(address, encode(frame), is_once=is_once)

    # ---- answers

    def receive(self, source: int, data: bytes) -> View | SetAnswer | None:
        """Return the order of a controller; None for a frame that does not concern the role."""
        (frame,) = FrameDecoder().feed(data)
        if not frame.is_response:
            return self._noticed(frame)
        call = self._calls.pop(frame.opaque, None)
        if call is None:
            return None
        if call.code == RequestCode.BROKER_HEARTBEAT:
            return self._heard(source, frame, call)
        if call.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            return self._altered(frame, call)
        if call.code == RequestCode.CONTROLLER_REGISTER_BROKER:
            self._is_registered |= frame.code == ResponseCode.SUCCESS
        return None

    @staticmethod
    def _noticed(frame: Frame) -> View:
        header = NotifyBrokerRoleChangedRequestHeader.from_fields(frame.ext_fields)
        body = SyncStateSetBody.decode(frame.body)
        epoch = header.master_epoch or 0
        return View(epoch, header.master_broker_id or 0, body.members, body.epoch, order=epoch)

    def _heard(self, source: int, frame: Frame, call: _Call) -> View | None:
        if frame.code != ResponseCode.SUCCESS:
            return None
        header = ControllerHeartbeatResponseHeader.from_fields(frame.ext_fields)
        node, seen_ms = self._seen.get(source, ("", -1))
        if node != header.controller_node or seen_ms < header.controller_ms:
            self._seen[source] = header.controller_node, header.controller_ms
        if not header.is_leader:
            return None
        self._leader, self._unanswered = source, 0
        self._has_master = header.master_broker_id is not None
        if header.master_broker_id is None:
            return None
        body, epoch = SyncStateSetBody.decode(frame.body), header.master_epoch or 0
        asked_ms = call.sent_ms if header.lease_ms else -1
        return View(epoch, header.master_broker_id, body.members, body.epoch, asked_ms, order=epoch)

    def _altered(self, frame: Frame, call: _Call) -> SetAnswer:
        is_taken = frame.code == ResponseCode.SUCCESS
        is_lost = frame.code == ResponseCode.SYSTEM_ERROR
        if frame.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = None
        now = SyncStateSetBody.decode(frame.body) if frame.body else None
        return SetAnswer(call.epoch, call.proposal, not (is_taken or is_lost), is_lost, now)
