"""Consume queues and index checked against the log, as if they were rebuilt.

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
from rmqstore.check.findings import Finding, Kind, Level
from rmqstore.check.units import StoredQueue
from rmqstore.errors import ArgumentError
from rmqstore.spark.options import Options
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.audit import EVERYTHING
from rmqstore.spark.pipelines.calls import (
    KEY_COLUMNS,
    UNIT_COLUMNS,
    UNITS,
    Keys,
    keys_of,
    unit_batches,
)
from rmqstore.spark.pipelines.entries import (
    IndexFile,
    check_index,
    entry_finding,
    file_of,
    headers,
)
from rmqstore.spark.pipelines.report import Damage, Report
from rmqstore.spark.pipelines.units import Queues, check_queues, unseen
from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.ranges import Partition
from rmqstore.spark.read.reader import scan_of
from rmqstore.store.directory import Directory

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
    place="STRING",
    text="STRING",
    level="STRING",
    offset="BIGINT",
    lastOffset="BIGINT",
    fault="STRING",
    topic="STRING",
    queueId="INT",
    isBatch="BOOLEAN",
    matched="BIGINT",
)
"""A finding, or how many units of a queue or entries of an index file fit: then without a text."""

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

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    """What could not be checked."""

    @property
    def is_sound(self) -> bool:
        """Whether a rebuild would change nothing."""
        return not any(each.is_damage for each in self.findings)

    def lines(self) -> Iterator[str]:
        """Yield the findings, the notes and a verdict."""
        yield from map(str, self.findings)
        yield from (f"note {text}" for text in self.notes)
        count = sum(each.is_damage for each in self.findings)
        verdict = f"{count} findings of damage" if count else "sound"
        yield (
            f"{self.path}: {verdict}: {self.units} units of {self.queues} queues and "
            f"{self.entries} entries of {self.index_files} index files fit the log"
        )

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each finding and note, and a summary."""
        yield from ({"type": "finding"} | each.as_json() for each in self.findings)
        yield from ({"type": "note", "text": text} for text in self.notes)
        yield {
            "type": "summary",
            "path": self.path,
            "sound": self.is_sound,
            "queues": self.queues,
            "units": self.units,
            "indexFiles": self.index_files,
            "entries": self.entries,
            "damage": sum(each.is_damage for each in self.findings),
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
        raise ArgumentError(
            f"{path} matches {len(layouts)} stores; a rebuild check takes one: give one path"
        )

    layout = layouts[0]
    queues = Queues.of(layout)
    found = [*_check_queues(spark, queues, plan.options, plan.partitions, progress)]

    seen = [each for each in found if isinstance(each, tuple)]
    findings = [
        *(each for each in found if isinstance(each, Finding)),
        *queues.findings,
        *unseen(queues, (name for name, _ in seen)),
    ]

    known, notes = index_of(layout) if index else ([], [])
    index_files = [each for each in known if isinstance(each, IndexFile)]
    findings += [each for each in known if isinstance(each, Finding)]

    entries = 0
    if index_files:
        checked = _check_index(spark, layout, index_files, plan.options, plan.partitions, progress)
        for each in checked:
            if isinstance(each, int):
                entries += each
            else:
                findings.append(each)

    return Rebuild(
        path,
        len(seen),
        sum(matched for _, matched in seen),
        len(index_files),
        entries,
        tuple(findings),
        tuple(notes),
    )


def index_of(layout: Layout) -> tuple[list[IndexFile | Finding], list[str]]:
    """Return the index files of a store, what is wrong with others, and why none can be checked."""
    folder = f"{layout.root}/index"
    if not os.path.isdir(folder):
        return [], [f"{folder}: there is no index here that can be checked"]
    facts = Directory.inspect(layout.root)
    slots, entries = facts.index_slot_count, facts.index_entry_count
    if slots is None or entries is None:
        text = "no file shows how many slots it has" if facts.has_index else "has no entries"
        return [], [f"{folder}: {text}"]
    return headers(folder, slot_count=slots, entry_count=entries), []


def _check_queues(
    spark: SparkSession,
    queues: Queues,
    options: Options,
    partitions: Sequence[Partition],
    progress: work.Progress | None,
) -> Iterator[Finding | tuple[StoredQueue, int]]:
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
        if row.text is None:
            yield StoredQueue(row.topic, row.queueId, row.isBatch), row.matched
        else:
            yield _finding_of(row)


def _queues_task(queues: Queues, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _FOUND.batch(
        _row_of(each) if isinstance(each, Finding) else (*(None,) * 7, *each[0], each[1])
        for each in check_queues(queues, batches)
    )


def _row_of(found: Finding) -> tuple[object, ...]:
    fields = (found.place, found.text, str(found.level), found.offset, found.last_offset)
    return (str(found.kind), *fields, found.fault, *(None,) * 4)


def _finding_of(row: Any) -> Finding:
    return Finding(
        Kind(row.kind),
        row.place,
        row.text,
        level=Level(row.level),
        offset=row.offset,
        last_offset=row.lastOffset,
        fault=row.fault,
    )


def _units_task(options: Options, partition: Partition) -> Iterator[pa.RecordBatch]:
    for batch in records_of(options, partition, UNIT_COLUMNS):
        yield from unit_batches(batch)


def records_of(
    options: Options, partition: Partition, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition, one with an inner batch as one; damage is passed over."""
    selection = core.ArrowSelection(
        columns, batch_rows=_BATCH_ROWS, batch_bytes=_BATCH_BYTES, large_binary=False
    )
    for split in partition.splits:
        with closing(scan_of(split, options, selection, unwrap=False)) as scan:
            for each in work.walk(split, scan, options=options):
                if not isinstance(each, Damage):
                    yield each


def _check_index(
    spark: SparkSession,
    layout: Layout,
    index: Sequence[IndexFile],
    options: Options,
    partitions: Sequence[Partition],
    progress: work.Progress | None,
) -> Iterator[Finding | int]:
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
        if row.text is None:
            seen.add(row.place)
            yield int(row.matched)
        else:
            yield _finding_of(row)

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
            if isinstance(each, Finding):
                rows.append(_row_of(each))
            else:
                rows.append((None, file.path, *(None,) * 8, each))
    yield _FOUND.batch(rows)


def _behind(
    index: Sequence[IndexFile], records: Iterable[Keys], layout: Layout
) -> Iterator[tuple[object, ...]]:
    """Tell of records whose keys are in no file, though the index begins before them."""
    lacking = [each.physical_offset for each in records if each.hashes]
    last = max(each.end for each in index)
    after_end = Level.DAMAGE if layout.was_closed else Level.NOTE
    for places, level in (
        ([place for place in lacking if place <= last], Level.DAMAGE),
        ([place for place in lacking if place > last], after_end),
    ):
        if places:
            text = f"{len(places)} records with keys from here on are in no index file"
            yield _row_of(entry_finding(index[-1].path, places[0], "missing", text, level))


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
