"""Commit log files as bytes, and a scan of one driven to its end."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rmqstore._native import core
from rmqstore.errors import CorruptionError
from tests.golden import GoldenCase
from tests.reference import batch, log, properties, record
from tests.reference.columns import NAMES, Row, row, rows_of
from tests.reference.record import Record

EVER = (-(2**63), 2**63 - 1)
STEPS_MAX = 200_000


@dataclass(slots=True)
class Reading:
    """One scan driven to its end: what came out, in order."""

    data: bytes
    start: int = 0
    """Physical offset of the first byte of *data*."""
    pieces: Sequence[int] = (1 << 20,)
    """How many bytes are fed at least, over and over."""
    columns: Sequence[str] = NAMES
    batch_rows: int = 10_000
    batch_bytes: int = 1 << 20
    resync: bool = False
    positions: Sequence[int] | None = None
    choices: Any = None
    """What `choose` is told of each topic: a function, or None without by_topic."""
    asked: list[bytes] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    """Offsets of the places that were no record."""
    errors: list[str] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ending: str | None = None
    offset: int = -1
    records: int = 0
    bytes: int = 0
    summary: list[Any] = field(default_factory=list)
    fed: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def _scan(self, *, rows: bool, begin: int | None, stop: int | None, **options: Any) -> Any:
        selection = core.ArrowSelection(
            self.columns,
            batch_rows=self.batch_rows,
            batch_bytes=self.batch_bytes,
            large_binary=False,
        )

        scan = core.SegmentScan(
            selection if rows else None,
            start=self.start if begin is None else begin,
            stop=self.end if stop is None else stop,
            file_end=self.end,
            by_topic=self.choices is not None,
            **options,
        )

        if self.positions is not None:
            scan.visit(array("q", self.positions))
        return scan

    def rows(
        self, *, begin: int | None = None, stop: int | None = None, **options: Any
    ) -> list[Row]:
        """Return all rows."""
        scan = self._scan(rows=True, begin=begin, stop=stop, **options)
        found: list[Row] = []
        for state in self._drive(scan, scan.fill):
            if state in ("full", "end"):
                count = scan.rows
                taken = scan.take()
                if state == "full":
                    self.sizes.append(count)
                assert (taken is None) == (count == 0)
                if taken is not None:
                    found += rows_of(pa.record_batch(taken))
        return found

    def sums(self, *, begin: int | None = None, stop: int | None = None, **options: Any) -> Any:
        """Return the summary."""
        scan = self._scan(rows=False, begin=begin, stop=stop, **options)
        for _ in self._drive(scan, scan.summarize):
            pass
        return self.summary

    def _drive(self, scan: Any, step: Callable[[], str]) -> Iterator[str]:
        work = step
        for _ in range(STEPS_MAX):
            state = work()
            if state != "corrupt":
                assert scan.error is None or work is not step
            if state == "more":
                self._feed(scan)
                continue
            if state == "corrupt":
                self._note(scan)
            elif state == "topic":
                self.asked.append(scan.topic)
                scan.choose(scan.topic, self.choices(scan.topic))
            elif state == "full":
                yield state
            work = step
            if state == "over" and scan.ending == "unwritten" and self.resync:
                self.gaps.append(scan.offset)
                work = scan.resync
            elif state == "corrupt" and self.resync:
                work = scan.resync
            elif state in ("over", "corrupt"):
                yield "end"
                self.ending, self.offset = scan.ending, scan.offset
                self.records, self.bytes = scan.records, scan.bytes
                self.summary = scan.summary()
                scan.close()
                return
        raise AssertionError("the scan does not end")

    def _feed(self, scan: Any) -> None:
        assert 0 < scan.needed <= self.end - scan.offset
        size = max(scan.needed, self.pieces[self.fed % len(self.pieces)])
        self.fed += 1
        at = scan.offset - self.start
        # Bytes before the place do no harm.
        before = min(at, self.fed % 3)
        scan.feed(self.data[at - before : at + size], scan.offset - before)

    def _note(self, scan: Any) -> None:
        assert isinstance(scan.error, CorruptionError)
        assert scan.error.physical_offset == scan.offset
        self.bad.append(scan.offset)
        self.errors.append(str(scan.error))


def messages_of(found: Record) -> list[Row]:
    """The rows of a record whose inner batch is taken apart."""
    whole = row(found)
    if not found.sys_flag & record.INNER_BATCH or found.sys_flag & record.COMPRESSED:
        return [whole]
    base = int(whole["properties"].get(properties.INNER_BASE, found.queue_offset))

    rows = []
    for number, message in enumerate(batch.decode(found.body)):
        inner = replace(
            found,
            flag=message.flag,
            body=message.body,
            body_crc=record.crc(message.body),
            property_bytes=message.property_bytes,
            queue_offset=base + number,
        )
        kept = {name: whole[name] for name in ("size", "body_crc_ok", "record")}
        rows.append({**row(inner), **kept})

    return rows


@dataclass(frozen=True, slots=True)
class File:
    """One file of a golden commit log, and its records by the reference."""

    start: int
    data: bytes
    records: dict[int, Record]

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def rows(self, *, unwrap: bool = True) -> list[Row]:
        found = self.records.values()
        if not unwrap:
            return [row(one) for one in found]
        return [message for one in found for message in messages_of(one)]


def files_of(golden: GoldenCase) -> list[File]:
    directory = golden.root / "commitlog"
    records = dict(log.walk(directory))
    return [
        File(
            start,
            data,
            {at: one for at, one in records.items() if start <= at < start + len(data)},
        )
        for start, data in log.files(directory)
    ]


def one(**fields: Any) -> Record:
    """A record of topic T, queue 0; its place is given by `log_of`."""
    text = fields.pop("properties", {})
    made = Record(
        version=1,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=1000,
        born_host=record.Host(bytes(4), 0),
        store_timestamp=1000,
        store_host=record.Host(bytes(4), 0),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"body",
        topic_bytes=b"T",
        property_bytes=properties.encode(text),
    )
    return replace(made, **fields)


def inner(count: int, *, base: int, tags: Sequence[str] = ("t0", "t1"), **fields: Any) -> Record:
    """A record of *count* messages, of tags in turn."""
    messages = [
        batch.Message(
            flag=number,
            body=b"%d" % number,
            property_bytes=properties.encode({"TAGS": tags[number % len(tags)]}),
        )
        for number in range(count)
    ]
    pairs = {"INNER_NUM": str(count), "INNER_BASE": str(base)}
    return one(
        body=batch.encode(messages),
        sys_flag=record.INNER_BATCH,
        queue_offset=base,
        properties=pairs,
        **fields,
    )


def log_of(records: Sequence[Record], *, start: int = 0, room: int = 64) -> File:
    """A file of these records, ended by a blank where *room* allows."""
    parts = []
    at = start
    placed = {}
    for made in records:
        placed[at] = record.derive(replace(made, physical_offset=at))
        parts.append(record.encode(placed[at]))
        at += len(parts[-1])
    blank = record.encode_blank(room).ljust(room, b"\0") if room else b""
    return File(start, b"".join(parts) + blank, placed)
