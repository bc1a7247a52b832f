"""The election rule: chooses the next master from the reports of the replicas.

Only reports that were sent after the former master was fenced count. After an earlier report the
former master may have acknowledged more messages, stored on that replica. The reported logs are
ordered by epoch, then offset, then priority.

The replicas that must have reported depend on the number of copies that puts of the last epoch
waited for:

    all members (allAckInSyncStateSet)    any member may become master
    a number of copies (inSyncReplicas)   all voters except `inSyncReplicas - 1`, among them a
                                          member; voters are the members and the replicas that
                                          left the set and may hold messages that a member lacks
    unknown, the master was a Java broker any member, as in RocketMQ
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rmqstore.arguments import INT32_MAX
from rmqstore.controller.state import Group
from rmqstore.replication.group.log_rank import LogRank, reports_needed

__all__ = ["EPOCH_JUMP_MAX", "Candidate", "Choice", "choose", "epoch_above"]

EPOCH_JUMP_MAX = 1_000_000
"""Reported epochs that exceed the known epoch by more than this are ignored as mistakes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A living replica."""

    broker_id: int
    rank: LogRank
    life: int | None = None
    """The process that reported it; None for a Java broker."""
    priority: int = INT32_MAX
    is_learner: bool = False
    is_fresh: bool = True
    """Whether its report was sent after the former master was fenced."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of an election."""

    master_id: int | None
    waits_for: frozenset[int] = frozenset()
    """Without a master: the replicas whose reports are missing."""
    asked: frozenset[int] = frozenset()
    """The replicas whose reports were compared; their number satisfies the election rule."""
    is_pending: bool = False
    """Whether a report of a living replica is missing, so that a later attempt may differ."""
    risk: str = ""
    """The messages that this choice may lose; empty for a safe choice."""
    reason: str = ""
    """Why no replica was chosen."""


def choose(
    group: Group,
    living: Collection[Candidate],
    *,
    designated: int | None = None,
    allows_unclean: bool = False,
    is_hasty: bool = False,
) -> Choice:
    """Return the next master of *group*.

    *designated* is the replica that an operator named. With *allows_unclean*
    (enableElectUncleanMaster) a replica outside the set is chosen if no safe choice exists.
    *is_hasty*: do not wait for further reports of living replicas once enough have arrived.
    """
    able = {each.broker_id: each for each in living if not each.is_learner}
    able = {number: each for number, each in able.items() if number in group.brokers}
    if designated is not None:
        return _designated(group, able, designated, allows_unclean, is_hasty)

    fresh = {number: each for number, each in able.items() if each.is_fresh}
    stale = _electorate(group) & (able.keys() - fresh.keys())
    fit = _fit(group, fresh)
    if fit and (is_hasty or not stale):
        return Choice(_best(group, fit), asked=frozenset(fit))
    if stale:
        return _pending(stale)
    waits_for = _waits_for(group, fresh)
    reason = _shortage(group, waits_for)
    if allows_unclean and able:
        return Choice(_best(group, able), risk=f"an unclean election: {reason}")
    return Choice(None, waits_for, reason=reason)


def epoch_above(group: Group, living: Collection[Candidate]) -> int | None:
    """Return the epoch of the next master: above the group's epoch and the epochs in all logs.

    Logs have later epochs if the controller lost its state; their brokers would refuse a lower
    epoch. None if no number is left.
    """
    known = group.master_epoch
    near = [each.rank.last_epoch for each in living]
    near = [each for each in near if each - known <= EPOCH_JUMP_MAX]
    epoch = max([known, *near]) + 1
    return epoch if epoch <= INT32_MAX else None


def _fit(group: Group, fresh: Mapping[int, Candidate]) -> Mapping[int, Candidate]:
    """Returns the replicas of which the best may become master; empty if too few reported."""
    counted = {number: each for number, each in fresh.items() if number in _electorate(group)}
    if group.terms is None or group.terms.all_ack or not counted:
        return counted
    needed = reports_needed(len(group.voters), copies=group.terms.in_sync)
    has_member = not group.sync_state_set.isdisjoint(counted)
    return counted if has_member and len(counted) >= needed else {}


def _electorate(group: Group) -> frozenset[int]:
    """Returns the replicas whose reports count."""
    is_any = group.terms is None or group.terms.all_ack
    return group.sync_state_set if is_any else group.voters


def _pending(stale: frozenset[int]) -> Choice:
    text = f"living replicas have yet to report: {sorted(stale)}"
    return Choice(None, stale, is_pending=True, reason=text)


def _best(group: Group, fit: Mapping[int, Candidate]) -> int:
    """Returns the replica with the best log; of equal logs the former master, then the lowest
    id."""

    def order(each: Candidate) -> tuple[LogRank, int, bool, int]:
        return each.rank, -each.priority, each.broker_id == group.master_id, -each.broker_id

    return max(fit.values(), key=order).broker_id


def _waits_for(group: Group, fresh: Collection[int]) -> frozenset[int]:
    return _electorate(group) - frozenset(fresh)


def _shortage(group: Group, waits_for: Collection[int]) -> str:
    terms = group.terms
    if not group.voters:
        return "no replica is known to hold the messages; designate one"
    if terms is None or terms.all_ack:
        return f"no member of the sync-state set {sorted(group.sync_state_set)} is alive"
    needed = reports_needed(len(group.voters), copies=terms.in_sync)
    return (
        f"puts waited for {terms.in_sync} copies, so {needed} of the replicas "
        f"{sorted(group.voters)} must report, a member of {sorted(group.sync_state_set)} among "
        f"them; no report of {sorted(waits_for)}"
    )


def _designated(
    group: Group,
    able: Mapping[int, Candidate],
    designated: int,
    allows_unclean: bool,
    is_hasty: bool,
) -> Choice:
    """Returns the operator's choice, with the messages that it may lose."""
    if designated not in able:
        return Choice(
            None, reason=f"broker {designated} is not alive, not registered, or a learner"
        )
    fresh = {number: each for number, each in able.items() if each.is_fresh}
    fit = _fit(group, fresh)
    is_any = group.terms is None or group.terms.all_ack
    if not group.was_elected or (is_any and designated in group.sync_state_set):
        return Choice(designated)
    if designated in fit and fit[designated].rank == max(each.rank for each in fit.values()):
        return Choice(designated, asked=frozenset(fit))
    if group.terms is None and group.sync_state_set and not allows_unclean:
        return Choice(
            None,
            reason=f"broker {designated} is not a member of the sync-state set "
            f"{sorted(group.sync_state_set)}; set enableElectUncleanMaster to elect it anyway",
        )
    stale = _electorate(group) & (able.keys() - fresh.keys())
    if stale and not is_hasty:
        return _pending(stale)
    return Choice(designated, risk=_risk(group, fresh, able[designated], has_quorum=bool(fit)))


def _risk(
    group: Group, fresh: Mapping[int, Candidate], designated: Candidate, *, has_quorum: bool
) -> str:
    better = [
        f"broker {each.broker_id} up to {each.rank.end_offset} of epoch {each.rank.last_epoch}"
        for number, each in sorted(fresh.items())
        if number in group.voters and each.rank > designated.rank
    ]
    parts = [
        f"acknowledged messages may be lost: broker {designated.broker_id} has the log up to "
        f"{designated.rank.end_offset} of epoch {designated.rank.last_epoch}"
    ]
    if better:
        parts.append(f"longer logs: {', '.join(better)}")
    if not has_quorum:
        parts.append(_shortage(group, _waits_for(group, fresh)))
    return "; ".join(parts)
