"""Changes of the sync-state set, and the rules while a change has no answer.

The set belongs to the controller (or whatever the application puts in its place). A master only
proposes; nothing takes effect before the answer. Until then the controller may already have
decided, and the master cannot know. So it keeps three views of the set:

- *members*: what the controller confirmed last. Proposals start from it.
- *waited*: every possible member of the controller's present set: the members and the replicas in
  every proposal without an answer. The confirm offset and all-member acknowledgements wait for all
  of them, because any of them may be elected.
- *counted*: the certain members: the members that every such proposal keeps. Only their
  acknowledgements count as copies.

A member leaves when its connection is gone, when it has not kept up for `lag_ms_max`, when it holds
less than it had acknowledged before, or when it turns out to be a learner. Another replica joins
when it holds everything confirmed and has stored the epoch of this master. One that does not name
its epochs (RocketMQ's) joins where it has reached the start of that epoch: the elector takes a
member, which holds all that is confirmed, and else a set that must not be less than two could never
grow without a put, nor take a put without growing.

A set may wait for admission: a replica that names its epochs then joins only while `admit` named
it. A broker names replicas that hold its topics and groups, which are not part of the log.

After a lost answer only a newer set resolves the outcome of the proposal. Until then a member that
the proposal removes does not count, and puts wait for a replica that it adds, connected or not. So
while no other change is due, the master proposes again: the set of the lost proposal if it adds no
replica, else the present members. The controller stores this as the next set epoch, which makes the
lost proposal void, or it returns the set that it has. The same happens if too many proposals have
no answer. A replica that is not fit is never proposed again only to resolve the outcome: it may
hold less than before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rmqstore.errors import ArgumentError
from rmqstore.replication.group.replicas import Replica, Replicas

__all__ = ["Proposal", "SyncStateSet"]

_UNANSWERED_MAX = 64
_RETRY_MS = 1000
_REFUSALS_MAX = 5
"""Refusals of one replica in succession after which its connection is in doubt."""
_CANDIDATE_LAG_MS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Proposal:
    """A set that the controller should store in place of the set with *set_epoch*.

    Without a joining or leaving replica it is a new version of the unchanged set, which makes an
    earlier proposal without an answer void. A later attempt at the same change has the same
    *number*. The answer is the set that is in force then, of a version above *set_epoch*
    (`ReplicatedStore.set_sync_state_set`), or that it never will be (`refuse_proposal`), or that
    none will come (`lose_proposal`).
    """

    number: int
    members: frozenset[int]
    set_epoch: int
    joined: frozenset[int]
    left: frozenset[int]


@dataclass(slots=True)
class _Unanswered:
    proposal: Proposal
    sent_ms: int
    attempts: int = 1
    is_lost: bool = False


class SyncStateSet:
    """The sync-state set as the master of one epoch sees it.

    *lag_ms_max* is haMaxTimeSlaveNotCatchup; *answer_ms_max* is how long the controller may take
    before the master asks again.
    """

    def __init__(
        self,
        replicas: Replicas,
        *,
        lag_ms_max: int = 15_000,
        answer_ms_max: int = 3_000,
        waits_for_admission: bool = False,
    ) -> None:
        if lag_ms_max <= 0 or answer_ms_max <= 0:
            raise ArgumentError(
                f"lag_ms_max {lag_ms_max} and answer_ms_max {answer_ms_max} must be above 0"
            )

        self._replicas = replicas
        self._lag_ms_max = lag_ms_max
        self._answer_ms_max = answer_ms_max
        self._waits_for_admission = waits_for_admission
        self._admitted: frozenset[int] = frozenset()

        self._unanswered: dict[int, _Unanswered] = {}
        self._refusals: dict[int, tuple[int, int]] = {}
        """Of replicas whose joining was refused: how often alone, and the last proposal of it."""
        self._candidates: frozenset[int] = frozenset()
        self._vouched: dict[int, int] = {}
        self._grace_since_ms: dict[int, int] = {}
        self._lost_link: set[int] = set()
        self._numbers = 0

        self._not_before_ms: int | None = None
        self._epoch = -1
        self._epoch_start_offset = 0

        self.members = self.waited = self.counted = frozenset((replicas.self_id,))
        self.set_epoch = 0

    def begin(
        self,
        members: Collection[int],
        *,
        set_epoch: int,
        epoch: int,
        epoch_start_offset: int,
        now_ms: int,
    ) -> None:
        """Start as master of *epoch*, which begins at *epoch_start_offset*, with the set given.

        Also for the same master elected again: what was proposed in the former epoch is void.
        Raises ArgumentError for a set that lacks the master or names an impossible id.
        """
        self._check(members)
        self._vouched.clear()
        self._refusals.clear()
        self._lost_link.clear()
        self._grace_since_ms.clear()
        self._candidates = self._admitted = frozenset()
        self._epoch, self._epoch_start_offset = epoch, epoch_start_offset
        self._take(members, set_epoch, now_ms)

    def confirm(self, members: Collection[int], *, set_epoch: int, now_ms: int) -> bool:
        """Take the set the controller has; return whether it is news.

        A newer set epoch voids every proposal made before it, answered or not, because a
        controller takes a proposal only for the epoch it was made for. An older one is late and
        ignored. Raises ArgumentError for a set that lacks the master (then another is master),
        for an impossible id, and for two sets of one epoch.
        """
        self._check(members)
        if set_epoch < self.set_epoch:
            return False
        if set_epoch == self.set_epoch:
            if frozenset(members) != self.members:
                raise ArgumentError(
                    f"sync-state set epoch {set_epoch}: {_text(members)} where "
                    f"{_text(self.members)} was confirmed; two sets cannot share an epoch"
                )
            return False
        self._take(members, set_epoch, now_ms)
        return True

    def refuse(self, number: int, *, now_ms: int) -> int | None:
        """Record that one attempt at a proposal will never take effect.

        Its members stay waited for while another attempt at it has no answer. Unknown numbers are
        of proposals a newer set has voided. Returns a replica that was refused several times, alone
        and in succession: it may not be the broker that its connection names.
        """
        unanswered = self._unanswered.get(number)
        if unanswered is None:
            return None
        unanswered.attempts -= 1
        if unanswered.attempts == 0:
            del self._unanswered[number]
        else:
            unanswered.is_lost = True
        self._not_before_ms = now_ms + _RETRY_MS
        self._settle()
        return self._turned_down(unanswered.proposal)

    def _turned_down(self, proposal: Proposal) -> int | None:
        for each in proposal.joined:
            count, _ = self._refusals.get(each, (0, 0))
            self._refusals[each] = count, proposal.number
        if len(proposal.joined) != 1:
            return None
        (alone,) = proposal.joined
        count, number = self._refusals[alone]
        self._refusals[alone] = count + 1, number
        return alone if count + 1 >= _REFUSALS_MAX else None

    def lost(self, number: int, *, now_ms: int) -> None:
        """Record that no answer will come: it may or may not have taken effect.

        It stays waited for until `confirm` with a newer set ends the doubt, or `refuse` for every
        attempt once it is certain that none can take effect any more. `review` asks for such a set.
        """
        if number in self._unanswered:
            self._unanswered[number].is_lost = True
            self._not_before_ms = now_ms + _RETRY_MS

    def acked(self, replica: Replica) -> bool:
        """Take an acknowledgement into account; return whether `review` may find something now."""
        if replica.broker_id not in self.members:
            return True
        # What it once vouched for stands until it holds that much again.
        vouched = self._vouched.get(replica.broker_id, -1)
        if replica.ack_offset >= vouched:
            self._vouched[replica.broker_id] = replica.ack_offset
            return not self.is_settled
        return True

    def admit(self, broker_ids: Collection[int]) -> None:
        """Let these replicas join, and no others, before `review`; who is a member stays."""
        self._admitted = frozenset(broker_ids)

    def connected(self, broker_id: int) -> None:
        """Take a connection into account before `review`."""
        self._lost_link.discard(broker_id)

    def disconnected(self, broker_id: int) -> None:
        """Take the loss of a connection into account before `review`."""
        self._refusals.pop(broker_id, None)
        if broker_id in self.waited:
            self._lost_link.add(broker_id)
        if broker_id in self._candidates:
            self._candidates -= {broker_id}
            self._settle()

    def review(self, *, confirm_offset: int, now_ms: int) -> Proposal | None:
        """Return the change to propose now, None when the set is right or an answer is due."""
        for each in self._unanswered.values():
            if now_ms - each.sent_ms >= self._answer_ms_max:
                each.is_lost = True

        self_id = self._replicas.self_id
        wanted = {each for each in self.members if each == self_id or self._stays(each, now_ms)}

        candidates = set()
        for replica in self._replicas:
            if replica.broker_id in self.members or not self._is_eligible(replica):
                continue
            if replica.ack_offset >= confirm_offset:
                wanted.add(replica.broker_id)
            elif self._nearly(replica, now_ms):
                candidates.add(replica.broker_id)

        if candidates != self._candidates:
            # Confirming stops until they have reached the confirm offset, or they never would
            # under a load that does not pause.
            self._candidates = frozenset(candidates)
            self._settle()

        if any(not each.is_lost for each in self._unanswered.values()):
            return None
        if self._not_before_ms is not None and now_ms < self._not_before_ms:
            return None

        wanted = self._without_refused(wanted)
        if wanted != self.members:
            proposal = self._propose(frozenset(wanted), now_ms)
            if proposal is not None:
                return proposal

        lost = [each.proposal.members for each in self._unanswered.values()]
        if not lost:
            return None
        harmless = (each for each in lost if each <= self.members)
        return self._propose(next(harmless, self.members), now_ms)

    def _without_refused(self, wanted: set[int]) -> set[int]:
        """Returns *wanted* with one replica at most that was refused before: another one must not
        be kept out of the set, or in it, by a replica that the controller never takes."""
        joining = wanted - self.members
        refused = joining & self._refusals.keys()
        if not refused:
            return wanted
        if not wanted >= self.members:
            return wanted - refused
        first = min(joining, key=lambda each: (self._refusals.get(each, (0, 0))[1], each))
        return (wanted - joining) | {first}

    @property
    def is_settled(self) -> bool:
        """Whether no proposal is open and no replica is about to join."""
        return not self._unanswered and not self._candidates

    @property
    def possible(self) -> frozenset[int]:
        """Who may be in the controller's set at this moment, and be elected."""
        return self.members.union(*(each.members for each in self.proposals))

    @property
    def without_reports(self) -> frozenset[int]:
        """Possible members of RocketMQ that are connected: they report no changes of topics."""
        found = {each: self._replicas.get(each) for each in self.possible}
        return frozenset(
            each for each, replica in found.items() if replica and not replica.names_epochs
        )

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """The proposals without an answer, in the order they were first made."""
        return tuple(each.proposal for each in self._unanswered.values())

    def _stays(self, broker_id: int, now_ms: int) -> bool:
        replica = self._replicas.get(broker_id)
        since = self._grace_since_ms.get(broker_id, now_ms)
        if replica is None:
            # One that never came is given the time of one that lags.
            return broker_id not in self._lost_link and now_ms - since <= self._lag_ms_max
        if replica.is_learner:
            return False
        if 0 <= replica.ack_offset < self._vouched.get(broker_id, -1):
            return False
        since = max(since, replica.connected_ms, replica.caught_up_ms or 0)
        return now_ms - since <= self._lag_ms_max

    def _is_eligible(self, replica: Replica) -> bool:
        floor = max(self._epoch_start_offset, self._vouched.get(replica.broker_id, -1), 0)
        if replica.is_learner or replica.ack_offset < floor:
            return False
        is_awaited = self._waits_for_admission and replica.names_epochs
        if is_awaited and replica.broker_id not in self._admitted:
            return False
        return replica.has_stored(self._epoch) or not replica.names_epochs

    def _nearly(self, replica: Replica, now_ms: int) -> bool:
        caught_up_ms = replica.caught_up_ms
        return caught_up_ms is not None and now_ms - caught_up_ms <= _CANDIDATE_LAG_MS_MAX

    def _propose(self, members: frozenset[int], now_ms: int) -> Proposal | None:
        for each in self._unanswered.values():
            if each.proposal.members == members:
                each.sent_ms, each.is_lost = now_ms, False
                each.attempts += 1
                return each.proposal

        if len(self._unanswered) >= _UNANSWERED_MAX and members != self.members:
            return None

        self._numbers += 1
        proposal = Proposal(
            self._numbers,
            members,
            self.set_epoch,
            joined=members - self.members,
            left=self.members - members,
        )

        self._unanswered[proposal.number] = _Unanswered(proposal, now_ms)
        self._settle()
        return proposal

    def _take(self, members: Collection[int], set_epoch: int, now_ms: int) -> None:
        before = self.members
        self.members = frozenset(members)
        self.set_epoch = set_epoch
        self._unanswered.clear()
        self._not_before_ms = None
        self._candidates -= self.members
        for broker_id in self.members:
            self._refusals.pop(broker_id, None)
            if broker_id not in before or broker_id not in self._grace_since_ms:
                self._grace_since_ms[broker_id] = now_ms
        for broker_id in before - self.members:
            self._grace_since_ms.pop(broker_id, None)
        self._settle()

    def _settle(self) -> None:
        waited, counted = self.members, self.members
        for each in self._unanswered.values():
            waited |= each.proposal.members
            counted &= each.proposal.members
        self.waited = waited | self._candidates
        self.counted = counted
        self._lost_link &= self.waited

    def _check(self, members: Collection[int]) -> None:
        if self._replicas.self_id not in members:
            raise ArgumentError(
                f"sync-state set {_text(members)} lacks its master {self._replicas.self_id}; "
                "give the set of this master, or end its role"
            )
        if min(members) < 0:
            raise ArgumentError(
                f"sync-state set {_text(members)} names a broker id below 0; leave it out"
            )


def _text(members: Collection[int]) -> str:
    return "{" + ", ".join(map(str, sorted(members))) + "}"
