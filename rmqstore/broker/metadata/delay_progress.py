"""How far the delivery of delayed and timer messages has come, as a master knows it and its slaves
take it.

A message that counts as delivered is not delivered again. So a slave takes the progress of its
master only once its own log holds the deliveries that count, durably: as a master it would
otherwise skip messages that were not delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.folder import FolderLike
from rmqstore.store.metadata import DataVersion, DelayOffsets, TimerProgress

__all__ = ["DELAYS_PER_VERSION", "DelayProgress"]

DELAYS_PER_VERSION = 200
"""Steps of delayed delivery from one version of their offsets to the next."""

_LOG_OFFSET, _TIMER = "log", "timer"
"""Keys of the place in the log and of the progress of timer messages, beside those of levels."""
_KNOWN_MAX = 64
"""Tables that a slave keeps until its log has reached them."""


class DelayProgress(SharedTable):
    """delayOffset.json: the progress that counts, and on a slave what its master sent besides.

    *flushed_offset* returns the end of the part of the own log that is on the disk.
    """

    name = "delay"
    kinds = ("delay",)
    is_urgent = False
    version_name = "delays"
    file_type = DelayOffsets
    code = RequestCode.GET_ALL_DELAY_OFFSET
    may_lack = True

    def __init__(self, flushed_offset: Callable[[], int]) -> None:
        self._flushed_offset = flushed_offset
        self._steps = 0
        self._known = [DelayOffsets()]
        """The table that counts, and later ones of the master, whose deliveries the log lacks."""

    @property
    def latest(self) -> DelayOffsets:
        """The newest table, whose deliveries the log of a slave may lack."""
        return self._known[-1]

    def load(self, root: FolderLike) -> None:
        self._known = [DelayOffsets.load(root)]

    def whole(self) -> DelayOffsets:
        return self.latest

    def saved(self) -> DelayOffsets:
        """Return the newest table whose deliveries are all in the own log."""
        flushed = self._flushed_offset()
        held = [at for at, each in enumerate(self._known) if (each.proven_at or 0) <= flushed]
        if held:
            del self._known[: held[-1]]
        return self._known[0]

    def lead(self) -> None:
        # What the former master sent, and the log does not show, does not count.
        self._known = [self.saved()]

    def step(self, offsets: Mapping[int, int], log_offset: int) -> None:
        """Set the next offsets to deliver of delay levels, as a master. The deliveries of messages
        before them lie before *log_offset* in the commit log, those of all others at or after
        it."""
        known = self.latest
        steps = sum(max(offset - known.offsets.get(each, 0), 0) for each, offset in offsets.items())
        self._known = [
            replace(
                known,
                offsets={**known.offsets, **offsets},
                log_offset=log_offset,
                data_version=self._version_after(steps),
            )
        ]
        for level in offsets:
            self._log.note(self.name, str(level))
        self._log.note(self.name, _LOG_OFFSET)

    def step_timer(self, timer: TimerProgress) -> None:
        """Set the progress of timer messages, whose deliveries are safe, as a master."""
        self._known = [replace(self.latest, timer=timer, data_version=self._version_after(1))]
        self._log.note(self.name, _TIMER)

    def _version_after(self, steps: int) -> DataVersion:
        self._steps += steps
        if self._steps < DELAYS_PER_VERSION:
            return self.version
        self._steps = 0
        return self._versions.after(self.version)

    def take_whole(self, table: DelayOffsets) -> None:
        # The master may be another one than before.
        self._known = [self.saved(), table] if table.proven_at is not None else [table]

    @property
    def version(self) -> DataVersion:
        return self.latest.data_version

    def take_version(self, version: DataVersion) -> None:
        self._known[-1] = replace(self.latest, data_version=version)

    def value_of(self, entry: Entry) -> Any:
        known = self.latest
        if entry.key == _TIMER:
            return known.timer and list(known.timer)
        if entry.key == _LOG_OFFSET:
            return known.log_offset
        return known.offsets.get(int(entry.key))

    def read(self, entry: Entry, value: Any) -> Any:
        if entry.key == _TIMER:
            return None if value is None else _progress(value)
        if entry.key != _LOG_OFFSET:
            int(entry.key)
        if value is not None and type(value) is not int:
            raise ValueError(f"delay level {entry.key} has the offset {value!r}")
        return value

    def take(self, changes: Sequence[tuple[Entry, Any]]) -> None:
        known = self.latest
        values = {entry.key: value for entry, value in changes}
        log_offset, timer = values.pop(_LOG_OFFSET, None), values.pop(_TIMER, None)
        merged = {**known.offsets, **{int(level): each for level, each in values.items()}}
        self._known.append(
            replace(
                known,
                offsets={level: each for level, each in merged.items() if each is not None},
                log_offset=known.log_offset if log_offset is None else log_offset,
                timer=known.timer if timer is None else timer,
            )
        )
        if len(self._known) > _KNOWN_MAX:
            del self._known[1:-1:2]


def _progress(value: Any) -> TimerProgress:
    if not isinstance(value, list) or [type(each) for each in value] != [int] * 3:
        raise ValueError(f"the progress of timer messages is {value!r}")
    return TimerProgress(*value)
