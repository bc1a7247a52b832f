"""The reports of a group's replicas as the leader sees them: who may join, who may be elected."""

from __future__ import annotations

from rmqstore.controller.commands import Command, ContinueEpoch, RecordIncarnation
from rmqstore.controller.doubt import NO_LOG, doubt_of, incarnation_of
from rmqstore.controller.elect import Candidate
from rmqstore.controller.group import Group
from rmqstore.controller.liveness import Heartbeat, Liveness, Report
from rmqstore.replication.group.log_rank import LogRank

__all__ = ["Reports"]


class Reports:
    """Assesses the last reports in *liveness*."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness

    def doubt(self, group: Group, report: Report) -> str:
        """Return why the log of a replica may have lost its end; empty if it has not."""
        beat, confirmed = report.beat, NO_LOG
        if beat.broker_id in group.sync_state_set - {group.master_id}:
            confirmed = self._confirmed(group)
        return doubt_of(
            beat,
            group.brokers[beat.broker_id].incarnation,
            is_synced=_is_synced(group, beat),
            peak=report.peak,
            confirmed=confirmed,
        )

    def _confirmed(self, group: Group) -> LogRank:
        """Returns what every member of the set held when the master last reported."""
        if group.master_id is None:
            return NO_LOG
        report = self._liveness.report(group.name, group.master_id)
        if report is None or report.beat.confirm_offset < 0:
            return NO_LOG
        beat = report.beat
        if (beat.role_epoch, beat.set_epoch) != (group.master_epoch, group.set_epoch):
            return NO_LOG
        return LogRank(beat.rank.last_epoch, beat.confirm_offset)

    def unfit(self, group: Group, joining: int, master: Heartbeat | None, now_ms: int) -> str:
        """Return why a broker cannot join the set of *master* yet; empty if it can."""
        report = self._liveness.report(group.name, joining)
        if report is None or not self._liveness.is_alive(group.name, joining, now_ms):
            return "is not alive"
        if master is None or master.life is None or report.beat.boot is None:
            return ""
        beat, known = report.beat, group.brokers[joining].incarnation
        if beat.is_partial and beat.start_offset > master.start_offset:
            return (
                f"has no messages before {beat.start_offset}; the master has them from "
                f"{master.start_offset} on"
            )
        if _is_synced(group, beat) and known != incarnation_of(beat):
            return "has caught up with the master, which is not recorded yet"
        if known is None:
            return "has not reported yet that it caught up with the master"
        doubt = self.doubt(group, report)
        return f"has not caught up with the master yet: {doubt}" if doubt else ""

    def may_join_soon(self, group: Group, members: frozenset[int], now_ms: int) -> bool:
        """Return whether the next heartbeats of living replicas may make *members* acceptable."""
        joining = members - group.sync_state_set
        found = list(self._liveness.living(group.name, joining, now_ms))
        return len(found) == len(joining) and not any(each.beat.is_partial for each in found)

    def candidates(self, group: Group, now_ms: int, *, fence_ms: int | None) -> list[Candidate]:
        """Return the living brokers. Reports from *fence_ms* on are fresh; with None all are."""
        reports = list(self._liveness.living(group.name, group.brokers, now_ms))
        starts = [each.beat.start_offset for each in reports if not each.beat.is_partial]
        first = min(starts, default=-1)
        return [
            Candidate(
                each.beat.broker_id,
                each.beat.rank,
                each.beat.life,
                each.beat.priority,
                each.beat.is_learner,
                fence_ms is None or each.as_of_ms >= fence_ms,
                doubt=self.doubt(group, each),
                partial_from=_partial_from(each.beat, first),
                trouble=each.beat.trouble if each.beat.cannot_lead else "",
            )
            for each in reports
        ]

    def incarnation_due(self, group: Group, now_ms: int) -> Command | None:
        """Return the command that records a process that is in sync, or a process that continues
        as the master."""
        for each in self._liveness.living(group.name, group.brokers, now_ms):
            beat, found = each.beat, incarnation_of(each.beat)
            if found is None:
                continue
            is_known = found == group.brokers[beat.broker_id].incarnation
            if _is_synced(group, beat) and not is_known:
                return RecordIncarnation(group.name, group.master_epoch, beat.broker_id, found)
            if beat.broker_id == group.master_id and found.life != group.master_life:
                return ContinueEpoch(group.name, group.master_epoch, found.life)
        return None

    def troubles(self, group: Group, now_ms: int) -> str:
        """Return why living brokers could not carry out their last orders, do not follow their
        master, or cannot be members: also members that lack its topics."""
        living = [each.beat for each in self._liveness.living(group.name, group.brokers, now_ms)]
        master = next((beat for beat in living if beat.broker_id == group.master_id), None)
        parts = []
        for beat in living:
            number = beat.broker_id
            if beat.trouble:
                parts.append(f"broker {number}: {beat.trouble}")
            elif number not in group.sync_state_set and master is not None and not beat.is_learner:
                unfit = self.unfit(group, number, master, now_ms)
                parts += [f"broker {number} {unfit}"] if unfit else []
        return "; ".join(parts)


def _is_synced(group: Group, beat: Heartbeat) -> bool:
    """Returns whether the sender holds the log of the present master, which has begun its epoch.
    The log of an elected master that has not begun may be the one that lacks messages."""
    return group.former is None and beat.synced_epoch >= group.master_epoch


def _partial_from(beat: Heartbeat, first: int) -> int:
    """Returns where the log of *beat* begins, if others begin earlier, at *first*; else -1."""
    is_later = beat.is_partial and (first < 0 or beat.start_offset > first)
    return beat.start_offset if is_later else -1
