"""Jobs of the writer without Spark: rows, the tasks that store them, and what is there then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import rmqstore
from rmqstore.check import verify
from rmqstore.errors import StoreError
from rmqstore.spark.write import writer as writer_module
from rmqstore.spark.write.writer import RmqStoreWriter, StagedFile

TYPES: Mapping[str, tuple[DataType, pa.DataType]] = {
    "topic": (StringType(), pa.string()),
    "body": (BinaryType(), pa.binary()),
    "queueId": (IntegerType(), pa.int32()),
    "tags": (StringType(), pa.string()),
    "keys": (StringType(), pa.string()),
    "properties": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
    "bornTimestamp": (TimestampType(), pa.timestamp("us", "UTC")),
    "storeTimestamp": (TimestampType(), pa.timestamp("us", "UTC")),
}
KEY_LIST = (ArrayType(StringType()), pa.list_(pa.string()))
SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 101,
    "maxIndexNum": 400,
}
BATCH_ROWS = 64
BORN = datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=UTC)

Row = dict[str, Any]


def kinds_of(rows: Sequence[Row]) -> dict[str, tuple[DataType, pa.DataType]]:
    kinds = {name: kind for name, kind in TYPES.items() if any(name in row for row in rows)}
    if any(isinstance(row.get("keys"), list) for row in rows):
        kinds["keys"] = KEY_LIST
    return kinds


def schema_of(rows: Sequence[Row]) -> StructType:
    return StructType([StructField(name, kind) for name, (kind, _) in kinds_of(rows).items()])


def batch_of(rows: Sequence[Row], *, like: Sequence[Row] | None = None) -> pa.RecordBatch:
    kinds = kinds_of(like or rows)
    arrays = [pa.array([row.get(name) for row in rows], kind) for name, (_, kind) in kinds.items()]
    return pa.record_batch(arrays, names=list(kinds))


def begin(path: Path, rows: Sequence[Row], **options: object) -> RmqStoreWriter:
    given = {key: str(value) for key, value in {**SMALL, **options}.items()}
    return RmqStoreWriter({"path": str(path), **given}, schema_of(rows), False)


def run_task(
    writer: RmqStoreWriter, partition: int, batches: Iterator[pa.RecordBatch], attempt: int = 0
) -> StagedFile:
    with mock.patch.object(writer_module, "_task", return_value=(partition, str(attempt))):
        return writer.write(batches)


def batches_of(rows: Sequence[Row], *, like: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), BATCH_ROWS):
        yield batch_of(rows[at : at + BATCH_ROWS], like=like)


def save(path: Path, *partitions: Sequence[Row], **options: object) -> None:
    """Store rows as a job with these partitions does, committed in another order."""
    every = [row for rows in partitions for row in rows]
    writer = begin(path, every, **options)
    staged: list[StagedFile | None] = [
        run_task(writer, number, batches_of(rows, like=every))
        for number, rows in enumerate(partitions)
    ]
    writer.commit(staged[::-1])


def numbered(first: int, count: int, **changes: Any) -> list[Row]:
    return [
        {
            "topic": f"topic-{number % 2}",
            "body": b"%08d" % number + b"." * (number % 50),
            "queueId": number % 3,
            "keys": f"k{number}",
            **changes,
        }
        for number in range(first, first + count)
    ]


def check_holds(path: Path, rows: Sequence[Row]) -> None:
    """The store is sound and its log holds the rows, in order, with dense queue offsets."""
    report = verify(path, full=True)
    assert report.is_sound, report.damage
    with rmqstore.open(path, read_only=True) as store:
        found = list(store.scan_log())
        assert [each.body for each in found] == [row["body"] for row in rows]
        ends: dict[tuple[str, int], int] = {}
        for each, row in zip(found, rows, strict=True):
            queue = row["topic"], row.get("queueId") or 0
            assert (each.topic, each.queue) == queue
            assert each.queue_offset == ends.get(queue, 0)
            ends[queue] = each.queue_offset + 1
        assert {(queue.topic, queue.number): queue.end for queue in store.queues()} == ends
    assert report.records == report.units == len(rows)


def left_over(path: Path) -> list[str]:
    """Return what lies beside *path*."""
    return sorted(name for name in os.listdir(path.parent) if name != path.name)


def snapshot(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


def list_bodies(path: Path) -> list[bytes]:
    with rmqstore.open(path, read_only=True) as store:
        return [each.body for each in store.scan_log()]


def save_or_abort(path: Path, *partitions: Sequence[Row], **options: object) -> None:
    """Store rows as Spark does: a failure of task or commit is followed by an abort."""
    every = [row for rows in partitions for row in rows]
    writer = begin(path, every, **options)
    try:
        staged: list[StagedFile | None] = []
        for number, rows in enumerate(partitions):
            staged.append(run_task(writer, number, iter([batch_of(rows, like=every)])))
        writer.commit(staged)
    except StoreError:
        writer.abort([None for _ in partitions])
        raise
