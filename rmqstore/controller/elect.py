"""The election rule: chooses the next master from the reports of the replicas.

Only reports that were sent after the former master was fenced count. After an earlier report the
former master may have acknowledged more messages, stored on that replica. The reported logs are
ordered by epoch, then offset, then priority.

The replicas that must have reported depend on the number of copies that puts of the last epoch
waited for:

    all members (allAckInSyncStateSet)    one member; any may become master
    a number of copies (inSyncReplicas)   all voters except `inSyncReplicas - 1`, among them a
                                          member; voters are the members and the replicas that
                                          left the set and may hold messages that a member lacks
    unknown, the master was a Java broker any member, as in RocketMQ

A replica whose log may have lost its end (`rmqstore.controller.doubt`) may become master, but is
not counted among them. If all voters have reported and too few are counted, no further report can
show more: the best log of all replicas is chosen, and the choice names the risk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rmqstore.arguments import INT32_MAX
from rmqstore.controller.group import Electorate, Group
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
    doubt: str = ""
    """Why its log may lack messages that it acknowledged; empty for a whole log."""
    partial_from: int = -1
    """Where its log begins, if earlier messages are on other replicas only; else -1."""
    trouble: str = ""
    """Why it cannot take the role of master; empty if it can."""


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
    electorate: Electorate | None = None,
    designated: int | None = None,
    allows_unclean: bool = False,
    is_hasty: bool = False,
) -> Choice:
    """Return the next master of *group*.

    *electorate* is that of the last epoch that began, by default of the present epoch. *designated*
    is the replica that an operator named. With *allows_unclean* (enableElectUncleanMaster) a
    replica outside the set is chosen if no safe choice exists. *is_hasty*: do not wait for further
    reports of living replicas once enough have arrived.
    """
    able = {each.broker_id: each for each in living if not each.is_learner}
    able = {number: each for number, each in able.items() if number in group.brokers}
    ballot = _Ballot(group, electorate or group.electorate, able)
    if designated is not None:
        return _designated(ballot, designated, allows_unclean, is_hasty)
    return _elected(ballot, allows_unclean, is_hasty)


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


@dataclass(frozen=True, slots=True)
class _Ballot:
    """An election of *group*: the replicas that may hold messages, and those that are *able*."""

    group: Group
    electorate: Electorate
    able: Mapping[int, Candidate]

    @property
    def is_any(self) -> bool:
        """Whether every member holds all acknowledged messages."""
        terms = self.electorate.terms
        return terms is None or terms.all_ack

    @property
    def voters(self) -> frozenset[int]:
        """The replicas whose reports count."""
        return self.electorate.members if self.is_any else self.electorate.voters

    @property
    def fresh(self) -> Mapping[int, Candidate]:
        """The replicas that reported after the former master was fenced."""
        return {number: each for number, each in self.able.items() if each.is_fresh}

    @property
    def stale(self) -> frozenset[int]:
        """Living voters that have yet to report."""
        return self.voters & (self.able.keys() - self.fresh.keys())

    @property
    def needed(self) -> int:
        """How many voters with whole logs must have reported."""
        terms = self.electorate.terms
        if terms is None or terms.all_ack:
            return 1
        return reports_needed(len(self.voters), copies=terms.in_sync)

    def suffices(self, numbers: Collection[int]) -> bool:
        """Return whether the best log of *numbers* has all acknowledged messages."""
        electorate, terms = self.electorate, self.electorate.terms
        whole = {n for n in numbers if n in self.voters and not self.able[n].doubt}
        members = whole & electorate.members
        if terms is None or terms.all_ack:
            return bool(members)
        if electorate.is_settled and members:
            # Whole logs of members have all that the departed replicas have.
            needed = reports_needed(len(electorate.members), copies=terms.in_sync)
            if len(members) >= needed:
                return True
        # With fewer members than copies nothing was acknowledged since, but messages may have been
        # read: a member must have reported what is left of them.
        return len(whole) >= self.needed and not electorate.members.isdisjoint(numbers)

    @property
    def has_all(self) -> bool:
        """Whether all replicas that may hold acknowledged messages have reported."""
        return bool(self.electorate.voters) and self.electorate.voters <= self.fresh.keys()

    @property
    def doubts(self) -> str:
        """The replicas whose logs may have lost their end, as a text."""
        found = [f"broker {n}: {each.doubt}" for n, each in sorted(self.able.items()) if each.doubt]
        return "; ".join(found)


def _elected(ballot: _Ballot, allows_unclean: bool, is_hasty: bool) -> Choice:
    counted = {n: each for n, each in ballot.fresh.items() if n in ballot.voters}
    asked = _asked(ballot, counted)
    leading = {n: each for n, each in asked.items() if not each.trouble}
    if leading and (is_hasty or not ballot.stale):
        return Choice(_best(ballot.group, leading), asked=frozenset(asked))
    if ballot.stale:
        return _pending(ballot.stale)
    reason = _shortage(ballot)
    if ballot.has_all and not ballot.suffices(counted):
        # No report is missing that could show more.
        every = {n: each for n, each in ballot.fresh.items() if not each.trouble}
        if every:
            best = _best(ballot.group, every, start_first=True)
            return Choice(best, asked=frozenset(every), risk=_loss(ballot, every[best]))
    if allows_unclean and ballot.able:
        best = _best(ballot.group, ballot.able)
        return Choice(best, risk=f"an unclean election: {reason}")
    return Choice(None, ballot.voters - ballot.fresh.keys(), reason=reason)


def _asked(ballot: _Ballot, counted: Mapping[int, Candidate]) -> Mapping[int, Candidate]:
    """Returns the replicas of which the best that can lead has all acknowledged messages; empty if
    too few have reported.

    The report of a replica that cannot lead counts if another has as good a log.
    """
    leading = {n: each for n, each in counted.items() if not each.trouble}
    best = max((each.rank for each in counted.values()), default=None)
    if ballot.suffices(counted) and any(each.rank == best for each in leading.values()):
        return counted
    return leading if ballot.suffices(leading) else {}


def _pending(stale: frozenset[int]) -> Choice:
    text = f"living replicas have yet to report: {sorted(stale)}"
    return Choice(None, stale, is_pending=True, reason=text)


def _best(group: Group, fit: Mapping[int, Candidate], *, start_first: bool = False) -> int:
    """Returns the replica with the best log; of equal logs one that lost nothing, the former
    master, then the lowest id.

    *start_first*: a log with the first messages is better than one with the last.
    """

    def order(each: Candidate) -> tuple[bool, LogRank, bool, bool, int, bool, int]:
        has_start, number = each.partial_from < 0, each.broker_id
        is_first, is_master = has_start or not start_first, number == group.master_id
        return is_first, each.rank, has_start, not each.doubt, -each.priority, is_master, -number

    return max(fit.values(), key=order).broker_id


def _shortage(ballot: _Ballot) -> str:
    terms, members = ballot.electorate.terms, sorted(ballot.electorate.members)
    if not ballot.electorate.voters:
        return "no replica is known to hold the messages; designate one"
    absent = sorted(ballot.voters - ballot.fresh.keys())
    if terms is None or terms.all_ack:
        parts = [f"no member of the sync-state set {members} is alive"]
        if ballot.fresh.keys() & ballot.electorate.members:
            parts = [f"no member of the sync-state set {members} has a whole log and can lead"]
    else:
        parts = [
            f"puts waited for {terms.in_sync} copies, so {ballot.needed} of the replicas "
            f"{sorted(ballot.voters)} must report, a member of {members} among them; no report of "
            f"{absent or 'further replicas'}"
        ]
    troubles = [f"broker {n}: {each.trouble}" for n, each in sorted(ballot.able.items())]
    troubles = [each for each in troubles if not each.endswith(": ")]
    if ballot.doubts:
        parts.append(f"not counted, because the log may have lost its end: {ballot.doubts}")
    if troubles:
        parts.append(f"cannot lead: {'; '.join(troubles)}")
    return "; ".join(parts)


def _loss(ballot: _Ballot, chosen: Candidate) -> str:
    parts = [
        f"acknowledged messages may be lost: broker {chosen.broker_id} has the best log, up to "
        f"{chosen.rank.end_offset} of epoch {chosen.rank.last_epoch}"
    ]
    if ballot.doubts:
        parts.append(f"logs that may have lost their end: {ballot.doubts}")
    return "; ".join([*parts, *_missing_start(chosen)])


def _missing_start(chosen: Candidate) -> list[str]:
    if chosen.partial_from < 0:
        return []
    return [
        f"the log of broker {chosen.broker_id} begins at {chosen.partial_from}: consumers do not "
        "get earlier messages"
    ]


def _designated(ballot: _Ballot, designated: int, allows_unclean: bool, is_hasty: bool) -> Choice:
    """Returns the operator's choice, with the messages that it may lose."""
    chosen = ballot.able.get(designated)
    if chosen is None:
        return Choice(
            None, reason=f"broker {designated} is not alive, not registered, or a learner"
        )
    group, electorate, fresh = ballot.group, ballot.electorate, ballot.fresh
    counted = {n: each for n, each in fresh.items() if n in ballot.voters}
    start = "; ".join(_missing_start(chosen))
    is_whole = ballot.is_any and designated in electorate.members and not chosen.doubt
    if not group.was_elected or is_whole:
        return Choice(designated, risk=start)
    has_enough = ballot.suffices(counted)
    if has_enough and designated in counted:
        if chosen.rank == max(each.rank for each in counted.values()):
            return Choice(designated, asked=frozenset(counted), risk=start)
    is_outside = designated not in electorate.members
    if electorate.terms is None and electorate.members and is_outside and not allows_unclean:
        return Choice(
            None,
            reason=f"broker {designated} is not a member of the sync-state set "
            f"{sorted(electorate.members)}; set enableElectUncleanMaster to elect it anyway",
        )
    if ballot.stale and not is_hasty:
        return _pending(ballot.stale)
    return Choice(designated, risk=_risk(ballot, chosen, has_enough=has_enough))


def _risk(ballot: _Ballot, chosen: Candidate, *, has_enough: bool) -> str:
    better = [
        f"broker {each.broker_id} up to {each.rank.end_offset} of epoch {each.rank.last_epoch}"
        for number, each in sorted(ballot.fresh.items())
        if number in ballot.electorate.voters and each.rank > chosen.rank
    ]
    parts = [
        f"acknowledged messages may be lost: broker {chosen.broker_id} has the log up to "
        f"{chosen.rank.end_offset} of epoch {chosen.rank.last_epoch}"
    ]
    if better:
        parts.append(f"longer logs: {', '.join(better)}")
    if not has_enough:
        parts.append(_shortage(ballot))
    return "; ".join([*parts, *_missing_start(chosen)])
