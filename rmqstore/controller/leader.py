"""The decisions of the leading node: turns requests, heartbeats and timeouts into commands.

The leader validates a request against its applied state and the reports of living brokers. It
returns a command for the log, or a result if nothing is to be written. The state validates the
command again when it is applied.

Each term of the engine has a new `Leader`. The times of all calls are monotonic milliseconds of one
clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rmqstore.controller.commands import (
    AlterSet,
    AssignBrokerId,
    Command,
    ElectMaster,
    RecordTerms,
    RemoveBrokers,
    SetAddress,
    SettleDeparted,
)
from rmqstore.controller.doubt import is_successor
from rmqstore.controller.elect import Candidate, Choice, choose, epoch_above
from rmqstore.controller.group import Electorate, Group
from rmqstore.controller.liveness import (
    HEARTBEAT_TIMEOUT_MS,
    Heartbeat,
    Leases,
    Liveness,
    Report,
)
from rmqstore.controller.reports import Reports
from rmqstore.controller.state import (
    ControllerState,
    Result,
    Verdict,
    alteration_fault,
    assignment_fault,
)
from rmqstore.replication.group.log_rank import LogRank

__all__ = ["Election", "Leader", "Waiting"]

_FOUND_MS = 5000
"""Every 3 s a Java broker looks which controllers it reaches; only they get its heartbeats."""
_QUERIED_AGAIN_MS = 1000
"""A master that serves without heartbeats is queried again after this time."""
_WRITTEN_AGAIN_MS = 500
"""An election that could not be written is tried again after this time."""
_SILENCE_MS = 30_000
"""A master that did not answer, and sends no heartbeats, is queried again after this time."""


@dataclass(frozen=True, slots=True)
class Election:
    """An attempt to elect a master.

    With a *command* the election takes effect when the command is applied. Without a command,
    *verdict* is the reason: UNCHANGED if the present master remains.
    """

    command: ElectMaster | None
    verdict: Verdict
    reason: str = ""
    risk: str = ""
    retry_at_ms: int | None = None
    """Time at which the same attempt may have another outcome without any new report."""
    asked: frozenset[int] = frozenset()
    """The replicas whose reports were compared; empty if the rule required no reports."""
    doubted: int | None = None
    """The master that must first be queried whether it still serves; then call `answered`."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The last answer of a Java master that was queried whether it serves."""

    master: tuple[int, int]
    """Its id and its epoch."""
    serves: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why a group has no master, or why an election has not taken place yet."""

    waits_for: frozenset[int]
    reason: str
    is_short: bool = False
    """Whether the wait ends with a lease, or with the next heartbeats of living replicas."""
    fence_ms: int | None = None
    """Time from which reports count, if the wait is for it."""


class Leader:
    """The decisions of one term of leadership, which began at *since_ms*."""

    def __init__(
        self,
        state: ControllerState,
        liveness: Liveness,
        *,
        since_ms: int,
        allows_unclean: bool = False,
        patience_ms: int = 2000,
    ) -> None:
        self._state = state
        self._liveness = liveness
        self.reports = Reports(liveness)
        self._leases = Leases(since_ms)
        self.allows_unclean = allows_unclean
        self._patience_ms = patience_ms
        """Duration after the fence for which an election waits for more reports than it needs."""
        self._electing: dict[str, Election] = {}
        """Groups with an election that is being written, or whose outcome is not known."""
        self._unsettled: set[str] = set()
        """Groups with an election whose outcome is not known."""
        self._paused_until_ms: dict[str, int] = {}
        """Groups whose last election could not be written, and the time of the next attempt."""
        self._withheld: dict[str, int] = {}
        """Groups whose master gets no lease, and the end of that time, after an operator requested
        an election."""
        self._settle_at: dict[str, tuple[int, int, int]] = {}
        """Master epoch, set epoch, and the end of the master's log when it first used that set."""
        self._answers: dict[str, _Answer] = {}
        self.waiting: dict[str, Waiting] = {}
        """Groups without a master that cannot be elected yet, by name."""
        self._risks: dict[str, tuple[int, str]] = {}
        """Groups whose last election may have lost messages: the epoch, and the risk."""

    # Registration.

    def assign_broker_id(
        self, cluster: str, group: str, broker_id: int, check_code: str
    ) -> Command | Result:
        """Decide on the id that a broker applies for; the code begins with the broker's address."""
        address = check_code.partition(";")[0]
        command = AssignBrokerId(group, cluster, broker_id, address, check_code)
        return assignment_fault(self._state.past_group(group), command) or command

    def register_broker(
        self, cluster: str, group: str, broker_id: int, address: str
    ) -> Command | Result:
        """Decide on the address of a broker that has an id."""
        found = self._known(cluster, group, broker_id)
        if isinstance(found, Result):
            return found
        if found.brokers[broker_id].address == address:
            return Result(Verdict.UNCHANGED, group=found)
        return SetAddress(group, broker_id, address)

    def living_master(self, group: Group, now_ms: int) -> int | None:
        """Return the master of *group* while it is alive."""
        master = group.master_id
        if master is None or not self._liveness.is_alive(group.name, master, now_ms):
            return None
        return master

    def _known(self, cluster: str, group: str, broker_id: int) -> Group | Result:
        found = self._state.group(group)
        if found is None:
            text = f"Broker-set: {group} hasn't been registered in controller"
            return Result(Verdict.UNKNOWN_GROUP, text)
        other = _other_cluster(found, cluster)
        if other is not None:
            return other
        if broker_id not in found.brokers:
            text = f"BrokerId: {broker_id} hasn't been registered in broker-set: {group}"
            return Result(Verdict.UNKNOWN_BROKER, text, found)
        return found

    # The sync-state set.

    def alter_set(
        self,
        group: str,
        *,
        master_id: int,
        master_epoch: int,
        set_epoch: int,
        members: frozenset[int],
        now_ms: int,
    ) -> Command | Result:
        """Decide on the set that a master proposes.

        An unchanged set of a broker of this library becomes a new version, which invalidates its
        lost proposals. That of a Java broker is refused, as by RocketMQ.
        """
        found = self._state.group(group)
        if found is None:
            return Result(Verdict.UNKNOWN_GROUP, f"Broker metadata is not existed: {group}")
        report = self._liveness.report(group, master_id)
        beat = report.beat if report is not None else None
        command = AlterSet(
            group,
            master_id,
            master_epoch,
            set_epoch,
            members,
            accepts_same=beat is not None and beat.life is not None,
            terms=beat.terms if beat is not None else None,
        )

        def unfit(broker_id: int) -> str:
            return self.reports.unfit(found, broker_id, beat, now_ms)

        return alteration_fault(found, command, unfit=unfit) or command

    def is_joining_soon(self, group: str, members: frozenset[int], now_ms: int) -> bool:
        """Return whether the next heartbeats of living replicas may make *members* acceptable."""
        found = self._state.group(group)
        return found is not None and self.reports.may_join_soon(found, members, now_ms)

    # Elections.

    def elect(
        self,
        group: str,
        *,
        cluster: str = "",
        broker_id: int | None = None,
        is_designated: bool = False,
        now_ms: int,
    ) -> Election:
        """Decide on a request to elect a master.

        A broker requests its own election; an operator designates *broker_id*; for elections by the
        controller itself *broker_id* is None.
        """
        found = self._state.group(group)
        if found is None:
            text = f"Broker-set: {group} hasn't been registered in controller"
            return Election(None, Verdict.UNKNOWN_GROUP, text)
        other = _other_cluster(found, cluster)
        if other is not None:
            return Election(None, other.verdict, other.remark)
        if broker_id is not None and broker_id not in found.brokers:
            text = f"broker {broker_id} is not registered in {group}"
            return Election(None, Verdict.UNKNOWN_BROKER, text)

        if group in self._electing:
            text = f"an election of {group} is being written"
            return Election(None, Verdict.STALE, text, retry_at_ms=now_ms)
        if not found.was_elected and broker_id is not None and not is_designated:
            return self._first_election(found, broker_id, now_ms)
        designated = broker_id if is_designated else None
        if self._master_remains(found, designated, now_ms):
            return Election(None, Verdict.UNCHANGED, f"the master of {group} is alive")
        if designated is not None:
            # The request of an operator ends the lease of a master that is alive.
            self._withheld[group] = self._leases.end_ms(group, _lease_ms(found)) + 1000
        return self._attempt(found, designated, now_ms)

    def _first_election(self, group: Group, broker_id: int, now_ms: int) -> Election:
        """Returns the election of the first broker that requests it. The broker is refused if
        another living broker has a longer log: then the controller has lost its state, or the
        brokers' directories are older than the group."""
        living = self._candidates(group, now_ms, fence_ms=None)
        by_id = {each.broker_id: each for each in living}
        own = by_id.get(broker_id)
        if own is not None and own.is_learner:
            return Election(None, Verdict.STALE, f"broker {broker_id} is a learner")
        rank = LogRank(-1, -1) if own is None else own.rank
        better = [
            number
            for number, each in by_id.items()
            if not each.is_learner and each.rank > rank and each.rank.end_offset > 0
        ]
        if better:
            text = (
                f"brokers {sorted(better)} of {group.name} have longer logs than broker {broker_id}"
            )
            return Election(None, Verdict.STALE, text)
        return self._election(group, living, Choice(broker_id))

    def _attempt(self, group: Group, designated: int | None, now_ms: int) -> Election:
        fence_ms = self._fence_ms(group, now_ms)
        if now_ms < fence_ms and not (designated is not None and not _lease_ms(group)):
            text = f"the lease of the former master may last for {fence_ms - now_ms} ms"
            if not _lease_ms(group):
                text = f"the former master may be alive for {fence_ms - now_ms} ms"
            self.waiting[group.name] = Waiting(frozenset(), text, is_short=True, fence_ms=fence_ms)
            return Election(None, Verdict.STALE, text, retry_at_ms=fence_ms)
        if designated is None and self._is_doubted(group, now_ms):
            text = f"broker {group.master_id}, the former master, has yet to answer"
            self.waiting[group.name] = Waiting(frozenset(), text, is_short=True)
            return Election(None, Verdict.STALE, text, doubted=group.master_id)
        living = self._candidates(group, now_ms, fence_ms=fence_ms)
        choice = choose(
            group,
            living,
            electorate=self._electorate(group, living),
            designated=designated,
            allows_unclean=self.allows_unclean,
            is_hasty=now_ms - fence_ms > self._patience_ms,
        )
        return self._election(group, living, choice)

    def _electorate(self, group: Group, living: Collection[Candidate]) -> Electorate:
        """Returns the electorate of the last epoch that began."""
        former = group.former
        if former is None:
            return group.electorate
        if group.unproven_epoch:
            return former if _has_not_begun(group, living) else group.electorate
        return group.electorate if self._may_begin(group) else former

    def _may_begin(self, group: Group) -> bool:
        """Returns whether the master elected last may confirm or acknowledge messages in its epoch
        before the controller knows that it has begun."""
        if group.awaits_lease or group.master_id is None:
            return False
        report = self._liveness.report(group.name, group.master_id)
        is_same = report is not None and report.beat.life == group.master_life
        return not (is_same and self._has_refused(group))

    def _election(self, group: Group, living: Collection[Candidate], choice: Choice) -> Election:
        """Returns the command for *choice*, or the reason why no command is possible."""
        name = group.name
        epoch = epoch_above(group, living)
        if epoch is None:
            return Election(None, Verdict.STALE, f"group {name} has no epoch left")

        chosen = choice.master_id
        if chosen is None:
            self.waiting[name] = Waiting(
                choice.waits_for, choice.reason, is_short=choice.is_pending
            )
            if choice.is_pending or group.master_id is None:
                return Election(None, Verdict.STALE, choice.reason)

        electorate = self._electorate(group, living)
        candidate = next((each for each in living if each.broker_id == chosen), None)
        report = None if candidate is None else self._liveness.report(name, candidate.broker_id)
        beat = None if report is None else report.beat

        # A broker of an earlier release confirms messages before its first lease.
        terms = None if beat is None or beat.boot is None else beat.terms
        boot = None if beat is None or beat.life is None else beat.boot
        if candidate is not None and candidate.doubt:
            # The doubt is relative to the recorded process, which therefore stays.
            boot = None if group.brokers[candidate.broker_id].incarnation else boot

        command = ElectMaster(
            name,
            group.master_epoch,
            group.set_epoch,
            chosen,
            epoch,
            is_override=chosen is not None and chosen not in electorate.voters,
            master_life=None if beat is None else beat.life,
            master_boot=boot,
            acks_flushed=beat is not None and beat.acks_flushed,
            awaits_lease=terms is not None and terms.lease_ms > 0,
            voids_last=electorate is group.former,
        )
        return Election(command, Verdict.APPLIED, choice.reason, choice.risk, asked=choice.asked)

    def _master_remains(self, group: Group, designated: int | None, now_ms: int) -> bool:
        """Returns whether the master is alive and no other replica is designated."""
        master = group.master_id
        if master is None or designated not in (None, master):
            return False
        if self.living_master(group, now_ms) is not None:
            return not self._has_refused(group)
        answer = self._answer_of(group)
        return answer is not None and answer.serves and now_ms < answer.at_ms + _QUERIED_AGAIN_MS

    def _answer_of(self, group: Group) -> _Answer | None:
        """Returns the last answer of the present master, if no heartbeat has arrived since."""
        answer = self._answers.get(group.name)
        if answer is None or answer.master != (group.master_id, group.master_epoch):
            return None
        report = self._liveness.report(group.name, answer.master[0])
        return None if report is not None and report.received_ms > answer.at_ms else answer

    def _is_doubted(self, group: Group, now_ms: int) -> bool:
        """Returns whether the master may serve although it is not alive by its heartbeats.

        A Java broker closes its connection when a call is not answered in time, and cannot send
        heartbeats before it has found a controller again. It acknowledges messages that its slaves
        lack if one of them is elected meanwhile. A broker of this library does not.
        """
        if group.master_id is None or group.terms is not None:
            return False
        report = self._liveness.report(group.name, group.master_id)
        if report is not None and report.beat.life is not None:
            return False
        answer = self._answer_of(group)
        return answer is None or answer.serves or now_ms > answer.at_ms + _SILENCE_MS

    def answered(self, group: str, broker_id: int, *, serves: bool, now_ms: int) -> None:
        """Record whether a doubted master answered, as the master of *group*."""
        found = self._state.group(group)
        if found is not None and found.master_id == broker_id:
            self._answers[group] = _Answer((broker_id, found.master_epoch), serves, now_ms)

    def _has_refused(self, group: Group) -> bool:
        """Returns whether the master has refused the role in its epoch, or has lost it with its
        process."""
        assert group.master_id is not None
        report = self._liveness.report(group.name, group.master_id)
        if report is None:
            return False
        return report.beat.refused_epoch >= group.master_epoch or self._is_stranger(group, report)

    def _is_stranger(self, group: Group, report: Report) -> bool:
        """Returns whether another process of the master's broker than the elected one reports, and
        cannot continue in its epoch."""
        beat, life = report.beat, group.master_life
        if life is None or beat.life in (None, life):
            return False
        if beat.synced_epoch < group.master_epoch and beat.vouched < report.peak:
            return True
        is_next = is_successor(beat, life) and group.former is None
        return beat.boot is not None and not is_next

    def _fence_ms(self, group: Group, now_ms: int) -> int:
        """Returns the time from which the former master acknowledges nothing."""
        lease_ms = _lease_ms(group)
        if lease_ms:
            return self._leases.end_ms(group.name, lease_ms)
        if group.master_id is None:
            return self._leases.since_ms
        ended_ms = self._ended_ms(group, group.master_id)
        answer = self._answer_of(group)
        return ended_ms if answer is None else max(ended_ms, answer.at_ms)

    def _ended_ms(self, group: Group, master_id: int) -> int:
        """Returns when a master without a lease ends, or ended, by its heartbeats."""
        since_ms = self._leases.since_ms
        report = self._liveness.report(group.name, master_id)
        if report is None:
            # No heartbeat has arrived since this node started; a living master finds it soon.
            return since_ms + max(self._longest_timeout_ms(group), _FOUND_MS)
        if self._has_refused(group):
            return max(report.refused_ms, since_ms)
        if report.ended_ms is not None:
            return report.ended_ms
        return report.received_ms + report.beat.timeout_ms + 1

    def _longest_timeout_ms(self, group: Group) -> int:
        reports = [self._liveness.report(group.name, each) for each in group.brokers]
        timeouts = [each.beat.timeout_ms for each in reports if each is not None]
        return max(timeouts, default=HEARTBEAT_TIMEOUT_MS)

    def _candidates(self, group: Group, now_ms: int, *, fence_ms: int | None) -> list[Candidate]:
        return self.reports.candidates(group, now_ms, fence_ms=fence_ms)

    def begin(self, election: Election) -> None:
        """Record that an election is being written: no lease for its group until its outcome is
        known."""
        assert election.command is not None, "an election without a command is not written"
        self._electing[election.command.group] = election
        self._unsettled.discard(election.command.group)

    def end(self, election: Election, result: Result) -> None:
        """Record the outcome of an election."""
        command = election.command
        assert command is not None, "an election without a command is not written"
        self._discard(command.group)
        if result.is_applied and command.master_id is not None:
            for each in (self._withheld, self._settle_at, self.waiting):
                each.pop(command.group, None)
            self._risks[command.group] = (command.new_epoch, election.risk)

    def fail(self, election: Election, reason: str, *, is_unknown: bool, now_ms: int) -> None:
        """Record that an election was not written, or, with *is_unknown*, that it may take effect
        later. Then `review` returns it again until its outcome is known, after a pause."""
        command = election.command
        assert command is not None, "an election without a command is not written"
        name = command.group
        if is_unknown:
            self._unsettled.add(name)
        else:
            self._discard(name)
        self._paused_until_ms[name] = now_ms + _WRITTEN_AGAIN_MS
        self.waiting[name] = Waiting(frozenset(), f"the election cannot be written: {reason}")

    def _discard(self, group: str) -> None:
        self._electing.pop(group, None)
        self._unsettled.discard(group)

    def troubles(self, group: str, now_ms: int) -> str:
        """Return why living brokers could not carry out their last orders, or do not follow their
        master: members without its topics as well."""
        found = self._state.group(group)
        return "" if found is None else self.reports.troubles(found, now_ms)

    def risk(self, group: str) -> str:
        """Return the messages that the election of the present master may have lost."""
        found = self._state.group(group)
        epoch, text = self._risks.get(group, (-1, ""))
        return text if found is not None and found.master_epoch == epoch else ""

    # Heartbeats and time.

    def wants_report(self, group: str, broker_id: int) -> bool:
        """Return whether an election waits for the next heartbeat of a living broker."""
        waiting = self.waiting.get(group)
        return waiting is not None and waiting.is_short and broker_id in waiting.waits_for

    def report_in_ms(self, group: str, now_ms: int) -> int:
        """Return the duration after which reports count in the election that waits for the end of
        a lease; -1 if no election does."""
        waiting = self.waiting.get(group)
        if waiting is None or waiting.fence_ms is None:
            return -1
        return max(0, waiting.fence_ms - now_ms)

    def lease(self, group: str, broker_id: int, now_ms: int) -> int:
        """Grant the sender of a heartbeat a lease, and return its duration; 0 for none.

        Call it only after the engine has shown, since the heartbeat arrived, that this node leads.
        """
        found, report = self._state.group(group), self._liveness.report(group, broker_id)
        if found is None or report is None or found.terms is None:
            return 0
        beat = report.beat
        is_master = found.master_id == broker_id and beat.role_epoch == found.master_epoch
        is_master = is_master and (beat.boot is None or found.master_life in (None, beat.life))
        has_terms = beat.terms is not None and found.terms.weaker(beat.terms) == found.terms
        is_held_back = group in self._electing or now_ms < self._withheld.get(group, now_ms)
        if not is_master or not has_terms or is_held_back or self._has_refused(found):
            return 0
        assert beat.terms is not None
        if beat.terms.lease_ms:
            # A lease granted earlier in the epoch may be longer.
            self._leases.grant(group, found.terms.lease_ms, now_ms)
        return beat.terms.lease_ms

    def review(self, group: str, now_ms: int) -> Command | Election | None:
        """Return the command or election that is due for *group* now.

        An `Election` without a command is returned too: it names what the group waits for.
        """
        found = self._state.group(group)
        if found is None or now_ms < self._paused_until_ms.get(group, now_ms):
            return None
        written = self._electing.get(group)
        if written is not None:
            return self._written_again(found, written)
        if not found.was_elected:
            return None
        if found.master_id is None or not self._master_remains(found, None, now_ms):
            if self._has_voters_alive(found, now_ms) or found.master_id is not None:
                return self._attempt(found, None, now_ms)
            return None
        self.waiting.pop(group, None)
        if self.living_master(found, now_ms) is None:
            text = f"the master of {group} serves; its heartbeats do not arrive"
            retry_at_ms = self._answers[group].at_ms + _QUERIED_AGAIN_MS
            return Election(None, Verdict.UNCHANGED, text, retry_at_ms=retry_at_ms)
        report = self._liveness.report(group, found.master_id)
        assert report is not None, "the master is alive"
        due = self.reports.incarnation_due(found, now_ms)
        if due is not None or report.beat.role_epoch != found.master_epoch:
            return due
        return self._terms_due(found, report.beat) or self._settlement_due(found, report.beat)

    def _written_again(self, group: Group, written: Election) -> Election | None:
        """Returns an election whose outcome is not known, to be written again: once the repetition
        has an outcome, the first attempt has taken effect or never will."""
        assert written.command is not None, "an election without a command is not written"
        if group.name not in self._unsettled:
            return None
        expected = (written.command.master_epoch, written.command.set_epoch)
        if (group.master_epoch, group.set_epoch) != expected:
            self._discard(group.name)
            return None
        return written

    def _has_voters_alive(self, group: Group, now_ms: int) -> bool:
        voters = group.brokers if self.allows_unclean else group.voters
        return any(self._liveness.is_alive(group.name, each, now_ms) for each in voters)

    @staticmethod
    def _terms_due(group: Group, beat: Heartbeat) -> Command | None:
        if beat.terms is None:
            return None
        if group.terms is not None and group.terms.weaker(beat.terms) == group.terms:
            return None
        return RecordTerms(group.name, group.master_epoch, beat.terms)

    def _settlement_due(self, group: Group, beat: Heartbeat) -> Command | None:
        """Returns the command that removes the departed replicas, once the members hold the
        master's log up to its end at the time when the master took the set."""
        if not group.departed or beat.set_epoch != group.set_epoch:
            return None
        if group.is_settled and not group.has_copies:
            return None
        now = (group.master_epoch, group.set_epoch)
        known = self._settle_at.get(group.name)
        if known is None or known[:2] != now:
            self._settle_at[group.name] = (*now, beat.rank.end_offset)
            return None
        if beat.confirm_offset < known[2]:
            return None
        return SettleDeparted(group.name, group.master_epoch, group.set_epoch)

    # Cleaning.

    def clean(
        self,
        group: str,
        *,
        cluster: str,
        broker_ids: frozenset[int] | None,
        cleans_living: bool,
        now_ms: int,
    ) -> Command | Result:
        """Decide on the request to remove *broker_ids*, or the whole group if they are None."""
        found = self._state.group(group)
        if found is None:
            text = f"Broker {group} is not existed,clean broker data failure."
            return Result(Verdict.UNKNOWN_GROUP, text)
        other = _other_cluster(found, cluster)
        if other is not None:
            return other
        if not cleans_living:
            asked = found.brokers.keys() if broker_ids is None else broker_ids
            alive = [each for each in sorted(asked) if self._is_alive(found, each, now_ms)]
            if alive or (broker_ids is None and found.master_id is not None):
                text = (
                    f"brokers {alive} of {group} are alive"
                    if alive
                    else f"Broker {group} has a master, {found.master_id}"
                )
                return Result(Verdict.NOT_ALIVE, f"{text}; clean broker data failure.", found)
        return RemoveBrokers(group, broker_ids)

    def _is_alive(self, group: Group, broker_id: int, now_ms: int) -> bool:
        return self._liveness.is_alive(group.name, broker_id, now_ms)


def _lease_ms(group: Group) -> int:
    return 0 if group.terms is None else group.terms.lease_ms


def _other_cluster(group: Group, cluster: str) -> Result | None:
    """Returns the refusal of a request for another cluster; an empty name matches any cluster."""
    if not cluster or cluster == group.cluster:
        return None
    text = f"broker group {group.name} is in cluster {group.cluster}, not in {cluster}"
    return Result(Verdict.OTHER_CLUSTER, text, group)


def _has_not_begun(group: Group, living: Collection[Candidate]) -> bool:
    """Returns whether the logs of all that could hold messages of the last master's epoch are here,
    whole, and without that epoch: a master stores it before its first message."""
    voters = group.electorate.voters
    without = {
        each.broker_id
        for each in living
        if each.is_fresh and not each.doubt and each.rank.last_epoch < group.unproven_epoch
    }
    return voters <= without
