"""Consume queues and index checked against the log, as if they were built anew.

The log is scanned once for the units and once for the keys that its records call for; only these,
a few dozen bytes a message, are sorted together by queue and by index file and compared there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rmqstore._native import core
from rmqstore.directory import Directory
from rmqstore.errors import ArgumentError
from rmqstore.spark.layout import Layout
from rmqstore.spark.options import Options
from rmqstore.spark.partitions import Partition
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.audit import EVERYTHING
from rmqstore.spark.pipelines.calls import (
    KEY_COLUMNS,
    UNIT_COLUMNS,
    UNITS,
    Keys,
    keys_of,
    units_of,
)
from rmqstore.spark.pipelines.entries import (
    IndexFile,
    check_index,
    file_of,
    headers,
)
from rmqstore.spark.pipelines.report import Damage, Report
from rmqstore.spark.pipelines.units import (
    FileProblem,
    Problem,
    QueueName,
    Queues,
    check_queues,
    unseen,
)
from rmqstore.spark.reader import scan_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Rebuild", "rebuild_check"]

_KEYS = work.Table(
    file="INT",
    physicalOffset="BIGINT",
    storeTimestamp="BIGINT",
    hashes="ARRAY<INT>",
    tagHash="INT",
)
_FOUND = work.Table(
    kind="STRING",
    topic="STRING",
    queueId="INT",
    isBatch="BOOLEAN",
    path="STRING",
    first="BIGINT",
    last="BIGINT",
    text="STRING",
    isNormal="BOOLEAN",
)
_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 8 << 20
_BEHIND = -1
"""Stands for the file of keys that should be in the index and are in no file's range."""


@dataclass(frozen=True, slots=True)
class Rebuild(Report):
    """What a rebuild of queues and index would change."""

    path: str
    queues: int
    units: int
    """Units that fit their records."""

    index_files: int
    entries: int
    """Index entries that fit their records."""

    problems: tuple[Problem | FileProblem | Damage, ...]
    notes: tuple[str, ...]
    """What could not be checked."""

    @property
    def is_sound(self) -> bool:
        """Whether a rebuild would change nothing."""
        return all(each.is_normal for each in self.problems)

    def lines(self) -> Iterator[str]:
        """Yield the problems, the notes and a verdict."""
        yield from map(str, self.problems)
        yield from (f"note {text}" for text in self.notes)
        count = sum(not each.is_normal for each in self.problems)
        verdict = f"{count} problems" if count else "sound"
        yield (
            f"{self.path}: {verdict}: {self.units} units of {self.queues} queues and "
            f"{self.entries} entries of {self.index_files} index files fit the log"
        )

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each problem, and a summary."""
        yield from (each.as_json() for each in self.problems)
        yield from ({"type": "note", "text": text} for text in self.notes)
        yield {
            "type": "summary",
            "path": self.path,
            "sound": self.is_sound,
            "queues": self.queues,
            "units": self.units,
            "indexFiles": self.index_files,
            "entries": self.entries,
            "damage": sum(not each.is_normal for each in self.problems),
        }


def rebuild_check(
    spark: SparkSession,
    path: str,
    *,
    index: bool = True,
    progress: work.Progress | None = None,
    **options: work.OptionValue,
) -> Rebuild:
    """Return where queues and index files of the store at *path* differ from its log.

    Gaps and duplicates of queue offsets, units that are missing, lead nowhere or do not fit their
    record; with *index* keys that are not entered, entries that lead nowhere, broken chains.
    Nothing is written.
    *options* are those of the format that shape partitions. Raises NotFoundError where there is no
    log, ArgumentError for several stores.
    """
    layouts, plan = work.planned(path, {**EVERYTHING, **options})
    if len(layouts) != 1:
        raise ArgumentError(f"{path} is {len(layouts)} stores; check them one by one")
    layout = layouts[0]
    queues = Queues.of(layout)
    found = [*_check_queues(spark, queues, plan.options, plan.partitions, progress)]
    seen = [each for each in found if isinstance(each, tuple)]
    problems: list[Problem | FileProblem | Damage] = [
        *(each for each in found if not isinstance(each, tuple)),
        *queues.problems,
        *unseen(queues, (name for name, _ in seen)),
    ]
    known, notes = index_of(layout) if index else ([], [])
    index_files = [each for each in known if isinstance(each, IndexFile)]
    problems += [each for each in known if isinstance(each, FileProblem)]
    entries = 0
    if index_files:
        checked = _check_index(spark, layout, index_files, plan.options, plan.partitions, progress)
        for each in checked:
            if isinstance(each, int):
                entries += each
            else:
                problems.append(each)
    return Rebuild(
        path,
        len(seen),
        sum(matched for _, matched in seen),
        len(index_files),
        entries,
        tuple(problems),
        tuple(notes),
    )


def index_of(layout: Layout) -> tuple[list[IndexFile | FileProblem], list[str]]:
    """Return the index files of a store, what is wrong with others, and why none can be checked."""
    folder = f"{layout.root}/index"
    if not os.path.isdir(folder):
        return [], [f"{folder}: there is no index here that can be checked"]
    facts = Directory.inspect(layout.root)
    slots, entries = facts.index_slot_count, facts.index_entry_count
    if slots is None or entries is None:
        text = "no file tells how many slots it has" if facts.has_index else "has no entries"
        return [], [f"{folder}: {text}"]
    return headers(folder, slot_count=slots, entry_count=entries), []


def _check_queues(
    spark: SparkSession,
    queues: Queues,
    options: Options,
    partitions: Sequence[Partition],
    progress: work.Progress | None,
) -> Iterator[Problem | Damage | tuple[QueueName, int]]:
    cut = work.parallelism(spark, work.size_of(partitions))
    task = partial(_units_task, options)
    units = work.distribute(spark, partitions, task, UNITS, partitions=cut)
    places = ("topic", "queueId", "isBatch")
    compared = (
        units.repartition(cut, *places)
        .sortWithinPartitions(*places, "queueOffset", "physicalOffset")
        .mapInArrow(partial(_queues_task, queues), _FOUND.ddl)
    )
    for row in work.collect(compared, progress):
        if row.kind == "log":
            yield Damage(row.path, row.first, row.last, row.text)
        elif row.kind == "queue":
            yield QueueName(row.topic, row.queueId, row.isBatch), row.first
        else:
            yield Problem(
                row.topic, row.queueId, row.first, row.last, row.kind, row.text, row.isNormal
            )


def _queues_task(queues: Queues, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[object, ...]] = []
    for each in check_queues(queues, batches):
        if isinstance(each, Problem):
            place = (each.topic, each.queue_id, None, None, each.first, each.last)
            rows.append((each.kind, *place, each.text, each.is_normal))
        else:
            rows.append(("queue", *each[0], None, each[1], None, None, None))
    yield _FOUND.batch(rows)


def _units_task(options: Options, partition: Partition) -> Iterator[pa.RecordBatch]:
    for batch in records_of(options, partition, UNIT_COLUMNS):
        yield from units_of(batch)


def records_of(
    options: Options, partition: Partition, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition, one with an inner batch as one; damage is passed over."""
    selection = core.ArrowSelection(
        columns, batch_rows=_BATCH_ROWS, batch_bytes=_BATCH_BYTES, large_binary=False
    )
    for span in partition.spans:
        with closing(scan_of(span, options, selection, unwrap=False)) as scan:
            for each in work.walk(span, scan, options=options):
                if not isinstance(each, Damage):
                    yield each


def _check_index(
    spark: SparkSession,
    layout: Layout,
    index: Sequence[IndexFile],
    options: Options,
    partitions: Sequence[Partition],
    progress: work.Progress | None,
) -> Iterator[FileProblem | int]:
    cut = work.parallelism(spark, work.size_of(partitions))
    task = partial(_keys_task, options, tuple(index))
    keys = work.distribute(spark, partitions, task, _KEYS, partitions=cut)
    compared = (
        keys.repartition(min(cut, len(index) + 1), "file")
        .sortWithinPartitions("file", "physicalOffset")
        .mapInArrow(partial(_index_task, layout, tuple(index)), _FOUND.ddl)
    )
    seen = set()
    for row in work.collect(compared, progress):
        if row.kind == "file":
            seen.add(row.path)
            yield int(row.first)
        else:
            yield FileProblem("index", row.path, row.first, row.kind, row.text, row.isNormal)
    for file in index:
        if file.path not in seen:
            yield from check_index(file, (), log_start=layout.start, log_end=layout.end)


def _index_task(
    layout: Layout, index: Sequence[IndexFile], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[object, ...]] = []
    for number, records in groupby(_keys_in(batches), key=itemgetter(0)):
        keys = (each for _, each in records)
        if number == _BEHIND:
            rows += _behind(index, keys, layout)
            continue
        file = index[number]
        for each in check_index(file, keys, log_start=layout.start, log_end=layout.end):
            if isinstance(each, FileProblem):
                rows.append(_found(each))
            else:
                rows.append(("file", *(None,) * 3, file.path, each, None, None, None))
    yield _FOUND.batch(rows)


def _behind(
    index: Sequence[IndexFile], records: Iterable[Keys], layout: Layout
) -> Iterator[tuple[object, ...]]:
    """Tell of records whose keys are in no file, though the index begins before them."""
    lacking = [each.physical_offset for each in records if each.hashes]
    last = max(each.end for each in index)
    for places, is_normal in (
        ([place for place in lacking if place <= last], False),
        ([place for place in lacking if place > last], not layout.was_closed),
    ):
        if places:
            text = f"{len(places)} records with keys from here on are in no index file"
            yield _found(
                FileProblem("index", index[-1].path, places[0], "missing", text, is_normal)
            )


def _found(problem: FileProblem) -> tuple[object, ...]:
    place = (problem.path, problem.physical_offset, None)
    return (problem.kind, *(None,) * 3, *place, problem.text, problem.is_normal)


def _keys_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Keys]]:
    for batch in batches:
        for number, place, time_ms, hashes, tag in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            yield number, Keys(place, time_ms, tuple(hashes), tag)


def _keys_task(
    options: Options, index: Sequence[IndexFile], partition: Partition
) -> Iterator[pa.RecordBatch]:
    for batch in records_of(options, partition, KEY_COLUMNS):
        yield _KEYS.batch(
            (number, each.physical_offset, each.store_timestamp, list(each.hashes), each.tag_hash)
            for each in keys_of(batch)
            for number in _numbers(index, each.physical_offset)
        )


def _numbers(index: Sequence[IndexFile], physical_offset: int) -> Iterator[int]:
    numbers = list(file_of(index, physical_offset))
    if numbers:
        yield from numbers
    elif physical_offset > index[0].begin:
        yield _BEHIND
