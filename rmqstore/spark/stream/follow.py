"""A commit log looked at again and again: its ends, and where in it a limited read may stop.

What is looked up is kept between calls, so that asking again costs only what was written since.
Nothing relies on it: a new `Follower` finds the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace

import pyarrow as pa

from rmqstore._native import core
from rmqstore.errors import NotFoundError
from rmqstore.spark.files import open_file
from rmqstore.spark.options import Options
from rmqstore.spark.read.layout import Layout, LogFile
from rmqstore.spark.read.queue_ranges import choice
from rmqstore.spark.read.ranges import Split
from rmqstore.spark.read.reader import Window, scan_of

__all__ = [
    "WALK_BYTES_MAX",
    "Follower",
    "boundary_by_bytes",
    "boundary_by_rows",
    "is_boundary",
    "last_end",
    "tail_crc",
]

_TAIL_BYTES = 4096
"""Enough for the header, with its store timestamp, of a record of usual size."""
_BATCH_ROWS = 65_536

WALK_BYTES_MAX = 1 << 30
"""How far a limit of rows looks for them: the read of a rare topic ends here with fewer."""


class Follower:
    """One store, whose layout is brought up to date at little cost."""

    def __init__(self, root: str, up_to: str, log_folders: Sequence[str] = ()) -> None:
        self._root = root
        self._up_to = up_to
        self._log_folders = log_folders
        self._layout: Layout | None = None
        self._tail: int | None = None

    def layout(self) -> Layout:
        """Return the layout as it is at this moment, without queues; raises what Layout.of does.

        It is readable up to its last whole record at most: bytes after it may become one.
        """
        known, found = self._layout, None
        if known is not None:
            # Files that go while they are looked at are for Layout.of to look for again.
            with suppress(NotFoundError):
                found = self._grown(known)
        if found is None:
            # Queues lead to the end without a walk through the log.
            found = _whole(Layout.of(self._root, up_to=self._up_to, log_folders=self._log_folders))
            known = None
        if known is None or known.readable_end != found.readable_end:
            self._tail = tail_crc(found, found.readable_end)
        self._layout = found
        return found

    def _grown(self, known: Layout) -> Layout | None:
        """Return the layout with what was written since, None when what was there is not."""
        # From its readable end on, so that a mark that moves slowly is not walked to again.
        found = _whole(replace(known, end=known.readable_end).again(up_to=self._up_to))
        return found if tail_crc(found, known.readable_end) == self._tail else None


def _whole(layout: Layout) -> Layout:
    return replace(layout, queues=None, readable_end=min(layout.readable_end, layout.end))


def last_end(layout: Layout) -> int:
    """Return where the log ends, confirmed or not."""
    return max(layout.end, layout.afresh(up_to="max").end)


def tail_crc(layout: Layout, at: int) -> int | None:
    """Return the CRC-32 of the bytes of the log just before *at*: up to 4 KiB of the file that
    holds them. None when they are not there.

    The log only grows; where these bytes are others, it was cut below and written again.
    """
    file = _file_of(layout, at - 1)
    if file is None:
        return None
    start = max(file.start, at - _TAIL_BYTES)
    try:
        with open_file(file.path) as opened:
            data = opened.read(start - file.start, at - start)
    except NotFoundError:
        return None
    return zlib.crc32(data) if len(data) == at - start else None


def is_boundary(layout: Layout, at: int) -> bool:
    """Return whether a record begins at *at*, or the log ends there."""
    file = _file_of(layout, at)
    if file is None or at in (file.start, layout.end):
        return True
    walk = _Walk(replace(layout, readable_end=layout.end), file, at, at + 1)
    for _ in walk:
        pass
    return not walk.met_damage


def boundary_by_bytes(layout: Layout, start: int, stop: int, limit: int) -> int:
    """Return the last end of a record within *limit* bytes from the boundary *start* on, at most
    *stop*; that of the first record, if none is within the limit.

    A file's blank end counts for nothing.
    """
    target = start + max(limit, 1)
    if target >= stop:
        return stop
    file = _file_of(layout, target)
    if file is None:
        return stop
    begin = max(start, file.start)
    walk = _Walk(layout, file, begin, target)
    last = begin
    for offsets in walk:
        last = offsets[-1].as_py()
    if walk.end > target and not walk.met_blank and last > start:
        return last
    return min(walk.end, stop)


def boundary_by_rows(layout: Layout, start: int, stop: int, limit: int, options: Options) -> int:
    """Return the end of a record, at most *limit* messages that *options* select after the boundary
    *start*, and at most *stop*; that of the first record, if it has more messages.
    """
    wanted = max(limit, 1) + 1
    at = start

    while at < stop and at - start < WALK_BYTES_MAX:
        file = _file_of(layout, at)
        if file is None:
            # The read reports what is missing in between.
            at = min((each.start for each in layout.files if each.start > at), default=stop)
            continue

        file_stop = min(stop, start + WALK_BYTES_MAX)
        walk = _Walk(layout, file, at, file_stop, options=options, rows=min(wanted, _BATCH_ROWS))
        for offsets in walk:
            if len(offsets) >= wanted:
                boundary: int = offsets[wanted - 1].as_py()
                return boundary if boundary > start else boundary_by_bytes(layout, start, stop, 1)
            wanted -= len(offsets)
        at = walk.end

    return min(at, stop)


class _Walk:
    """Passes the records that begin in a range of a file; yields the physical offsets of those
    that are wanted, of one with several messages as often."""

    def __init__(
        self,
        layout: Layout,
        file: LogFile,
        start: int,
        stop: int,
        *,
        options: Options | None = None,
        rows: int = _BATCH_ROWS,
    ) -> None:
        file_end = min(file.start + file.size, layout.readable_end)
        self.end = file_end
        """After the walk, where the next record begins."""
        self.met_blank = False
        self.met_damage = False
        self._split = Split(
            store=layout.name,
            file=file,
            start=start,
            stop=min(stop, file_end),
            log_end=layout.readable_end,
        )
        self._options = options or Options()
        self._unwrap = options is not None
        self._rows = rows

    def __iter__(self) -> Iterator[pa.Array]:
        wanted = choice(self._options)
        selection = core.ArrowSelection(
            ("physical_offset",), batch_rows=self._rows, batch_bytes=1 << 20, large_binary=False
        )
        with (
            open_file(self._split.file.path) as file,
            closing(scan_of(self._split, self._options, selection, unwrap=self._unwrap)) as scan,
        ):
            window = Window(file, self._split)
            while True:
                state = scan.fill()
                if state == "full":
                    yield _offsets(scan)
                elif state == "topic":
                    scan.choose(scan.topic, wanted(scan.topic))
                elif state == "more" and window.feed(scan):
                    pass
                elif state == "over" and scan.ending != "unwritten":
                    self.met_blank = scan.ending == "blank"
                    if scan.ending == "stop":
                        self.end = scan.offset
                    break
                # Damage is reported by its reader.
                elif not self._pass_damage(scan, window):
                    break
            if scan.rows:
                yield _offsets(scan)

    def _pass_damage(self, scan: core.SegmentScan, window: Window) -> bool:
        """Return whether there is a record after the bad place that the walk stopped at."""
        self.met_damage = True
        start = scan.offset
        state = "over" if window.is_cut else scan.resync()
        while state == "more":
            state = scan.resync() if window.feed(scan) else "over"
        if state != "found":
            # Damage is one place, in one batch if there is something else to end a batch with.
            self.end = start if start > self._split.start else self._split.stop
        return state == "found"


def _offsets(scan: core.SegmentScan) -> pa.Array:
    return pa.record_batch(scan.take()).column(0)


def _file_of(layout: Layout, at: int) -> LogFile | None:
    """Return the file that holds the byte at *at*, None when none does."""
    return next((file for file in layout.files if file.start <= at < file.start + file.size), None)
