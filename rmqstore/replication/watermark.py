"""The confirm offset: the end of what readers may see and no election may take away.

A master computes it from what its replicas acknowledged, a slave takes it from the master's frames.
It never goes back on its own: it does so only when the log itself was cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.errors import ArgumentError

__all__ = ["Cut", "Watermark"]


@dataclass(frozen=True, slots=True)
class Cut:
    """What a truncation did to the confirm offset."""

    confirm_offset: int
    lost_bytes: int
    """Confirmed bytes that were cut. A record's worth may be a half record that a frame left, which
    nobody could read. More, and a replica was elected that lacked what was confirmed; readers may
    have seen what is gone."""


class Watermark:
    """The confirm offset of one store through all its roles.

    *confirm_offset* is what the checkpoint says. A crash may leave it above the log, which lost its
    unflushed tail, or below its first byte: it is moved inside.
    """

    __slots__ = ("_confirm_offset",)

    def __init__(self, *, confirm_offset: int, start_offset: int, end_offset: int) -> None:
        if not 0 <= start_offset <= end_offset:
            raise ArgumentError(
                f"a log cannot begin at {start_offset} and end at {end_offset}; 0 or more, in order"
            )
        self._confirm_offset = min(max(confirm_offset, start_offset), end_offset)

    @property
    def confirm_offset(self) -> int:
        """The physical offset below which everything is confirmed."""
        return self._confirm_offset

    def follow(self, master_confirm_offset: int, *, end_offset: int) -> bool:
        """Take the confirm offset of a master's frame; return whether ours rose.

        A new master may not know yet how far its predecessor had confirmed, so a lower one than
        ours changes nothing; one above our log counts up to the log's end.
        """
        return self._raise_to(min(master_confirm_offset, end_offset))

    def lead(self, confirmed_by_all: int | None, *, end_offset: int) -> bool:
        """Take what everybody a master waits for holds; return whether the confirm offset rose.

        None: somebody it waits for has not said what it holds, so nothing can be added.
        """
        if confirmed_by_all is None:
            return False
        return self._raise_to(min(confirmed_by_all, end_offset))

    def truncated(self, end_offset: int) -> Cut:
        """Follow a log that was cut at *end_offset*."""
        lost = max(self._confirm_offset - end_offset, 0)
        self._confirm_offset -= lost
        return Cut(self._confirm_offset, lost)

    def trimmed(self, start_offset: int) -> bool:
        """Follow a log whose first byte is now at *start_offset*; return whether the confirm
        offset rose.

        Files expire only after they were confirmed, or because a slave starts anew behind them.
        """
        return self._raise_to(start_offset)

    def _raise_to(self, offset: int) -> bool:
        if offset <= self._confirm_offset:
            return False
        self._confirm_offset = offset
        return True
