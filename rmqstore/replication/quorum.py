"""Quorum write: how many copies a put needs, and the puts that wait for them.

A put passes `QuorumWriter.admit` before anything is appended, waits with `wait`, and is resolved by
the acknowledgement that completes its copies, by its deadline, or by the end of the master's role:

    PUT_OK                        as many copies exist as were asked for
    FLUSH_SLAVE_TIMEOUT           stored; the copies did not come in time, or the role or the lease
                                  ended first
    SLAVE_NOT_AVAILABLE           stored; in plain mode, the replicas for the copies are not there
    IN_SYNC_REPLICAS_NOT_ENOUGH   not stored: too few replicas keep up
    SERVICE_NOT_AVAILABLE         not stored: the master's lease has run out
    OS_PAGE_CACHE_BUSY            not stored: too many puts are waiting

A put that was stored stays stored and is replicated later, whatever its status.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from rmqstore.arguments import INT32_MAX, shown
from rmqstore.config.options import INT64_MAX, Option, option, options_of
from rmqstore.errors import ArgumentError, ArgumentTypeError, ConfigError
from rmqstore.message import PutStatus

__all__ = [
    "Admission",
    "Lease",
    "Mode",
    "Quorum",
    "QuorumWriter",
    "Resolution",
    "Standing",
    "Waiters",
]

T = TypeVar("T", bound=Hashable)

_WAITING_MAX = 1 << 20


class Mode(Enum):
    """Where a master learns who its replicas are."""

    PLAIN = "plain"
    """From connections alone: as many copies as in_sync says, without asking first; min_in_sync
    and auto_in_sync are without effect."""
    ACTING_MASTER = "acting master"
    """From connections and the group's membership: too few replicas within the gap refuse a put,
    or lower what it needs."""
    SYNC_STATE_SET = "sync-state set"
    """From a set that a controller, or the application, confirms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """How many copies a put needs. Copies include the master's own.

    Raises ConfigError that lists every mistake by RocketMQ key.
    """

    total: int = option("totalReplicas", 1, "replicas", low=1)
    """How many replicas the group has, the master included; 1 where nobody said."""
    in_sync: int = option("inSyncReplicas", 1, "copies", low=1)
    """How many copies a put waits for that names no number of its own."""
    min_in_sync: int = option("minInSyncReplicas", 1, "copies", low=1)
    """With a sync-state set: with fewer members connected nothing is put that waits for copies. In
    acting-master mode: the bound of the automatic downgrade."""
    auto_in_sync: bool = option("enableAutoInSyncReplicas", False)
    """In acting-master mode, need only as many copies as there are replicas in sync."""
    all_ack: bool = option("allAckInSyncStateSet", False)
    """With a sync-state set, need a copy on every member; in_sync is without effect then."""
    gap_bytes_max: int = option(
        "haMaxGapNotInSync", 256 * 1024 * 1024, "bytes", low=1, high=INT64_MAX
    )
    """A replica that is this far behind is not in sync, in modes without a sync-state set."""
    timeout_ms: int = option("slaveTimeout", 3000, "ms", low=1)
    """How long a put waits for its copies that names no time of its own."""
    lag_ms_max: int = option("haMaxTimeSlaveNotCatchup", 15_000, "ms", low=1)
    """How long a member of the sync-state set may fail to keep up."""

    def is_promise(self, mode: Mode) -> bool:
        """Tell whether what is confirmed is held by more than the master alone, or by all members
        of a set: then no election that follows the rules takes it away."""
        if mode is Mode.SYNC_STATE_SET:
            return True
        lowers = mode is Mode.ACTING_MASTER and self.auto_in_sync
        return (self.min_in_sync if lowers else self.in_sync) > 1

    def __post_init__(self) -> None:
        violations = [
            f"{about.key} ({name}): {fault}"
            for name, about in options_of(type(self)).items()
            if (fault := _fault(getattr(self, name), about))
        ]
        if not violations and self.auto_in_sync and self.min_in_sync > self.in_sync:
            violations.append(
                f"minInSyncReplicas (min_in_sync): {self.min_in_sync} is above inSyncReplicas "
                f"(in_sync) {self.in_sync}, which enableAutoInSyncReplicas lowers towards it"
            )
        if not violations and 1 < self.total < max(self.in_sync, self.min_in_sync):
            violations.append(
                f"totalReplicas (total): {self.total} replicas cannot make "
                f"{max(self.in_sync, self.min_in_sync)} copies; raise it"
            )
        if violations:
            raise ConfigError(violations)


def _fault(value: Any, about: Option) -> str:
    if not about.codec.accepts(value):
        return f"{shown(value)} has the wrong type; give a {type(about.default).__name__}"
    if about.low is not None and value < about.low:
        return (
            f"{shown(value, typed=False)} is below the limit of {about.low} {about.unit}; raise it"
        )
    if about.high is not None and value > about.high:
        return (
            f"{shown(value, typed=False)} is above the limit of {about.high} {about.unit}; lower it"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What replicas hold at one moment.

    *acks* has every connected replica that shook hands by broker id, without the master: up to
    where its copy counts, -1 for one that has not stored the present epoch, as far as is known, or
    acknowledged nothing yet. *heard* is what they acknowledged, be that as it may. *counted* are
    those whose copies count: no learners, nobody outside the sync-state set. *waited* are those all
    of whom must hold what is confirmed, whether connected or not; None without a sync-state set.
    """

    end_offset: int
    acks: Mapping[int, int]
    counted: Collection[int]
    waited: Collection[int] | None = None
    heard: Mapping[int, int] = field(default_factory=dict)

    def copies_of(self, end_offset: int) -> int:
        """Return how many copies there are of all bytes below *end_offset*, the master's one
        included."""
        return 1 + sum(self.acks.get(each, -1) >= end_offset for each in self.counted)

    def end_of_copies(self, copies: int) -> int:
        """Return the physical offset up to which there are *copies* copies, -1 for nowhere."""
        if copies <= 1:
            return self.end_offset
        if copies - 1 > len(self.counted):
            return -1
        offsets = sorted((self.acks.get(each, -1) for each in self.counted), reverse=True)
        return min(offsets[copies - 2], self.end_offset)

    def end_of_all(self) -> int | None:
        """Return the physical offset up to which everybody waited for has a copy, None when one of
        them has not said."""
        end = self.end_offset
        for each in self.waited or ():
            ack = self.acks.get(each, -1)
            if ack < 0:
                return None
            end = min(end, ack)
        return end

    def available(self, gap_bytes_max: int) -> int:
        """Return how many replicas, the master included, are less than that far behind."""
        least = max(self.end_offset - gap_bytes_max + 1, 0)
        return 1 + sum(self.heard.get(each, -1) >= least for each in self.counted)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a put may be appended, and what it then waits for.

    *status* other than PUT_OK refuses it; *reason* says why. Else *copies* are needed, and with
    *needs_all* also one on each member of the sync-state set.
    """

    status: PutStatus
    copies: int = 1
    needs_all: bool = False
    reason: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the put waits for replicas at all."""
        return self.needs_all or self.copies > 1


@dataclass(frozen=True, slots=True)
class Resolution(Generic[T]):
    """The outcome of a put that waited. *copies* is what there was by then."""

    token: T
    status: PutStatus
    copies: int


class Lease:
    """The time for which a master may take it that no other was elected.

    Whoever elects waits *duration_ms*, and what its clock may differ, after the last renewal
    before it elects another: with clocks that run up to 10 % apart, 1.1 times *duration_ms*. Time
    counts from the moment a renewal was asked for, because the granter counts from a later one. A
    *duration_ms* of 0 means no lease: always held, as in RocketMQ.

    Every put needs it twice, whatever its durability: before the append, and when the put is
    acknowledged. A lease bounds the time of acknowledgements. It makes no copies, and it does not
    bound reads.
    """

    __slots__ = ("_asked_ms", "duration_ms")

    def __init__(self, duration_ms: int = 0) -> None:
        if not isinstance(duration_ms, int) or isinstance(duration_ms, bool):
            kind = type(duration_ms).__name__
            raise ArgumentTypeError(f"duration_ms is a {kind}; give a whole number of milliseconds")
        if not 0 <= duration_ms <= INT32_MAX:
            raise ArgumentError(
                f"duration_ms is {shown(duration_ms, typed=False)}; give 0 for no lease, or up to "
                f"{INT32_MAX} ms"
            )
        self.duration_ms = duration_ms
        self._asked_ms: int | None = None

    def renewed(self, *, asked_ms: int) -> None:
        """Take note of a renewal that was asked for at *asked_ms*; answers may come out of
        order."""
        if self._asked_ms is None or asked_ms > self._asked_ms:
            self._asked_ms = asked_ms

    def end(self) -> None:
        """Give it up, with the role."""
        self._asked_ms = None

    @property
    def end_ms(self) -> int | None:
        """When it is over unless it is renewed; 0 while it is not held, None for no lease."""
        if self.duration_ms == 0:
            return None
        return 0 if self._asked_ms is None else self._asked_ms + self.duration_ms

    def is_held(self, now_ms: int) -> bool:
        """Whether nobody else can have been elected yet."""
        if self.duration_ms == 0:
            return True
        # A clock that went back says nothing about how much time has passed.
        return self._asked_ms is not None and 0 <= now_ms - self._asked_ms < self.duration_ms


@dataclass(slots=True)
class _Waiter(Generic[T]):
    token: T
    end_offset: int
    copies: int
    needs_all: bool
    deadline_ms: int
    is_done: bool = False


class Waiters(Generic[T]):
    """Puts that wait for copies, each until its own deadline.

    One acknowledgement resolves, in one pass, every put it completes, wherever that stands in the
    line: one that cannot be satisfied delays no other.
    """

    def __init__(self) -> None:
        self._needs: dict[tuple[bool, int], list[tuple[int, int, _Waiter[T]]]] = {}
        self._deadlines: list[tuple[int, int, _Waiter[T]]] = []
        self._count = 0
        self._number = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expired` has something to do next, None for never."""
        self._drop_done(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def add(
        self, token: T, *, end_offset: int, copies: int, needs_all: bool = False, deadline_ms: int
    ) -> None:
        """Let a put whose last byte ends at *end_offset* wait."""
        waiter = _Waiter(token, end_offset, copies, needs_all, deadline_ms)
        self._number += 1
        line = self._needs.setdefault((needs_all, copies), [])
        heapq.heappush(line, (end_offset, self._number, waiter))
        heapq.heappush(self._deadlines, (deadline_ms, self._number, waiter))
        self._count += 1

    def satisfied(self, standing: Standing) -> list[Resolution[T]]:
        """Return the puts that have their copies, in the order of the log within each need."""
        found: list[Resolution[T]] = []
        for need, line in list(self._needs.items()):
            needs_all, copies = need
            end = standing.end_of_copies(copies)
            if needs_all:
                end_of_all = standing.end_of_all()
                end = -1 if end_of_all is None else min(end, end_of_all)
            while line and (line[0][0] <= end or line[0][2].is_done):
                waiter = heapq.heappop(line)[2]
                if not waiter.is_done:
                    reached = standing.copies_of(waiter.end_offset)
                    found.append(self._done(waiter, PutStatus.PUT_OK, reached))
            if not line:
                del self._needs[need]
        self._compact()
        return found

    def expired(
        self, standing: Standing, now_ms: int, *, replicas_available: int | None = None
    ) -> list[Resolution[T]]:
        """Return the puts whose deadline has come.

        With *replicas_available* those that asked for more copies than that get
        SLAVE_NOT_AVAILABLE in place of FLUSH_SLAVE_TIMEOUT.
        """
        found: list[Resolution[T]] = []
        while self._deadlines and (
            self._deadlines[0][0] <= now_ms or self._deadlines[0][2].is_done
        ):
            waiter = heapq.heappop(self._deadlines)[2]
            if waiter.is_done:
                continue
            status = PutStatus.FLUSH_SLAVE_TIMEOUT
            if replicas_available is not None and replicas_available < waiter.copies:
                status = PutStatus.SLAVE_NOT_AVAILABLE
            found.append(self._done(waiter, status, standing.copies_of(waiter.end_offset)))
        return found

    def abandoned(self, standing: Standing) -> list[Resolution[T]]:
        """Return every put there is, as stored without its copies: the role ends."""
        found = [
            self._done(waiter, PutStatus.FLUSH_SLAVE_TIMEOUT, standing.copies_of(waiter.end_offset))
            for _, _, waiter in sorted(self._deadlines, key=lambda each: each[1])
            if not waiter.is_done
        ]
        self._needs.clear()
        self._deadlines.clear()
        return found

    def _done(self, waiter: _Waiter[T], status: PutStatus, copies: int) -> Resolution[T]:
        waiter.is_done = True
        self._count -= 1
        return Resolution(waiter.token, status, copies)

    def _drop_done(self, heap: list[tuple[int, int, _Waiter[T]]]) -> None:
        while heap and heap[0][2].is_done:
            heapq.heappop(heap)

    def _compact(self) -> None:
        # Deadlines lie far ahead of a put that is resolved in a millisecond; without this they
        # would pile up by the thousand.
        self._drop_done(self._deadlines)
        if len(self._deadlines) > 64 and len(self._deadlines) > 2 * self._count:
            self._deadlines = [each for each in self._deadlines if not each[2].is_done]
            heapq.heapify(self._deadlines)


class QuorumWriter(Generic[T]):
    """Admits puts and holds those that wait for their copies."""

    def __init__(
        self,
        quorum: Quorum,
        mode: Mode,
        *,
        lease: Lease | None = None,
        waiting_max: int = _WAITING_MAX,
    ) -> None:
        self.quorum = quorum
        self.mode = mode
        self.lease = lease or Lease()
        self.alive_replicas = quorum.total if quorum.total > 1 else None
        """How many replicas of the group are alive, the master included, where a nameserver
        tells; for acting-master mode."""
        self._waiting_max = waiting_max
        self._waiters: Waiters[T] = Waiters()

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` is due for a put that waits, None for none."""
        return self._waiters.next_deadline_ms

    def admit(
        self,
        standing: Standing,
        *,
        now_ms: int,
        is_replicated: bool = True,
        copies: int | None = None,
    ) -> Admission:
        """Decide, before anything is appended, whether a put may be and what it waits for.

        *is_replicated* is False for a put that waits for no replica; only the lease can refuse it.
        *copies* asks for that number in place of in_sync; no downgrade lowers it, all_ack adds to
        it. Raises ArgumentError for less than 1.
        """
        if copies is not None and copies < 1:
            raise ArgumentError(f"copies {copies}: the master's own is one; give 1 or more")
        if not self.lease.is_held(now_ms):
            return Admission(
                PutStatus.SERVICE_NOT_AVAILABLE,
                reason=f"this master's lease of {self.lease.duration_ms} ms was not renewed; "
                "another may have been elected",
            )
        if not is_replicated:
            return Admission(PutStatus.PUT_OK)
        if len(self._waiters) >= self._waiting_max:
            return Admission(
                PutStatus.OS_PAGE_CACHE_BUSY,
                reason=f"{self._waiting_max} puts wait for replicas; slow down",
            )
        present = self.present(standing)
        needed = self.needed(standing) if copies is None else copies
        needs_all = self.mode is Mode.SYNC_STATE_SET and self.quorum.all_ack
        floor = needed if self.mode is Mode.ACTING_MASTER else self.quorum.min_in_sync
        if self.mode is not Mode.PLAIN and present < floor:
            return Admission(
                PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
                reason=f"{present} of the {floor} replicas needed are in sync",
            )
        return Admission(PutStatus.PUT_OK, needed, needs_all)

    def needed(self, standing: Standing) -> int:
        """Return how many copies a put needs that asks for no number of its own."""
        quorum = self.quorum
        if self.mode is Mode.SYNC_STATE_SET and quorum.all_ack:
            return quorum.min_in_sync
        if self.mode is Mode.ACTING_MASTER and quorum.auto_in_sync:
            return max(min(quorum.in_sync, self.present(standing)), quorum.min_in_sync)
        return quorum.in_sync

    def wait(
        self,
        token: T,
        admission: Admission,
        standing: Standing,
        *,
        end_offset: int,
        now_ms: int,
        timeout_ms: int | None = None,
    ) -> list[Resolution[T]]:
        """Let an appended put wait; return what can be resolved now, itself perhaps among it."""
        assert admission.status is PutStatus.PUT_OK, "a refused put is not appended"
        if not admission.is_waiting and self.lease.is_held(now_ms):
            return [Resolution(token, PutStatus.PUT_OK, standing.copies_of(end_offset))]
        wait_ms = self.quorum.timeout_ms if timeout_ms is None else timeout_ms
        self._waiters.add(
            token,
            end_offset=end_offset,
            copies=admission.copies,
            needs_all=admission.needs_all,
            deadline_ms=now_ms + wait_ms,
        )
        return self.progress(standing, now_ms)

    def acknowledge(self, now_ms: int) -> PutStatus:
        """Return the status of an appended put that has all it waited for, the disk included.

        Called when the put is acknowledged, not before: the lease may have run out while the put
        was appended, flushed or woken.
        """
        is_held = self.lease.is_held(now_ms)
        return PutStatus.PUT_OK if is_held else PutStatus.FLUSH_SLAVE_TIMEOUT

    def progress(self, standing: Standing, now_ms: int) -> list[Resolution[T]]:
        """Return the puts that have their copies, after an acknowledgement or a change of the set.

        None without the lease: whoever was elected since may lack them.
        """
        if not self._waiters or not self.lease.is_held(now_ms):
            return []
        return self._waiters.satisfied(standing)

    def tick(self, standing: Standing, now_ms: int) -> list[Resolution[T]]:
        """Return the puts that have their copies, and those whose time is up."""
        found = self.progress(standing, now_ms)
        available = self.present(standing) if self.mode is Mode.PLAIN else None
        return found + self._waiters.expired(standing, now_ms, replicas_available=available)

    def stop(self, standing: Standing) -> list[Resolution[T]]:
        """Return every put that waits, unacknowledged: the role ends."""
        self.lease.end()
        return self._waiters.abandoned(standing)

    def present(self, standing: Standing) -> int:
        """Return how many replicas, the master included, are in sync as the mode sees it."""
        if self.mode is Mode.SYNC_STATE_SET:
            return 1 + sum(each in standing.acks for each in standing.counted)
        present = standing.available(self.quorum.gap_bytes_max)
        if self.mode is Mode.ACTING_MASTER and self.alive_replicas is not None:
            present = min(present, self.alive_replicas)
        return present
