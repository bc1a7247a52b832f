"""The kind of group that a seed draws: number of replicas, acknowledgements, and intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from rmqstore.replication.group.log_rank import reports_needed
from rmqstore.replication.group.node import HaProtocol
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.protocol.events import HaOptions

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The settings of one world; all times are shorter than in production."""

    replicas: int
    learners: int
    """Number of learners, the last replicas; they never vote."""
    mode: Mode
    """SYNC_STATE_SET: controllers keep the set and elect from it. Other modes: an operator
    elects by the rule of docs/replication.md ("Which replica to promote")."""
    protocol: HaProtocol
    """With the classic protocol one replica is always the master, as without a controller."""
    is_gated: bool
    """Masters confirm bytes that replicas hold; otherwise their own end, as RocketMQ by default."""
    quorum: Quorum
    options: HaOptions
    is_durable: bool
    """Replicas acknowledge, and puts wait for, bytes on the disk."""
    lease_ms: int
    """Duration of the lease; 0: a master needs no lease."""
    checks_all: bool
    """The CRC of a record covers the whole record, not only its body."""
    file_size: int
    heartbeat_ms: int
    """Time between two heartbeats of a replica to the controllers or the operator."""
    patience_ms: int
    """A master without a heartbeat for this time is replaced."""
    flush_ms: int
    """Time between two flushes that no put waits for."""
    sync_ms: int
    """Duration of a flush that puts wait for."""
    drift_ppm_max: int
    """Largest difference in rate between a machine's monotonic clock and that of the elector, or
    another machine's if electors have separate clocks."""

    @property
    def has_set(self) -> bool:
        """Whether a sync-state set determines the electable replicas."""
        return self.mode is Mode.SYNC_STATE_SET

    @property
    def drift_ppm(self) -> int:
        """Largest difference in rate between a clock and the world; 0 for an operator's clock."""
        return self.drift_ppm_max // 2 if self.has_set else self.drift_ppm_max

    @property
    def is_confirming(self) -> bool:
        """Whether readers of every replica see only confirmed messages."""
        return self.is_gated and self.protocol == "autoswitch"

    @property
    def needed(self) -> int:
        """The least number of copies of an acknowledged put that names no number."""
        quorum = self.quorum
        lowers = self.mode is Mode.ACTING_MASTER and quorum.auto_in_sync
        is_of_all = self.has_set and quorum.all_ack
        return quorum.min_in_sync if lowers or is_of_all else quorum.in_sync

    @property
    def asked_min(self) -> int:
        """Number of replicas of which the best holds all acknowledged and confirmed messages."""
        return reports_needed(self.voters, copies=self.needed)

    @property
    def voters(self) -> int:
        """Number of replicas that are not learners."""
        return self.replicas - self.learners

    @classmethod
    def drawn(cls, rng: Random, *, replicas: int) -> Shape:
        """Return the shape that *rng* draws."""
        is_durable = rng.random() < 0.5
        all_ack = rng.random() < 0.7

        voters = replicas
        learners = 1 if replicas > 2 and rng.random() < 0.15 else 0
        voters -= learners
        in_sync = min(rng.choice((1, 2, 2)), voters)

        quorum = Quorum(
            total=replicas,
            in_sync=in_sync,
            min_in_sync=rng.randint(1, in_sync),
            all_ack=all_ack,
            timeout_ms=rng.choice((200, 1000)),
            lag_ms_max=rng.choice((400, 1500)),
        )

        heartbeat_ms = rng.choice((100, 250, 500))

        options = HaOptions(
            heartbeat_ms=heartbeat_ms,
            housekeeping_ms=4 * heartbeat_ms,
            handshake_ms=2 * heartbeat_ms,
            reconnect_ms=rng.choice((50, 300)),
            batch_bytes=rng.choice((50, 300, 2000, 32768)),
            window_bytes=rng.choice((200, 4000, 1 << 20)),
            bytes_per_second=rng.choice((0, 0, 0, 20_000)),
            overlap_bytes=rng.choice((1, 200, 4096)),
            ack_flushed=is_durable,
            checks=True,
        )

        shape = cls(
            mode=Mode.SYNC_STATE_SET,
            protocol="autoswitch",
            is_gated=True,
            replicas=replicas,
            learners=learners,
            quorum=quorum,
            options=options,
            is_durable=is_durable,
            # Without a lease a former master still accepts puts that wait for a number of copies.
            lease_ms=rng.choice((0, 600)) if all_ack else 600,
            checks_all=rng.random() < 0.7,
            file_size=rng.choice((1024, 4096, 16384)),
            heartbeat_ms=150,
            patience_ms=700,
            flush_ms=rng.choice((20, 200, 1000)),
            sync_ms=rng.choice((1, 5, 100)),
            drift_ppm_max=rng.choice((2000, 2000, 2000, 90_000)),
        )

        kind = rng.random()
        if kind < 0.6:
            return shape
        if kind < 0.72:
            return shape.without_set(rng)
        if kind < 0.82:
            return shape.acting(rng)
        return shape.like_java(rng) if kind < 0.92 else shape.classic(rng)

    def with_set(self) -> Shape:
        """Return this shape for a group whose controller elects the master from a set."""
        return replace(
            self,
            mode=Mode.SYNC_STATE_SET,
            protocol="autoswitch",
            is_gated=True,
        )

    def without_set(self, rng: Random) -> Shape:
        """Return this shape for a group whose master is elected by an operator."""
        in_sync = min(2, self.voters) if self.voters < 4 else rng.choice((2, 3))
        quorum = replace(
            self.quorum, total=self.voters, in_sync=in_sync, min_in_sync=1, all_ack=False
        )
        return replace(self, mode=Mode.PLAIN, quorum=quorum)

    def acting(self, rng: Random) -> Shape:
        """Return this shape for a group whose masters, with too few replicas, refuse puts or need
        fewer copies."""
        plain = self.without_set(rng)
        quorum = replace(
            plain.quorum,
            min_in_sync=rng.randint(1, plain.quorum.in_sync),
            auto_in_sync=rng.random() < 0.6,
            gap_bytes_max=rng.choice((200, 2000, 1 << 28)),
        )
        return replace(plain, mode=Mode.ACTING_MASTER, quorum=quorum)

    def like_java(self, rng: Random) -> Shape:
        """Return this shape for masters that confirm their own end, and for frames without checks
        and epochs, as RocketMQ's."""
        shape = self if rng.random() < 0.5 else self.without_set(rng)
        options = replace(shape.options, checks=False)
        return replace(shape, is_gated=rng.random() < 0.3, options=options)

    def classic(self, rng: Random) -> Shape:
        """Return this shape for a group that uses the classic protocol."""
        shape = replace(self, learners=0).without_set(rng)
        options = replace(shape.options, checks=False)
        return replace(shape, protocol="classic", options=options)
