"""What must hold whatever happens. It sees everything, at every moment, and says what does not.

`truth` is the log as it was confirmed: all messages that readers of any replica have seen. It only
ever grows, so these hold at once and not only at the end:

- A confirmed byte is the same on all replicas, and on each member of the sync-state set it is there
  to stay: any of them may be elected.
- A put that waited for all members is confirmed when it is acknowledged, so it is never lost. One
  that waited for a number of copies has them, on members, and is lost only where a replica is
  elected that is not the best of enough of them (`promises`).
- Numbers of puts are in the truth once, each queue's offsets without a gap, in the order of the
  log, under the epoch of the master that wrote them.
- The confirm offset of a replica goes back only with a cut, and no cut takes confirmed bytes.
- One master in an epoch; epochs ascend. With leases nobody acknowledges a put once another is
  elected.

A bar is lowered where the product promises less (docs/durability.md): with acknowledgements from
memory a power loss may take what was confirmed, and a disk that rots may take what one replica
alone has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rmqstore.message import Durability, PutStatus
from rmqstore.replication.epoch import epoch_at
from rmqstore.sim.controller import View
from rmqstore.sim.promises import Promise, Promises
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.witness import Put

__all__ = ["Checker", "Violation"]


class Violation(AssertionError):
    """Something that must hold does not."""


class Checker:
    """Follows all replicas of one world."""

    def __init__(
        self, replicas: dict[int, Replica], shape: Shape, view: Callable[[], View]
    ) -> None:
        self._replicas = replicas
        self._shape = shape
        self._view = view
        self._truth = bytearray()
        self._visible: dict[int, int] = {}
        self._masters: dict[int, int] = {}
        self._seen: set[int] = set()
        self._queue_offsets: dict[int, int] = {}
        self._records: list[tuple[int, int]] = []
        self._rotten: set[int] = set()
        self._lost: set[int] = set()
        """Replicas that do not hold any more, perhaps, what they acknowledged."""
        self._promises = Promises(replicas)
        self._epoch = 0
        self._has_twins = False
        """Whether an operator promoted two replicas under one epoch."""
        self.is_void = False
        """Whether a loss that nobody promised to survive has happened."""
        self.acknowledged = 0
        self.confirmed = 0

    # ---- what replicas do

    def born(self, replica: Replica) -> None:
        """Take note that a replica begins a life, with what its disk kept."""
        self._visible[replica.number] = replica.visible_end
        if not self.is_void:
            self._same(replica, replica.log.start_offset, replica.visible_end)

    def confirmed_at(self, replica: Replica) -> None:
        """Look at what readers of *replica* see since its last word."""
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
        if self.is_void:
            return
        self._same(replica, max(before, replica.log.start_offset), visible)
        if visible > len(self._truth):
            self._extend(replica, visible)

    def cut(self, replica: Replica, offset: int) -> None:
        """Look at a cut that is about to be made."""
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
        if self.is_void:
            return
        if offset < len(self._truth) and self._is_member(replica):
            raise Violation(
                f"replica {replica.number}, a member of the set, cuts its log at {offset}; up to "
                f"{len(self._truth)} it is confirmed"
            )

    def _no_twins(self, replica: Replica, offset: int) -> None:
        """Look whether a slave cuts its log for a master with one of its epochs at another
        start."""
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
        """Take note that two replicas are masters of one epoch by an operator's mistake."""
        self._has_twins = self.is_void = True

    def reigns(self, replica: Replica) -> None:
        """Look at a replica that takes office."""
        epoch = replica.epoch
        former = self._masters.setdefault(epoch, replica.number)
        if former != replica.number and not self._has_twins:
            raise Violation(f"epoch {epoch} has the masters {former} and {replica.number}")
        last = replica.log.epochs[-1]
        if last.epoch != epoch:
            raise Violation(f"master {replica.number} of epoch {epoch} has {last} as its last")
        if epoch == self._view().epoch:
            self.labels(replica)

    def decided(self, view: View) -> None:
        """Look at a decision of the controller."""
        learners = [each for each in sorted(view.members) if self._replicas[each].is_learner]
        if learners:
            raise Violation(f"learner {learners[0]} is a member of the set")
        is_election, self._epoch = view.epoch != self._epoch, view.epoch
        self._promises.let_in(view.members)
        if self.is_void:
            return
        has_set = self._shape.has_set
        self._held_by(view.members if has_set else (view.master,), 0)
        if is_election:
            broken = self._promises.elected(
                view.master, lost=self._lost, asked=None if has_set else view.asked
            )
            if broken is not None:
                raise Violation(
                    f"put {broken.number} was acknowledged with {broken.copies} copies; "
                    f"{view.master} is the best of enough replicas and lacks it"
                )

    def lost_power(self, replica: Replica, *, held: int) -> None:
        """Take note of a loss of power, after the disk lost what it did; *held* is where the log
        ended. What was acknowledged from memory is given up, and may already be under way."""
        if not self._shape.is_durable and replica.log.whole_end < held and not replica.is_learner:
            self.is_void = True
        self.died(replica)

    def rotted(self, replica: Replica) -> None:
        """Take note that what a replica's disk holds is of no use any more."""
        self._rotten.add(replica.number)
        self._lost.add(replica.number)

    def is_rotten(self, replica: Replica) -> bool:
        """Tell whether a bit of a replica's disk has turned, and nobody has replaced the disk."""
        return replica.number in self._rotten

    def emptied(self, replica: Replica) -> None:
        """Take note that an operator gave a replica an empty disk."""
        self._rotten.discard(replica.number)
        self._visible[replica.number] = 0
        self._lost.add(replica.number)

    def died(self, replica: Replica) -> None:
        """Look at what a replica's disk holds after its process ended."""
        if not self.is_void and self._is_member(replica):
            self._held_by([replica.number], 0)

    def answered(self, replica: Replica, put: Put, copies: int) -> None:
        """Look at the answer to a put."""
        if put.status is not PutStatus.PUT_OK:
            return
        self.acknowledged += 1
        record, view = put.record, self._view()
        assert record is not None
        if self._shape.lease_ms and not self._reigns(replica):
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
        quorum, members = self._shape.quorum, self._electorate()
        if quorum.all_ack and len(self._truth) < end:
            raise Violation(
                f"put {put.number} is acknowledged by all; confirmed is only {len(self._truth)}"
            )
        if replica.log.start_offset > start or (self._shape.has_set and not self._reigns(replica)):
            # Who held it may follow another master by now, or have deleted it by its age.
            return
        needed = put.copies or (quorum.min_in_sync if quorum.all_ack else quorum.in_sync)
        data = replica.log.read(start, end - start)
        promise = Promise(put.number, start, data, needed, set(members))
        holders = {
            each
            for each in members
            if self._held_end(self._replicas[each]) >= end
            and promise.is_in(self._replicas[each].log)
        }
        is_held = len(holders | self._lost) >= needed or not self._reigns(replica)
        if not is_held or copies < needed:
            raise Violation(
                f"put {put.number} needs {needed} copies; it was told that there are {copies}, and "
                f"there are those of {sorted(holders)}"
            )
        if len(self._truth) < end:
            self._promises.add(promise)

    # ---- at the end

    def settled(self, master: Replica, others: Iterable[Replica]) -> str:
        """Return what keeps the group from being at one with *master*, "" for nothing."""
        ours = master.log
        if master.visible_end != ours.end_offset:
            return f"the master has confirmed {master.visible_end} of {ours.end_offset}"
        for each in others:
            theirs = each.log
            if theirs.end_offset != ours.end_offset or each.visible_end != ours.end_offset:
                return f"replica {each.number} is behind"
            start = max(ours.start_offset, theirs.start_offset)
            size = ours.end_offset - start
            if ours.read(start, size) != theirs.read(start, size):
                return f"replica {each.number} differs"
        return ""

    def has_parted(self, replica: Replica, master: Replica) -> bool:
        """Tell whether a replica holds whole records that are not those that were confirmed or,
        without a set and after a loss that nobody promised to survive, not those of *master*."""
        log = replica.log
        if self.is_void or not self._shape.has_set:
            start = max(log.start_offset, master.log.start_offset)
            size = min(log.whole_end, master.log.whole_end) - start
            return size <= 0 or log.read(start, size) != master.log.read(start, size)
        end = min(log.whole_end, len(self._truth))
        return log.start_offset < end and not self._is_same(replica, log.start_offset, end)

    def unanswered(self, puts: Iterable[Put]) -> str:
        """Return which of *puts* a master stored and never spoke of, "" for none."""
        for put in puts:
            if put.status is None and put.record is not None:
                if put.life == self._replicas[put.master].life:
                    return f"put {put.number} was stored and is not answered"
        return ""

    def labels(self, replica: Replica) -> None:
        """Look whether the epochs of *replica* say who wrote what is confirmed."""
        log = replica.log
        if self.is_void:
            return
        for offset, epoch in self._records:
            if log.start_offset <= offset < log.whole_end:
                entry = epoch_at(log.epochs, offset)
                if entry is None or entry.epoch != epoch:
                    raise Violation(
                        f"replica {replica.number} lays byte {offset}, which was written in epoch "
                        f"{epoch}, to {entry}"
                    )

    # ---- the truth

    def _extend(self, replica: Replica, end: int) -> None:
        log, begin = replica.log, len(self._truth)
        if begin < log.start_offset:
            raise Violation(
                f"replica {replica.number} confirms bytes from {log.start_offset} on; nobody has "
                f"confirmed those before, from {begin} on"
            )
        self._truth += log.read(begin, end - begin)
        for record in log.records(begin, end):
            if record.number in self._seen:
                raise Violation(f"put {record.number} is in the log twice")
            expected = self._queue_offsets.get(record.queue, 0)
            if record.queue_offset != expected:
                raise Violation(
                    f"queue {record.queue}: {record.queue_offset} where {expected} comes next, at "
                    f"{record.physical_offset}"
                )
            self._seen.add(record.number)
            self._queue_offsets[record.queue] = expected + 1
            self._records.append((record.physical_offset, record.epoch))
            self.confirmed += 1
        broken = self._promises.confirmed(self._truth)
        if broken is not None:
            raise Violation(f"put {broken.number} was acknowledged; another is in its place")
        self._held_by(self._view().members, begin)

    def _held_by(self, members: Iterable[int], begin: int) -> None:
        """Look whether *members* hold the truth from *begin* on."""
        end = len(self._truth)
        for number in sorted(members):
            replica = self._replicas[number]
            if number in self._rotten:
                continue
            if self._held_end(replica) < end:
                raise Violation(
                    f"{number} is a member of the set and holds {self._held_end(replica)} of {end} "
                    "confirmed bytes"
                )
            self._same(replica, max(begin, replica.log.start_offset), end)

    def _same(self, replica: Replica, begin: int, end: int) -> None:
        end = min(end, len(self._truth))
        if begin < end and not self._is_same(replica, begin, end):
            raise Violation(
                f"replica {replica.number} differs from what was confirmed, between {begin} and "
                f"{end}"
            )

    def _is_same(self, replica: Replica, begin: int, end: int) -> bool:
        return replica.log.read(begin, end - begin) == self._truth[begin:end]

    def _held_end(self, replica: Replica) -> int:
        """Return the end of what a replica holds as acknowledgements mean it."""
        log = replica.log
        return min(log.whole_end, log.flushed_offset) if self._shape.is_durable else log.whole_end

    def _reigns(self, replica: Replica) -> bool:
        view = self._view()
        return (view.master, view.epoch) == (replica.number, replica.epoch)

    def _electorate(self) -> Collection[int]:
        """Return whom an election may choose."""
        if self._shape.has_set:
            return self._view().members
        return [each.number for each in self._replicas.values() if not each.is_learner]

    def _is_member(self, replica: Replica) -> bool:
        return replica.number in self._view().members
