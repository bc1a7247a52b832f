"""Quorum write: how many copies a put needs, and the rule by which the board resolves it.

`QuorumPolicy` turns the settings and what replicas hold into a `Rule`. The board
(csrc/replica/ack_board.h) admits puts, confirms the log and resolves waiting puts by that rule:

    PUT_OK                        as many copies exist as the put requested
    FLUSH_SLAVE_TIMEOUT           stored; the copies did not come in time, or the role or the lease
                                  ended first
    SLAVE_NOT_AVAILABLE           stored; in plain mode, the replicas for the copies are not there
    IN_SYNC_REPLICAS_NOT_ENOUGH   not stored: too few replicas keep up
    SERVICE_NOT_AVAILABLE         not stored: the master's lease has run out
    OS_PAGE_CACHE_BUSY            not stored: too many puts are waiting

A put that was stored stays stored and is replicated later, whatever its status.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from rmqstore import arguments
from rmqstore.arguments import INT32_MAX, shown
from rmqstore.config import ReplicaConfig
from rmqstore.config.options import filled, same_option, violations_of
from rmqstore.config.replica_config import quorum_violations
from rmqstore.errors import ArgumentError, ArgumentTypeError, ConfigError
from rmqstore.message import PutStatus

__all__ = ["Lease", "Mode", "Quorum", "QuorumPolicy", "Rule", "Standing", "elector_wait_ms"]


class Mode(Enum):
    """Where a master learns who its replicas are."""

    PLAIN = "plain"
    """Based on connections only: a put needs in_sync copies and is not refused in advance;
    min_in_sync and auto_in_sync have no effect."""
    ACTING_MASTER = "acting master"
    """Based on connections and the group's membership: with too few replicas within the gap a put
    is refused, or needs fewer copies."""
    SYNC_STATE_SET = "sync-state set"
    """Based on a set that a controller, or the application, confirms."""

    @classmethod
    def from_config(cls, config: ReplicaConfig, *, has_set: bool = True) -> Mode:
        """Return the mode of a broker with *config*; the classic protocol has no set."""
        arguments.instance("config", config, ReplicaConfig)
        if config.controller_mode_enable and has_set:
            return cls.SYNC_STATE_SET
        return cls.ACTING_MASTER if config.acting_master_enable else cls.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """How many copies a put needs. Copies include the master's own.

    Raises ConfigError that lists every mistake by RocketMQ key.
    """

    total: int = same_option(ReplicaConfig, "total_replicas")
    """Number of replicas of the group, including the master; 1 if not known."""
    in_sync: int = same_option(ReplicaConfig, "in_sync_replicas")
    """How many copies a put waits for that names no number of its own."""
    min_in_sync: int = same_option(ReplicaConfig, "min_in_sync_replicas")
    """With a sync-state set: with fewer members connected nothing is put that waits for copies. In
    acting-master mode: the bound of the automatic downgrade."""
    auto_in_sync: bool = same_option(ReplicaConfig, "auto_in_sync_replicas")
    """In acting-master mode, need only as many copies as there are replicas in sync."""
    all_ack: bool = same_option(ReplicaConfig, "all_ack_in_sync_state_set")
    """With a sync-state set, need a copy on every member; in_sync is without effect then."""
    gap_bytes_max: int = same_option(ReplicaConfig, "ha_gap_bytes_max")
    """A replica that is this far behind is not in sync, in modes without a sync-state set."""
    timeout_ms: int = same_option(ReplicaConfig, "slave_timeout_ms")
    """How long a put waits for its copies that names no time of its own."""
    lag_ms_max: int = same_option(ReplicaConfig, "ha_lag_ms_max")
    """How long a member of the sync-state set may fail to keep up."""
    check_ms: int = same_option(ReplicaConfig, "set_check_interval_ms")
    """The longest time between two checks whether the members of the sync-state set keep up."""

    @classmethod
    def from_config(cls, config: ReplicaConfig, **changes: int | None) -> Quorum:
        """Return the quorum of *config*, with *changes* by field name; None changes nothing."""
        arguments.instance("config", config, ReplicaConfig)
        return filled(cls, config, changes)

    def is_promise(self, mode: Mode) -> bool:
        """Return whether confirmed bytes are on other replicas too, or on all members of a set:
        then no election that follows the rules removes them."""
        if mode is Mode.SYNC_STATE_SET:
            return True
        lowers = mode is Mode.ACTING_MASTER and self.auto_in_sync
        return (self.min_in_sync if lowers else self.in_sync) > 1

    def __post_init__(self) -> None:
        violations = violations_of(self) or quorum_violations(
            total=self.total,
            in_sync=self.in_sync,
            min_in_sync=self.min_in_sync,
            is_lowered=self.auto_in_sync,
        )
        if violations:
            raise ConfigError(violations)


@dataclass(frozen=True, slots=True)
class Standing:
    """What replicas hold at one moment.

    *acks* has the acknowledged offset of every connected replica by broker id, without the master;
    -1 for one that has acknowledged nothing yet. *counted* are the connected replicas whose copies
    count: no learners, no replicas outside the sync-state set. *waited* are the replicas that must
    all hold confirmed bytes, connected or not; None without a sync-state set.
    """

    end_offset: int
    acks: Mapping[int, int]
    counted: Collection[int]
    waited: Collection[int] | None = None

    def available(self, gap_bytes_max: int) -> int:
        """Return how many replicas, the master included, are less than that far behind."""
        least = max(self.end_offset - gap_bytes_max + 1, 0)
        return 1 + sum(self.acks.get(each, -1) >= least for each in self.counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the board goes by until the next decision, with broker ids in place of slots; the fields
    are those of `AckBoard.thaw`."""

    counted: Collection[int]
    waited: Collection[int] | None
    is_gated: bool
    is_flushed: bool
    confirm_copies: int
    epoch: int
    epoch_start: int
    status: PutStatus
    reason: str
    copies: int
    needs_all: bool
    present: int | None
    available: int | None
    lease_end_ms: int | None
    timeout_ms: int


def elector_wait_ms(lease_ms: int) -> int:
    """Return how long an elector waits, by its own clock, after it has granted a lease: until the
    lease is over by every clock that runs up to 10 % slower."""
    return -(-lease_ms * 11 // 10)


class Lease:
    """The time in which a master may assume that no other master was elected.

    The elector waits `elector_wait_ms` after the last renewal before it elects another. Time
    counts from the request of a renewal, because the granter counts from a later moment. A
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
        """Record a renewal that was asked for at *asked_ms*; answers may come out of
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
        """Whether no other master can have been elected yet."""
        if self.duration_ms == 0:
            return True
        # After a clock has gone back, the elapsed time is unknown.
        return self._asked_ms is not None and 0 <= now_ms - self._asked_ms < self.duration_ms


class QuorumPolicy:
    """Decides by which rule puts are admitted and resolved."""

    def __init__(self, quorum: Quorum, mode: Mode, *, lease: Lease | None = None) -> None:
        self.quorum = quorum
        self.mode = mode
        self.lease = lease or Lease()
        self.alive_replicas = quorum.total if quorum.total > 1 else None
        """How many replicas of the group are alive, the master included, where a nameserver
        reports it; for acting-master mode."""

    def rule(
        self,
        standing: Standing,
        *,
        epoch: int,
        epoch_start: int,
        is_gated: bool,
        is_flushed: bool,
    ) -> Rule:
        """Return the rule for the present standing; without a set, the confirm offset needs as many
        copies as a put does."""
        quorum, mode = self.quorum, self.mode
        present, needed = self.present(standing), self.needed(standing)

        status, reason = PutStatus.PUT_OK, ""
        if mode is Mode.SYNC_STATE_SET and present < quorum.min_in_sync:
            status = PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
            reason = f"{present} of the {quorum.min_in_sync} replicas needed are in sync"

        return Rule(
            counted=standing.counted,
            waited=standing.waited,
            is_gated=is_gated,
            is_flushed=is_flushed,
            confirm_copies=needed,
            epoch=epoch,
            epoch_start=epoch_start,
            status=status,
            reason=reason,
            copies=needed,
            needs_all=mode is Mode.SYNC_STATE_SET and quorum.all_ack,
            # In acting-master mode each put is admitted by the number of copies that it asks for.
            present=present if mode is Mode.ACTING_MASTER else None,
            available=present if mode is Mode.PLAIN else None,
            lease_end_ms=self.lease.end_ms,
            timeout_ms=quorum.timeout_ms,
        )

    def needed(self, standing: Standing) -> int:
        """Return how many copies a put needs that requests no number.

        No downgrade lowers a number that a put requests; all_ack adds to it.
        """
        quorum = self.quorum
        if self.mode is Mode.SYNC_STATE_SET and quorum.all_ack:
            return quorum.min_in_sync
        if self.mode is Mode.ACTING_MASTER and quorum.auto_in_sync:
            return max(min(quorum.in_sync, self.present(standing)), quorum.min_in_sync)
        return quorum.in_sync

    def present(self, standing: Standing) -> int:
        """Return how many replicas, the master included, are in sync as the mode sees it."""
        if self.mode is Mode.SYNC_STATE_SET:
            return 1 + len(standing.counted)
        present = standing.available(self.quorum.gap_bytes_max)
        if self.mode is Mode.ACTING_MASTER and self.alive_replicas is not None:
            present = min(present, self.alive_replicas)
        return present
