"""Locks on queues, so that one consumer at a time reads a queue in order.

Each broker of a group keeps a `LockTable`. The one that a consumer asks collects the grants of all
in a `LockRequest`: in strict mode a queue is locked when a majority of the whole group granted it,
counted over all replicas whether alive or not, else when any one did. Two majorities share a
broker, and a broker grants a queue to one client at a time, so in strict mode no two clients hold
one queue; otherwise an acting master and the master that comes back may each grant it.

Locks are leases. A holder may count on one from the moment it *asked*, which is before any broker
granted it; a broker counts from the grant. All clocks are taken to run equally fast, nothing more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rmqstore.errors import ArgumentError

__all__ = ["Grant", "LockRequest", "LockTable", "QueueId", "Release"]

_LEASE_MS = 60_000


class QueueId(NamedTuple):
    """One queue as one consumer group locks it."""

    group: str
    topic: str
    queue: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A broker's word that a queue is the client's.

    *number* names this very grant to the broker's table. *is_fresh*: the client had no lock there
    when it asked, so that giving it back cannot end a lock it counts on.
    """

    queue: QueueId
    number: int
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class Release:
    """A grant to give back to the broker that made it."""

    broker_id: int
    grant: Grant


@dataclass(slots=True)
class _Lock:
    client: str
    number: int
    granted_ms: int


class LockTable:
    """The locks one broker has granted.

    A table forgets everything when its broker stops. With *quiet_until_ms*, which a broker in
    strict mode sets one lease after it started, it grants nothing before: a majority may have been
    counted on what was forgotten. *first_number* is above every number of the table before it, a
    clock in nanoseconds for instance, so that what is released late names no lock of this one.
    """

    def __init__(
        self,
        *,
        lease_ms: int = _LEASE_MS,
        quiet_until_ms: int | None = None,
        first_number: int = 1,
        locks_max: int = 1 << 20,
    ) -> None:
        if lease_ms <= 0 or locks_max <= 0:
            raise ArgumentError(f"lease_ms {lease_ms} and locks_max {locks_max} must be above 0")
        self._lease_ms = lease_ms
        self._quiet_until_ms = quiet_until_ms
        self._locks_max = locks_max
        self._locks: dict[QueueId, _Lock] = {}
        self._next_number = first_number

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, client: str, queues: Iterable[QueueId], *, now_ms: int) -> tuple[Grant, ...]:
        """Lock or renew queues that no other client holds; return the granted queues."""
        if self._quiet_until_ms is not None and now_ms < self._quiet_until_ms:
            return ()
        granted = []
        for queue in dict.fromkeys(queues):
            lock = self._locks.get(queue)
            is_held = lock is not None and not self._is_over(lock, now_ms)
            if lock is not None and is_held and lock.client != client:
                continue
            if lock is None and not self._has_room(now_ms):
                continue
            number = self._next_number
            self._next_number += 1
            self._locks[queue] = _Lock(client, number, now_ms)
            granted.append(Grant(queue, number, is_fresh=not is_held))
        return tuple(granted)

    def unlock(self, client: str, queues: Iterable[QueueId]) -> None:
        """End the client's own locks on *queues*, at the client's request."""
        for queue in queues:
            lock = self._locks.get(queue)
            if lock is not None and lock.client == client:
                del self._locks[queue]

    def release(self, grant: Grant) -> bool:
        """End the lock a grant made; return whether it was still that one.

        One that was renewed or granted to another since has a later number and stays, however
        late the release comes.
        """
        lock = self._locks.get(grant.queue)
        if lock is None or lock.number != grant.number:
            return False
        del self._locks[grant.queue]
        return True

    def holder(self, queue: QueueId, *, now_ms: int) -> str | None:
        """Return the client that holds a queue here, None without a holder."""
        lock = self._locks.get(queue)
        return None if lock is None or self._is_over(lock, now_ms) else lock.client

    def expire(self, now_ms: int) -> int:
        """Drop the locks whose lease is over; return how many."""
        over = [queue for queue, lock in self._locks.items() if self._is_over(lock, now_ms)]
        for queue in over:
            del self._locks[queue]
        return len(over)

    def _is_over(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.granted_ms > self._lease_ms

    def _has_room(self, now_ms: int) -> bool:
        return len(self._locks) < self._locks_max or self.expire(now_ms) > 0


class LockRequest:
    """One request of one client for queues, and the answers of the brokers to it.

    *total* is totalReplicas, the size of the whole group; *is_strict* is lockInStrictMode. Each
    broker counts once, whatever it answers twice.
    """

    def __init__(
        self,
        queues: Collection[QueueId],
        *,
        total: int,
        is_strict: bool,
        asked_ms: int,
        timeout_ms: int,
        lease_ms: int = _LEASE_MS,
    ) -> None:
        if total < 1 or timeout_ms < 0:
            raise ArgumentError(
                f"total {total} must be 1 or more, timeout_ms {timeout_ms} 0 or more"
            )
        self.needed = total // 2 + 1 if is_strict else 1
        """On how many brokers a queue must be granted."""
        self.held_until_ms = asked_ms + lease_ms
        """Until when, exclusively, the client may count on what `locked` names."""
        self.deadline_ms = asked_ms + timeout_ms
        self._total = total
        self._grants: dict[QueueId, dict[int, Grant]] = {queue: {} for queue in queues}
        self._answered: set[int] = set()
        self._is_closed = False

    def granted(
        self, broker_id: int, grants: Iterable[Grant], *, now_ms: int
    ) -> tuple[Release, ...]:
        """Take a broker's answer; return what to give back because it came too late to count.

        Grants of queues that were not requested are ignored.
        """
        self._close_at(now_ms)
        if broker_id in self._answered:
            return ()
        self._answered.add(broker_id)
        asked = [each for each in grants if each.queue in self._grants]
        if self._is_closed:
            locked = self.locked
            return tuple(
                Release(broker_id, each)
                for each in asked
                if each.is_fresh and each.queue not in locked
            )
        for each in asked:
            self._grants[each.queue][broker_id] = each
        return ()

    def failed(self, broker_id: int) -> None:
        """Record that a broker did not answer, and that a later answer will be ignored.

        It may have granted nevertheless; such grants end with their lease.
        """
        self._answered.add(broker_id)

    @property
    def locked(self) -> frozenset[QueueId]:
        """The queues that are the client's by the answers that came in time."""
        return frozenset(
            queue for queue, grants in self._grants.items() if len(grants) >= self.needed
        )

    def is_decided(self, *, now_ms: int) -> bool:
        """Whether the client can be answered: no answer to come can change `locked`, or the
        deadline has come."""
        self._close_at(now_ms)
        silent = self._total - len(self._answered)
        return self._is_closed or all(
            len(grants) >= self.needed or len(grants) + silent < self.needed
            for grants in self._grants.values()
        )

    def close(self) -> tuple[Release, ...]:
        """End the collecting; return what to give back because too few brokers granted it.

        Only fresh grants go back: a renewal that fails must not shorten the lock that the client
        holds until its former lease ends. A peer that cannot tell grants apart, such as
        RocketMQ's, is left to let them expire.
        """
        self._is_closed = True
        locked = self.locked
        return tuple(
            Release(broker_id, grant)
            for queue, grants in self._grants.items()
            if queue not in locked
            for broker_id, grant in grants.items()
            if grant.is_fresh
        )

    def _close_at(self, now_ms: int) -> None:
        if now_ms >= self.deadline_ms:
            self._is_closed = True
