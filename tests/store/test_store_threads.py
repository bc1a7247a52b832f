"""A store under several threads, beside a reader, and waiting for it."""

from __future__ import annotations

import gc
import random
import re
import threading
from collections import defaultdict
from pathlib import Path

import pytest

import rmqstore
from rmqstore import ArgumentError, Durability, FlushTimeout, OffsetOutOfRange
from rmqstore.message import unique_key
from tests.support.agreement import FILES, check_agreement

# -- several threads


def test_unique_keys_of_many_threads_all_differ() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def make(into: list[str]) -> None:
        into.extend(unique_key() for _ in range(2000))

    threads = [threading.Thread(target=make, args=(each,)) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [key for each in made for key in each]
    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"[0-9A-F]{32}", key) for key in keys)


def test_four_writers_and_readers_see_every_message_once_and_in_order(
    store: rmqstore.Store,
) -> None:
    count, failures = 800, []
    stop = threading.Event()

    def write(writer: int) -> None:
        rng = random.Random(writer)
        for number in range(count):
            body = b"%d %d " % (writer, number) + bytes(rng.randrange(300))
            durability = Durability.DISK if number % 100 == 0 else Durability.MEMORY
            store.put(
                "orders", body, queue=writer % 2, keys=[f"{writer}-{number}"], durability=durability
            )

    def read(queue: int) -> None:
        offset = 0
        while not stop.is_set():
            found = store.get_many("orders", queue=queue, offset=offset)
            for record in found.records:
                if record.queue_offset != offset:
                    failures.append((queue, offset, record.queue_offset))
                offset += 1

    readers = [threading.Thread(target=read, args=(queue,)) for queue in range(2)]
    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert failures == []
    seen: dict[int, list[int]] = defaultdict(list)
    for record in check_agreement(store):
        writer, number, _ = record.body.split(b" ", 2)
        assert record.queue == int(writer) % 2
        seen[int(writer)].append(int(number))
    assert dict(seen) == {writer: list(range(count)) for writer in range(4)}


def test_concurrent_durable_puts_share_flushes_and_are_all_on_disk(store: rmqstore.Store) -> None:
    receipts: list[rmqstore.Receipt] = []

    def write() -> None:
        for _ in range(20):
            receipt = store.put("orders", b"x", durability=Durability.DISK)
            assert store.flushed_offset >= receipt.end_offset
            receipts.append(receipt)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.queue_offset for each in receipts}) == 80


# -- a reader beside the writer


def test_refresh_shows_a_read_only_store_what_its_writer_did(store: rmqstore.Store) -> None:
    store.put("orders", b"0", keys=["k"])
    store.wait_dispatched()
    with rmqstore.open(store.path, read_only=True) as reader:
        seen = 1
        for round_number in range(12):
            assert len(reader.queue("orders")) == seen - (reader.queue("orders").start)
            for _ in range(10):
                store.put("orders", bytes(3000), queue=0, keys=[f"r{round_number}"])
            store.put(f"new{round_number}", b"x")
            store.wait_dispatched()
            if round_number == 6:
                store.expire_files(1)
            reader.refresh()
            seen += 10
            assert reader.end_offset == store.end_offset
            assert reader.queue("orders").end == seen
            assert reader.get("orders", offset=seen - 1).body == bytes(3000)
            assert reader.get(f"new{round_number}", offset=0).body == b"x"
        store.truncate_to(store.queue("orders").get(100).physical_offset)
        reader.refresh()
        assert reader.queue("orders").end == 100


def test_reader_that_refreshes_while_the_writer_puts_sees_only_whole_records(
    store: rmqstore.Store,
) -> None:
    store.put("orders", b"0")
    store.wait_dispatched()
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.put("orders", b"%d" % number + bytes(number % 2000), keys=[f"k{number}"])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with rmqstore.open(store.path, read_only=True) as reader:
            for _ in range(40):
                reader.refresh()
                queue = reader.queue("orders")
                start = max(queue.start, queue.end - 50)
                offsets = [each.queue_offset for each in queue.records(start)]
                assert offsets == list(range(start, queue.end))
    finally:
        stop.set()
        writer.join()
    check_agreement(store)


# -- waiting


def test_waiting_for_a_flush_that_does_not_come_in_time_says_it_is_stored(
    store: rmqstore.Store,
) -> None:
    with pytest.raises(ArgumentError):
        store.put("orders", b"x", durability=Durability.DISK, timeout=-1)
    store.wait_flushed(timeout=60)
    with pytest.raises((FlushTimeout, OffsetOutOfRange)):
        store.wait_flushed(store.end_offset + 1, timeout=0.01)


def test_queue_wait_returns_whether_the_message_came(store: rmqstore.Store) -> None:
    queue = store.queue("orders")
    assert queue.wait(0, timeout=0.01) is False
    thread = threading.Thread(target=lambda: store.put("orders", b"x"))
    thread.start()
    assert queue.wait(0, timeout=10) is True
    thread.join()


def test_follower_sees_what_was_there_and_what_comes_until_the_store_closes(
    store: rmqstore.Store,
) -> None:
    seen: list[bytes] = []
    has_all = threading.Event()

    def follow() -> None:
        for record in store.queue("orders").follow("start"):
            seen.append(record.body)
            if len(seen) == 200:
                has_all.set()

    store.put_many([b"%d" % n for n in range(100)], topic="orders")
    follower = threading.Thread(target=follow)
    follower.start()
    for n in range(100, 200):
        store.put("orders", b"%d" % n)
    assert has_all.wait(timeout=30)
    store.close()
    follower.join(timeout=30)
    assert not follower.is_alive()
    assert seen == [b"%d" % n for n in range(200)]


def test_store_that_nobody_holds_lets_its_directory_go(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store", **FILES)
    store.put("orders", b"kept")
    assert store._cleaner is not None
    timer = store._cleaner._timer
    del store
    gc.collect()
    timer._thread.join(timeout=30)
    assert not timer._thread.is_alive()
    with rmqstore.open(tmp_path / "store") as again:
        assert not again.recovery.was_closed
        assert again.get("orders", offset=0).body == b"kept"


def test_light_queues_have_no_gap_however_soon_a_record_is_dispatched(tmp_path: Path) -> None:
    names, writers, count = ("%LMQ%a", "%LMQ%b"), 4, 100_000
    message = rmqstore.Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": ",".join(names)})
    with rmqstore.open(tmp_path / "light", enable_multi_dispatch=True) as store:

        def write() -> None:
            for _ in range(count):
                store.put(message)

        threads = [threading.Thread(target=write) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [store.queue(name).end for name in names] == [writers * count] * 2
