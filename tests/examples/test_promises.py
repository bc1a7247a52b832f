"""Promises of the documents that no other test keeps."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Durability, FlushDiskType, Message
from tests.house import tree

SIZES = {
    "commit_log_file_size_bytes": 1 << 16,
    "index_slot_count": 11,
    "index_entry_count": 20,
}

FORKED = """
import os, sys, time, rmqstore

path = sys.argv[1]
store = rmqstore.open(path, commit_log_file_size_bytes=65536, index_slot_count=11,
                      index_entry_count=20)
store.put("orders", b"parent")
while len(os.listdir(f"{path}/commitlog")) < 2:  # the file made ahead
    time.sleep(0.001)
ends, alive = os.pipe()
child = os.fork()
if child == 0:
    os.close(alive)
    for call in (
        lambda: store.put("orders", b"child"),
        lambda: store.get("orders", offset=0),
        lambda: store.find("orders", "key"),
        lambda: store.truncate_to(0),
        lambda: store.flush(),
    ):
        try:
            call()
        except rmqstore.StoreClosedError:
            continue
        os._exit(1)  # it did something
    store.close()  # harmless: nothing of it is the child's
    sys.stdout.write("refused\\n")
    sys.stdout.flush()
    os.read(ends, 1)  # lives on until the parent is done
    os._exit(0)
os.close(ends)
store.put_many([bytes(1000)] * 200, topic="orders")
store.close()
with rmqstore.open(path) as again:
    print(again.queue("orders").end)
os.close(alive)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_can_neither_use_nor_harm_the_store(tmp_path: Path) -> None:
    """Nor does a child that lives on keep the lock of a store its parent has closed."""
    told = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert sorted(told.stdout.split()) == ["201", "refused"]


def test_a_clock_set_back_loses_nothing(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store", **SIZES)
    now_ms = 1_700_000_000_000
    for number in range(100):
        store._set_clock(now_ms - number * 3_600_000)
        store.put("orders", bytes(2000), keys=[f"k{number}"])
        if number % 30 == 29:
            store.wait_dispatched()
            store.flush()
    store.wait_dispatched()
    store._abandon()
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        assert len(store.queue("orders")) == 100
        found = [store.find("orders", f"k{number}") for number in range(100)]
        assert [len(records) for records in found] == [1] * 100


def test_a_store_made_for_both_releases_never_gets_tag_entries(tmp_path: Path) -> None:
    for turn in range(3):
        with rmqstore.open(tmp_path / "store", **SIZES) as store:
            for number in range(30):
                store.put("orders", b"x", tags="eu", keys=[f"k{turn}-{number}"])
            store.wait_dispatched()
            assert store.find_tag("orders", "eu") == []
    with rmqstore.open(tmp_path / "other", compatibility="5.5", **SIZES) as store:
        store.put("orders", b"x", tags="eu")
        assert len(store.find_tag("orders", "eu")) == 1
    with rmqstore.open(tmp_path / "other") as store:
        store.put("orders", b"x", tags="eu")
        assert len(store.find_tag("orders", "eu")) == 2


def test_a_store_nobody_closed_is_recovered(tmp_path: Path) -> None:
    code = "import rmqstore, sys; rmqstore.open(sys.argv[1]).put('orders', b'kept')"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        timeout=60,
        check=True,
    )
    with rmqstore.open(tmp_path / "store") as store:
        assert not store.recovery.was_closed
        assert store.get("orders", offset=0).body == b"kept"


def test_a_second_writer_is_refused_before_it_touches_anything(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        store.put("orders", b"first", durability=Durability.DISK)
        store.wait_dispatched()
        before = _contents(store.path)
        with pytest.raises(rmqstore.StoreLockedError) as caught:
            rmqstore.open(tmp_path / "store", **SIZES)
        assert caught.value.process_id == os.getpid()
        # The first writer itself may make the next log file and write the checkpoint meanwhile.
        after = _contents(store.path)
        assert {name: after.get(name) for name in before} == before
        assert store.put("orders", b"second").queue_offset == 1


def test_a_record_exactly_at_the_end_of_its_queue_is_dispatched_after_a_clean_stop(
    tmp_path: Path,
) -> None:
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        for number in range(5):
            store.put("orders", b"%d" % number)
    units = tmp_path / "store" / "consumequeue" / "orders" / "0" / f"{0:020}"
    with units.open("r+b") as file:
        file.seek(4 * 20)
        file.write(bytes(20))
    with rmqstore.open(tmp_path / "store") as store:
        assert [record.body for record in store.queue("orders")] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_message_that_fits_no_log_file_is_refused_and_moves_nothing(tmp_path: Path) -> None:
    largest = 65536 - 8 - len("orders") - 91  # the blank, the topic, everything of fixed size
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        store.put("orders", b"first")
        end = store.end_offset
        for body_size in (largest + 1, 65536):
            with pytest.raises(rmqstore.MessageRejected, match="does not fit a commit log file"):
                store.put("orders", bytes(body_size))
        assert store.end_offset == end
        assert store.put("orders", bytes(largest)).physical_offset == 65536


def test_a_topic_of_few_characters_and_many_bytes_is_read_back(tmp_path: Path) -> None:
    topic = "é" * 100
    store = rmqstore.open(tmp_path / "store", **SIZES)
    store.put(topic, b"x")
    store._abandon()
    with rmqstore.open(tmp_path / "store") as store:
        record = store.get(topic, offset=0)
        assert (record.topic, record.version) == (topic, 2)


def test_nothing_unflushed_is_seen_where_acknowledgements_wait_for_the_disk(tmp_path: Path) -> None:
    never_ms = 1_000_000
    settings = {
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "flush_commit_log_interval_ms": never_ms,
        "flush_commit_log_thorough_interval_ms": never_ms,
    }
    with rmqstore.open(tmp_path / "store", **SIZES, **settings) as store:
        store.put("orders", b"seen")
        unflushed = store.put("orders", b"unseen", durability=Durability.MEMORY)
        assert store.queue("orders").end == unflushed.queue_offset
        assert store.confirm_offset == unflushed.physical_offset
        store.flush()
        assert store.queue("orders").end == unflushed.queue_offset + 1


def test_store_times_behind_ipv6_hosts_are_found(tmp_path: Path) -> None:
    host = ("2001:db8::17", 10911)
    with rmqstore.open(tmp_path / "store", **SIZES) as store:
        for number in range(10):
            store._set_clock(1_700_000_000_000 + number * 1000)
            store.put(Message("orders", b"x", born_host=host, store_host=host))
        for number in range(10):
            assert store.queue("orders").offset_at(1_700_000_000_000 + number * 1000) == number


def test_index_files_span_fewer_log_files_than_java_walks_back_over(tmp_path: Path) -> None:
    settings = {**SIZES, "index_entry_count": 100_000}
    with rmqstore.open(tmp_path / "store", **settings) as store:
        for number in range(1500):
            store.put("orders", bytes(1000), keys=[f"k{number}"])
        store.wait_dispatched()
        assert len(store._files()) > 20
    spans = []
    for path in sorted((tmp_path / "store" / "index").iterdir()):
        begin, end = struct.unpack_from(">qq", path.read_bytes(), 16)
        spans.append(end // 65536 - begin // 65536 + 1)
    assert len(spans) > 2
    assert max(spans) <= 5


def _contents(root: str) -> dict[str, bytes]:
    files = (path for path in Path(root).rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if path.name != "checkpoint"}
