"""Readers in other processes beside a writer whose files roll, expire and are cut."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import rmqstore
from rmqstore import CorruptionError, Durability, OffsetOutOfRange
from tests.crash import reader
from tests.support.agreement import check_agreement
from tests.support.effort import rounds

SEED = int(os.environ.get("RMQ_SEED", "20240229"))
READERS = 3
STEPS = rounds(200, 10_000)
KEPT_FILES = 6
READ_LEAST = 10
WAIT_STEPS_MAX = 10_000


class Writer:
    """Puts, expires and cuts, and says in `state.json` what it has done."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = rmqstore.open(directory, **reader.FILES)
        self.state_path = directory.with_name("state.json")
        self.index = self.number = self.salt = 0
        self.places: dict[int, int] = {}
        """Physical offset of each message the log may hold, by index."""

        self.cuts: list[reader.Cut] = []
        self.say()

    def say(self, *, cuts_next: bool = False) -> None:
        ends = [len(range(queue, self.index, reader.QUEUES)) for queue in range(reader.QUEUES)]
        self.store.wait_dispatched()
        aside = self.state_path.with_suffix(".new")
        begun = len(self.cuts) + cuts_next
        aside.write_text(json.dumps({"cuts": self.cuts, "ends": ends, "begun": begun}))
        aside.replace(self.state_path)

    def put(self) -> None:
        durability = self.rng.choice((Durability.MEMORY,) * 4 + (Durability.DISK,))
        for _ in range(self.rng.randint(1, 40)):
            message = reader.message(self.index, self.number, self.salt)
            receipt = self.store.put(message, durability=durability)
            assert receipt.queue_offset == self.index // reader.QUEUES
            self.places[self.index] = receipt.physical_offset
            self.index += 1
            self.number += 1

    def cut(self) -> None:
        at = self.index - self.rng.choice((1, 5, 30, 100))
        if self.places.get(at, -1) <= self.store.start_offset:
            return
        self.say(cuts_next=True)
        self.store.truncate_to(self.places[at])
        for index in range(at, self.index):
            del self.places[index]
        self.index = at
        self.cuts.append(reader.Cut(at, self.number))
        if self.rng.random() < 0.5:
            self.salt += 1

    def expire(self) -> None:
        self.store.expire_files(max(0, len(self.store._files()) - KEPT_FILES))

    def step(self) -> None:
        verb = self.rng.choice((self.put,) * 6 + (self.cut, self.expire))
        verb()
        self.say()


def test_readers_beside_a_writer_see_whole_records_and_never_what_was_cut(tmp_path: Path) -> None:
    seed = SEED
    print(f"RMQ_SEED={seed}")

    writer = Writer(tmp_path / "store", seed)
    for _ in range(20):
        writer.put()

    stop = tmp_path / "stop"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    readers = [
        subprocess.Popen(
            [sys.executable, reader.__file__, str(tmp_path / "store"), str(seed + i), str(stop)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for i in range(READERS)
    ]

    done: Counter[str] = Counter()
    try:
        for _ in range(STEPS):
            writer.step()
            if any(process.poll() is not None for process in readers):
                break

        stop.touch()
        # A follower that waits for the next message gets it.
        while any(process.poll() is None for process in readers):
            writer.put()
            writer.say()
            writer.expire()
    except BaseException:
        for process in readers:
            process.kill()
        raise
    finally:
        stop.touch()
        ended = [process.communicate() for process in readers]

    for process, (printed, complaint) in zip(readers, ended, strict=True):
        assert process.returncode == 0, f"{process.returncode}\n{complaint}"
        done += Counter(json.loads(printed))

    check_agreement(writer.store)
    writer.store.close()
    print(dict(done))

    for verb in ("get", "get_many", "records", "find", "scan_log", "scan", "follow", "arrow"):
        assert done[verb] >= READERS * reader.READ_LEAST, done


def test_threads_that_read_while_the_log_is_cut_see_whole_records(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store", SEED)
    for _ in range(20):
        writer.put()
    stop = threading.Event()
    wrong: list[BaseException] = []
    read: Counter[str] = Counter()

    def read_all(seed: int) -> None:
        beside = reader.Reader(writer.store, tmp_path / "state.json", seed)
        try:
            while not stop.is_set():
                verb = beside.rng.choice((beside.get, beside.get_many, beside.arrow))
                try:
                    verb()
                    read[verb.__name__] += 1
                except (CorruptionError, OffsetOutOfRange):
                    read["cut"] += 1
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read_all, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(rounds(100, 5000)):
        writer.put()
        writer.cut()
        writer.expire()
    for _ in range(WAIT_STEPS_MAX):
        if read["get"] > READ_LEAST or wrong:
            break
        writer.put()
        writer.expire()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert read["get"] > READ_LEAST, read
    check_agreement(writer.store)
    writer.store.close()


def fill(store: rmqstore.Store, mark: bytes, count: int = 60) -> list[rmqstore.Receipt]:
    """Put messages over several log files, each with a key."""
    receipts = [
        store.put(reader.TOPIC, mark * 3000, keys=[f"{mark.decode()}{i}"]) for i in range(count)
    ]
    store.wait_dispatched()
    return receipts


def test_log_file_made_anew_under_its_old_name_is_seen_after_refresh(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **reader.FILES) as store:
        old = fill(store, b"o")
        with rmqstore.open(tmp_path / "store", read_only=True, **reader.FILES) as beside:
            assert [each.body[:1] for each in beside.queue(reader.TOPIC)] == [b"o"] * len(old)
            store.truncate_to(old[3].physical_offset)
            new = fill(store, b"n")
            beside.refresh()
            expected = [b"o"] * 3 + [b"n"] * len(new)
            assert [each.body[:1] for each in beside.queue(reader.TOPIC)] == expected
            assert [each.body[:1] for each in beside.scan_log()] == expected


def test_keys_in_index_files_made_later_are_found_after_refresh(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **reader.FILES) as store:
        store.put(reader.TOPIC, b"first", keys=["first"])
        store.wait_dispatched()
        with rmqstore.open(tmp_path / "store", read_only=True, **reader.FILES) as beside:
            for part in range(12):
                receipts = [store.put(reader.TOPIC, b"x", keys=[f"{part}-{i}"]) for i in range(100)]
            store.wait_dispatched()
            assert len(list((tmp_path / "store" / "index").iterdir())) > 2
            beside.refresh()
            found = beside.find(reader.TOPIC, "11-99")
            assert [each.physical_offset for each in found] == [receipts[-1].physical_offset]
            assert len(beside.find(reader.TOPIC, "first")) == 1


def test_record_that_its_writer_has_cut_is_no_record_to_a_reader_that_still_sees_it(
    tmp_path: Path,
) -> None:
    with rmqstore.open(tmp_path / "store", **reader.FILES) as store:
        receipts = fill(store, b"o", 10)
        with rmqstore.open(tmp_path / "store", read_only=True, **reader.FILES) as beside:
            store.truncate_to(receipts[5].physical_offset)
            with pytest.raises(CorruptionError):
                beside.get(reader.TOPIC, offset=5)
            beside.refresh()
            with pytest.raises(OffsetOutOfRange):
                beside.get(reader.TOPIC, offset=5)
            assert beside.get(reader.TOPIC, offset=4).body == b"o" * 3000


def test_file_left_over_from_a_crash_keeps_its_size_under_a_readers_mapping(tmp_path: Path) -> None:
    """The next writer makes another file of that name; a shorter one would kill who looks at it."""
    store = rmqstore.open(tmp_path / "store", **reader.FILES)
    fill(store, b"o", 10)
    store.abandon()
    size = reader.FILES["commit_log_file_size_bytes"]
    left_over = tmp_path / "store" / "commitlog" / f"{size:020}"
    left_over.write_bytes(bytes(size))
    with left_over.open("rb") as file:
        with rmqstore.open(tmp_path / "store", **reader.FILES) as store:
            fill(store, b"n", 30)
        assert os.fstat(file.fileno()).st_size == size
