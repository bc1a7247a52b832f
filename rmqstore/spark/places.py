"""Where the wanted records lie in a stretch of the log, told by consume queue units or a list."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore._native import core
from rmqstore.errors import NotFoundError
from rmqstore.spark import files
from rmqstore.spark.partitions import QueueRun, Span

__all__ = ["Places"]

_UNIT_BYTES = 20
_READ_BYTES = 1 << 20

_LOCAL_GAP_BYTES = 64 << 10
"""Records that begin closer to each other than this are read at once: reading what lies between
costs less than another call."""
_REMOTE_GAP_BYTES = 1 << 20


class Places:
    """Physical offsets in ascending order, and how far a read from one of them should go."""

    def __init__(self, offsets: Any, span: Span) -> None:
        """*offsets* is a pyarrow array of int64, each that of a record in *span*, ascending."""
        self._span = span
        self._sizes: dict[int, int] | None = None
        steps = pc.subtract(offsets[1:], offsets[:-1])
        self._places = _view(offsets)
        gap = _LOCAL_GAP_BYTES if files.is_local(span.file.path) else _REMOTE_GAP_BYTES
        self._run_ends = _view(pc.indices_nonzero(pc.greater(steps, gap)))

    @classmethod
    def of_queues(cls, span: Span) -> Places:
        """Return what the units of the span's queues point at.

        Raises what `files.open_file` does where one of their files is gone, NotFoundError where one
        is shorter than it was.
        """
        assert span.queues is not None
        found = b"".join(piece for run in span.queues for piece in _of_run(run, span))
        offsets = pa.Array.from_buffers(pa.int64(), len(found) // 8, [None, pa.py_buffer(found)])
        # A queue that was rebuilt in part may name a record twice.
        if not pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py():
            offsets = pc.unique(offsets.take(pc.array_sort_indices(offsets)))
        return cls(offsets, span)

    @classmethod
    def within(cls, span: Span, offsets: Sequence[int]) -> Places:
        """Return those of *offsets*, which ascend, that lie in the span."""
        first = bisect_left(offsets, span.start)
        stop = bisect_left(offsets, span.stop)
        return cls(pa.array(offsets[first:stop], pa.int64()), span)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def offsets(self) -> memoryview:
        """The places, as native int64."""
        return self._places

    def last_of_run(self, at: int) -> int:
        """Return the last place of those that begin at *at* and follow without a wide gap."""
        index = bisect_left(self._places, at)
        end = bisect_left(self._run_ends, index)
        last = self._run_ends[end] if end < len(self._run_ends) else len(self._places) - 1
        place: int = self._places[last]
        return place

    def size_at(self, place: int) -> int:
        """Return the size of the record at *place* as its unit has it, 0 where no unit tells."""
        if self._sizes is None:
            runs = self._span.queues or ()
            self._sizes = {
                offset: size
                for run in runs
                for data in _units_of(run)
                for offset, size in _unpacked(run, data)
            }
        return self._sizes.get(place, 0)


def _of_run(run: QueueRun, span: Span) -> Iterator[bytes]:
    """Yield the places of one queue within the span, as native int64, in pieces."""
    for data in _units_of(run):
        if run.unit_size == _UNIT_BYTES:
            yield core.unit_positions(data, span.start, span.stop)
        else:
            places = [at for at, _ in _unpacked(run, data) if span.start <= at < span.stop]
            yield struct.pack(f"={len(places)}q", *places)


def _units_of(run: QueueRun) -> Iterator[bytes]:
    """Yield the bytes of a run's units, whole units at a time."""
    at, stop = run.first * run.unit_size, run.stop * run.unit_size
    while at < stop:
        start = at - at % run.file_size
        path = files.join(run.path, f"{start:020d}")
        with files.open_file(path) as file:
            file_stop = min(stop, start + run.file_size)
            while at < file_stop:
                size = min(_READ_BYTES // run.unit_size * run.unit_size, file_stop - at)
                data = file.read(at - start, size)
                if len(data) < size:
                    raise NotFoundError(f"{path} ends before unit {at // run.unit_size}")
                at += size
                yield data


def _unpacked(run: QueueRun, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield physical offset and size of each unit's record."""
    return struct.iter_unpack(f">qi{run.unit_size - 12}x", data)


def _view(array: Any) -> memoryview:
    """Return the values of an array of 64-bit integers, which the view keeps alive."""
    _, values = array.buffers()
    view = memoryview(values if values is not None else b"").cast("B").cast("q")
    return view[array.offset : array.offset + len(array)]
