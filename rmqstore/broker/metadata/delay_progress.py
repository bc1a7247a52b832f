"""How far the delivery of delayed and timer messages has come, as a master knows it and its slaves
take it.

A message that counts as delivered is not delivered again. So a slave takes the progress of its
master only once its own log holds the deliveries that count, durably: as a master it would
otherwise skip messages that were not delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rmqstore.store.metadata import DataVersion, DelayOffsets, TimerProgress

__all__ = ["DelayProgress"]

_KNOWN_MAX = 64
"""Tables that a slave keeps until its log has reached them."""


class DelayProgress:
    """The progress that counts, and on a slave what its master sent besides.

    *flushed_offset* returns the end of the part of the own log that is on the disk.
    """

    def __init__(self, table: DelayOffsets, flushed_offset: Callable[[], int]) -> None:
        self._flushed_offset = flushed_offset
        self._known = [table]
        """The table that counts, and later ones of the master, whose deliveries the log lacks."""

    @property
    def latest(self) -> DelayOffsets:
        """The newest table, whose deliveries the log of a slave may lack."""
        return self._known[-1]

    def table(self) -> DelayOffsets:
        """Return the newest table whose deliveries are all in the own log."""
        flushed = self._flushed_offset()
        held = [at for at, each in enumerate(self._known) if (each.proven_at or 0) <= flushed]
        if held:
            del self._known[: held[-1]]
        return self._known[0]

    def lead(self) -> None:
        """Forget what the former master sent, and the log does not show."""
        self._known = [self.table()]

    def step(self, offsets: Mapping[int, int], log_offset: int, version: DataVersion) -> None:
        """Take the next offsets of some levels, as a master."""
        known = self.latest
        self._known = [
            replace(
                known,
                offsets={**known.offsets, **offsets},
                log_offset=log_offset,
                data_version=version,
            )
        ]

    def step_timer(self, timer: TimerProgress, version: DataVersion) -> None:
        """Take the next progress of timer messages, as a master."""
        self._known = [replace(self.latest, timer=timer, data_version=version)]

    def take_whole(self, table: DelayOffsets) -> None:
        """Take the whole table of a master, another one than before perhaps."""
        self._known = [self.table(), table] if table.proven_at is not None else [table]

    def take(
        self,
        offsets: Mapping[int, int | None],
        log_offset: int | None,
        timer: TimerProgress | None = None,
    ) -> None:
        """Take changed offsets of the same master, None for a level that is removed, and the
        changed progress of timer messages."""
        known = self.latest
        merged = {**known.offsets, **offsets}
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

    def take_version(self, version: DataVersion) -> None:
        """Have the newest table in a version of the master."""
        self._known[-1] = replace(self._known[-1], data_version=version)
