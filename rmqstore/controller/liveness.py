"""The living brokers, their last reports, and the leases that masters may hold.

Every node of a controller group keeps its own table from the heartbeats that it receives; the table
is not part of the replicated state. Times are monotonic milliseconds of this node.

The time of a report is a moment after which it was certainly sent. A broker of this library returns
in each heartbeat the time that this node named in its last answer; the heartbeat was sent after
that time. A Java broker gets no answers, so the time of its reports is their arrival.

While the process of this node is stopped, or its machine suspended, heartbeats wait in its sockets.
This time does not count against brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass

from rmqstore.arguments import INT32_MAX
from rmqstore.controller.commands import Terms
from rmqstore.replication.group.log_rank import LogRank
from rmqstore.replication.group.quorum import elector_wait_ms

__all__ = ["HEARTBEAT_TIMEOUT_MS", "PULSE_MS", "Heartbeat", "Leases", "Liveness", "Report"]

HEARTBEAT_TIMEOUT_MS = 10_000
"""Timeout after a heartbeat that names no timeout, as in RocketMQ."""
PULSE_MS = 200
"""Interval at which a node records that it runs."""
_STOPPED_MS = 3 * PULSE_MS
"""A longer gap between two records means that the node was stopped; then it reads old heartbeats
for this duration."""

_NO_LOG = LogRank(-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One heartbeat of a broker. Java brokers leave out the fields from *life* on."""

    group: str
    broker_id: int
    address: str
    rank: LogRank = _NO_LOG
    confirm_offset: int = -1
    timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    priority: int = INT32_MAX
    """The lowest value wins among equal logs."""
    life: int | None = None
    """Number of the broker's process, which grows with each start; None for a Java broker."""
    number: int = 0
    """Number of the heartbeat in its life, ascending."""
    seen_ms: int = -1
    """The last time of this node that the broker received; -1 for none."""
    role_epoch: int = -1
    """The epoch in which the broker is master; -1 while it is not."""
    refused_epoch: int = -1
    """An epoch in which the broker was elected but will not be master: it was restarted, or it
    failed to take the role."""
    set_epoch: int = -1
    """The version of the sync-state set that the master uses."""
    is_learner: bool = False
    terms: Terms | None = None
    """The number of copies that its puts wait for."""
    former_lives: tuple[int, ...] = ()
    """The last processes that used the directory of the broker before, the latest last."""
    boot: str | None = None
    """The boot of the broker's machine; None for a broker that does not report it."""
    acks_flushed: bool = False
    """Whether the broker acknowledges only messages on its disk."""
    was_closed: bool = False
    """Whether the process before this one closed the log, with all of it on the disk."""
    synced_epoch: int = -1
    """The epoch of the last master whose log this process held up to the end; -1 for none."""
    start_offset: int = -1
    """The first byte of the log."""
    vouched_offset: int = -1
    """End of the messages that the broker may have acknowledged."""
    is_partial: bool = False
    """Whether the log begins where the broker began to copy it, above the master's first byte."""
    cannot_lead: bool = False
    """Whether the broker was elected and failed to take the role a short time ago."""
    trouble: str = ""
    """Why the broker could not carry out its last order."""

    @property
    def vouched(self) -> LogRank:
        """The messages that the broker may have acknowledged."""
        end = self.rank.end_offset if self.vouched_offset < 0 else self.vouched_offset
        return LogRank(self.rank.last_epoch, end)


@dataclass(slots=True)
class Report:
    """The last heartbeat of a broker."""

    beat: Heartbeat
    connection: Hashable
    received_ms: int
    as_of_ms: int
    """The report was sent at this time or later; -1 if not known."""
    peak: LogRank
    """The most that the broker may have acknowledged since it was last in sync."""
    ended_ms: int | None = None
    """Time at which the broker was found dead; None while it is alive."""
    refused_ms: int = -1
    """Time of the first refusal of its refused epoch."""


class Liveness:
    """The table of one node. It holds only registered brokers, which bounds its size."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, int], Report] = {}
        self._ran_ms: int | None = None
        self._stopped_ms = 0
        self._catches_up_until_ms: int | None = None
        """Until this time, heartbeats may be as old as *_stopped_ms*; None if never stopped."""

    def ran(self, now_ms: int) -> None:
        """Record that the node runs: every PULSE_MS, and before it handles received requests."""
        last_ms, self._ran_ms = self._ran_ms, now_ms
        if last_ms is None or now_ms - last_ms <= _STOPPED_MS:
            return
        self._stopped_ms, self._catches_up_until_ms = last_ms, now_ms + _STOPPED_MS
        for report in self._reports.values():
            if report.ended_ms is None:
                report.received_ms += now_ms - last_ms

    def _catches_up(self, now_ms: int) -> bool:
        return self._catches_up_until_ms is not None and now_ms < self._catches_up_until_ms

    def record(self, beat: Heartbeat, connection: Hashable, now_ms: int) -> bool:
        """Record a heartbeat; return False if it is older than the last recorded heartbeat.

        The newest report replaces earlier ones, even with a smaller offset, because a log may have
        been truncated. RocketMQ keeps the larger offset.
        """
        key = _key(beat)
        known = self._reports.get(key)
        if known is not None and beat.life is not None and known.beat.life is not None:
            if (beat.life, beat.number) <= (known.beat.life, known.beat.number):
                return False
        if beat.life is None:
            as_of_ms = self._stopped_ms if self._catches_up(now_ms) else now_ms
        else:
            as_of_ms = min(beat.seen_ms, now_ms)
        is_known_refusal = known is not None and known.beat.refused_epoch == beat.refused_epoch
        refused_ms = known.refused_ms if known is not None and is_known_refusal else now_ms
        peak = beat.vouched
        if known is not None and beat.synced_epoch < known.peak.last_epoch:
            peak = max(peak, known.peak)
        self._reports[key] = Report(beat, connection, now_ms, as_of_ms, peak, refused_ms=refused_ms)
        return True

    def later_life(self, beat: Heartbeat, now_ms: int) -> Heartbeat | None:
        """Return the last heartbeat of a later, living process of the same broker, or None."""
        known = self._reports.get(_key(beat))
        if known is None or beat.life is None or known.beat.life is None:
            return None
        is_later = known.beat.life > beat.life
        return known.beat if is_later and self.is_alive(*_key(beat), now_ms) else None

    def closed(self, connection: Hashable, now_ms: int) -> list[tuple[str, int]]:
        """Record that a connection closed; return the brokers that ended with it.

        A broker that has sent heartbeats on a newer connection stays alive. If this node was
        stopped, a broker may have opened a newer connection meanwhile, so only its timeout ends it.
        """
        if self._catches_up(now_ms):
            return []
        ended = []
        for key, report in self._reports.items():
            if report.connection == connection and report.ended_ms is None:
                report.ended_ms = now_ms
                ended.append(key)
        return ended

    def expire(self, now_ms: int) -> list[tuple[str, int]]:
        """End the brokers whose timeout has passed, and return them."""
        ended = []
        for key, report in self._reports.items():
            if report.ended_ms is None and now_ms - report.received_ms > report.beat.timeout_ms:
                report.ended_ms = now_ms
                ended.append(key)
        return ended

    def is_alive(self, group: str, broker_id: int, now_ms: int) -> bool:
        """Return whether the last heartbeat of a broker is within the timeout it announced."""
        report = self._reports.get((group, broker_id))
        if report is None or report.ended_ms is not None:
            return False
        return now_ms - report.received_ms <= report.beat.timeout_ms

    def report(self, group: str, broker_id: int) -> Report | None:
        """Return the last report of a broker, alive or not; None without a report."""
        return self._reports.get((group, broker_id))

    def living(self, group: str, broker_ids: Collection[int], now_ms: int) -> Iterator[Report]:
        """Yield the reports of the living brokers among *broker_ids*, in their order."""
        for each in sorted(broker_ids):
            if self.is_alive(group, each, now_ms):
                yield self._reports[group, each]

    def forget(self, group: str, kept: Collection[int]) -> None:
        """Drop the reports of a group's brokers other than *kept*."""
        for key in [k for k in self._reports if k[0] == group and k[1] not in kept]:
            del self._reports[key]

    def count(self, now_ms: int) -> int:
        """Return the number of living brokers."""
        return sum(self.is_alive(group, number, now_ms) for group, number in self._reports)


def _key(beat: Heartbeat) -> tuple[str, int]:
    return beat.group, beat.broker_id


class Leases:
    """The leases that one leader has granted since *since_ms*.

    The former leader granted nothing after *since_ms*: a leader answers a heartbeat with a lease
    only when its engine has shown, after the heartbeat arrived, that no other leader exists. The
    master counts the lease from the moment it sent the heartbeat.
    """

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._ends_ms: dict[str, int] = {}

    def grant(self, group: str, lease_ms: int, now_ms: int) -> None:
        """Record that the master of *group* gets a lease of *lease_ms*."""
        end_ms = now_ms + elector_wait_ms(lease_ms)
        self._ends_ms[group] = max(self._ends_ms.get(group, end_ms), end_ms)

    def end_ms(self, group: str, lease_ms: int) -> int:
        """Return when every lease of *group* is over, those of former leaders included."""
        floor_ms = self.since_ms + elector_wait_ms(lease_ms)
        return max(floor_ms, self._ends_ms.get(group, floor_ms))
