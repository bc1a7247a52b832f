"""Epochs: which master wrote which stretch of the commit log.

The file `epochFileCheckpoint` under the root of a store, of RocketMQ's EpochFileCache, is text:

    2               number of entries
    946436882       CRC-32 of the lines below, line ends included, without its sign bit; 0: none
    1-100           epoch, physical offset at which it begins; both ascending
    2-300

An epoch ends where the next one begins, the last one where the log does. Ends are worked out from
the starts each time they are asked for, so a cut list can never keep one from before the cut. Two
epochs may begin at one offset: the earlier of them wrote nothing that lasted.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Protocol

from rmqstore.errors import ArgumentError, CorruptionError, Fenced

__all__ = [
    "EPOCH_FILE_CURE",
    "EpochEntry",
    "EpochFiles",
    "EpochList",
    "clash_of",
    "common_end",
    "common_points",
    "epoch_at",
    "format_epochs",
    "parse_epochs",
]

_CRC_MASK = 0x7FFFFFFF
EPOCH_FILE_CURE = "; bring the file back from a copy"
"""Ends the message of every error about an epoch file."""

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class EpochEntry:
    """The epoch of a master and the physical offset of the first byte it wrote."""

    epoch: int
    start_offset: int


class EpochFiles(Protocol):
    """The two files of an epoch list, as the caller keeps them.

    *name* is "" for `epochFileCheckpoint` itself and ".bak" for its copy.
    """

    def read(self, name: str) -> str | None:
        """Return the text of a file, None where there is none."""

    def replace(self, name: str, text: str) -> None:
        """Put *text* in the place of a file: wholly or not at all, and durable on return."""

    def remove(self, name: str) -> None:
        """Remove a file if it is there; durable on return."""


@dataclass(frozen=True, slots=True)
class EpochList:
    """The epochs of one log in ascending order. Every operation returns another list."""

    entries: tuple[EpochEntry, ...] = ()

    def __post_init__(self) -> None:
        fault = _fault(self.entries)
        if fault:
            raise ArgumentError(f"epoch list: {fault}; epochs ascend, and so do their offsets")

    @property
    def last(self) -> EpochEntry | None:
        """The epoch that is being written, None for an empty list."""
        return self.entries[-1] if self.entries else None

    def append(self, entry: EpochEntry) -> EpochList:
        """Return the list with a later epoch, which may begin where the last one did.

        RocketMQ refuses an equal start and goes on under the old epoch; the log of a master that
        wrote there is then taken for the same (docs/defects.md, H1). Both are kept here: the
        earlier one ends where it begins. Raises ArgumentError for an epoch or an offset before the
        last entry's.
        """
        return EpochList((*self.entries, entry))

    def begin(self, epoch: int, *, log_end: int) -> EpochList:
        """Return the list of a log whose owner becomes master of *epoch*.

        Taking office twice in one epoch changes nothing. Raises Fenced for an epoch that is over.
        """
        if self.last is not None and self.last.epoch >= epoch:
            if self.last.epoch > epoch:
                raise Fenced(
                    f"epoch {epoch} is over: the log has entries of epoch {self.last.epoch}; "
                    "become master in a later one",
                    epoch=self.last.epoch,
                )
            return self
        return self.append(EpochEntry(epoch, log_end))

    def restored(self, *, log_end: int) -> EpochList:
        """Return the list without epochs that begin after the end of the log.

        They are left when the power goes between the list and the bytes it speaks of, or between
        a cut of the log and that of the list. RocketMQ keeps them and acknowledges bytes that it
        lacks (docs/defects.md, H2).
        """
        return EpochList(tuple(each for each in self.entries if each.start_offset <= log_end))

    def truncate_to(self, offset: int) -> EpochList:
        """Return the list of a log that was cut at *offset*: no epoch begins there or later."""
        return EpochList(tuple(each for each in self.entries if each.start_offset < offset))

    def trim_before(self, offset: int) -> EpochList:
        """Return the list of a log whose files before *offset* were deleted.

        An epoch that ends exactly at *offset* stays: a slave may end there. So does the last one.
        """
        keep = [
            entry
            for entry, after in pairwise((*self.entries, None))
            if entry is not None and (after is None or after.start_offset >= offset)
        ]
        return EpochList(tuple(keep))

    @classmethod
    def load(cls, files: EpochFiles) -> EpochList:
        """Return the list that *files* hold, an empty one where there are none.

        A file that is damaged gives way to its copy. Raises CorruptionError when neither can be
        read: to go on without epochs would be to trust a log that may have forked.
        """
        damage: CorruptionError | None = None
        for name in ("", ".bak"):
            text = files.read(name)
            if text is None:
                continue
            try:
                return cls(parse_epochs(text))
            except CorruptionError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        return cls()

    @classmethod
    def recover(cls, files: EpochFiles, *, log_start: int, log_end: int) -> EpochList:
        """Return the list that *files* hold, limited to the log from *log_start* to *log_end*.

        Afterwards both files hold the returned list.

        A crash during `save` leaves the previous copy, as RocketMQ always does. Entries past the
        log's end would be valid again once the log is long enough. Raises as `load`.
        """
        loaded = cls.load(files)
        kept = loaded.restored(log_end=log_end).trim_before(log_start)
        copy = format_epochs(kept.entries) if kept.entries else None
        if kept != loaded or files.read(".bak") != copy:
            kept.save(files)
        return kept

    def save(self, files: EpochFiles) -> None:
        """Write both files, durably; where the list is empty, remove them.

        RocketMQ does not write an empty list, so that removed epochs return (docs/defects.md,
        H4), and overwrites in place (H12). The copy is not the previous list: falling back to
        that would lay the last epoch's bytes to the one before it. It goes first where both go,
        or a death in between would bring it back.
        """
        if not self.entries:
            files.remove(".bak")
            files.remove("")
            return
        text = format_epochs(self.entries)
        files.replace("", text)
        files.replace(".bak", text)


def parse_epochs(text: str) -> tuple[EpochEntry, ...]:
    """Return the entries of an epoch file.

    Raises CorruptionError when count, CRC, form or order is wrong. RocketMQ turns to the file's
    copy with the suffix `.bak` then.
    """
    lines = text.splitlines()
    if len(lines) < 2 or not (lines[0].isdecimal() and lines[1].isdecimal()):
        raise _corrupt(f"its first lines are {lines[:2]!r} instead of a count and a CRC")
    entries = [_entry(line) for line in lines[2:]]
    if int(lines[0]) != len(entries):
        raise _corrupt(f"there are {len(entries)} entries, the first line says {lines[0]}")
    if int(lines[1]) not in (0, _crc(entries)):
        raise _corrupt(
            f"the CRC of the entries is {_crc(entries)}, the second line says {lines[1]}"
        )
    fault = _order_fault(entries)
    if fault:
        raise _corrupt(fault)
    return tuple(entries)


def format_epochs(entries: Sequence[EpochEntry]) -> str:
    """Return the text of an epoch file.

    Raises ArgumentError for entries that it cannot hold: none, negative ones, or out of order.
    """
    fault = _fault(entries) if entries else "there are none"
    if fault:
        raise ArgumentError(
            f"an epoch file cannot hold these entries: {fault}; it holds one or more, in order"
        )
    return f"{len(entries)}\n{_crc(entries)}\n{_lines(entries)}"


def epoch_at(entries: Sequence[EpochEntry], physical_offset: int) -> EpochEntry | None:
    """Return the epoch in which the byte at *physical_offset* was or will be written, None for one
    before all epochs. *entries* are in their order."""
    later = bisect_right(entries, physical_offset, key=attrgetter("start_offset"))
    return entries[later - 1] if later else None


def common_end(
    ours: Sequence[EpochEntry], theirs: Sequence[EpochEntry], *, our_end: int, their_end: int
) -> int:
    """Return the physical offset up to which two logs are the same, as far as epochs show.

    *our_end* and *their_end* are the ends of the two logs. -1: they have no epoch in common.
    """
    return next(common_points(ours, theirs, our_end=our_end, their_end=their_end), -1)


def common_points(
    ours: Sequence[EpochEntry], theirs: Sequence[EpochEntry], *, our_end: int, their_end: int
) -> Iterator[int]:
    """Yield, from the last common epoch down, the physical offset where the two logs part if all
    later epochs are different ones."""
    ends = _ends(theirs, their_end)
    for entry, end in reversed(_ends(ours, our_end).items()):
        if entry in ends:
            yield min(end, ends[entry])


def clash_of(
    ours: Sequence[EpochEntry], theirs: Sequence[EpochEntry]
) -> tuple[EpochEntry, EpochEntry] | None:
    """Return the latest epoch that two lists have with different starts, ours first; None for none
    after the last epoch that they share.

    One number was given to two masters then. RocketMQ makes the same of one: a broker that restarts
    as master in the epoch in which it was master moves the start to the end of its log.
    """
    starts = {each.epoch: each for each in theirs}
    for entry in reversed(ours):
        other = starts.get(entry.epoch)
        if other is not None:
            return None if other == entry else (entry, other)
    return None


def _ends(entries: Sequence[EpochEntry], log_end: int) -> dict[EpochEntry, int]:
    if not entries:
        return {}
    # An epoch that begins after the end of the log has written nothing yet.
    last = max(log_end, entries[-1].start_offset)
    ends = [*(each.start_offset for each in entries[1:]), last]
    return dict(zip(entries, ends, strict=True))


def _entry(line: str) -> EpochEntry:
    match = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,19})", line)
    if not match or int(match[1]) > _INT32_MAX or int(match[2]) > _INT64_MAX:
        raise _corrupt(f"the line {line!r} is not EPOCH-OFFSET")
    return EpochEntry(int(match[1]), int(match[2]))


def _fault(entries: Sequence[EpochEntry]) -> str | None:
    for each in entries:
        if not (0 <= each.epoch <= _INT32_MAX and 0 <= each.start_offset <= _INT64_MAX):
            return (
                f"epoch {each.epoch} at {each.start_offset} is out of bounds: an epoch goes up to "
                f"{_INT32_MAX}, an offset to {_INT64_MAX}"
            )
    return _order_fault(entries)


def _order_fault(entries: Sequence[EpochEntry]) -> str | None:
    for before, after in pairwise(entries):
        if before.epoch >= after.epoch or before.start_offset > after.start_offset:
            return (
                f"epoch {after.epoch} at {after.start_offset} follows epoch {before.epoch} at "
                + (f"{before.start_offset}")
            )
    return None


def _lines(entries: Iterable[EpochEntry]) -> str:
    return "".join(f"{each.epoch}-{each.start_offset}\n" for each in entries)


def _crc(entries: Iterable[EpochEntry]) -> int:
    return zlib.crc32(_lines(entries).encode()) & _CRC_MASK


def _corrupt(what: str) -> CorruptionError:
    return CorruptionError(
        f"epoch file: {what}{EPOCH_FILE_CURE}",
        kind="epoch file",
        suggested_command="rmqstore epoch PATH",
    )
