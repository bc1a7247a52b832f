"""The invariants of the routes of each nameserver.

- A master never replaces a live master of a later epoch.
- A route shows every replica that registered and sends signs of life over an open connection,
  unless another replica has taken its id.
- A late registration, over an earlier connection than the present one, changes nothing.
- A route never shows a replica as writable master if its last registration was as a slave, or if it
  never registered as master.
- A route shows a former master as master for at most `STALE_MS` and the stops of the nameserver
  after the end of its role, or after the arrival of its last request from before that end.
- Once faults have healed, each nameserver shows the writable master of the last epoch and all
  living members, each with its id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmqstore.data_version import DataVersion
from rmqstore.permissions import PERM_WRITE
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.bodies.route import MASTER_ID, TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.sim.broker_host import SENT_MS
from rmqstore.sim.checker import Violation
from rmqstore.sim.controller_client import CLUSTER, GROUP
from rmqstore.sim.nameserver_node import SCAN_MS, NameserverNode
from rmqstore.sim.registrar import TIMEOUT_MS, TOPIC, Role, place, role_of
from rmqstore.sim.replica import Replica
from rmqstore.sim.view import View

__all__ = ["PAUSE_MS_MAX", "STALE_MS", "RouteChecker"]

PAUSE_MS_MAX = 2000
"""Longest stop of a nameserver."""
_DRIFT = 1.1
STALE_MS = int((TIMEOUT_MS + SCAN_MS) * _DRIFT)
"""Sum of a broker's timeout and a scan. The clock of a nameserver skips its stops."""


@dataclass(slots=True)
class _Claim:
    """The last registration of a replica that a nameserver accepted."""

    role: Role
    version: DataVersion
    connection: int
    heard_ms: int
    """Arrival of the last sign of life."""
    reigned_ms: int
    """Arrival of the last request that was sent while the replica had the registered role."""


class RouteChecker:
    """Follows the nameservers of one world; *now_ms* is the time of the world."""

    def __init__(self, replicas: Mapping[int, Replica], now_ms: Callable[[], int]) -> None:
        self._replicas = {place(number): each for number, each in replicas.items()}
        self._now_ms = now_ms
        self._claims: dict[int, dict[str, _Claim]] = {}
        self._lives: dict[int, int] = {}
        self._ended: dict[tuple[str, int], int] = {}
        """Time at which the end of a replica's role in an epoch was noticed."""
        self.registrations = 0
        self.refusals = 0
        """Registrations that were refused."""

    # ---- what nodes do

    def on_request(self, node: NameserverNode, number: int, request: Frame, *, code: int) -> None:
        """Record a request, and check the route after it."""
        address = request.ext_fields.get("brokerAddr")
        if address is None:
            # A client gets a route, which changes nothing.
            return
        claims = self._claims_at(node)
        is_accepted = code == ResponseCode.SUCCESS
        claim = claims.get(address)
        if request.code == RequestCode.REGISTER_BROKER:
            self.registrations += is_accepted
            self.refusals += not is_accepted
            if is_accepted:
                former, claim = claim, self._claim(request, number)
                if former is not None:
                    self._replaces(node, address, former, claim)
                self._takes_over(node, address, claim)
                claims[address] = claim
        if claim is not None and request.code == RequestCode.UNREGISTER_BROKER:
            if number >= claim.connection:
                del claims[address]
        elif claim is not None and is_accepted:
            self._heard(address, claim, number, _sent_ms(request))
        self.look(node)

    def on_end(self, node: NameserverNode, number: int) -> None:
        """Record the end of a connection."""
        claims = self._claims_at(node)
        for address in [each for each in claims if claims[each].connection == number]:
            del claims[address]
        self.look(node)

    def changed(self, number: int) -> None:
        """Record that a replica has another role, or its lease again."""
        address = place(number)
        for _, epoch in [each for each in self._ended if each[0] == address]:
            self._ended_ms(address, Role(epoch, MASTER_ID))

    def _claims_at(self, node: NameserverNode) -> dict[str, _Claim]:
        if self._lives.get(node.number) != node.life:
            self._lives[node.number] = node.life
            self._claims[node.number] = {}
        return self._claims[node.number]

    def _claim(self, request: Frame, number: int) -> _Claim:
        body = RegisterBrokerBody.decode(request.body, compressed=False, version=request.version)
        version = body.table.version
        role = Role(version.state_version, int(request.ext_fields["brokerId"]))
        return _Claim(role, version, number, self._now_ms(), -1)

    def _replaces(self, node: NameserverNode, address: str, former: _Claim, claim: _Claim) -> None:
        """Check another registration of the same replica."""
        is_earlier = claim.connection < former.connection
        if is_earlier and self._is_alive(former) and claim.version.order <= former.version.order:
            raise Violation(
                f"nameserver {node.number} lets {address} register as {claim.role} over "
                f"connection {claim.connection}; it is {former.role} over {former.connection}"
            )

    def _takes_over(self, node: NameserverNode, address: str, claim: _Claim) -> None:
        """Check a registration that replaces another replica."""
        claims = self._claims_at(node)
        for other in [each for each in claims if each != address]:
            held = claims[other]
            if held.role.broker_id != claim.role.broker_id:
                continue
            if self._is_alive(held) and held.role.epoch > claim.role.epoch:
                raise Violation(
                    f"nameserver {node.number} lets {address}, master of epoch {claim.role.epoch}, "
                    f"take the place of {other}, master of epoch {held.role.epoch}"
                )
            del claims[other]

    def _is_alive(self, claim: _Claim) -> bool:
        return self._now_ms() - claim.heard_ms < int(TIMEOUT_MS / _DRIFT)

    def _heard(self, address: str, claim: _Claim, number: int, sent_ms: int) -> None:
        claim.heard_ms = self._now_ms()
        claim.connection = max(claim.connection, number)
        ended_ms = self._ended_ms(address, claim.role)
        if ended_ms is None or sent_ms <= ended_ms:
            claim.reigned_ms = self._now_ms()

    def _ended_ms(self, address: str, role: Role) -> int | None:
        """Return when the end of a role was noticed, None while it lasts. It continues if the same
        replica is master in a later epoch."""
        now = role_of(self._replicas[address])
        if now is not None and now.broker_id == role.broker_id and now.epoch >= role.epoch:
            self._ended.pop((address, role.epoch), None)
            return None
        return self._ended.setdefault((address, role.epoch), self._now_ms())

    # ---- routes

    def look(self, node: NameserverNode) -> None:
        """Check the present route of *node*."""
        claims, name = self._claims_at(node), f"nameserver {node.number}"
        members = node.table.member_group(CLUSTER, GROUP).addresses
        for address in [each for each in claims if each not in members.values()]:
            if self._is_alive(claims[address]):
                raise Violation(f"{name} shows {members}; {address} is alive: {claims[address]}")
            del claims[address]

        master = _writable_master(node.table.route(TOPIC))
        if master is None:
            return
        claim = claims.get(master)
        if claim is None or claim.role.broker_id != MASTER_ID:
            raise Violation(f"{name} shows the master {master}, which registered as {claim}")

        ended_ms = self._ended_ms(master, claim.role)
        since_ms = None if ended_ms is None else max(ended_ms, claim.reigned_ms)
        if since_ms is None:
            return
        limit_ms = STALE_MS + node.paused_ms(since_ms)
        if self._now_ms() - since_ms > limit_ms:
            raise Violation(
                f"{name} shows {master} as master of epoch {claim.role.epoch}, "
                f"{self._now_ms() - since_ms} ms after it was that: {limit_ms} are the most"
            )

    def apart(self, node: NameserverNode, view: View) -> str:
        """Return a difference between *node*'s route and a converged group; empty without one."""
        route = node.route(TOPIC)
        wanted = {
            MASTER_ID if number == view.master else number: place(number)
            for number in (each.number for each in self._replicas.values())
        }
        shown = {} if route is None else dict(route.brokers[0].addresses)
        if shown != wanted:
            return f"nameserver {node.number} shows {shown}; the group is {wanted}"
        if _writable_master(route) is None:
            return f"nameserver {node.number} shows a master that takes no puts"
        epoch = self._claims_at(node)[place(view.master)].role.epoch
        if epoch != max(view.epoch, 0):
            return f"nameserver {node.number} has the master of epoch {epoch}, not {view.epoch}"
        return ""


def _sent_ms(request: Frame) -> int:
    """Return when a request was sent. The number of a registrar's request encodes it."""
    return int(request.ext_fields.get(SENT_MS, request.opaque))


def _writable_master(route: TopicRoute | None) -> str | None:
    """Return the address to which clients send the messages of a route, None for nowhere."""
    if route is None or not any(queue.perm & PERM_WRITE for queue in route.queues):
        return None
    return next((each.addresses.get(MASTER_ID) for each in route.brokers), None)
