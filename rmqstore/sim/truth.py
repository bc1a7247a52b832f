"""The confirmed log of a world, which readers of any replica have seen, and the replicas that have
it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rmqstore.epochs import epoch_at
from rmqstore.sim.disk import ModelLog, ModelRecord, records_of
from rmqstore.sim.losses import Losses
from rmqstore.sim.promises import Promises
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.view import View

__all__ = ["Truth", "Violation"]


class Violation(AssertionError):
    """A violated invariant."""


class Truth:
    """The truth of one world; `Checker` decides when it changes and when replicas must have it."""

    def __init__(
        self, replicas: dict[int, Replica], shape: Shape, view: Callable[[], View]
    ) -> None:
        self._replicas = replicas
        self._shape = shape
        self._view = view

        self._truth = bytearray()
        self._gaps: list[tuple[int, int]] = []
        """Ranges of the truth that no replica held as a whole when it was extended over them."""
        self._visible: dict[int, int] = {}
        self._seen: set[int] = set()
        self._queue_offsets: dict[int, int] = {}
        self._records: list[ModelRecord] = []
        self._rotten: set[int] = set()

        self._astray: dict[int, int] = {}
        """Offsets from which replicas still hold bytes that were removed from the truth, until they
        have caught up."""

        self._late: dict[int, int] = {}
        """Offsets of removed bytes that may be in transit to replicas, until these have obeyed the
        next order."""

        self._losses = Losses()
        self._promises = Promises(replicas, self._losses)
        self._members: frozenset[int] = view().members
        self._thin_from: int | None = None
        """Where messages begin that were confirmed by fewer members than puts wait for copies."""
        self.is_void = False
        """Whether an operator made a mistake that the product does not survive."""
        self.confirmed = 0

    def is_confirmed(self, queue: int, queue_offset: int) -> bool:
        """Return whether readers have seen the message at an offset of a queue."""
        return queue_offset < self._queue_offsets.get(queue, 0)

    def labels(self, replica: Replica) -> None:
        """Check that the epochs of *replica* name the writers of all confirmed records."""
        log = replica.log
        if self.is_void:
            return
        for record in self._records:
            offset = record.physical_offset
            if log.start_offset <= offset < log.whole_end:
                entry = epoch_at(log.epochs, offset)
                if entry is None or entry.epoch != record.epoch:
                    raise Violation(
                        f"replica {replica.number} lays byte {offset}, which was written in epoch "
                        f"{record.epoch}, to {entry}"
                    )

    def _extend(self, replica: Replica, end: int) -> None:
        log, begin = replica.log, len(self._truth)
        if begin < log.start_offset:
            raise Violation(
                f"replica {replica.number} confirms bytes from {log.start_offset} on; none has "
                f"confirmed those before, from {begin} on"
            )

        is_thin = len(self._members) < replica.shape.quorum.in_sync
        if not is_thin or replica.shape.quorum.all_ack:
            self._thin_from = None
        elif self._thin_from is None:
            self._thin_from = begin
        self._truth += self._losses.read(log, begin, end - begin)
        for record in records_of(self._truth, log.borders(begin, end)):
            if record.number in self._seen:
                raise Violation(f"put {record.number} is in the log twice")
            expected = self._queue_offsets.get(record.queue, 0)
            if record.queue_offset != expected and not self._losses.is_unnoticed:
                raise Violation(
                    f"queue {record.queue}: {record.queue_offset} where {expected} comes next, at "
                    f"{record.physical_offset}"
                )

            self._seen.add(record.number)
            self._queue_offsets[record.queue] = record.queue_offset + 1
            self._records.append(record)
            self.confirmed += 1

        broken = self._promises.confirmed(self._truth)
        if broken is not None:
            raise Violation(f"put {broken.number} was acknowledged; another is in its place")

        self._held_by(self._view().members, begin)
        if self._reigns(replica) and replica.master_node is not None:
            self._stored_by(replica)

    def _bridge(self, log: ModelLog) -> None:
        """Extend the truth to the first byte of *log*, the log of an elected replica.

        An earlier election, with a named risk, removed messages from the truth that this replica
        held, and deleted after they were confirmed.
        """
        begin, end = len(self._truth), log.start_offset
        self._gaps = [(first, min(last, begin)) for first, last in self._gaps if first < begin]
        if begin >= end:
            return
        logs = [each.log for each in self._replicas.values()]
        holders = [each for each in logs if each.start_offset <= begin and each.whole_end >= end]
        size = end - begin
        self._truth += holders[0].read(begin, size) if holders else bytes(size)
        if not holders:
            self._gaps.append((begin, end))
        self._queue_offsets = log.queue_offsets_at(end)

    def _stored_by(self, master: Replica) -> None:
        """Check that enough replicas have stored the epoch of *master* when it confirms records."""
        members = self._view().members if self._shape.has_set else range(1, self._shape.voters + 1)
        stored = {
            each for each in members if self._has_stored(self._replicas[each], master.epoch)
        } | (self._losses.distrusted & set(members))
        needed = len(members) if self._shape.has_set else self._shape.needed
        if len(stored) < needed:
            raise Violation(
                f"master {master.number} of epoch {master.epoch} has confirmed {len(self._truth)}; "
                f"of {sorted(members)} only {sorted(stored)} have stored its epoch"
            )

    def _held_by(self, members: Iterable[int], begin: int) -> None:
        """Check that *members* hold the truth from *begin* on."""
        end = len(self._truth)
        for number in sorted(members):
            replica = self._replicas[number]
            if number in self._rotten or number in self._losses.distrusted:
                continue
            if self._held_end(replica) < end:
                raise Violation(
                    f"{number} is a member of the set and holds {self._held_end(replica)} of {end} "
                    "confirmed bytes"
                )
            self._same(replica, max(begin, replica.log.start_offset), end)

    def _same(self, replica: Replica, begin: int, end: int) -> None:
        number = replica.number
        end = min(end, len(self._truth), self._astray.get(number, end), self._late.get(number, end))
        if begin < end and not self._is_same(replica, begin, end):
            raise Violation(
                f"replica {replica.number} differs from what was confirmed, between {begin} and "
                f"{end}"
            )

    def _is_same(self, replica: Replica, begin: int, end: int) -> bool:
        held = bytearray(self._losses.read(replica.log, begin, end - begin))
        for first, last in self._gaps:
            first, last = max(first, begin), min(last, end)
            if first < last:
                held[first - begin : last - begin] = self._truth[first:last]
        return held == self._truth[begin:end]

    def _is_prefix(self, replica: Replica, end: int) -> bool:
        start = replica.log.start_offset
        return end <= start or self._is_same(replica, start, end)

    def _ends_down(self, end: int) -> Iterator[int]:
        yield end
        for record in reversed(self._records):
            if record.physical_offset <= end:
                yield record.physical_offset

    def _held_end(self, replica: Replica) -> int:
        """Return the end of the log that a replica holds, in memory or on the disk as the group's
        acknowledgements mean."""
        log = replica.log
        return min(log.whole_end, log.flushed_offset) if self._shape.is_durable else log.whole_end

    def _has_stored(self, replica: Replica, epoch: int) -> bool:
        """Return whether a replica has stored *epoch*, or had done so before it followed a later
        master."""
        log = replica.log
        if self._shape.protocol == "classic" or log.end_offset == 0:
            return True
        last = log.epochs[-1].epoch if log.epochs else -1
        return last >= epoch or log.epoch_state.known_epoch > epoch

    def _reigns(self, replica: Replica) -> bool:
        view = self._view()
        return (view.master, view.epoch) == (replica.number, replica.epoch)

    def _is_member(self, replica: Replica) -> bool:
        return replica.number in self._view().members

    def _lead_astray(self, replica: Replica, end: int) -> None:
        self._astray[replica.number] = min(end, self._astray.get(replica.number, end))
        self._losses.distrusted.add(replica.number)

    def _may_be_astray(self, replica: Replica) -> bool:
        return replica.number in self._astray or replica.number in self._late

    def _trust(self, number: int) -> None:
        self._losses.distrusted.discard(number)
        self._astray.pop(number, None)
        self._late.pop(number, None)
