"""Bytes that replicas no longer hold, or hold with a flipped bit: the exact possible losses.

A replica that lost acknowledged bytes with its power, its disk or a flipped bit is not trusted
until it holds everything that the present master holds. Until then the elector does not count it,
like an operator who noticed the restart of a machine. All other guarantees remain.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from rmqstore.sim.disk import ModelLog, Rot

__all__ = ["Losses"]


class Losses:
    """Follows the bytes that left the logs of one world."""

    def __init__(self) -> None:
        self.distrusted: set[int] = set()
        """Replicas that may lack what they acknowledged."""
        self.rots: list[Rot] = []
        """Records that differ on a disk from the written bytes."""
        self.is_unnoticed = False
        """Whether such a record was considered sound, because no CRC covers the bit."""
        self._removed: dict[int, list[tuple[int, bytes]]] = defaultdict(list)

    def remove(self, number: int, start: int, data: bytes) -> None:
        """Record that a replica no longer holds *data* from *start* on."""
        if data:
            self._removed[number].append((start, data))

    def rot(self, rot: Rot) -> None:
        """Record a flipped bit."""
        for each in self.rots:
            if (each.start, each.after) == (rot.start, rot.before):
                rot = replace(rot, before=each.before)
        self.rots.append(rot)

    def had(self, number: int, start: int, data: bytes) -> bool:
        """Return whether a replica once held *data* at *start*, and no longer does."""
        end = start + len(data)
        return any(
            at <= start and end <= at + len(removed) and removed[start - at : end - at] == data
            for at, removed in self._removed.get(number, ())
        )

    def read(self, log: ModelLog, start: int, size: int) -> bytes:
        """Return bytes of whole records of *log* as they were written."""
        data = log.read(start, size)
        for each in self.rots:
            at = each.start - start
            if at >= 0 and data[at : at + len(each.after)] == each.after:
                data = data[:at] + each.before + data[at + len(each.after) :]
        return data
