"""The source as a streaming query sees it: it follows the commit logs, each up to its confirmed or
durable end.

Spark keeps one reader per query in a process beside the driver, which calls it for positions
and partitions, and others whose `read` runs on the executors. The first one keeps what it found, so
that the next call has less to find. `read` does not depend on that, and a query that is started
again from its checkpoint continues with the positions alone (`rmqstore.spark.stream.offsets`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rmqstore.errors import ArgumentError, NotFoundError
from rmqstore.spark.options import LATEST, Options
from rmqstore.spark.read.absent import check_topics
from rmqstore.spark.read.layout import Layout, roots_of
from rmqstore.spark.read.partitions import plan
from rmqstore.spark.read.ranges import Partition
from rmqstore.spark.read.reader import batches
from rmqstore.spark.schema import arrow_schema, check_user_schema
from rmqstore.spark.stream.follow import (
    Follower,
    boundary_by_bytes,
    boundary_by_rows,
    is_boundary,
    last_end,
    tail_crc,
)
from rmqstore.spark.stream.offsets import (
    LogPosition,
    Position,
    Verdict,
    begin_of,
    cut_error,
    epoch_below,
    expired_error,
    shares,
    verdict_on,
)
from rmqstore.spark.worker import plain_errors, settle

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RmqStoreStreamReader"]

_QUEUES_FROM_BYTES = 256 << 20
"""How much of a log a batch must span for its queues to be read: they name where it can be split
and what can be skipped, but there may be thousands of them."""

_NEVER = 2**63 - 1
"""A queue offset that none reaches: a queue read from its latest offset on has nothing below the
place where the query began."""

_log = logging.getLogger("rmqstore.spark")


class RmqStoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Messages of the stores at the options' paths, from a position in their commit logs on."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Validate options and schema; raises ArgumentError. No file is looked at."""
        self._options = Options.parse(options, streaming=True)
        check_user_schema(schema, self._options)
        self._schema = schema
        self._followers: dict[str, Follower] = {}
        self._layouts: dict[str, Layout] = {}
        self._initial: dict[str, Any] | None = None
        self._targets: dict[str, int] | None = None

    # ---- positions ----

    @plain_errors()
    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts by the starting options; the same at each call.

        Raises what `Layout.of` and `partitions.plan` do.
        """
        if self._initial is None:
            starting = _starting(self._options)
            logs = {}
            layouts = self._refreshed()
            self._warn_of_absent_topics(layouts.values())
            for name, layout in layouts.items():
                at = self._initial_offset(layout)
                until = layout.readable_end if starting else None
                logs[name] = _position_in(layout, at, at, until)
            self._initial = Position(logs, starting).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch that the options set."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        return ReadAllAvailable()

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end where the logs end at this moment."""
        self._targets = {name: layout.readable_end for name, layout in self._refreshed().items()}

    @plain_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where a batch from *start* on ends: at the ends of the logs, or before them by
        *limit*, always at a record boundary; *start* itself if there is nothing new.

        A limit is divided among the logs in proportion to what they have; whatever a log's part, it
        moves on by a record. Raises OffsetOutOfRange when a log was cut below *start* or, with
        failOnDataLoss, lost unread records; ArgumentError for a *start* that is not a position.
        """
        position = Position.from_json(start)
        layouts = self._refreshed()
        begins = self._begins(position, layouts)
        stops = {name: self._stop(name, begins[name], layouts[name]) for name in begins}
        ends = self._limited(begins, stops, layouts, limit, position.starting)
        logs = dict(position.logs)
        keeps_starting = position.is_choosing()
        for name, begin in begins.items():
            if name not in logs or ends[name] != logs[name].physical_offset:
                until = begin.starting_until if keeps_starting else None
                logs[name] = _position_in(layouts[name], ends[name], begin.initial_offset, until)
        if logs == position.logs:
            return start
        return Position(logs, position.starting if keeps_starting else {}).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs as last seen, None before they were looked at."""
        if not self._layouts:
            return None
        ends = {name: layout.readable_end for name, layout in self._layouts.items()}
        return Position({name: LogPosition(end, end) for name, end in ends.items()}).to_json()

    def bytes_behind(self, consumed: dict[str, Any]) -> list[int]:
        """Return how much of each log, as last seen, comes after a position."""
        read = Position.from_json(consumed).logs
        behind = []
        for name, layout in self._layouts.items():
            at = read[name].physical_offset if name in read else layout.start
            behind.append(max(layout.readable_end - at, 0))
        return behind

    # ---- reading ----

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the range between two positions into partitions; an empty range has none.

        Raises as `latestOffset` does, for either position.
        """
        first, last = Position.from_json(start), Position.from_json(end)
        layouts = self._covering(last)

        bounds: dict[bool, dict[str, tuple[int, int]]] = {True: {}, False: {}}
        for name, own in last.logs.items():
            layout = layouts.get(name)
            if layout is None:
                self._miss(name)
                continue

            self._held(name, own, layout)
            begin = self._held(name, begin_of(name, first, last), layout, checks_tail=False)
            at, stop = begin.physical_offset, own.physical_offset
            if at < stop:
                bounds[at < (begin.starting_until or 0)][name] = (at, stop)

        chosen = _with_starting(self._options, last.starting)
        return [
            *self._planned(bounds[True], layouts, chosen),
            *self._planned(bounds[False], layouts, _with_starting(self._options, {})),
        ]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one partition; earlier calls of this reader do not matter."""
        settle()
        if partition.value is not None:
            chosen: tuple[Partition, Options] = partition.value
            with plain_errors():
                yield from batches(*chosen, self._schema.fieldNames(), arrow_schema(self._schema))

    # ---- what is behind it ----

    def _refreshed(self) -> dict[str, Layout]:
        """Return the layouts by their names, brought up to date."""
        options, known = self._options, self._followers
        self._followers = {
            root: known.get(root) or Follower(root, options.up_to, options.log_folders)
            for root in roots_of(options)
        }
        found = [follower.layout() for follower in self._followers.values()]
        self._layouts = {layout.name: layout for layout in found}
        return self._layouts

    def _covering(self, last: Position) -> dict[str, Layout]:
        """Return layouts that reach to a position, if the logs do."""
        for name, own in last.logs.items():
            known = self._layouts.get(name)
            if known is None or known.end < own.physical_offset:
                return self._refreshed()
        return self._layouts

    def _warn_of_absent_topics(self, layouts: Iterable[Layout]) -> None:
        """Name the topics that no store has: a topic may come later, or be mistyped."""
        if not self._options.by_topic:
            return
        try:
            up_to = self._options.up_to
            check_topics([layout.afresh(up_to=up_to) for layout in layouts], self._options)
        except NotFoundError as error:
            _log.warning("%s; the query waits for its messages", error)

    def _initial_offset(self, layout: Layout) -> int:
        options = self._options
        starting = _starting(options)
        if starting:
            # A place below which the options choose nothing.
            chosen = replace(
                _with_starting(options, starting), starting_strategy=options.starting_strategy
            )
            planned = plan([layout.afresh(up_to=options.up_to)], chosen, start={})
            starts = [split.start for each in planned.partitions for split in each.splits]
            return min([*starts, layout.readable_end])
        return layout.readable_end if options.starting_offsets == "latest" else layout.start

    def _begins(self, position: Position, layouts: Mapping[str, Layout]) -> dict[str, LogPosition]:
        """Return where the next batch begins in each log that is there."""
        for name in position.logs:
            if name not in layouts:
                self._miss(name)
        begins = {}
        for name, layout in layouts.items():
            if name in position.logs:
                begins[name] = self._held(name, position.logs[name], layout)
            elif self._targets is None or name in self._targets:
                begins[name] = LogPosition(layout.start, layout.start)
        return begins

    def _stop(self, name: str, begin: LogPosition, layout: Layout) -> int:
        at = begin.physical_offset
        stop = layout.readable_end
        if self._targets is not None:
            stop = min(stop, self._targets.get(name, at))
        if at < (begin.starting_until or 0):
            # The starting options choose in all of a batch's part of this log or nowhere in it.
            stop = min(stop, begin.starting_until or 0)
        return max(at, stop)

    def _limited(
        self,
        begins: Mapping[str, LogPosition],
        stops: Mapping[str, int],
        layouts: Mapping[str, Layout],
        limit: ReadLimit,
        starting: Mapping[str, Any],
    ) -> dict[str, int]:
        """Return where the batch ends in each log."""
        if isinstance(limit, ReadAllAvailable):
            return dict(stops)

        available = {name: stops[name] - begins[name].physical_offset for name in stops}
        if isinstance(limit, ReadMaxBytes):
            most = limit.max_bytes
        elif isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        else:
            raise ArgumentError(
                f"{limit} is not a limit of this source; give rows or bytes, or none"
            )

        ends = {}
        for name, share in shares(most, available).items():
            at = begins[name].physical_offset
            if share == 0 or not available[name]:
                ends[name] = at
            elif isinstance(limit, ReadMaxBytes):
                ends[name] = boundary_by_bytes(layouts[name], at, stops[name], share)
            else:
                chooses = at < (begins[name].starting_until or 0)
                chosen = _with_starting(self._options, starting if chooses else {})
                ends[name] = boundary_by_rows(layouts[name], at, stops[name], share, chosen)

        return ends

    def _held(
        self, name: str, position: LogPosition, layout: Layout, *, checks_tail: bool = True
    ) -> LogPosition:
        """Return *position* or, where its records expired and may, the log's start.

        Raises OffsetOutOfRange when they may not, or when the log was cut below *position*.
        """
        verdict, at = verdict_on(position, layout)

        if verdict is Verdict.CUT and at == layout.end:
            # What is confirmed may become less, and the log is still there.
            layout = replace(layout, end=last_end(layout))
            verdict, at = verdict_on(position, layout)
        if verdict is Verdict.HOLDS and checks_tail and not _tail_holds(position, layout):
            verdict, at = Verdict.CUT, -1

        if verdict is Verdict.CUT:
            raise cut_error(name, position, layout, at)
        if verdict is Verdict.HOLDS:
            return position

        error = expired_error(name, position, layout)
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("data loss: %s", error)
        return LogPosition(at, position.initial_offset, starting_until=position.starting_until)

    def _miss(self, name: str) -> None:
        message = f"{name}: the query has read this store, and it is no longer there"
        if self._options.fail_on_data_loss:
            raise NotFoundError(
                f"{message}; bring it back or, with the option failOnDataLoss false, go on without"
            )
        _log.warning("data loss: %s", message)

    def _planned(
        self,
        bounds: Mapping[str, tuple[int, int]],
        layouts: Mapping[str, Layout],
        options: Options,
    ) -> list[InputPartition]:
        chosen = []

        for name, (at, stop) in bounds.items():
            layout = layouts[name]
            if stop - at >= _QUEUES_FROM_BYTES:
                layout = layout.afresh(up_to=options.up_to)
            # A confirm offset may go back; what was handed on before it did is still in the log.
            chosen.append(replace(layout, readable_end=max(layout.readable_end, stop)))

        if not chosen:
            return []

        planned = plan(
            chosen,
            options,
            start={name: at for name, (at, _) in bounds.items()},
            stop={name: stop for name, (_, stop) in bounds.items()},
        )
        return [InputPartition((each, planned.options)) for each in planned.partitions]


def _position_in(layout: Layout, at: int, initial: int, until: int | None) -> LogPosition:
    return LogPosition(
        at,
        initial,
        epoch=epoch_below(layout.epochs, at),
        tail_crc=tail_crc(layout, at),
        starting_until=until,
    )


def _tail_holds(position: LogPosition, layout: Layout) -> bool:
    """Return whether the log just below a position is unchanged, as far as that is known."""
    at = position.physical_offset
    if position.tail_crc is None:
        return is_boundary(layout, at)
    found = tail_crc(layout, at)
    return found in (None, position.tail_crc)


def _starting(options: Options) -> dict[str, Any]:
    """Return, for a position, the starting options that choose single messages."""
    if options.starting_ms is not None:
        return {"timestamp": options.starting_ms}
    for name, by_queue in (
        ("timestamps", options.starting_ms_by_queue),
        ("offsets", options.starting_offsets),
    ):
        if isinstance(by_queue, dict):
            return {
                name: {
                    topic: {str(queue): value for queue, value in queues.items()}
                    for topic, queues in by_queue.items()
                }
            }
    return {}


def _with_starting(options: Options, starting: Mapping[str, Any]) -> Options:
    """Return *options* with the starting options of a position instead of their own."""
    by_queue = {
        name: {
            topic: {
                int(queue): _NEVER if value == LATEST else value for queue, value in queues.items()
            }
            for topic, queues in starting[name].items()
        }
        for name in ("timestamps", "offsets")
        if name in starting
    }
    return replace(
        options,
        starting_offsets=by_queue.get("offsets", "earliest"),
        starting_ms=starting.get("timestamp"),
        starting_ms_by_queue=by_queue.get("timestamps"),
        # A queue without a match has none below the place up to which starting options choose.
        starting_strategy="latest",
    )
