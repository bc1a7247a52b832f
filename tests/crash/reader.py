"""A process that reads beside a writer; run as `python reader.py DIRECTORY SEED STOP`.

It reads by every verb, each at least READ_LEAST times, until the file STOP exists, and checks of
each record that all its parts belong together and that it is none which the writer had cut before
the last refresh. Prints how often it read by each verb; ends with a traceback when something was
wrong.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import rmqstore
from rmqstore import CorruptionError, Message, NotFoundError, OffsetOutOfRange, Record

TOPIC = "orders"
QUEUES = 3
FILES: dict[str, Any] = {
    "commit_log_file_size_bytes": 65536,
    "consume_queue_file_size_bytes": 2000,
    "index_slot_count": 64,
    "index_entry_count": 500,
}
READ_LEAST = 5
TRIES_MAX = 1_000_000
FAILURES_MAX = 100
"""In a row, with a refresh after each: more is no writer at work."""


class Cut(NamedTuple):
    """From message *start* on, records of a number below *number* are gone."""

    start: int
    number: int


class State(NamedTuple):
    """What the writer says it has done, afterwards; and before a cut, that it will make one."""

    cuts: list[Cut]
    ends: list[int]
    """How far each queue was dispatched."""

    begun: int
    """How many cuts were begun."""


def message(index: int, number: int, salt: int) -> Message:
    """Return the message that is put as *number*, the *index*-th of the log as it now is.

    Its sizes follow from index and salt alone, so that after a cut a record of other contents lies
    exactly where another one was.
    """
    rng = random.Random(index * 1000 + salt)
    size, filler = rng.choice((20, 300, 300, 3000)), rng.randint(1, 200)
    letters = random.Random(number)
    body = f"{index:08}:{number:08}:".encode() + letters.randbytes(size)
    properties = {"sum": f"{zlib.crc32(body):08x}", "filler": "abcdefgh"[number % 8] * filler}
    key, tag = f"k{number:08}", "ABCDEFGH"[number % 8]
    return Message(TOPIC, body, queue=index % QUEUES, tags=tag, keys=(key,), properties=properties)


def number_of(body: bytes) -> tuple[int, int]:
    """Return index and number of the message a body was made of, having checked its shape."""
    index, number = body[:8], body[9:17]
    assert index.isdigit(), body[:40]
    assert number.isdigit(), body[:40]
    return int(index), int(number)


def check_parts(
    body: bytes, keys: str | None, tags: str | None, properties: Any
) -> tuple[int, int]:
    """Every part of a record was written by one put; return index and number of its message."""
    index, number = number_of(body)
    assert body[18:] == random.Random(number).randbytes(len(body) - 18), (index, number)
    properties = dict(properties)
    assert properties["sum"] == f"{zlib.crc32(body):08x}", (index, number, properties)
    assert set(properties["filler"]) <= {"abcdefgh"[number % 8]}, (index, number, properties)
    assert (keys, tags) == (f"k{number:08}", "ABCDEFGH"[number % 8]), (index, number, keys, tags)
    return index, number


def check(record: Record, cuts: list[Cut]) -> None:
    place = check_parts(record.body, record.properties.get("KEYS"), record.tags, record.properties)
    check_place(place, record.queue, record.queue_offset, cuts)


def check_place(place: tuple[int, int], queue: int, offset: int, cuts: list[Cut]) -> None:
    index, number = place
    assert index == offset * QUEUES + queue, (place, queue, offset)
    for cut in cuts:
        assert index < cut.start or number >= cut.number, f"{place} was cut by {cut}"


class Reader:
    """A store and its writer's state as it was before the last refresh."""

    def __init__(self, store: rmqstore.Store, state_path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state_path = state_path
        self.store = store
        self.cuts: list[Cut] = []
        self.refresh()

    def read_state(self) -> State:
        fields = json.loads(self.state_path.read_text())
        return State([Cut(*each) for each in fields["cuts"]], fields["ends"], fields["begun"])

    def refresh(self) -> None:
        """After it, everything the writer had said before it is seen."""
        state = self.read_state()
        self.store.refresh()
        self.cuts = state.cuts
        ends = [self.store.queue(TOPIC, number).end for number in range(QUEUES)]
        if state.begun == len(state.cuts) and self.read_state().begun == state.begun:
            assert all(end >= said for end, said in zip(ends, state.ends, strict=True)), (
                ends,
                state,
            )

    def queue(self) -> rmqstore.Queue:
        return self.store.queue(TOPIC, self.rng.randrange(QUEUES))

    def place(self, queue: rmqstore.Queue) -> int:
        """An offset in the queue, oftener one near its end."""
        start, end = queue.start, queue.end
        if end - start > 30 and self.rng.random() < 0.7:
            start = end - 30
        return self.rng.randrange(start, max(end, start + 1))

    # -- verbs

    def get(self) -> None:
        queue = self.queue()
        check(queue.get(self.place(queue)), self.cuts)

    def get_many(self) -> None:
        queue = self.queue()
        for record in queue.get_many(self.place(queue), max_count=20).records:
            check(record, self.cuts)

    def records(self) -> None:
        queue = self.queue()
        for record in itertools.islice(queue.records(start=self.place(queue)), 100):
            check(record, self.cuts)

    def find(self) -> None:
        queue = self.queue()
        record = queue.get(self.place(queue))
        found = self.store.find(TOPIC, record.keys[0])
        for each in found:
            check(each, self.cuts)
            assert each.keys == record.keys

    def scan_log(self) -> None:
        scan = self.store.scan_log(start=self.queue().get(self.place(self.queue())).physical_offset)
        for record in itertools.islice(scan, 100):
            check(record, self.cuts)

    def scan(self) -> None:
        """Views look into the file itself, and may change when its end is cut; they never fault."""
        queue = self.queue()
        with queue.scan(start=self.place(queue)) as scan:
            for record in itertools.islice(scan, 50):
                assert len(bytes(record.body_view)) == record.body_size

    def follow(self) -> None:
        queue = self.queue()
        start = max(queue.start, queue.end - 10)
        for record in itertools.islice(queue.follow(start), 15):
            check(record, [])

    def arrow(self) -> None:
        queue = self.queue()
        columns = ["queue_offset", "body", "keys", "tags", "properties"]
        stream = queue.to_arrow(columns, start=self.place(queue), batch_rows=32)
        try:
            batches = list(itertools.islice(stream, 4))
        except OSError as error:  # All that pyarrow lets through of what went wrong.
            raise CorruptionError(str(error)) from error
        for batch in batches:
            for row in batch.to_pylist():
                place = check_parts(row["body"], row["keys"], row["tags"], row["properties"])
                check_place(place, queue.number, row["queue_offset"], self.cuts)

    def offset_at(self) -> None:
        queue = self.queue()
        offset = queue.offset_at(self.rng.choice((0, 2**62)))
        assert 0 <= offset

    def open_anew(self) -> None:
        with rmqstore.open(self.store.path, read_only=True, **FILES) as other:
            assert other.end_offset >= other.start_offset


def main(directory: str, seed: int, stop: str) -> None:
    store = rmqstore.open(directory, read_only=True, **FILES)
    reader = Reader(store, Path(directory).with_name("state.json"), seed)

    verbs: list[Callable[[], None]] = [
        *(reader.get, reader.get_many, reader.records, reader.find, reader.scan_log, reader.scan),
        *(reader.follow, reader.arrow, reader.offset_at, reader.open_anew),
    ]

    done: Counter[str] = Counter()
    failures = 0
    for _ in range(TRIES_MAX):
        if Path(stop).exists() and all(done[verb.__name__] >= READ_LEAST for verb in verbs):
            break

        verb = reader.rng.choice(verbs)
        try:
            if reader.rng.random() < 0.3:
                reader.refresh()
            verb()
        except (CorruptionError, NotFoundError, OffsetOutOfRange) as error:
            # What the reader had in view was cut or deleted; a refresh shows what is there.
            failures += 1
            if failures > FAILURES_MAX:
                raise
            done[type(error).__name__] += 1
            reader.refresh()
            continue

        failures = 0
        done[verb.__name__] += 1

    print(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
