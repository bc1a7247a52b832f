"""The requests of one life of a broker to the controllers, and the meaning of their answers.

A machine without sockets: `beat`, `due` and `propose` return requests, and the caller passes each
answer to `answered`, or reports that there will be none (`failed`).

The answers to heartbeats distinguish two kinds of controllers. One of this library answers
with the master, the set and a lease. RocketMQ's answer is empty: such a leader is found by
GET_METADATA_INFO and queried by GET_REPLICA_INFO. That answer renews the lease while it names this
broker as master.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from rmqstore.broker.membership.leader_search import LeaderSearch
from rmqstore.broker.membership.orders import Decision
from rmqstore.errors import InvalidFieldError, RemotingFrameError
from rmqstore.remoting.bodies.controller import Elected, SyncStateSetBody
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ControllerHeartbeatRequestHeader,
    ControllerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    GetControllerMetadataResponseHeader,
    GetReplicaInfoRequestHeader,
    MasterHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rmqstore.replication.group.sync_state_set import Proposal

__all__ = ["Call", "ControllerCalls", "Displaced", "Outcome", "SetAnswer", "notified"]

_ALL_EVERY = 4
"""One of this number of heartbeats goes to all controllers, the others only to the leader."""
_STRANGERS_MAX = 3
"""Number of repeated registrations of its address before a broker yields to another broker with
its id."""
_REPORT_MS_MIN = 5
"""Shortest pause before a heartbeat that an answer requests for later."""
_URGED_MAX = 3
"""Largest number of consecutive early heartbeats that answers can request."""
_UNANSWERED_MAX = 2
"""Number of heartbeats without an answer after which the leader is searched for again."""
_NEVER = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ResponseCode.CONTROLLER_INVALID_REQUEST,
    }
)
"""Answers to ALTER_SYNC_STATE_SET after which this attempt can never take effect."""
_UNKNOWN_BROKER = (
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
)


class Outcome(Enum):
    """The result of one attempt at a proposal."""

    TAKEN = "taken"
    REFUSED = "refused"
    """It takes effect neither now nor later."""
    LOST = "lost"
    """It may have taken effect, or may do so later."""


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """The outcome of an attempt at the proposal *number* that was made in *epoch*.

    *now* is the present set, if the answer names it.
    """

    epoch: int
    number: int
    outcome: Outcome
    now: SyncStateSetBody | None = None


@dataclass(frozen=True, slots=True)
class Displaced:
    """Another process uses the identity of this broker, and started or registered later."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A request to the controller at *address*."""

    address: str
    request: Frame
    sent_ms: int
    beat: int
    """The number of the heartbeat with it, or before it."""
    epoch: int = -1
    """The epoch of the master that proposes a set."""
    proposal: int = -1
    """The number of the proposal."""


class ControllerCalls:
    """The calls of the broker *broker_id*, which serves clients at *address*.

    *life* is greater in each process of this broker. *controllers* are the addresses to find a
    leader at. RocketMQ's leader is queried for the master with every *poll_every*th heartbeat, by a
    master with every heartbeat, and its followers for another leader with every *search_every*th.
    *wall_ms* of the methods is the time that controllers with JRaft need in requests.
    """

    def __init__(
        self,
        *,
        cluster: str,
        broker_name: str,
        broker_id: int,
        address: str,
        life: int,
        controllers: Collection[str],
        is_learner: bool = False,
        poll_every: int = 5,
        search_every: int = 10,
    ) -> None:
        self._cluster = cluster
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._address = address
        self._life = life
        self._is_learner = is_learner
        self._poll_every = poll_every
        self._search_every = search_every
        self.controllers = tuple(controllers)
        self.leader: str | None = None
        self.is_registered = self.is_displaced = False
        self.trouble = ""
        """Why the leader refused the last request for this broker; empty when it did not."""
        self.beat_in_ms: int | None = None
        """Duration after the last answer at which the leader needs another heartbeat; None if it
        does not, or a heartbeat was sent since."""
        self._urged = 0
        self._has_master = False
        self._is_master = False
        self._beats = 0
        self._unanswered = 0
        """Heartbeats since the last answer of a leader."""
        self._registered_at = 0
        """The last heartbeat before the answer to the registration."""
        self._strangers = 0
        """How often a leader of RocketMQ knew this broker at another address."""
        self._seen: dict[str, tuple[str, int]] = {}
        self._is_ours: dict[str, bool] = {}
        self._leaders = LeaderSearch()
        self._asked: set[int] = set()
        """Requests to the leader since the last heartbeat."""
        self._is_poll_due = False
        self._wall_ms: int | None = None

    @property
    def has_leases(self) -> bool:
        """Whether the leader grants leases itself."""
        return self.leader is not None and self._is_ours.get(self.leader, False)

    # ---- requests

    def beat(
        self,
        now_ms: int,
        header: Callable[..., ControllerHeartbeatRequestHeader],
        *,
        wall_ms: int | None = None,
    ) -> list[Call]:
        """Return heartbeats, and further requests that are due.

        *header* gets the fields that differ between controllers.
        """
        if self.is_displaced:
            return []
        self._beats += 1
        self.beat_in_ms = None
        self._unanswered += 1
        self._asked.clear()
        if self._unanswered > _UNANSWERED_MAX:
            self._lose_leader()
        calls = []
        for address in self._targets():
            node, seen_ms = self._seen.get(address, (None, -1))
            fields = header(
                cluster_name=self._cluster,
                broker_address=self._address,
                broker_name=self._broker_name,
                broker_id=self._broker_id,
                life=self._life,
                number=self._beats,
                controller_node=node,
                controller_ms=seen_ms,
            ).to_fields()
            request = Frame.request(RequestCode.BROKER_HEARTBEAT, fields)
            calls.append(Call(address, request, now_ms, self._beats))
        return calls + self.due(now_ms, wall_ms=wall_ms)

    def due(self, now_ms: int, *, wall_ms: int | None = None) -> list[Call]:
        """Return the requests that are due, without heartbeats; each once between two of them."""
        self._wall_ms = wall_ms
        calls: list[Call] = []
        if self.is_displaced:
            return calls
        # A leader of RocketMQ did not answer the heartbeat before the last one.
        is_doubtful = self._unanswered > 1 or self._beats % self._search_every == 0
        if self.leader is None or (is_doubtful and not self.has_leases):
            calls += self._search(now_ms)
        if self.leader is None:
            return calls
        request = self._request_due(self.leader)
        if request is not None and request.code not in self._asked:
            self._asked.add(request.code)
            calls.append(Call(self.leader, request, now_ms, self._beats))
        return calls

    def _targets(self) -> Collection[str]:
        leader = self.leader
        if leader is None:
            return self.controllers
        if self.has_leases and self._beats % _ALL_EVERY:
            return (leader,)
        return self.controllers if leader in self.controllers else (*self.controllers, leader)

    def _search(self, now_ms: int) -> list[Call]:
        code = RequestCode.CONTROLLER_GET_METADATA_INFO
        # Controllers of this library name the leader when they answer heartbeats.
        is_patient = self._beats <= _UNANSWERED_MAX
        asked = [each for each in self.controllers if not self._is_ours.get(each, is_patient)]
        if not asked or code in self._asked:
            return []
        self._asked.add(code)
        return [Call(each, Frame.request(code), now_ms, self._beats) for each in asked]

    def _request_due(self, leader: str) -> Frame | None:
        """Returns the next request to the leader."""
        if not self.is_registered:
            return Frame.request(
                RequestCode.CONTROLLER_REGISTER_BROKER,
                RegisterBrokerToControllerRequestHeader(
                    cluster_name=self._cluster,
                    broker_name=self._broker_name,
                    broker_id=self._broker_id,
                    broker_address=self._address,
                    invoke_time=self._wall_ms,
                ).to_fields(),
            )
        if not self._has_master and not self._is_learner:
            return Frame.request(
                RequestCode.CONTROLLER_ELECT_MASTER,
                ElectMasterRequestHeader(
                    cluster_name=self._cluster,
                    broker_name=self._broker_name,
                    broker_id=self._broker_id,
                    invoke_time=self._wall_ms,
                ).to_fields(),
            )
        if self.has_leases:
            return None
        is_poll_due = self._is_poll_due or self._is_master or not self._has_master
        if is_poll_due or self._beats % self._poll_every == 0:
            fields = GetReplicaInfoRequestHeader(broker_name=self._broker_name).to_fields()
            return Frame.request(RequestCode.CONTROLLER_GET_REPLICA_INFO, fields)
        return None

    def propose(
        self, proposal: Proposal, epoch: int, now_ms: int, *, wall_ms: int | None = None
    ) -> Call | SetAnswer:
        """Return the request that proposes a set to the leader; the outcome where there is nothing
        to send."""
        leader = self.leader
        is_change = bool(proposal.joined or proposal.left)
        if leader is None or not (is_change or self.has_leases):
            # RocketMQ refuses a set that does not differ. The poll returns the set that it has.
            self._is_poll_due = True
            return SetAnswer(epoch, proposal.number, Outcome.REFUSED)
        fields = AlterSyncStateSetRequestHeader(
            broker_name=self._broker_name,
            master_broker_id=self._broker_id,
            master_epoch=epoch,
            invoke_time=wall_ms,
        ).to_fields()
        body = SyncStateSetBody(proposal.members, proposal.set_epoch).encode()
        request = Frame.request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body)
        return Call(leader, request, now_ms, self._beats, epoch, proposal.number)

    # ---- answers

    def answered(self, call: Call, answer: Frame) -> Decision | SetAnswer | Displaced | None:
        """Return the meaning of *answer* to *call*; None if it does not affect the role."""
        if call.address == self.leader:
            if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self._lose_leader()
            elif not self.has_leases:
                self._unanswered = 0
        try:
            match call.request.code:
                case RequestCode.BROKER_HEARTBEAT:
                    return self._heartbeat_answered(call, answer)
                case RequestCode.CONTROLLER_GET_METADATA_INFO:
                    self._metadata_answered(call, answer)
                    return None
                case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                    return self._proposal_answered(call, answer)
                case _:
                    return self._leader_answered(call, answer)
        except (InvalidFieldError, RemotingFrameError) as error:
            self.trouble = f"{name_of_request(call.request.code)}: {error}"
            return self.failed(call, was_sent=True)

    def failed(self, call: Call, *, was_sent: bool) -> SetAnswer | None:
        """Record that *call* gets no answer."""
        if call.address == self.leader and call.address not in self.controllers:
            self.trouble = self._leaders.no_answer(call.address)
        if call.request.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            self._leaders.failed(call.address)
        if call.request.code != RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            return None
        outcome = Outcome.LOST if was_sent else Outcome.REFUSED
        return SetAnswer(call.epoch, call.proposal, outcome)

    def _lose_leader(self) -> None:
        self.leader = None
        self._leaders.forget()

    def _heartbeat_answered(self, call: Call, answer: Frame) -> Decision | Displaced | None:
        source = call.address
        if answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST:
            if "brokerLife" in answer.ext_fields:
                self.is_displaced = True
                return Displaced(answer.remark or "")
            self.trouble = answer.remark or ""
            return None
        if answer.code != ResponseCode.SUCCESS:
            if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                self.trouble = answer.remark or ""
            return None
        if "controllerNode" not in answer.ext_fields:
            self._is_ours[source] = False
            return None
        self._is_ours[source] = True
        header = ControllerHeartbeatResponseHeader.from_fields(answer.ext_fields)
        node, seen_ms = self._seen.get(source, ("", -1))
        if node != header.controller_node or seen_ms < header.controller_ms:
            self._seen[source] = header.controller_node, header.controller_ms
        if not header.is_leader:
            return None
        self.leader, self._unanswered = source, 0
        self._urged = self._urged + 1 if header.wants_report else 0
        self.beat_in_ms = None
        if header.report_in_ms >= 0:
            self.beat_in_ms = max(header.report_in_ms, _REPORT_MS_MIN)
        if 0 < self._urged <= _URGED_MAX:
            self.beat_in_ms = 0
        self._has_master = header.master_broker_id is not None
        if header.master_broker_id is None:
            return None
        self.trouble = ""
        taken = SyncStateSetBody.decode(answer.body)
        asked_ms = call.sent_ms if header.lease_ms else -1
        return self._decided(call, header, taken.members, taken.epoch, asked_ms)

    def _metadata_answered(self, call: Call, answer: Frame) -> None:
        if answer.code != ResponseCode.SUCCESS:
            self._leaders.failed(call.address)
            return
        header = GetControllerMetadataResponseHeader.from_fields(answer.ext_fields)
        self._leaders.answered(call.address, header)
        # A leader that answered this heartbeat is where it answered, whatever it is named.
        is_known = self.has_leases and not self._unanswered
        if not is_known:
            self.leader = self._leaders.best(self.leader) or self.leader

    def _leader_answered(self, call: Call, answer: Frame) -> Decision | Displaced | None:
        code, request = answer.code, call.request.code
        if code in _UNKNOWN_BROKER:
            self.is_registered = False
        if code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            self.trouble = f"{name_of_request(request)}: {answer.remark or code}"
            return None
        self.trouble = ""
        header = MasterHeader.from_fields(answer.ext_fields)
        self._has_master = header.master_broker_id is not None
        if request == RequestCode.CONTROLLER_REGISTER_BROKER:
            self.is_registered, self._registered_at = True, self._beats
        if not self._has_master:
            return None
        if request == RequestCode.CONTROLLER_ELECT_MASTER:
            members = Elected.decode(answer.body).sync_state_set
            return self._decided(call, header, members, header.sync_state_set_epoch)
        taken, asked_ms = SyncStateSetBody.decode(answer.body), -1
        if request == RequestCode.CONTROLLER_GET_REPLICA_INFO:
            self._is_poll_due = False
            # Only a controller that is known to grant no leases gets this request.
            asked_ms = call.sent_ms if self._is_ours.get(call.address) is False else -1
        return self._decided(call, header, taken.members, taken.epoch, asked_ms)

    def _decided(
        self,
        call: Call,
        header: MasterHeader,
        members: frozenset[int],
        set_epoch: int | None,
        lease_asked_ms: int = -1,
    ) -> Decision | Displaced | None:
        self._is_master = header.master_broker_id == self._broker_id
        address = header.master_address or ""
        if self._is_master and address != self._address and call.beat > self._registered_at:
            # A late registration of an earlier process, or another broker with the same id.
            self.is_registered = False
            self._strangers += not self.has_leases
            if self._strangers > _STRANGERS_MAX:
                self.is_displaced = True
                return Displaced(
                    f"the controller knows broker {self._broker_id} of {self._broker_name} at "
                    f"{address} each time after it registered at {self._address}: two brokers use "
                    "one identity"
                )
            return None
        return Decision(
            epoch=header.master_epoch or 0,
            master_id=header.master_broker_id,
            master_address=address,
            master_life=header.master_life,
            members=members,
            set_epoch=-1 if set_epoch is None else set_epoch,
            lease_asked_ms=lease_asked_ms,
        )

    def _proposal_answered(self, call: Call, answer: Frame) -> SetAnswer:
        if answer.code == ResponseCode.SUCCESS:
            now = SyncStateSetBody.decode(answer.body)
            if self._broker_id not in now.members:
                raise RemotingFrameError(f"the set {sorted(now.members)} lacks its master")
            return SetAnswer(call.epoch, call.proposal, Outcome.TAKEN, now)
        self._is_poll_due = True
        if answer.code not in _NEVER:
            return SetAnswer(call.epoch, call.proposal, Outcome.LOST)
        present = None
        if answer.code == ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH and answer.body:
            # A controller of this library names the set that it has.
            named = SyncStateSetBody.decode(answer.body)
            present = named if self._broker_id in named.members else None
        return SetAnswer(call.epoch, call.proposal, Outcome.REFUSED, present)


def notified(request: Frame) -> Decision:
    """Return the decision that NOTIFY_BROKER_ROLE_CHANGED carries. Raises InvalidFieldError,
    RemotingFrameError."""
    header = NotifyBrokerRoleChangedRequestHeader.from_fields(request.ext_fields)
    taken = SyncStateSetBody.decode(request.body)
    return Decision(
        epoch=header.master_epoch or 0,
        master_id=header.master_broker_id,
        master_address=header.master_address or "",
        master_life=header.master_life,
        members=taken.members,
        set_epoch=taken.epoch,
    )
