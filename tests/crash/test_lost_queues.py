"""Queues that are lost, with and without what the store noted about them when it was closed."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.check import verify

SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 4096,
    "consume_queue_file_size_bytes": 200,
    "index_slot_count": 16,
    "index_entry_count": 40,
    "message_size_bytes_max": 2000,
}
ENDS = "queueEnds"
QUEUE_OFFSET_AT = 20
IDLE, BUSY = 25, 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed store: "idle" has three queue files and no record in the last log files, "busy" has
    records in all."""
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        for number in range(IDLE):
            store.put("idle", b"%d" % number)
            store.put("busy", b"%d" % number)
        for number in range(IDLE, IDLE + BUSY):
            store.put("busy", b"%d" % number + bytes(400))
        assert store.end_offset > 4 * 4096
    return tmp_path / "store"


def file_of(directory: Path, topic: str, number: int) -> Path:
    return directory / "consumequeue" / topic / "0" / f"{number * 200:020d}"


def queue_of(store: rmqstore.Store, topic: str) -> list[tuple[int, int]]:
    queue = store.queue(topic)
    return [
        (record.queue_offset, int(record.body.rstrip(b"\0")))
        for record in queue.records(queue.start)
    ]


def numbered(count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(count)]


def lose_first_file_of_busy(directory: Path) -> None:
    file_of(directory, "busy", 0).unlink()


def lose_last_files_of_busy(directory: Path) -> None:
    for number in range(1, 6):
        file_of(directory, "busy", number).unlink()


def lose_all_of_busy(directory: Path) -> None:
    shutil.rmtree(directory / "consumequeue" / "busy")


def lose_first_file_of_idle(directory: Path) -> None:
    file_of(directory, "idle", 0).unlink()


@pytest.mark.parametrize(
    "lose",
    [
        lose_first_file_of_busy,
        lose_last_files_of_busy,
        lose_all_of_busy,
        lose_first_file_of_idle,
    ],
)
@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_a_directory_of_rocketmq_gets_back_what_its_log_shows(
    end: str, lose: Callable[[Path], None], directory: Path
) -> None:
    (directory / ENDS).unlink()
    if end == "crashed":
        (directory / "abort").write_text("1")
    lose(directory)
    with rmqstore.open(directory) as store:
        assert queue_of(store, "idle") == numbered(IDLE)
        assert queue_of(store, "busy") == numbered(IDLE + BUSY)
    assert verify(directory, full=True).is_sound


@pytest.mark.parametrize("files", [(0,), (1, 2), (2,), (0, 1, 2)])
def test_a_store_that_crashed_after_it_was_closed_once_gets_its_queues_back(
    files: tuple[int, ...], directory: Path
) -> None:
    store = rmqstore.open(directory)
    store.put("busy", b"%d" % (IDLE + BUSY))
    store.abandon()
    for number in files:
        file_of(directory, "idle", number).unlink()
    with rmqstore.open(directory) as store:
        assert queue_of(store, "idle") == numbered(IDLE)
        assert queue_of(store, "busy") == numbered(IDLE + BUSY + 1)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"\1" * 99]
)
def test_damaged_notes_have_the_whole_log_walked(
    damage: Callable[[bytes], bytes], directory: Path
) -> None:
    path = directory / ENDS
    path.write_bytes(damage(path.read_bytes()))
    shutil.rmtree(directory / "consumequeue" / "idle")
    with rmqstore.open(directory) as store:
        assert store.recovery.start_offset == 0
        assert queue_of(store, "idle") == numbered(IDLE)
    with rmqstore.open(directory) as store:
        assert store.recovery.start_offset > 0


def test_what_expired_or_was_cut_is_not_missed(directory: Path) -> None:
    with rmqstore.open(directory) as store:
        store.expire_files(3)
        busy = queue_of(store, "busy")
        assert busy[0][0] > 10
    for read_only in (True, False):
        with rmqstore.open(directory, read_only=read_only) as store:
            assert not store.recovery.was_incomplete
            assert queue_of(store, "busy") == busy

    with rmqstore.open(directory) as store:
        store.truncate_to(
            store.record_at(store.get("busy", offset=45).physical_offset).physical_offset
        )
    for read_only in (True, False):
        with rmqstore.open(directory, read_only=read_only) as store:
            assert not store.recovery.was_incomplete
            assert queue_of(store, "busy") == busy[: 45 - busy[0][0]]


def test_first_files_lost_of_a_queue_whose_oldest_messages_are_expired(directory: Path) -> None:
    with rmqstore.open(directory) as store:
        store.expire_files(1)
        busy = queue_of(store, "busy")
    first = min((directory / "consumequeue" / "busy" / "0").iterdir())
    first.unlink()
    with rmqstore.open(directory) as store:
        assert queue_of(store, "busy") == busy


def test_messages_of_a_topic_that_rocketmq_made_again_do_not_come_back(directory: Path) -> None:
    # RocketMQ counts from 0 when a topic is made again. The log has the messages of both times.
    with rmqstore.open(directory) as store:
        places = [each for each in store.scan_log() if each.topic == "busy"]
    for number, each in enumerate(places[-3:]):
        start, at = divmod(each.physical_offset, 4096)
        with (directory / "commitlog" / f"{start * 4096:020d}").open("r+b") as log:
            log.seek(at + QUEUE_OFFSET_AT)
            log.write(number.to_bytes(8, "big"))

    lose_all_of_busy(directory)
    file = file_of(directory, "busy", 0)
    file.parent.mkdir(parents=True)
    units = [struct.pack(">qiq", each.physical_offset, each.size, 0) for each in places[-3:]]
    file.write_bytes(b"".join(units).ljust(200, b"\0"))

    shutil.rmtree(directory / "consumequeue" / "idle")
    with rmqstore.open(directory) as store:
        assert queue_of(store, "idle") == numbered(IDLE)
        assert (store.queue("busy").start, store.queue("busy").end) == (0, 3)


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_after_expiry_is_recovered_from_the_checkpoint_on(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    sizes = SIZES | {"index_entry_count": 200, "index_slot_count": 50}
    with rmqstore.open(tmp_path, **sizes) as store:
        store.put("t0", b"", keys="k")
    begins = 0
    for round_ in range(8):
        with rmqstore.open(tmp_path, **sizes) as store:
            assert not store.recovery.was_incomplete
            assert round_ < 5 or store.recovery.start_offset > begins
            for number in range(60 * round_, 60 * round_ + 60):
                store.put(f"t{rng.randrange(3)}", bytes(rng.randrange(200)), keys=f"{number}")
            store.flush()
            store.expire_files(max(0, len(store._files()) - 9))
            store._remove_queues("t2", store.end_offset)
            begins = store.start_offset
            store.abandon()
