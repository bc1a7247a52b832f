"""Records as Arrow columns, filled in C straight from the mapped log.

`Queue.to_arrow` and `Store.scan_arrow` make an `ArrowStream`. pyarrow reads it, and so does all
else that knows the Arrow PyCapsule interface, without pyarrow: Polars, DuckDB, pandas, nanoarrow.

The columns, one row per record unless batches are unwrapped:

    topic, queue_id, queue_offset, physical_offset, size, store_timestamp, born_timestamp,
    born_host, store_host, tags, keys, unique_key, properties, body, body_crc, body_crc_ok,
    sys_flag, flag, reconsume_times, prepared_transaction_offset, message_id, version, tags_code,
    record

Timestamps are milliseconds in UTC; hosts are "address:port"; keys are the stored text, separated
by spaces; properties is a map of text to text; body is as stored, maybe compressed (see
sys_flag). body_crc is the CRC of body without its sign bit, as stored; for a message of an inner
batch, which has none, it is computed. body_crc_ok is whether the stored bytes have the stored CRC,
for a message of an inner batch those of the whole batch. tags_code, the queue's hash of the tags
(or the deliver time, with RocketMQ's own delay levels), and record, the whole stored record, come
only on request. Text that is not UTF-8 gets U+FFFD in place of the wrong bytes, as Arrow requires
UTF-8.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from rmqstore import arguments
from rmqstore._native import core
from rmqstore._native.core import StoreReader
from rmqstore.errors import ArgumentError, MissingExtraError
from rmqstore.store.places import past_the_end

__all__ = ["ArrowStream", "column_names", "queue", "reader", "scan", "schema"]

BATCH_ROWS = 65_536
BATCH_BYTES = 8 << 20
"""Large enough to hide the cost of a batch, small enough to stay near the processor."""

_EVER_MS = (-(2**63), 2**63 - 1)
_ON_CORRUPT = ("fail", "skip")
_ON_REQUEST = ("tags_code", "record")


class BoundedQueue(Protocol):
    """The part of a queue that `queue` uses; `rmqstore.Queue` has it."""

    @property
    def store(self) -> StoreReader:
        """The store of the queue."""

    @property
    def topic(self) -> str:
        """The topic of the queue."""

    @property
    def number(self) -> int:
        """The number of the queue within its topic."""

    @property
    def start(self) -> int:
        """Offset of the first message."""

    @property
    def end(self) -> int:
        """Offset after the last message."""


class ArrowStream(core.ArrowStream):
    """Records about to be read as Arrow batches.

    Nothing is read before a caller requests `__arrow_c_stream__`, `reader`, `read_all` or an
    iterator; each of these reads again, in the thread that pulls the batches. The store stays alive
    while a reader does, but must not be closed: a reader of a closed store gets an error. `rows`,
    `skipped`, `skipped_bytes` and `expired` report on the last reading.
    """

    @property
    def schema(self) -> Any:
        """The pyarrow schema of the batches."""
        return _pyarrow().schema(self)

    def reader(self) -> Any:
        """Return a pyarrow.RecordBatchReader over the batches.

        While it reads, damage is an OSError that names the place (see *on_corrupt*), a store closed
        meanwhile an ArrowInvalid. Raises MissingExtraError without pyarrow.
        """
        return reader(self)

    def read_all(self) -> Any:
        """Return all rows as one pyarrow.Table."""
        return self.reader().read_all()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches as pyarrow.RecordBatch objects."""
        return iter(self.reader())


def queue(
    queue: BoundedQueue,
    *,
    columns: Sequence[str] | None = None,
    start: int | None = None,
    stop: int | None = None,
    tags: str | Sequence[str] | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    large_binary: bool = False,
    unwrap_batches: bool = False,
    check_crc: bool = False,
    on_corrupt: str = "fail",
) -> ArrowStream:
    """Return the records of *queue* at queue offsets from *start* to before *stop*, in order.

    None means the ends of the queue; everything put before the call counts. Raises OffsetOutOfRange
    for a *start* past the end. *tags* keeps records
    with one of these tags, *begin_ms* and *end_ms* those with a store timestamp from the one to
    before the other. A batch has at most *batch_rows* rows and about *batch_bytes* of text and
    bodies; a single record may have more. *large_binary* makes body and record large_binary.

    A record that holds an inner batch is one row; with *unwrap_batches* it is one row per message,
    with queue offset, body, body CRC, flag and properties of its own and all else of the record,
    and the other arguments choose among messages. A compressed inner batch stays one row.

    With *check_crc*, a body or property CRC that does not match is damage; *on_corrupt* says
    whether damage fails the reading or is skipped and counted.

    Raises ArgumentError for an unknown column or a limit; reading raises NotFoundError when there
    is no such queue.
    """
    arguments.instance("queue", getattr(queue, "store", queue), StoreReader, wanted="a Queue")
    low, high = queue.start, queue.end  # waits until everything put before is in its queue
    return _stream(
        queue.store,
        queue.topic,
        queue.number,
        _place(f"queue {queue.topic}/{queue.number}", start, stop, low, high),
        _selection(columns, batch_rows, batch_bytes, large_binary),
        by_queue=True,
        tags=tags,
        begin_ms=begin_ms,
        end_ms=end_ms,
        unwrap_batches=unwrap_batches,
        check_crc=check_crc,
        on_corrupt=on_corrupt,
    )


def scan(
    store: StoreReader,
    *,
    columns: Sequence[str] | None = None,
    start: int | None = None,
    stop: int | None = None,
    topic: str | None = None,
    queue_id: int | None = None,
    tags: str | Sequence[str] | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    large_binary: bool = False,
    unwrap_batches: bool = False,
    check_crc: bool = False,
    on_corrupt: str = "fail",
) -> ArrowStream:
    """Return the records at physical offsets from *start* to before *stop*, in log order.

    None means the ends of the log. *start* must be that of a record, unless *on_corrupt* is "skip".
    *topic* and *queue_id* keep the records of one topic or queue; the other arguments are those of
    `queue`.
    """
    arguments.instance("store", store, StoreReader, wanted="a Store")
    if queue_id is not None:
        queue_id = arguments.integer("queue_id", queue_id, low=0, high=arguments.INT32_MAX)
    return _stream(
        store,
        None if topic is None else arguments.text("topic", topic),
        -1 if queue_id is None else queue_id,
        _place("the log", start, stop, max(store.start_offset, 0), store.end_offset),
        _selection(columns, batch_rows, batch_bytes, large_binary),
        by_queue=False,
        tags=tags,
        begin_ms=begin_ms,
        end_ms=end_ms,
        unwrap_batches=unwrap_batches,
        check_crc=check_crc,
        on_corrupt=on_corrupt,
    )


def _stream(
    store: StoreReader,
    topic: str | None,
    queue_id: int,
    place: tuple[int, int],
    selection: core.ArrowSelection,
    *,
    by_queue: bool,
    tags: str | Sequence[str] | None,
    begin_ms: int | None,
    end_ms: int | None,
    unwrap_batches: bool,
    check_crc: bool,
    on_corrupt: str,
) -> ArrowStream:
    start, stop = place
    return ArrowStream(
        store,
        selection,
        by_queue=by_queue,
        topic=topic,
        queue_id=queue_id,
        tags=None if tags is None else arguments.texts("tags", tags),
        start=start,
        stop=stop,
        begin_ms=_EVER_MS[0] if begin_ms is None else arguments.integer("begin_ms", begin_ms),
        end_ms=_EVER_MS[1] if end_ms is None else arguments.integer("end_ms", end_ms),
        unwrap=arguments.boolean("unwrap_batches", unwrap_batches),
        check_crc=arguments.boolean("check_crc", check_crc),
        skip_corrupt=_is_skip(on_corrupt),
    )


def _place(name: str, start: int | None, stop: int | None, low: int, high: int) -> tuple[int, int]:
    first = low if start is None else arguments.integer("start", start, low=0)
    last = high if stop is None else min(arguments.integer("stop", stop, low=0), high)
    if first > high:
        raise past_the_end(name, first, low, high)
    return first, last


def column_names() -> tuple[str, ...]:
    """Return the names of all columns, in their usual order."""
    return core.arrow_columns()


def schema(columns: Sequence[str] | None = None, *, large_binary: bool = False) -> Any:
    """Return the pyarrow schema of *columns*, None for the usual ones.

    Raises ArgumentError for an unknown column, MissingExtraError without pyarrow.
    """
    return _pyarrow().schema(_selection(columns, BATCH_ROWS, BATCH_BYTES, large_binary))


def reader(stream: core.ArrowStream) -> Any:
    """Return a pyarrow.RecordBatchReader over *stream*.

    Raises MissingExtraError without pyarrow.
    """
    return _pyarrow().RecordBatchReader.from_stream(stream)


def _selection(
    columns: Sequence[str] | None, batch_rows: int, batch_bytes: int, large_binary: bool
) -> core.ArrowSelection:
    known = column_names()
    if columns is None:
        columns = [name for name in known if name not in _ON_REQUEST]

    if isinstance(columns, str):
        raise ArgumentError(
            f"columns is {arguments.shown(columns)}; give a list of names: [{columns!r}]"
        )

    columns = arguments.texts("columns", columns)
    for name in columns:
        if name not in known:
            raise ArgumentError(
                f"columns has {arguments.shown(name)}, which is not a column; "
                f"{_nearest(name, known)}"
            )

    return core.ArrowSelection(
        columns,
        batch_rows=arguments.integer("batch_rows", batch_rows, low=1),
        batch_bytes=arguments.integer("batch_bytes", batch_bytes, low=1),
        large_binary=arguments.boolean("large_binary", large_binary),
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


def _is_skip(on_corrupt: str) -> bool:
    if arguments.text("on_corrupt", on_corrupt) not in _ON_CORRUPT:
        raise ArgumentError(
            f"on_corrupt is {arguments.shown(on_corrupt)}; give {' or '.join(_ON_CORRUPT)}"
        )
    return on_corrupt == "skip"


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError(
            "Arrow tables need the package pyarrow: pip install rmqstore[arrow]"
        ) from error
    return pyarrow
