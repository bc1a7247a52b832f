"""What kind of group a seed makes: how many replicas, what they wait for, how often they look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from rmqstore.replication.events import HaOptions
from rmqstore.replication.quorum import Mode, Quorum

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The settings of one world; all times are those of a group in a hurry."""

    replicas: int
    learners: int
    """The last replicas are; they never vote."""
    mode: Mode
    """SYNC_STATE_SET: a controller keeps the set and elects from it. PLAIN: an operator elects, as
    docs/replication.md says ("Which replica to promote")."""
    quorum: Quorum
    options: HaOptions
    is_durable: bool
    """Replicas acknowledge, and puts wait for, what is on the disk."""
    lease_ms: int
    """0: a master needs none."""
    keeps_members: bool
    """An elected master begins with all members of the set, not with itself alone."""
    elects_longest: bool
    """Of the members that live the one with the longest log is elected, not any."""
    checks_all: bool
    """The CRC of a record covers all of it, not its body alone."""
    file_size: int
    heartbeat_ms: int
    """Between two words of a replica to the controller."""
    patience_ms: int
    """A master that was silent for longer is replaced."""
    flush_ms: int
    """Between two flushes that nobody waits for."""
    sync_ms: int
    """How long a flush takes that puts wait for."""
    drift_ppm_max: int
    """By how much the monotonic clock of a machine is faster or slower than the world."""

    @property
    def has_set(self) -> bool:
        """Whether a sync-state set says who may be elected."""
        return self.mode is Mode.SYNC_STATE_SET

    @property
    def voters(self) -> int:
        """How many replicas are no learners."""
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
            replicas=replicas,
            learners=learners,
            quorum=quorum,
            options=options,
            is_durable=is_durable,
            lease_ms=rng.choice((0, 600)),
            keeps_members=rng.random() < 0.5,
            elects_longest=rng.random() < 0.5,
            checks_all=True,
            file_size=rng.choice((1024, 4096, 16384)),
            heartbeat_ms=150,
            patience_ms=700,
            flush_ms=rng.choice((20, 200, 1000)),
            sync_ms=rng.choice((1, 5, 100)),
            drift_ppm_max=rng.choice((2000, 2000, 2000, 90_000)),
        )
        return shape if rng.random() < 0.7 else shape.without_set(rng)

    def without_set(self, rng: Random) -> Shape:
        """Return this shape for a group whose master is elected by an operator."""
        in_sync = min(2, self.voters) if self.voters < 4 else rng.choice((2, 3))
        quorum = replace(
            self.quorum, total=self.voters, in_sync=in_sync, min_in_sync=1, all_ack=False
        )
        return replace(self, mode=Mode.PLAIN, quorum=quorum)
