"""The stream reader run as Spark runs it, without Spark: batch after batch, with a checkpoint."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit

import rmqstore
from rmqstore import Message
from rmqstore.spark import schema
from rmqstore.spark.options import Options
from rmqstore.spark.stream.stream import RmqStoreStreamReader
from tests.spark.reading import Row, rows_of

SMALL: dict[str, Any] = {
    "commit_log_file_size_bytes": 16_384,
    "consume_queue_file_size_bytes": 1000,
    "index_slot_count": 64,
    "index_entry_count": 500,
}
"""Sizes so small that files roll within a test."""

TOPICS = ("orders", "payments", "refunds")
BATCHES_MAX = 10_000


def messages(count: int, *, first: int = 0, size_max: int = 600) -> list[Message]:
    """Return messages whose bodies begin with their number."""
    rng = random.Random(first)
    return [
        Message(
            TOPICS[number % len(TOPICS)],
            b"%d:" % number + bytes(rng.randrange(size_max)),
            queue=number % 2,
        )
        for number in range(first, first + count)
    ]


def numbers(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of the messages in rows."""
    return [int(row["body"].partition(b":")[0]) for row in rows]


def ends_of_records(store: rmqstore.Store) -> set[int]:
    """Return all borders between records, and the starts of files."""
    records = list(store.scan_log())
    return {record.physical_offset for record in records} | {
        record.physical_offset + record.size for record in records
    }


def open_store(path: Path, **settings: Any) -> rmqstore.Store:
    """Open a store of small files."""
    return rmqstore.open(path, **{**SMALL, **settings})


class Query:
    """A streaming query: its positions as text, and the rows of its batches.

    A process that died is `restarted`: what was kept of the reader is gone, the texts stay.
    """

    def __init__(self, path: object, **options: object) -> None:
        self.path = path
        self.given = options
        self.offsets: list[str] = []
        """Where each planned batch ends."""
        self.committed = 0
        """How many of them were read."""
        self._start: dict[str, Any] | None = None
        self._make()

    def _make(self) -> None:
        paths = self.path if isinstance(self.path, list) else [self.path]
        answer = {"paths": json.dumps([str(path) for path in paths])} | {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.given.items()
        }
        options = self.options = CaseInsensitiveDict(answer)
        parsed = Options.parse(options, streaming=True)
        self.schema = schema.struct(schema.columns_of(parsed), parsed.kafka_names)
        self.reader = RmqStoreStreamReader(options, self.schema)
        # Spark makes another reader for the executors, which is never asked for anything else.
        self._pickled = pickle.dumps(RmqStoreStreamReader(options, self.schema))
        self._start = None

    def restarted(self, **options: object) -> Query:
        """Go on from the checkpoint in a new process, with further options."""
        self.given = {**self.given, **options}
        self._make()
        return self

    @property
    def start(self) -> dict[str, Any]:
        """Where the next batch begins: what was committed, else the start of a query."""
        if self.committed:
            return json.loads(self.offsets[self.committed - 1])  # type: ignore[no-any-return]
        return json.loads(json.dumps(self.reader.initialOffset()))  # type: ignore[no-any-return]

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Write down where the next batch ends; False when there is nothing new."""
        if len(self.offsets) > self.committed:
            return True
        start = self.start
        found = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        text = json.dumps(found)
        if text == json.dumps(start):
            return False
        self.offsets.append(text)
        return True

    def planned(self) -> list[Any]:
        """Return the partitions of the planned batch, as tasks get them."""
        end = json.loads(self.offsets[self.committed])
        return [
            pickle.loads(pickle.dumps(each)) for each in self.reader.partitions(self.start, end)
        ]

    def task_rows(self, partition: Any) -> list[Row]:
        """Return the rows of one partition."""
        expected = to_arrow_schema(self.schema, timezone="UTC")
        reader: RmqStoreStreamReader = pickle.loads(self._pickled)
        rows = []
        for batch in reader.read(partition):
            assert batch.schema.equals(expected)
            rows += rows_of(batch)
        return rows

    def read(self) -> list[Row]:
        """Return the rows of the planned batch, as often as one likes."""
        return [row for each in self.planned() for row in self.task_rows(each)]

    def commit(self) -> None:
        """Write down that the planned batch was read."""
        self.reader.commit(json.loads(self.offsets[self.committed]))
        self.committed += 1

    def batch(self, limit: ReadLimit | None = None) -> list[Row] | None:
        """Return the rows of the next batch, None when there is nothing new."""
        if not self.plan(limit):
            return None
        rows = self.read()
        self.commit()
        return rows

    def batches(self, limit: ReadLimit | None = None) -> list[list[Row]]:
        """Return the rows of all batches until there is nothing new."""
        found: list[list[Row]] = []
        for _ in range(BATCHES_MAX):
            rows = self.batch(limit)
            if rows is None:
                return found
            found.append(rows)
        raise AssertionError(f"the query does not come to an end in {BATCHES_MAX} batches")

    def rows(self) -> list[Row]:
        """Return the rows of all batches until there is nothing new."""
        return [row for rows in self.batches() for row in rows]

    def places(self) -> dict[str, int]:
        """Return the physical offsets that the last planned batch ends at."""
        logs = json.loads(self.offsets[-1])["commitLog"]
        return {name: log["physicalOffset"] for name, log in logs.items()}


def query_all(path: object, **options: object) -> Query:
    """Return a query over all that is written, on the disk or not."""
    return Query(path, **{"startingOffsets": "earliest", "upTo": "max", **options})
