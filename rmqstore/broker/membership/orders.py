"""Orders for a broker: from the decisions of controllers to changes of its role.

A decision may arrive late, twice, or after a later one. Only a later epoch than that of the last
order makes another order. An order stays due until it is carried out: a failed order is
given again for the same epoch. An epoch that the log is beyond is refused and reported; it never
overrides the log.

`role_keeper` carries the orders out on a replica.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Decision", "RoleOrder", "Orders"]

_RETRY_MS = 500
_RETRY_MS_MAX = 8000
_GIVE_UP_MS = 1500
"""After this time of failures the elected broker refuses its epoch, so that another is elected."""
_TROUBLE_MS = 10_000
"""For this time after that, the broker reports that it cannot lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a controller has decided about the group, from whichever message it comes."""

    epoch: int
    master_id: int | None
    """None where the group has no master."""
    master_address: str = ""
    """Where the master serves its clients."""
    master_life: int | None = None
    """The process of the master whose log was compared; None if the controller did not name it."""
    members: frozenset[int] = frozenset()
    set_epoch: int = -1
    """The version of the set *members*."""
    lease_asked_ms: int = -1
    """When the request was sent whose answer renews the lease of the master; -1 for no renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOrder:
    """Become the master of *epoch*, or follow that master."""

    epoch: int
    master_id: int
    master_address: str
    members: frozenset[int]
    set_epoch: int


class Orders:
    """The orders of the broker *broker_id* in *life*, one of its processes."""

    def __init__(self, broker_id: int, life: int) -> None:
        self._broker_id = broker_id
        self._life = life
        self._due: RoleOrder | None = None
        self._kept: RoleOrder | None = None
        """The order that was carried out last; None when its role has ended."""
        self._retry_at_ms: int | None = None
        self._failures = 0
        self._failing_since_ms = 0
        self._trouble = ""
        self._cannot_lead_until_ms = -1
        self._replaceable_epoch = -1
        """The highest epoch whose controller elects another master after a refusal: one of this
        library, which names the process of the master."""
        self.refused_epoch = -1
        """The highest epoch in which this broker was elected and will not be master."""

    @property
    def latest(self) -> RoleOrder | None:
        """The order that is due or, without one, the order carried out last."""
        return self._due or self._kept

    @property
    def retry_at_ms(self) -> int | None:
        """When the order that is due may be given again; None where it need not wait."""
        return None if self._due is None else self._retry_at_ms

    def is_own(self, order: RoleOrder) -> bool:
        """Return whether this broker is the master that *order* names."""
        return order.master_id == self._broker_id

    def take(self, decision: Decision, *, known_epoch: int) -> None:
        """Take a decision into account. *known_epoch* is the highest one that the replica knows."""
        if decision.master_id is None:
            return
        order = RoleOrder(
            epoch=decision.epoch,
            master_id=decision.master_id,
            master_address=decision.master_address,
            members=decision.members,
            set_epoch=decision.set_epoch,
        )
        is_own = self.is_own(order)
        if decision.master_life is not None:
            self._replaceable_epoch = max(self._replaceable_epoch, order.epoch)
        # The log that an earlier process reported for the election may have been longer.
        is_of_other_life = decision.master_life not in (None, self._life)
        is_lost = is_of_other_life and order.epoch > known_epoch
        if is_own and (order.epoch < known_epoch or is_lost):
            self._refuse(order)
        if order.epoch < known_epoch:
            return
        if is_own and (is_of_other_life or not self._may_lead(order)):
            # In its own epoch this process continues once the controller has named it.
            return
        latest = self.latest
        if latest is None or self._replaces(order, latest):
            self._due, self._retry_at_ms, self._failures = order, None, 0

    def _may_lead(self, order: RoleOrder) -> bool:
        # A set without its master belongs to another epoch.
        return self._broker_id in order.members and order.epoch > self.refused_epoch

    def _replaces(self, order: RoleOrder, latest: RoleOrder) -> bool:
        if order.epoch != latest.epoch:
            return order.epoch > latest.epoch
        if order.master_id != latest.master_id:
            # Two masters of one epoch: the controllers have lost their state. The first stays.
            return False
        if self.is_own(order):
            return self._due is not None and order.set_epoch > latest.set_epoch
        # The master was started again at another address.
        return order.master_address != latest.master_address

    def next(self, now_ms: int) -> RoleOrder | None:
        """Return the order to carry out now."""
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return None
        return self._due

    def done(self, order: RoleOrder) -> None:
        """Record that *order* was carried out."""
        self._kept = order
        self._trouble, self._cannot_lead_until_ms = "", -1
        if self._due == order:
            self._due, self._retry_at_ms, self._failures = None, None, 0

    def failed(self, order: RoleOrder, now_ms: int, reason: str) -> None:
        """Record that *order* was not carried out for *reason*, and left no role.

        It stays due, unless it is to lead, has failed for some time, and another can be elected.
        """
        self._kept = None
        if self.is_own(order) and order.epoch <= self.refused_epoch:
            return
        self._trouble = reason
        if self._failures == 0:
            self._failing_since_ms = now_ms
        has_failed_long = now_ms - self._failing_since_ms >= _GIVE_UP_MS
        if self.may_give_up(order) and has_failed_long:
            self.give_up(order, now_ms, reason)
        elif self._due == order:
            self._failures += 1
            pause_ms = min(_RETRY_MS << min(self._failures - 1, 8), _RETRY_MS_MAX)
            self._retry_at_ms = now_ms + pause_ms

    def may_give_up(self, order: RoleOrder) -> bool:
        """Return whether *order* is to lead, and a refusal makes the controller elect another."""
        return self.is_own(order) and order.epoch <= self._replaceable_epoch

    def give_up(self, order: RoleOrder, now_ms: int, reason: str) -> None:
        """Refuse the epoch of *order*, in which this broker cannot take the role of master."""
        assert self.may_give_up(order), "another order is repeated"
        self._trouble, self._cannot_lead_until_ms = reason, now_ms + _TROUBLE_MS
        self.refused(order)

    def refused(self, order: RoleOrder) -> None:
        """Record that the replica refused *order*, because the replica knows a later epoch."""
        if self.is_own(order):
            self._refuse(order)
        if self._due == order:
            self._due = None

    def _refuse(self, order: RoleOrder) -> None:
        self.refused_epoch = max(self.refused_epoch, order.epoch)

    def cannot_lead(self, now_ms: int) -> bool:
        """Return whether this broker failed to lead, a short time ago."""
        return now_ms < self._cannot_lead_until_ms

    @property
    def trouble(self) -> str:
        """Why the last order was not carried out; empty once one was."""
        return self._trouble

    def ended(self, now_ms: int) -> None:
        """Record that the role ended without an order; its order is due again."""
        if self._kept is None:
            return
        if self._due is None:
            self._due = self._kept
            self._retry_at_ms = now_ms + _RETRY_MS
        self._kept = None

    def again(self) -> None:
        """Carry the last order out again: there is another way to its master."""
        if self._due is None and self._kept is not None and not self.is_own(self._kept):
            self._due, self._retry_at_ms, self._failures = self._kept, None, 0

    def takes_set(self, decision: Decision, *, role_epoch: int, set_epoch: int) -> bool:
        """Return whether the master of *role_epoch*, -1 for no master, takes the set of
        *decision* in place of version *set_epoch*."""
        is_present = decision.epoch == role_epoch and decision.master_id == self._broker_id
        return is_present and decision.set_epoch > set_epoch

    def renews_lease(self, decision: Decision, *, role_epoch: int) -> bool:
        """Return whether *decision* renews the lease of the master of *role_epoch*."""
        is_present = decision.epoch == role_epoch and decision.master_id == self._broker_id
        return is_present and decision.lease_asked_ms >= 0
