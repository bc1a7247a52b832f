"""The invariants of a replica group. The checker observes every event and reports violations.

The truth is the confirmed log: all messages that readers of any replica have seen. It normally only
grows, so the invariants are checked at every event and not only at the end:

- A confirmed byte is equal on all replicas. It stays on each member of the sync-state set, because
  any member may be elected.
- A put that waited for all members is confirmed when it is acknowledged, so it is never lost. A put
  that waited for a number of copies has these copies on members. It is lost only if an elected
  replica is not the best of enough compared replicas (`promises`).
- The truth contains each put once, the offsets of each queue without a gap, in the order of the
  log, under the epoch of the master that wrote them.
- The confirm offset of a replica decreases only with a cut, and no cut removes confirmed bytes.
- An epoch has one master; epochs ascend. With leases no former master acknowledges a put after an
  election.
- A replica relies only on state on its disk: it saves its epoch before it becomes master, an order
  before it follows the master, and an epoch before it names the epoch in an acknowledgement. The
  log of a replica counts as a copy once the replica has stored the epoch of the master.

Invariants are relaxed only if the product guarantees less (docs/durability.md). With
acknowledgements from memory, a power loss removes acknowledged messages, as a flipped bit on a disk
or an old copy of a directory does: such a replica need not hold the truth until it has caught up
(`losses`). Under controllers an elected replica holds the truth and all acknowledged puts all the
same, at its election and when it takes the role, unless the election named a risk; only such an
election removes from the truth the messages that the elected replica lacks. One exception: messages
that were read, not acknowledged, while the set had fewer members than puts wait for copies, and
that these members lost. An operator compares no replica that lost messages, and elects the best of
the others.

If masters do not wait for the confirm offset, or the protocol does not carry it, there is no truth;
then acknowledged puts are followed through all elections.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rmqstore.message import Durability, PutStatus
from rmqstore.replication.protocol.frames import Ack
from rmqstore.sim.disk import ModelLog, Rot
from rmqstore.sim.promises import Promise, standing
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.truth import Truth, Violation
from rmqstore.sim.view import View
from rmqstore.sim.witness import Put

__all__ = ["Checker", "Violation"]


class Checker(Truth):
    """Follows all replicas of one world."""

    def __init__(
        self, replicas: dict[int, Replica], shape: Shape, view: Callable[[], View]
    ) -> None:
        super().__init__(replicas, shape, view)
        self._masters: dict[int, int] = {}

        self._epoch = 0
        self._trusted: frozenset[int] = frozenset()
        """Replicas that were compared in the last election and had lost nothing."""
        self._was_excused = False
        """Whether the last election may have lost messages. If its epoch never begins, the election
        before it decides who is elected next, and knows other messages."""
        self._is_voided = False
        """Whether the epoch of that election is known to have never begun."""

        self._is_strict = shape.has_set
        """Whether elections alone must protect messages from replicas that lost some: an elected
        replica holds all messages unless the election named a risk."""
        self._has_twins = False
        """Whether an operator promoted two replicas under one epoch."""
        self.has_lost = False
        """Whether an election removed messages from the truth."""

        self.acknowledged = 0

    # ---- events of replicas

    def born(self, replica: Replica) -> None:
        """Record that a replica starts, with the state on its disk."""
        self._visible[replica.number] = replica.visible_end
        if not self.is_void:
            self._same(replica, replica.log.start_offset, replica.visible_end)

    def confirmed_at(self, replica: Replica) -> None:
        """Check the messages that readers of *replica* see since the last call."""
        before = self._visible[replica.number]
        visible = replica.visible_end
        if visible == before:
            return
        if visible < before:
            raise Violation(
                f"replica {replica.number}: readers saw the log up to {before}, then to {visible}, "
                "without a cut"
            )
        self._visible[replica.number] = visible
        if self.is_void or not self._shape.is_confirming:
            return
        self._same(replica, max(before, replica.log.start_offset), visible)
        if max(len(self._truth), replica.log.start_offset) < visible and not self._may_be_astray(
            replica
        ):
            self._extend(replica, visible)

    def cut(self, replica: Replica, offset: int) -> None:
        """Check a cut before it is made."""
        log, before = replica.log, self._visible[replica.number]
        self._visible[replica.number] = min(before, offset)

        if log.end_offset <= offset:
            return
        if offset < min(before, log.promised_offset) and replica.number not in self._rotten:
            raise Violation(
                f"replica {replica.number} cuts its log at {offset}; a master confirmed "
                f"{log.promised_offset} to it, and its readers saw {before}"
            )

        self._no_twins(replica, offset)
        first, end = max(offset, log.start_offset), self._held_end(replica)
        if first < end:
            data = self._losses.read(log, first, end - first)
            self._losses.remove(replica.number, first, data)

        if self.is_void or offset >= len(self._truth):
            return

        if self._losses.is_unnoticed:
            # An undetected flipped bit looks like a fork in a comparison.
            self._losses.distrusted.add(replica.number)
        elif self._is_member(replica) and replica.number not in self._losses.distrusted:
            raise Violation(
                f"replica {replica.number}, a member of the set, cuts its log at {offset}; up to "
                f"{len(self._truth)} it is confirmed"
            )

    def _no_twins(self, replica: Replica, offset: int) -> None:
        """Check that a slave does not cut its log for a master that has one of its epochs with
        another start."""
        master = self._replicas.get(replica.master)
        if master is None or master is replica:
            return
        first = max(replica.log.start_offset, master.log.start_offset)
        theirs = {each.epoch: each.start_offset for each in master.log.epochs}
        for each in replica.log.epochs:
            start = theirs.get(each.epoch, each.start_offset)
            if start != each.start_offset and min(start, each.start_offset) > first:
                raise Violation(
                    f"replica {replica.number} cuts its log at {offset} to follow {master.number}; "
                    f"epoch {each.epoch} begins at {each.start_offset} here and at {start} there"
                )

    def erred(self) -> None:
        """Record that two replicas are masters of one epoch by an operator's mistake."""
        self._has_twins = self.is_void = True

    def reigns(self, replica: Replica) -> None:
        """Check a replica that becomes master."""
        epoch = replica.epoch
        former = self._masters.setdefault(epoch, replica.number)
        if former != replica.number and not self._has_twins:
            raise Violation(f"epoch {epoch} has the masters {former} and {replica.number}")
        last = replica.log.epochs[-1]
        if last.epoch != epoch:
            raise Violation(f"master {replica.number} of epoch {epoch} has {last} as its last")
        if replica.log.epoch_state.master_epoch != epoch:
            raise Violation(
                f"replica {replica.number} reigns in epoch {epoch}; that it is master of it is not "
                f"saved: {replica.log.epoch_state}"
            )
        view = self._view()
        if epoch == view.epoch:
            self.labels(replica)
            if self._is_strict and not self.is_void:
                self._holds_promises(replica, view)

    def obeyed(self, replica: Replica, epoch: int) -> None:
        """Check a replica that has completed an order of *epoch*."""
        state = replica.log.epoch_state
        is_shared = state.has_replicas or replica.slave_node is None
        if state.latest(replica.log.epochs) < epoch or not is_shared:
            raise Violation(
                f"replica {replica.number} was ordered to {replica.master} in epoch {epoch}; that "
                f"is not saved: {state}"
            )
        end = self._late.pop(replica.number, None)
        if end is not None and replica.log.whole_end > end:
            self._lead_astray(replica, end)

    def says(self, replica: Replica, ack: Ack) -> None:
        """Check an acknowledgement that a slave is about to send."""
        epochs = replica.log.epochs
        if ack.epoch is not None and ack.epoch not in (-1, *(each.epoch for each in epochs)):
            raise Violation(
                f"replica {replica.number} acknowledges {ack.offset} and epoch {ack.epoch}, which "
                f"it has not stored: {epochs}"
            )

    def decided(self, view: View) -> None:
        """Check a decision of the controllers or the operator."""
        learners = [each for each in sorted(view.members) if self._replicas[each].is_learner]
        if learners:
            raise Violation(f"learner {learners[0]} is a member of the set")

        self._is_voided |= view.voids_last
        is_election = view.epoch != self._epoch and view.master != 0
        self._epoch = view.epoch
        former, self._members = self._members, view.members
        self._promises.let_in(view.members)
        if self.is_void:
            return

        if is_election and view.asked and not self._shape.has_set:
            self._compared(view)
        if is_election:
            is_excused = self._is_excused(view, former)
            if is_excused or (self._is_voided and self._was_excused):
                self._forget(self._replicas[view.master], is_risky=view.is_risky)
            self._was_excused, self._is_voided = is_excused, False
        self._held_by(view.members if self._shape.has_set else (view.master,), 0)
        if view.master and not is_election and self._shape.options.checks:
            self._joined(view, view.members - former)

        if is_election:
            self._trusted = view.asked - self._losses.distrusted
            chosen = self._replicas[view.master]
            # Another process than the elected one refuses the role.
            if not self._is_strict or (chosen.is_up and chosen.reported_life == view.master_life):
                self._holds_promises(chosen, view)
                self._shows_again(chosen)

    def _shows_again(self, chosen: Replica) -> None:
        """Record messages that readers of an elected replica see. A risky election had removed
        them, and its epoch never began."""
        visible, start = chosen.visible_end, chosen.log.start_offset
        is_certain = self._is_strict and self._shape.is_confirming
        is_certain = is_certain and not self._may_be_astray(chosen)
        if is_certain and start <= len(self._truth) < visible and chosen.number not in self._rotten:
            self._extend(chosen, visible)

    def _holds_promises(self, chosen: Replica, view: View) -> None:
        """Check that an elected replica holds all acknowledged messages, unless the election named
        a risk."""
        if self._is_strict and not view.is_risky:
            self._holds_truth(chosen)
        broken = self._promises.elected(
            chosen.number,
            asked=view.asked,
            is_safe=self._shape.has_set,
            is_strict=self._is_strict,
        )
        if broken is not None:
            holders = [n for n, each in self._replicas.items() if self._has(each, broken)]
            raise Violation(
                f"put {broken.number} was acknowledged with {broken.copies} copies; "
                f"{chosen.number} is elected and lacks it; it is in the logs of {holders}"
            )

    def _lacks_thin_end(self, view: View) -> bool:
        """Return whether only messages are missing in the log of an elected replica that were
        confirmed, and not acknowledged, by fewer members than puts wait for, and that these members
        lost."""
        end, thin = len(self._truth), self._thin_from
        if thin is None or self._held_end(self._replicas[view.master]) < thin:
            return False
        voters = [each for each in self._replicas.values() if not each.is_learner]
        return not any(self._held_end(each) >= end for each in voters)

    def _has(self, replica: Replica, promise: Promise) -> bool:
        log = replica.log
        return log.start_offset <= promise.start and promise.is_in(log, self._losses)

    def _holds_truth(self, chosen: Replica) -> None:
        """Check a replica that was elected without a named risk: whatever it lost before, it holds
        all confirmed messages."""
        end, number = len(self._truth), chosen.number
        held = min(self._held_end(chosen), chosen.log.whole_end)
        if number not in self._rotten and (held < end or not self._is_prefix(chosen, end)):
            holders = [
                n
                for n, each in self._replicas.items()
                if self._held_end(each) >= end and self._is_prefix(each, end)
            ]
            raise Violation(
                f"{number} is elected without a named risk and holds {held} of {end} confirmed "
                f"bytes; the logs of {holders} have them"
            )
        self._bridge(chosen.log)
        self._trust(number)

    def _compared(self, view: View) -> None:
        """Check that a master that an operator has chosen is the best of enough replicas."""
        if len(view.asked) < self._shape.asked_min:
            raise Violation(
                f"{view.master} is elected after {sorted(view.asked)} were asked; "
                f"{self._shape.asked_min} are needed"
            )
        trusted = (view.asked - self._losses.distrusted) | {view.master}
        ranks = {each: standing(self._replicas[each]) for each in sorted(trusted)}
        if ranks[view.master] < max(ranks.values()):
            raise Violation(
                f"{view.master} is elected, which has not the best log of those asked; their last "
                f"epochs and ends are {ranks}"
            )
        for number in sorted(view.asked - {view.master}):
            if self._replicas[number].takes_puts:
                raise Violation(
                    f"{view.master} is elected, while {number}, which was asked, takes puts in "
                    f"epoch {self._replicas[number].epoch}"
                )

    def _joined(self, view: View, joined: Collection[int]) -> None:
        """Check replicas that the present master admitted to the set, except those that have lost
        something since it proposed them."""
        for number in sorted(set(joined) - self._losses.distrusted):
            if not self._has_stored(self._replicas[number], view.epoch):
                raise Violation(
                    f"{number} joins the set in epoch {view.epoch}, which it has not stored: "
                    f"{self._replicas[number].log.epochs}"
                )

    def _is_excused(self, view: View, former: Collection[int]) -> bool:
        """Return whether too many replicas had lost something at the election, so that the master
        may lack confirmed messages."""
        lost = self._losses.distrusted
        if self._is_strict:
            return view.is_risky or self._lacks_thin_end(view)
        if self._shape.has_set:
            if view.is_risky or view.master in lost:
                return True
            trusted = view.asked - lost
            is_enough = len(trusted) >= view.asked_min and not trusted.isdisjoint(former)
            return view.asked_min > 0 and not is_enough
        if not view.asked:
            return view.master in lost
        return len(view.asked - lost) < view.asked_min

    def _forget(self, chosen: Replica, *, is_risky: bool) -> None:
        """Remove from the truth the messages that an elected master lacks, if the compared replicas
        lost them, or if an operator ignored replicas that have them and may still show them to
        readers."""
        self._trust(chosen.number)
        end = min(len(self._truth), chosen.log.whole_below(self._held_end(chosen)))
        end = next((at for at in self._ends_down(end) if self._is_prefix(chosen, at)), 0)
        is_less = end < len(self._truth)
        self.has_lost |= is_less or not self._shape.is_confirming
        del self._truth[end:]
        while self._records and self._records[-1].physical_offset >= end:
            record = self._records.pop()
            self._seen.discard(record.number)
            self._queue_offsets[record.queue] = record.queue_offset
        self._bridge(chosen.log)
        if chosen.log.start_offset > 0:
            # The truth before that may be of a log that the elected replica never had.
            self._gaps = [(0, chosen.log.start_offset)]
        self._promises.give_up(chosen)
        for number, each in self._replicas.items():
            if each is not chosen and (is_risky or each.log.whole_end > end):
                self._lead_astray(each, end)
            elif each is not chosen and is_less:
                self._late[number] = min(end, self._late.get(number, end))

    def lost_power(self, replica: Replica, *, tail_start: int, tail: bytes) -> None:
        """Record a loss of power, after the disk lost its bytes. *tail*, which began at
        *tail_start*, was only in memory. Messages acknowledged from memory may be lost."""
        log = replica.log
        if log.whole_end < tail_start + len(tail):
            first = max(log.whole_end, tail_start)
            if not self._shape.is_durable:
                self._losses.remove(replica.number, first, tail[first - tail_start :])
                self._losses.distrusted.add(replica.number)
        self.died(replica)

    def put_back(self, replica: Replica, former: ModelLog) -> None:
        """Record that an earlier copy has replaced the directory of a replica, whose log was
        *former*."""
        log = replica.log
        same = start = max(log.start_offset, former.start_offset)
        end = min(log.end_offset, former.end_offset)
        for border in (*former.borders(start, end), end):
            if start > end or former.read(start, border - start) != log.read(start, border - start):
                break
            same = border
        same = min(same, former.end_offset)
        data = self._losses.read(former, same, former.end_offset - same)
        self._losses.remove(replica.number, same, data)
        # The copy may have messages that an election has removed since.
        self._lead_astray(replica, same)

    def rotted(self, replica: Replica, rot: Rot) -> None:
        """Record a flipped bit on a replica's disk."""
        self._losses.rot(rot)
        self._rotten.add(replica.number)

    def started(self, replica: Replica) -> None:
        """Record that a replica found its log sound when it started."""
        if replica.number in self._rotten:
            self._rotten.discard(replica.number)
            self._losses.is_unnoticed = True

    def emptied(self, replica: Replica) -> None:
        """Record that an operator is about to give a replica an empty disk."""
        log = replica.log
        self._rotten.discard(replica.number)
        self._visible[replica.number] = 0
        data = self._losses.read(log, log.start_offset, log.end_offset - log.start_offset)
        self._losses.remove(replica.number, log.start_offset, data)
        self._losses.distrusted.add(replica.number)

    @property
    def distrusted(self) -> frozenset[int]:
        """Replicas that may lack what they acknowledged."""
        return frozenset(self._losses.distrusted)

    def look_again(self) -> None:
        """Trust replicas again that hold everything that the present master holds."""
        view = self._view()
        master = self._replicas.get(view.master)
        if master is None or master.number in self._losses.distrusted or not self._reigns(master):
            return
        if not master.is_up or master.master_node is None:
            return

        ours = master.log
        for number in sorted(self._losses.distrusted):
            theirs = self._replicas[number].log
            start = max(ours.start_offset, theirs.start_offset)
            size = ours.whole_end - start
            if self._held_end(self._replicas[number]) < ours.whole_end:
                continue
            if theirs.epochs[-1:] == ours.epochs[-1:] and (
                ours.read(start, size) == theirs.read(start, size)
            ):
                self._losses.distrusted.discard(number)
                self._astray.pop(number, None)

    def died(self, replica: Replica) -> None:
        """Check the content of a replica's disk after its process ended."""
        if not self.is_void and self._is_member(replica):
            self._held_by([replica.number], 0)

    def answered(self, replica: Replica, put: Put, copies: int) -> None:
        """Check the answer to a put."""
        if put.status is not PutStatus.PUT_OK:
            return

        self.acknowledged += 1
        record, view = put.record, self._view()
        assert record is not None

        if replica.shape.lease_ms and not self._reigns(replica):
            raise Violation(
                f"put {put.number} of epoch {record.epoch} is acknowledged by {replica.number}; "
                f"{view.master} was elected in epoch {view.epoch}"
            )

        if put.durability is Durability.MEMORY or self.is_void:
            return

        end = record.physical_offset + record.size
        if replica.log.whole_end < end:
            raise Violation(f"put {put.number} is acknowledged and not in the log")
        is_flushed = replica.log.flushed_offset >= end
        if not is_flushed and (self._shape.is_durable or put.durability is Durability.DISK):
            raise Violation(f"put {put.number} is acknowledged and not on the disk")

        if put.durability is Durability.REPLICATED:
            self._replicated(replica, put, record.physical_offset, end, copies)

    def _replicated(self, replica: Replica, put: Put, start: int, end: int, copies: int) -> None:
        quorum, reigns = replica.shape.quorum, self._reigns(replica)
        if not reigns and self._astray.get(replica.number, end) < end:
            # Without a lease: an operator elected another replica in spite of this log.
            return
        is_of_all = self._shape.has_set and quorum.all_ack
        if is_of_all and self._shape.is_confirming and len(self._truth) < end:
            raise Violation(
                f"put {put.number} is acknowledged by all; confirmed is only {len(self._truth)}"
            )

        if replica.log.start_offset > start:
            # Everything was confirmed and then deleted by retention.
            return

        voters = [each.number for each in self._replicas.values() if not each.is_learner]
        members = self._view().members if reigns and self._shape.has_set else voters
        needed = put.copies or replica.shape.needed
        data = self._losses.read(replica.log, start, end - start)
        promise = Promise(put.number, start, data, needed, set(members), is_of_all)

        holders = {each for each in members if self._counts(promise, self._replicas[each], replica)}
        has_all = not (is_of_all and reigns) or holders.issuperset(members)
        if len(holders) < needed or copies < needed or not has_all:
            raise Violation(
                f"put {put.number} needs {needed} copies; it was reported to have {copies}, and "
                f"there are those of {sorted(holders)}"
            )

        if len(self._truth) >= end and self._shape.is_confirming:
            return

        if reigns:
            self._promises.add(promise)
        else:
            self._outlived(promise)

    def _counts(self, promise: Promise, replica: Replica, master: Replica) -> bool:
        """Return whether a replica holds, or held at its acknowledgement, the bytes of *promise*
        in the log of *master*."""
        if self._losses.had(replica.number, promise.start, promise.data):
            return True
        log = replica.log
        if replica.number in self._rotten:
            # The records end at the bit that turned, after this one was acknowledged.
            begin, size = promise.start, len(promise.data)
            is_there = log.start_offset <= begin and begin + size <= log.end_offset
            is_held = is_there and self._losses.read(log, begin, size) == promise.data
        else:
            is_held = self._held_end(replica) >= promise.end and promise.is_in(log, self._losses)
        return is_held and self._has_stored(replica, master.epoch)

    def _outlived(self, promise: Promise) -> None:
        """Check a put that a master acknowledged after another master was elected."""
        view = self._view()
        elected = self._replicas.get(view.master)
        if elected is None:
            # The election found no replica fit to be master.
            if promise.is_of_all:
                self._promises.add(promise)
            return
        if not (elected.is_up and elected.master_node is not None and self._reigns(elected)):
            return
        is_bound = promise.is_of_all or promise.binds(self._trusted)
        if is_bound and not promise.is_in(elected.log, self._losses):
            raise Violation(
                f"put {promise.number} is acknowledged by a former master with {promise.copies} "
                f"copies; {view.master}, elected since, lacks it"
            )
        if view.asked or promise.is_of_all:
            self._promises.add(promise)

    # ---- at the end

    @property
    def has_excuse(self) -> bool:
        """Whether replicas may halt although they hold confirmed, or apparently confirmed,
        bytes."""
        return self.is_void or self.has_lost or self._losses.is_unnoticed

    def settled(self, master: Replica, others: Iterable[Replica]) -> str:
        """Return the reason why the group has not converged with *master*, "" if it has."""
        ours = master.log
        if master.visible_end != ours.end_offset:
            return f"the master has confirmed {master.visible_end} of {ours.end_offset}"
        for each in others:
            theirs = each.log
            if theirs.end_offset != ours.end_offset or each.visible_end != ours.end_offset:
                return f"replica {each.number} is behind"
            start = max(ours.start_offset, theirs.start_offset)
            size = ours.end_offset - start
            if self._losses.read(ours, start, size) != self._losses.read(theirs, start, size):
                return f"replica {each.number} differs"
        return ""

    def has_parted(self, replica: Replica, master: Replica) -> bool:
        """Return whether a replica holds no confirmed record, or complete records that differ from
        the confirmed records or, if these are not known, from the records of *master*."""
        log = replica.log
        if self._shape.protocol == "classic" and log.end_offset > master.log.end_offset:
            return True
        if self.has_excuse or not (self._shape.has_set and self._shape.is_confirming):
            start = max(log.start_offset, master.log.start_offset)
            size = min(log.whole_end, master.log.whole_end) - start
            return size <= 0 or log.read(start, size) != master.log.read(start, size)
        end = min(log.whole_end, len(self._truth))
        return end <= log.start_offset or not self._is_same(replica, log.start_offset, end)

    def unanswered(self, puts: Iterable[Put]) -> str:
        """Return a put of *puts* that a master stored and never answered, "" for none."""
        for put in puts:
            if put.status is None and put.record is not None:
                if put.life == self._replicas[put.master].life:
                    return f"put {put.number} was stored and is not answered"
        return ""
