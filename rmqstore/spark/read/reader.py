"""A partition's bytes turned into batches; no Spark needed, and the same code for every file.

Files are read in windows and handed to the core, which finds the records, filters them and fills
columns. Memory is a window, a batch and, where only some records are wanted, eight bytes for each
of these.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from rmqstore._native import core
from rmqstore.errors import CorruptionError, NotFoundError
from rmqstore.spark import files, texts
from rmqstore.spark.options import Options
from rmqstore.spark.read import sizes
from rmqstore.spark.read.queue_ranges import choice
from rmqstore.spark.read.ranges import Partition, Split
from rmqstore.spark.read.record_offsets import RecordOffsets
from rmqstore.spark.read.shape import Damage, Shape
from rmqstore.spark.schema import native_names

__all__ = ["Window", "batches", "scan_of"]

_ERROR_ROWS = 4096

_log = logging.getLogger("rmqstore.spark")


def batches(
    partition: Partition,
    options: Options,
    columns: Sequence[str],
    schema: pa.Schema,
    *,
    at: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of *partition* in batches of *schema*, whose names are *columns*.

    A batch has about `options.batch_bytes` of text and bodies; a single message may have more.
    For bytes that are not a record, and for bodies that cannot be decompressed,
    `options.on_corrupt` selects: CorruptionError naming file and offset, left out, or a row of
    their own. A missing file raises NotFoundError or, with `fail_on_data_loss` off, is left out.
    One warning to the log "rmqstore.spark" counts everything that is left out.

    *at* are physical offsets of records, ascending; of the partition only these are read.
    """
    losses = _Losses(options)
    shape = Shape(native_names(columns, options), schema, options)

    for split in partition.splits:
        try:
            if at is not None:
                offsets: RecordOffsets | None = RecordOffsets.within(split, at)
            else:
                offsets = None if split.units is None else RecordOffsets.of_queues(split)
            if offsets is None or len(offsets):
                yield from _rows(split, offsets, options, shape, losses)
        except NotFoundError as error:
            losses.add_gone(split, error)
        if len(losses.untold) >= _ERROR_ROWS:
            yield shape.error_rows(losses.taken())

    if losses.untold:
        yield shape.error_rows(losses.taken())
    losses.warn()


def _rows(
    split: Split, offsets: RecordOffsets | None, options: Options, shape: Shape, losses: _Losses
) -> Iterator[pa.RecordBatch]:
    path = split.file.path
    wanted = choice(options)
    with files.open_file(path) as file:
        window = Window(file, split, offsets)
        with closing(scan_of(split, options, shape.selection())) as scan:
            if offsets is not None:
                scan.visit(offsets.offsets)
            while True:
                state = scan.fill()
                if state == "full":
                    yield from shape.rows(scan.take(), path, losses.add)
                elif state == "topic":
                    scan.choose(scan.topic, wanted(scan.topic))
                elif state == "more" and window.feed(scan):
                    pass
                elif state == "over" and scan.ending != "unwritten":
                    break
                elif not _pass_damage(scan, window, losses):
                    break
            filled = scan.take()
            if filled is not None:
                yield from shape.rows(filled, path, losses.add)


def scan_of(
    split: Split,
    options: Options,
    selection: core.ArrowSelection | None,
    *,
    check_crc: bool | None = None,
    unwrap: bool = True,
) -> core.SegmentScan:
    """Return a scan of *split*; a `Window` feeds it, `partitions.choice` answers about topics.

    *check_crc* is that of the options unless given.
    """
    return core.SegmentScan(
        selection,
        start=split.start,
        stop=split.stop,
        file_end=split.reach,
        check_crc=options.check_crc if check_crc is None else check_crc,
        unwrap=unwrap,
        dispatched_only=options.by_topic,
        begin_ms=options.begin_ms,
        end_ms=options.end_ms,
        tags=options.tags,
        by_topic=options.by_topic,
    )


def _pass_damage(scan: core.SegmentScan, window: Window, losses: _Losses) -> bool:
    """Return whether the scan can continue after the damage at which it stopped."""
    start = scan.offset
    error = window.error(scan)
    if losses.fails:
        raise error
    state = "over" if window.is_cut else scan.resync()
    while state == "more":
        state = scan.resync() if window.feed(scan) else "over"
    size = window.damaged_bytes(start, scan.offset if state == "found" else window.stop)
    losses.add(Damage(error.path, start, size, error))
    return state == "found"


class Window:
    """The bytes of one file as a scan needs them, read ahead and, where possible, into one buffer.

    The buffer is filled again while the scan still holds it; the new content begins with the bytes
    of the old one that the scan needs.
    """

    def __init__(
        self, file: files.RangeFile, split: Split, offsets: RecordOffsets | None = None
    ) -> None:
        self.stop = split.stop
        self.is_cut = False
        """Whether the file ended before a record that should be in it."""
        self._file = file
        self._path = split.file.path
        self._store = split.store or "PATH"
        self._start = split.file.start
        self._reach = split.reach
        self._offsets = offsets
        self._buffer = bytearray()

    def feed(self, scan: core.SegmentScan) -> bool:
        """Feed what the scan needs and what it will need soon; False when the file is too short."""
        at = scan.offset
        needed = min(scan.needed, self._reach - at)
        size = self._read_size(at, needed)
        data: bytes | memoryview
        if self._file.is_local:
            if len(self._buffer) < size:
                self._buffer = bytearray(size)
            view = memoryview(self._buffer)
            data = view[: self._file.read_into(at - self._start, view[:size])]
        else:
            data = self._file.read(at - self._start, size)
        self.is_cut = needed <= 0 or len(data) < needed
        if not self.is_cut:
            scan.feed(data, at)
        return not self.is_cut

    def error(self, scan: core.SegmentScan) -> CorruptionError:
        """Return what is wrong where the scan stopped, with the file's name and the cures."""
        at = scan.offset
        if self.is_cut:
            what = texts.CUT.format(offset=at)
        elif scan.error is not None:
            what = str(scan.error)
        else:
            what = texts.UNWRITTEN.format(offset=at)
        return CorruptionError(
            texts.DAMAGE.format(path=self._path, what=what, byte=at - self._start),
            path=self._path,
            physical_offset=at,
            kind="commit log",
            suggested_command=f"rmqstore verify {self._store}",
        )

    def damaged_bytes(self, start: int, end: int) -> int:
        """Return the size of damage after which reading continues at *end*.

        The size of a record that a unit points at is that of the unit; later bytes are not read.
        """
        if self._offsets is not None:
            return self._offsets.size_at(start)
        return max(end - start, 0)

    def _read_size(self, at: int, needed: int) -> int:
        size = sizes.LOCAL_WINDOW_BYTES if self._file.is_local else sizes.REMOTE_WINDOW_BYTES
        if self._offsets is None:
            end = self.stop
        else:
            end = self._offsets.last_before_gap(at) + sizes.RECORD_BYTES
        return min(max(min(size, end - at), needed), self._reach - at)


class _Losses:
    """What a read left out, by the rules of its options."""

    def __init__(self, options: Options) -> None:
        self.fails = options.on_corrupt == "fail"
        self.untold: list[Damage] = []
        """Damage for which no row was made yet."""
        self._makes_rows = options.on_corrupt == "row"
        self._fails_on_loss = options.fail_on_data_loss
        self._first: Damage | None = None
        self._count = 0
        self._bytes = 0
        self._gone: list[str] = []

    def add(self, damage: Damage) -> None:
        """Count a place that holds no message; raises its error where damage is to fail."""
        if self.fails:
            raise damage.error
        self._first = self._first or damage
        self._count += 1
        self._bytes += damage.size
        if self._makes_rows:
            self.untold.append(damage)

    def add_gone(self, split: Split, error: Exception) -> None:
        """Count a split whose file, or a queue's, was deleted since the read was planned.

        Raises NotFoundError where this host has no file of the log, which is no deletion.
        """
        folder = files.Folder(files.parent_of(split.file.path))
        if not folder.has_files():
            host = socket.gethostname()
            raise NotFoundError(texts.HIDDEN.format(folder=folder.path, host=host)) from error
        if self._fails_on_loss:
            raise NotFoundError(
                texts.GONE.format(
                    path=split.file.path,
                    error=error,
                    size=split.stop - split.start,
                    start=split.start,
                )
            ) from error
        self._gone.append(f"{split.file.path} [{split.start}, {split.stop})")

    def taken(self) -> list[Damage]:
        """Return the damage without a row, as reported from here on."""
        taken, self.untold = self.untold, []
        return taken

    def warn(self) -> None:
        """Log what was left out, in all."""
        if self._first is not None:
            text = texts.LEFT_OUT.format(
                count=self._count, size=self._bytes, error=self._first.error
            )
            _log.warning("%s", text)
        if self._gone:
            _log.warning("%s", texts.LOST.format(places=", ".join(self._gone)))
