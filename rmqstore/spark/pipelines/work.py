"""How pipelines run: functions over tasks on Spark's workers, and a walk through a split.

What a task returns is small: sums, positions, findings. Where a task reads the log, it does so in
windows that are used again, so that its memory does not grow with the files.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rmqstore._native import core
from rmqstore.spark import files, schema
from rmqstore.spark.options import Options
from rmqstore.spark.pipelines.report import Damage
from rmqstore.spark.read.layout import Layout, LogFile, layouts_of
from rmqstore.spark.read.partitions import Plan, plan
from rmqstore.spark.read.queue_ranges import choice
from rmqstore.spark.read.ranges import Partition, Split
from rmqstore.spark.read.reader import Window, batches
from rmqstore.spark.read.record_offsets import RecordOffsets
from rmqstore.spark.worker import plain_errors, settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Progress",
    "Table",
    "batched",
    "collect",
    "distribute",
    "gaps",
    "interruptible",
    "json_list",
    "leaving_no_empty_target",
    "parallelism",
    "planned",
    "rows_of",
    "shares",
    "size_of",
    "tail",
    "taken",
    "walk",
    "watched",
]

Progress = Callable[[int, int], None]
"""Called periodically with the number of tasks that are done, and of all that are known."""

OptionValue = str | int | bool
"""An option of the format, as `spark.read.option` takes it."""

_TASK_BYTES = 1 << 30
_TASKS_A_CORE = 2
_POLL_SECONDS = 0.25
_CANCEL_SECONDS = 30
"""How long an interrupted job may take to end."""

_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


class Table:
    """The columns that a task returns, by name and Spark type."""

    _ARROW = ("BIGINT", "INT", "STRING", "BINARY", "BOOLEAN", "ARRAY<BIGINT>", "ARRAY<INT>")

    def __init__(self, **columns: str) -> None:
        unknown = set(columns.values()) - set(self._ARROW)
        assert not unknown, unknown
        self.columns: Mapping[str, str] = columns

    @property
    def ddl(self) -> str:
        """The schema in Spark's words."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())

    @property
    def schema(self) -> pa.Schema:
        """The schema in Arrow's words."""
        import pyarrow as pa

        kinds = (
            pa.int64(),
            pa.int32(),
            pa.string(),
            pa.binary(),
            pa.bool_(),
            pa.list_(pa.int64()),
            pa.list_(pa.int32()),
        )
        types = dict(zip(self._ARROW, kinds, strict=True))
        return pa.schema([(name, types[kind]) for name, kind in self.columns.items()])

    def batch(self, rows: Iterable[Sequence[object]]) -> pa.RecordBatch:
        """Return *rows*, each with a value for every column, as a batch."""
        import pyarrow as pa

        rows = list(rows)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.columns)
        schema = self.schema
        arrays = [
            pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return *batch* with the names and types of this table, column by column."""
        import pyarrow as pa

        schema = self.schema
        columns = [
            column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def distribute(
    spark: SparkSession,
    tasks: Sequence[_Task],
    function: Callable[[_Task], Iterator[pa.RecordBatch]],
    table: Table | str,
    *,
    partitions: int | None = None,
) -> DataFrame:
    """Return the batches that *function* makes of the *tasks*, in their order.

    Tasks and function must be picklable; the batches have the columns of *table*, a Table or DDL.
    Neighbouring tasks share one of the *partitions*; None gives each its own.
    """
    tasks = tuple(tasks)

    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        with plain_errors():
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from function(tasks[number])

    count = max(min(partitions or len(tasks), len(tasks)), 1)
    numbers = spark.range(0, len(tasks), 1, count)
    return numbers.mapInArrow(run, table if isinstance(table, str) else table.ddl)


def parallelism(spark: SparkSession, byte_count: int) -> int:
    """Return into how many partitions to split the reading of *byte_count* bytes.

    A task costs about as much as reading 100 MiB before it has read anything, so that large
    partitions win as long as every core has some.
    """
    context = getattr(spark, "sparkContext", None)
    cores = context.defaultParallelism if context is not None else 1
    return max(cores * _TASKS_A_CORE, -(-byte_count // _TASK_BYTES))


def planned(
    paths: str | Sequence[str], options: Mapping[str, OptionValue]
) -> tuple[tuple[Layout, ...], Plan]:
    """Return what the stores at *paths* hold and the partitions to read, by the format's options.

    Raises ArgumentError for a wrong option, NotFoundError where there is no log.
    """
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    if isinstance(paths, str):
        texts["path"] = paths
    else:
        texts["paths"] = json_list(paths)
    parsed = Options.parse(texts)
    layouts = tuple(layouts_of(parsed))
    return layouts, plan(layouts, parsed)


def json_list(paths: Sequence[str]) -> str:
    """Return several paths as Spark hands them to a source."""
    return json.dumps(list(paths))


def shares(partitions: Sequence[_Task], count: int) -> list[tuple[_Task, ...]]:
    """Cut *partitions* into at most *count* lists of neighbours, of about the same length."""
    count = max(min(count, len(partitions)), 1)
    bounds = [len(partitions) * number // count for number in range(count + 1)]
    return [tuple(partitions[a:b]) for a, b in itertools.pairwise(bounds) if a < b]


def size_of(partitions: Iterable[Partition]) -> int:
    """Return the bytes of the log that *partitions* split."""
    return sum(split.stop - split.start for each in partitions for split in each.splits)


def collect(frame: DataFrame, progress: Progress | None = None) -> list[Any]:
    """Return the rows of *frame*, with *progress* called while they are made."""
    return watched(frame.sparkSession, frame.collect, progress)


def watched(
    spark: SparkSession, action: Callable[[], _Answer], progress: Progress | None = None
) -> _Answer:
    """Return the result of *action*; *progress* is called with the tasks that it runs.

    An interrupt cancels these tasks.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:  # a session of Spark Connect
        return action()
    group = f"rmqstore-{uuid.uuid4()}"

    def run() -> _Answer:
        context.setJobGroup(group, "rmqstore", interruptOnCancel=True)
        return action()

    with _watching(context, group, progress):
        return interruptible(run, lambda: context.cancelJobGroup(group))


def interruptible(
    action: Callable[[], _Answer],
    cancel: Callable[[], object],
    *,
    spark: SparkSession | None = None,
) -> _Answer:
    """Return the result of *action*, which *cancel* ends early when this thread is interrupted.

    The action has a thread of its own: an interrupt in the middle of a call to Java would break the
    connection that ends the call. Java's side of the thread inherits the properties of this one, or
    a session *spark* of Spark Connect its tags.
    """
    from pyspark import InheritableThread

    answers: list[_Answer] = []
    errors: list[BaseException] = []
    is_over = threading.Event()

    def run() -> None:
        try:
            answers.append(action())
        except BaseException as error:
            errors.append(error)
        finally:
            is_over.set()

    thread = InheritableThread(run, session=spark)
    thread.daemon = True
    thread.start()
    try:
        # Not a join: Python 3.11 takes a thread for ended when an interrupt ends the join.
        while not is_over.wait(_POLL_SECONDS):
            pass
    except KeyboardInterrupt:
        # Again and again: the job that is to be cancelled may begin after the first time.
        for _ in range(round(_CANCEL_SECONDS / _POLL_SECONDS)):
            cancel()
            if is_over.wait(_POLL_SECONDS):
                break
        raise
    if errors:
        raise errors[0]
    return answers[0]


@contextmanager
def _watching(context: SparkContext, group: str, progress: Progress | None) -> Iterator[None]:
    """Call *progress* with the tasks of a job group while the block runs."""
    if progress is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(_POLL_SECONDS):
            done = total = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    state = tracker.getStageInfo(stage)
                    if state:
                        done += state.numCompletedTasks
                        total += state.numTasks
            if total:
                progress(done, total)

    watcher = threading.Thread(target=watch, name="rmqstore-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextmanager
def leaving_no_empty_target(target: str) -> Iterator[None]:
    """Remove the folder *target* of this machine again if the block fails, and what made it left it
    empty.

    Spark makes it before the first task, and refuses it the next time.
    """
    path = files.join(target)
    was_there = os.path.lexists(path)
    try:
        yield
    except BaseException:
        if not was_there:
            with suppress(OSError):
                os.rmdir(path)
        raise


def walk(
    split: Split,
    scan: core.SegmentScan,
    *,
    options: Options | None = None,
    summarize: bool = False,
) -> Iterator[pa.RecordBatch | Damage]:
    """Yield the batches of *scan*, which reads *split*, and the damage between them, in log order.

    *options* decide about the topics of a scan by topic. With *summarize* there are no batches:
    take the scan's summary when the iteration is over. The scan stays open.
    """
    offsets = None if split.units is None else RecordOffsets.of_queues(split)
    if offsets is not None:
        if not len(offsets):
            return
        scan.visit(offsets.offsets)

    wanted = None if options is None else choice(options)
    step = scan.summarize if summarize else scan.fill

    with files.open_file(split.file.path) as file:
        window = Window(file, split, offsets)
        while True:
            state = step()
            if state == "full":
                yield from taken(scan)
            elif state == "topic":
                assert wanted is not None
                scan.choose(scan.topic, wanted(scan.topic))
            elif state == "more" and window.feed(scan):
                pass
            elif state == "over" and scan.ending != "unwritten":
                break
            else:
                start, reason = scan.offset, _reason(scan, window)
                is_found = _resync(scan, window)
                if not summarize:
                    yield from taken(scan)
                stop = scan.offset if is_found else split.stop
                yield Damage(split.file.path, start, max(start, stop), reason)
                if not is_found:
                    break

        if not summarize:
            yield from taken(scan)


def _reason(scan: core.SegmentScan, window: Window) -> str:
    if window.is_cut:
        return "the file ends within a record"
    return str(scan.error) if scan.error else "nothing was written here"


def _resync(scan: core.SegmentScan, window: Window) -> bool:
    state = "over" if window.is_cut else scan.resync()
    while state == "more":
        state = scan.resync() if window.feed(scan) else "over"
    return state == "found"


def taken(scan: core.SegmentScan) -> Iterator[pa.RecordBatch]:
    """Yield the batch that *scan* has filled, if any."""
    import pyarrow as pa

    filled = scan.take()
    if filled is not None:
        yield pa.record_batch(filled)


def rows_of(
    partition: Partition, options: Options, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of *partition* with the format's *columns*, as the format reads them.

    Damage fails or is left out: a row for damage would be taken for a message.
    """
    struct = schema.struct(tuple(columns), kafka=False)
    if options.on_corrupt == "row":
        options = replace(options, on_corrupt="skip")
    return batches(partition, options, columns, schema.arrow_schema(struct))


def gaps(layout: Layout) -> Iterator[Damage]:
    """Yield the ranges of the readable log that no file holds."""
    end = layout.start
    for file in layout.files:
        if file.start > end:
            yield Damage(layout.root, end, file.start, "no file holds these bytes")
        end = max(end, file.start + file.size)
    if layout.readable_end > end:
        yield Damage(layout.root, end, layout.readable_end, "no file holds these bytes")


def tail(layout: Layout) -> Iterator[Damage]:
    """Yield the bytes after the readable log that are not blank.

    A store that runs or was not closed may end in a torn record; elsewhere it is damage.
    """
    for file in layout.files:
        stop = file.start + file.size
        start = max(file.start, layout.end, layout.readable_end)
        if start >= stop or not _begins(file, start):
            continue
        split = Split(layout.name, file, start, stop, stop, None)
        with closing(core.SegmentScan(None, start=start, stop=stop, file_end=stop)) as scan:
            for each in walk(split, scan, summarize=True):
                assert isinstance(each, Damage)
                yield replace(each, is_normal=not layout.was_closed)
                break


def _begins(file: LogFile, offset: int) -> bool:
    """Whether something was written at a physical offset."""
    with files.open_file(file.path) as data:
        return bool(data.read(offset - file.start, 8).strip(b"\0"))


def batched(items: Iterable[_Task], size: int) -> Iterator[list[_Task]]:
    """Yield *items* in lists of *size*, the last one shorter."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
