"""Transactions: which half messages are undecided, and what the log proves of those that are not.

A half message waits in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC until its producer commits it or rolls
it back, or until the broker, which asks the producer, gives it up. Each question puts the half
message back: a new record counts the questions, and the former one is passed.

A record of RMQ_SYS_TRANS_OP_HALF_TOPIC, a note, names half messages that are passed. Notes are
written in batches, so a crash forgets the last ones. The log proves commits nevertheless: the
record of a committed message names its half message. A note says how far notes and commits agree,
so that a new master reads the log from there on, and counts nothing that its own log does not have.

Nothing here reads a clock or the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from rmqstore.broker.half_messages import Half, Key, Progress

__all__ = ["Action", "Limits", "Transactions", "is_young"]

_DONE_MAX = 10_000
_DONE_PER_UNDECIDED = 4
"""Passed half messages after an undecided one that are kept in memory: this many, and this many for
each undecided one."""
_STALE_BYTES = 64 << 20
"""The part of the log that a new master reads at most where no transaction ended for long."""


class Action(Enum):
    """What is due for an undecided half message."""

    ASK = auto()
    GIVE_UP = auto()
    PUT_BACK = auto()
    """Without a question: its record would be deleted with the old part of the log, or holds up the
    progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings of questions."""

    timeout_ms: int
    """Age of a half message, from which on its producer is asked."""
    times_max: int
    """Questions, after which it is given up."""
    reserved_ms: int
    """The age at which files of the log are deleted."""


class Transactions:
    """The undecided half messages of a master, and the notes that it has to write.

    The half messages before *progress*, and those in *noted*, are passed.
    """

    def __init__(self, progress: Progress, noted: Iterable[int] = ()) -> None:
        self.progress = progress
        """As the last note has it."""
        self.offset = progress.half
        """Half messages before it are passed."""
        self.next = progress.half
        """The next half message to read; later ones are undecided, unless they are passed."""
        self.unnoted: list[int] = []
        """Passed half messages that no note names, in the order of their ends."""
        self._done: set[int] = {each for each in noted if each >= progress.half}
        self._undecided: dict[int, Half] = {}
        """By `Half.first`, in the order of their last records."""
        self._first_of: dict[tuple[Key, str], int] = {}
        """Of half messages that RocketMQ put back."""
        self._ahead: set[int] = set()
        """Records of undecided half messages that are known before they are read."""
        self._ends: dict[int, int] = {}
        """By `Half.first` the end of the log when its end began, while that goes on."""
        self._notes: deque[tuple[int, int]] = deque()
        """Offsets of notes, and the last half message that each names."""
        self._unsafe: deque[tuple[int, Progress]] = deque()
        """Ends of notes in the log, and their progress."""
        self._advance()

    # ---- half messages

    @property
    def count(self) -> int:
        """Undecided half messages that are read."""
        return len(self._undecided)

    def __iter__(self) -> Iterator[Half]:
        return iter(tuple(self._undecided.values()))

    def wants(self, offset: int) -> bool:
        """Return whether the half message at *offset*, from `next` on, has to be read."""
        return offset not in self._done and offset not in self._ahead

    def skip(self, offset: int) -> None:
        """Take that the half message at `next`, *offset*, has not to be read."""
        self.next = max(self.next, offset + 1)
        self._ahead.discard(offset)

    def lost(self, offset: int) -> None:
        """Take that the half message at `next`, *offset*, cannot be read."""
        self.skip(offset)
        self.passed(offset)

    def passed(self, offset: int) -> None:
        """Take that the half message at *offset* needs nothing more."""
        if offset >= self.offset and offset not in self._done:
            self._done.add(offset)
            self.unnoted.append(offset)
            self._advance()

    def begins_at(self, start: int) -> None:
        """Take that retention deleted the half messages before *start*."""
        for half in self:
            if half.offset < start:
                self._forget(half)
        self.offset = max(self.offset, start)
        self._done = {each for each in self._done if each >= self.offset}
        self._advance()

    def found(self, half: Half, noted: Container[int] = ()) -> None:
        """Take the half message at `next`, or after it in the order of the queue.

        *noted* are those that the notes of an earlier master name: RocketMQ names the first record
        of a half message that it put back.
        """
        is_wanted = half.offset >= self.next and self.wants(half.offset)
        self.skip(half.offset)
        if not is_wanted:
            return
        if half.was_put_back and half.first != half.offset and half.first in noted:
            self.passed(half.offset)
            return
        if half.was_put_back and half.first == half.offset:
            half = replace(half, first=self._first(half))
        former = self._undecided.pop(half.first, None)
        self._undecided[half.first] = half
        if half.was_put_back:
            self._first_of[half.key, half.group] = half.first
        if former is not None:
            self.passed(former.offset)

    def _first(self, half: Half) -> int:
        """Returns the first record of a half message that RocketMQ put back after a question."""
        for other in self:
            if (other.key, other.group, other.times) == (half.key, half.group, half.times - 1):
                return other.first
        return half.first

    def undecided(self, half: Half) -> Half | None:
        """Return the last record of the half message that a record belongs to, None where it is
        decided."""
        found = self._undecided.get(half.first)
        if found is None and half.first == half.offset and half.offset >= self.next:
            return half if half.offset not in self._done else None
        return found or self._undecided.get(self._first_of.get((half.key, half.group), -1))

    def put_back(
        self, half: Half, offset: int, physical_offset: int, *, times: int, stored_ms: int
    ) -> Half:
        """Take that *half* has a new record at *offset*, after *times* questions; return it so."""
        last = replace(
            half, offset=offset, physical_offset=physical_offset, times=times, stored_ms=stored_ms
        )
        self._undecided.pop(half.first, None)
        self._undecided[half.first] = last
        if offset >= self.next:
            self._ahead.add(offset)
        self.passed(half.offset)
        return last

    def asked(self, half: Half, times: int) -> Half:
        """Take that the producer of *half* was asked *times* times, and that it has no new record;
        return it so."""
        last = self._undecided[half.first] = replace(half, times=times)
        return last

    # ---- the end of a transaction

    def begin_end(self, half: Half, log_end: int) -> bool:
        """Return whether an end of *half* may begin; there is one at a time. The log ends at
        *log_end*."""
        if half.first in self._ends:
            return False
        self._ends[half.first] = log_end
        return True

    def is_ending(self, half: Half) -> bool:
        """Return whether an end of *half* goes on."""
        return half.first in self._ends

    def end(self, half: Half, *, is_decided: bool) -> None:
        """Take that the end of *half* that went on is over."""
        del self._ends[half.first]
        if is_decided:
            self._forget(half)
            self.passed(half.offset)

    def proved(self, first: int) -> None:
        """Take that the log shows the end of an undecided half message, by its `Half.first`."""
        half = self._undecided[first]
        self._forget(half)
        self.passed(half.offset)

    def _forget(self, half: Half) -> None:
        self._undecided.pop(half.first, None)
        self._ahead.discard(half.offset)
        if self._first_of.get((half.key, half.group)) == half.first:
            del self._first_of[half.key, half.group]

    def _advance(self) -> None:
        while self.offset in self._done:
            self._done.discard(self.offset)
            self.offset += 1
        self.next = max(self.next, self.offset)

    # ---- questions

    def due(self, now_ms: int, limits: Limits) -> Iterator[tuple[Half, Action]]:
        """Yield the half messages for which something is due, in the order of their records. Each
        may be ended, or put back, before the next one is taken."""
        for half in self:
            if self.is_ending(half) or self._undecided.get(half.first) is not half:
                continue
            action = _due(half, now_ms, limits)
            if action is None and self.holds_up(half, now_ms, limits):
                action = Action.PUT_BACK
            if action is not None:
                yield half, action

    def holds_up(self, half: Half, now_ms: int, limits: Limits) -> bool:
        """Return whether a half message has to be put back though its producer cannot be asked:
        its record is deleted soon with the old part of the log, or too many ones after it wait to
        be counted."""
        is_old = now_ms - half.stored_ms >= limits.reserved_ms // 2
        done_max = _DONE_MAX + _DONE_PER_UNDECIDED * len(self._undecided)
        return is_old or (half.offset == self.offset and len(self._done) > done_max)

    # ---- notes

    def is_stale(self, log_end: int) -> bool:
        """Return whether a note is due although nothing was passed: a new master would read too
        much of the log."""
        return bool(self._undecided) and log_end > self.progress.log_offset + _STALE_BYTES

    def note_offsets(self, size_max: int) -> list[int]:
        """Return the offsets that the next note names, in a body of *size_max* bytes at most."""
        found: list[int] = []
        size = 0
        for offset in self.unnoted:
            size += len(str(offset)) + 1
            if found and size > size_max:
                break
            found.append(offset)
        return found

    def body_of(self, offsets: Sequence[int]) -> bytes:
        """Return the body of the note of *offsets*. A note names something, at least a half message
        that every reader knows as passed."""
        return "".join(f"{each}," for each in offsets or [self.offset - 1]).encode()

    @property
    def unnoted_size(self) -> int:
        """Bytes that the present offsets take in notes, about."""
        return len(self.unnoted) * (len(str(self.offset)) + 1)

    def noting(self, offsets: Sequence[int], note: int, log_end: int) -> Progress:
        """Return the progress of the note of *offsets*, which is to be the note *note*, and is put
        at *log_end* of the log."""
        if len(offsets) < len(self.unnoted):
            return self.progress
        waiting = [*self._notes, (note, max(offsets, default=-1))]
        first = next((at for at, last in waiting if last >= self.offset), note + 1)
        return Progress(self.offset, first, min([log_end, *self._ends.values()]))

    def noted(self, offsets: Sequence[int], note: int, progress: Progress, end_offset: int) -> None:
        """Take that a note is in the log, and ends at *end_offset*."""
        del self.unnoted[: len(offsets)]
        self.read_note(note, offsets)
        self.progress = progress
        self._unsafe.append((end_offset, progress))

    def read_note(self, note: int, offsets: Iterable[int]) -> None:
        """Take that the note *note* names *offsets*."""
        self._notes.append((note, max(offsets, default=-1)))
        while self._notes and self._notes[0][1] < self.offset:
            self._notes.popleft()

    def settle(self, safe_offset: int) -> Progress | None:
        """Return the progress that lies before *safe_offset*, the end of what the disk and every
        member have; None without a new one."""
        found = None
        while self._unsafe and self._unsafe[0][0] <= safe_offset:
            _, found = self._unsafe.popleft()
        return found

    @property
    def is_settled(self) -> bool:
        """Whether everything that is passed is noted, and each note safe."""
        return not self.unnoted and not self._unsafe


def is_young(stored_ms: int, now_ms: int, limits: Limits) -> bool:
    """Return whether a half message is too young for a question. One from the future is not: the
    clock was set back, or that of the former master was ahead."""
    return 0 <= now_ms - stored_ms < limits.timeout_ms


def _due(half: Half, now_ms: int, limits: Limits) -> Action | None:
    is_immune = 0 <= now_ms - half.born_ms < half.immunity_ms
    if is_immune or is_young(half.stored_ms, now_ms, limits):
        return None
    return Action.GIVE_UP if half.times >= limits.times_max else Action.ASK
