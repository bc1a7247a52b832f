"""The physical offsets of the records that are wanted of a split, by queue units or from a list."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore._native import core
from rmqstore.errors import NotFoundError
from rmqstore.queue_units import UNIT_BYTES
from rmqstore.spark import files, texts
from rmqstore.spark.read import sizes
from rmqstore.spark.read.ranges import Split, UnitRange

__all__ = ["RecordOffsets"]

_READ_BYTES = 1 << 20


class RecordOffsets:
    """Physical offsets in ascending order, and how far a read from one of them should go."""

    def __init__(self, offsets: Any, split: Split) -> None:
        """*offsets* is a pyarrow array of int64, each that of a record in *split*, ascending."""
        self._split = split
        self._sizes: dict[int, int] | None = None
        steps = pc.subtract(offsets[1:], offsets[:-1])
        self._offsets = _view(offsets)
        is_local = files.is_local(split.file.path)
        gap = sizes.LOCAL_GAP_BYTES if is_local else sizes.REMOTE_GAP_BYTES
        self._gaps = _view(pc.indices_nonzero(pc.greater(steps, gap)))

    @classmethod
    def of_queues(cls, split: Split) -> RecordOffsets:
        """Return what the units of the split's queues point at.

        Raises what `files.open_file` does where one of their files is gone, NotFoundError where one
        is shorter than it was.
        """
        assert split.units is not None
        found = b"".join(part for units in split.units for part in _in_split(units, split))
        offsets = pa.Array.from_buffers(pa.int64(), len(found) // 8, [None, pa.py_buffer(found)])
        # A queue that was rebuilt in part may name a record twice.
        if not pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py():
            offsets = pc.unique(offsets.take(pc.array_sort_indices(offsets)))
        return cls(offsets, split)

    @classmethod
    def within(cls, split: Split, offsets: Sequence[int]) -> RecordOffsets:
        """Return those of *offsets*, which ascend, that are in the split."""
        first = bisect_left(offsets, split.start)
        stop = bisect_left(offsets, split.stop)
        return cls(pa.array(offsets[first:stop], pa.int64()), split)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def offsets(self) -> memoryview:
        """They, as native int64."""
        return self._offsets

    def last_before_gap(self, at: int) -> int:
        """Return the last offset from *at* on before a wide gap."""
        index = bisect_left(self._offsets, at)
        end = bisect_left(self._gaps, index)
        last = self._gaps[end] if end < len(self._gaps) else len(self._offsets) - 1
        offset: int = self._offsets[last]
        return offset

    def size_at(self, offset: int) -> int:
        """Return the size of the record at *offset* by its unit, 0 without a unit."""
        if self._sizes is None:
            ranges = self._split.units or ()
            self._sizes = {
                at: size
                for units in ranges
                for data in _bytes_of(units)
                for at, size in _unpacked(units, data)
            }
        return self._sizes.get(offset, 0)


def _in_split(units: UnitRange, split: Split) -> Iterator[bytes]:
    """Yield the offsets that units of one queue point at within the split, as native int64."""
    for data in _bytes_of(units):
        if units.unit_size == UNIT_BYTES:
            yield core.unit_positions(data, split.start, split.stop)
        else:
            offsets = [at for at, _ in _unpacked(units, data) if split.start <= at < split.stop]
            yield struct.pack(f"={len(offsets)}q", *offsets)


def _bytes_of(units: UnitRange) -> Iterator[bytes]:
    """Yield the bytes of *units*, whole units at a time."""
    at, stop = units.first * units.unit_size, units.stop * units.unit_size
    while at < stop:
        start = at - at % units.file_size
        path = files.join(units.path, f"{start:020d}")
        with files.open_file(path) as file:
            file_stop = min(stop, start + units.file_size)
            while at < file_stop:
                size = min(_READ_BYTES // units.unit_size * units.unit_size, file_stop - at)
                data = file.read(at - start, size)
                if len(data) < size:
                    raise NotFoundError(
                        texts.SHORT_UNITS.format(path=path, unit=at // units.unit_size)
                    )
                at += size
                yield data


def _unpacked(units: UnitRange, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield physical offset and size of each unit's record."""
    return struct.iter_unpack(f">qi{units.unit_size - 12}x", data)


def _view(array: Any) -> memoryview:
    """Return the values of an array of 64-bit integers, which the view keeps alive."""
    _, values = array.buffers()
    view = memoryview(values if values is not None else b"").cast("B").cast("q")
    return view[array.offset : array.offset + len(array)]
