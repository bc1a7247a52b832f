"""The store's verbs, through the public API."""

from __future__ import annotations

import gc
import logging
import os
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    Boundary,
    CorruptionError,
    Durability,
    FlushDiskType,
    FlushTimeout,
    GetStatus,
    InSyncReplicasNotEnough,
    Message,
    MessageRejected,
    NotFoundError,
    NotWritable,
    OffsetOutOfRange,
    StoreConfig,
    TransactionType,
    UnsupportedStoreError,
    ViewsOpenError,
)
from tests.crash.agreement import FILES, check_agreement

FILE_SIZE = FILES["commit_log_file_size_bytes"]
BLANK_SIZE = 8
NOW_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rmqstore.Store]:
    with rmqstore.open(tmp_path / "store", **FILES) as made:
        yield made


def put_at(store: rmqstore.Store, *times_ms: int) -> None:
    for time_ms in times_ms:
        store._set_clock(time_ms)
        store.put("orders", str(time_ms).encode())
    store._set_clock(0)


# -- put


def test_put_and_get_give_back_every_field(store: rmqstore.Store) -> None:
    message = Message(
        "orders",
        b"paid",
        queue=3,
        tags="eu",
        keys=("o-17", "c-4"),
        properties={"colour": "grün"},
        flag=-5,
        born_timestamp=123,
        born_host=("10.1.2.3", 4567),
        store_host=("::1", 10911),
        reconsume_times=2,
        unique_key="0102",
    )
    receipt = store.put(message)
    record = store.get("orders", queue=3, offset=receipt.queue_offset)
    assert (record.topic, record.queue, record.body) == ("orders", 3, b"paid")
    assert (record.tags, record.keys, record.unique_key) == ("eu", ["o-17", "c-4"], "0102")
    assert record.properties["colour"] == "grün"
    assert (record.flag, record.born_timestamp, record.reconsume_times) == (-5, 123, 2)
    assert record.born_host == ("10.1.2.3", 4567)
    assert record.store_host == ("::1", 10911)
    assert record.store_timestamp == receipt.store_timestamp
    assert record.physical_offset == receipt.physical_offset
    assert record.size == receipt.size


@pytest.mark.parametrize("store_host", [None, ("10.9.8.7", 10911), ("fe80::2", 10911)])
def test_message_id_leads_back_to_the_record(
    store_host: tuple[str, int] | None, store: rmqstore.Store
) -> None:
    store.put("orders", b"first")
    receipt = store.put(Message("orders", b"second", store_host=store_host))
    record = store.get_by_id(receipt.message_id)
    assert record.body == b"second"
    assert record.message_id == receipt.message_id


def test_message_id_of_no_record_is_refused(store: rmqstore.Store) -> None:
    receipt = store.put("orders", b"first")
    with pytest.raises(ArgumentError):
        store.get_by_id("xyz")
    beyond = receipt.message_id[:-16] + f"{receipt.end_offset:016X}"
    with pytest.raises(OffsetOutOfRange):
        store.get_by_id(beyond)
    inside = receipt.message_id[:-16] + f"{receipt.physical_offset + 1:016X}"
    with pytest.raises(CorruptionError, match=str(receipt.physical_offset + 1)):
        store.get_by_id(inside)


@pytest.mark.parametrize("body", [b"", b"\0", b"x" * 65537, bytearray(b"ab"), memoryview(b"cd")])
def test_any_buffer_is_a_body(body: bytes | bytearray | memoryview, store: rmqstore.Store) -> None:
    with rmqstore.open(store.path + "2") as roomy:
        receipt = roomy.put("orders", body)
        assert roomy.get("orders", offset=receipt.queue_offset).body == bytes(body)


def test_topics_over_127_bytes_are_stored_as_version_2(store: rmqstore.Store) -> None:
    for size, version in ((127, 1), (128, 2), (255, 2)):
        topic = "t" * size
        store.put(topic, b"x", keys=["k"])
        record = store.get(topic, offset=0)
        assert (record.topic, record.version) == (topic, version)
        assert len(store.find(topic, "k")) == 1


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("", b""), ["topic", "255"]),
        (Message("a/b", b""), ["topic", "'/'"]),
        (Message("..", b""), ["topic", ".."]),
        (Message("t" * 256, b""), ["256", "255"]),
        (Message("a\0b", b""), ["NUL"]),
        (Message("orders", b"", queue=-1), ["queue -1", "negative"]),
        (Message("orders", b"", queue=2**31), ["queue", "32 bits"]),
        (Message("orders", b"", properties={"a": "b" * 32768}), ["32767"]),
        (Message("orders", b"", properties={"a\x01b": "c"}), ["a\\x01b"]),
        (Message("orders", b"", properties={"a": "b\x02c"}), ["'a'"]),
        (Message("orders", b"", properties={"a": "b\0c"}), ["'a'"]),
        (Message("orders", b"", properties={"": "c"}), ["empty"]),
        (Message("orders", bytes(4 * 2**20 + 1)), ["4194305", "4194304", "maxMessageSize"]),
        (Message("orders", bytes(FILE_SIZE)), [str(FILE_SIZE - 8), "mappedFileSizeCommitLog"]),
    ],
)
def test_message_that_cannot_be_stored_is_refused_with_its_limit(
    message: Message, words: list[str], store: rmqstore.Store
) -> None:
    store.put("orders", b"before")
    end = store.end_offset
    with pytest.raises(MessageRejected) as caught:
        store.put(message)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.stored is False
    assert not caught.value.retriable
    with pytest.raises(MessageRejected, match="message number 1 of the call") as caught:
        store.put_many([Message("orders", b"fine"), message, Message("orders", b"fine")])
    assert store.end_offset == end
    assert store.put("orders", b"after").queue_offset == 1


def test_properties_of_exactly_the_limit_are_stored(store: rmqstore.Store) -> None:
    value = "v" * (32767 - len("a") - 2)
    store.put(Message("orders", b"x", properties={"a": value}))
    assert store.get("orders", offset=0).properties == {"a": value}


def test_put_many_is_in_order_and_gives_a_receipt_each(store: rmqstore.Store) -> None:
    messages = [Message("orders", b"%d" % i, queue=i % 3) for i in range(200)]
    receipts = store.put_many(messages)
    places = [each.physical_offset for each in receipts]
    assert places == sorted(places)
    assert [each.queue_offset for each in receipts] == [i // 3 for i in range(200)]
    records = check_agreement(store)
    assert [each.body for each in records] == [each.body for each in messages]


def test_put_many_of_bodies_goes_to_one_queue(store: rmqstore.Store) -> None:
    assert store.put_many([]) == []
    store.put_many([b"a", b"b"], topic="orders", queue=2)
    assert [each.body for each in store.queue("orders", 2)] == [b"a", b"b"]


def test_put_batch_lies_in_one_file(store: rmqstore.Store) -> None:
    while store.end_offset % FILE_SIZE < FILE_SIZE - 5000:
        store.put("orders", bytes(500))
    receipts = store.put_batch([Message("orders", bytes(1000)) for _ in range(10)])
    files = {each.physical_offset // FILE_SIZE for each in receipts}
    assert files == {1}
    with pytest.raises(MessageRejected, match="does not fit"):
        store.put_batch([Message("orders", bytes(1000)) for _ in range(100)])
    check_agreement(store)


def test_replicated_durability_is_refused_without_replicas(store: rmqstore.Store) -> None:
    with pytest.raises(InSyncReplicasNotEnough, match=r"Durability\.DISK") as caught:
        store.put("orders", b"x", durability=Durability.REPLICATED)
    assert caught.value.stored is False
    assert store.end_offset == 0


def test_disk_durability_returns_after_the_flush(store: rmqstore.Store) -> None:
    receipt = store.put("orders", b"x", durability=Durability.DISK)
    assert receipt.durability is Durability.DISK
    assert store.flushed_offset >= receipt.end_offset


def test_refused_writes_are_said_and_allowed_again(store: rmqstore.Store) -> None:
    store._refuse("disk")
    with pytest.raises(NotWritable, match="diskSpaceWarningLevelRatio") as caught:
        store.put("orders", b"x")
    assert caught.value.stored is False
    store._refuse("disk", refused=False)
    store.put("orders", b"x")


def test_a_disk_that_has_room_again_does_not_undo_the_role(store: rmqstore.Store) -> None:
    store._refuse("role")
    store._refuse("disk")
    store._refuse("disk", refused=False)
    store._master_hint = "10.0.0.1:10912"
    with pytest.raises(NotWritable, match="role") as caught:
        store.put_many([b"x"], topic="orders")
    assert caught.value.master_hint == "10.0.0.1:10912"
    store._refuse("role", refused=False)
    store.put("orders", b"x")


def test_a_role_without_puts_takes_raw_bytes_and_cuts(store: rmqstore.Store) -> None:
    first, second = store.put("orders", b"x"), store.put("orders", b"y")
    record = store.read_raw(first.end_offset, second.size)
    store._refuse("role")
    store.truncate_to(first.end_offset)
    store.append_raw(first.end_offset, record)
    store.wait_dispatched()
    assert store.get("orders", offset=1).body == b"y"


def test_a_full_disk_takes_no_raw_bytes(store: rmqstore.Store) -> None:
    store._refuse("disk")
    with pytest.raises(NotWritable, match="diskSpaceWarningLevelRatio"):
        store.append_raw(0, b"x")


# -- the ends of files


@pytest.mark.parametrize("spare", [0, 1, 7, 8, 9, 100])
def test_record_is_followed_by_room_for_a_blank_or_opens_the_next_file(
    spare: int, store: rmqstore.Store
) -> None:
    """With exactly 8 bytes left behind it a record still fits; with fewer it does not."""
    overhead = store.put("orders", b"").size
    body = FILE_SIZE - store.end_offset - overhead - spare
    last = store.put("orders", bytes(body))
    fits = spare >= BLANK_SIZE
    assert (last.physical_offset < FILE_SIZE) == fits
    assert store.put("orders", b"next").physical_offset >= FILE_SIZE - (spare == 100) * 100
    assert len(check_agreement(store)) == 3
    store._abandon()
    with rmqstore.open(store.path, **FILES) as again:
        assert len(check_agreement(again)) == 3


# -- get


def test_get_statuses_and_corrections_are_those_of_the_java_store(store: rmqstore.Store) -> None:
    """store.md 23, in the order of its table."""
    for i in range(10):
        store.put("orders", bytes(9000), tags="A" if i % 2 else "B")
    store.create_topic("empty")
    found = store.get_many("nowhere", offset=5)
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    store.wait_dispatched()
    found = store.get_many("orders", offset=10)
    assert (found.status, found.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 10)
    found = store.get_many("orders", offset=11)
    assert (found.status, found.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 10)
    found = store.get_many("orders", offset=3, max_count=4)
    assert (found.status, found.next_offset) == (GetStatus.FOUND, 7)
    assert [each.queue_offset for each in found.records] == [3, 4, 5, 6]
    assert (found.min_offset, found.max_offset) == (0, 10)
    found = store.get_many("orders", offset=0, tags="C")
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
    assert found.records == []
    store.expire_files(1)
    found = store.get_many("orders", offset=0)
    assert found.status is GetStatus.OFFSET_TOO_SMALL
    assert found.next_offset == found.min_offset == store.queue("orders").start > 0
    store.truncate_to(store.start_offset)
    store.wait_dispatched()
    found = store.get_many("orders", offset=found.min_offset)
    assert found.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)


def test_get_many_keeps_to_count_and_bytes_but_always_gives_one(store: rmqstore.Store) -> None:
    sizes = [store.put("orders", bytes(1000)).size for _ in range(20)]
    store.wait_dispatched()
    assert len(store.get_many("orders", offset=0, max_count=7).records) == 7
    assert len(store.get_many("orders", offset=0, max_bytes=1).records) == 1
    assert len(store.get_many("orders", offset=0, max_bytes=3 * sizes[0]).records) == 3
    assert len(store.get_many("orders", offset=0, max_bytes=3 * sizes[0] - 1).records) == 2
    with pytest.raises(ArgumentError, match="max_count"):
        store.get_many("orders", offset=0, max_count=0)
    with pytest.raises(ArgumentError, match="max_bytes"):
        store.get_many("orders", offset=0, max_bytes=0)


def test_tags_are_compared_as_text_when_their_hashes_are_equal(store: rmqstore.Store) -> None:
    assert rmqstore.message.tags_code("Aa") == rmqstore.message.tags_code("BB")
    for i in range(12):
        store.put("orders", b"%d" % i, tags=("Aa", "BB", "C", None)[i % 4])
    queue = store.queue("orders")
    assert [each.tags for each in queue.records(tags="Aa")] == ["Aa"] * 3
    assert [each.tags for each in queue.records(tags=["BB", "C"])] == ["BB", "C"] * 3
    assert len(queue.get_many(0, tags="BB").records) == 3
    with pytest.raises(ArgumentError):
        queue.get_many(0, tags=[])


def test_get_outside_of_the_queue_names_its_bounds(store: rmqstore.Store) -> None:
    for i in range(3):
        store.put("orders", b"%d" % i)
    for offset, nearest in ((-1, 0), (3, 2), (99, 2)):
        with pytest.raises(OffsetOutOfRange, match="0 to 2") as caught:
            store.get("orders", offset=offset)
        assert (caught.value.start, caught.value.end) == (0, 3)
        assert caught.value.nearest == nearest
    with pytest.raises(NotFoundError, match="nowhere/0"):
        store.get("nowhere", offset=0)
    with pytest.raises(NotFoundError, match="orders/7"):
        store.get("orders", queue=7, offset=0)


def test_record_at_gives_records_and_refuses_other_places(store: rmqstore.Store) -> None:
    receipts = [store.put("orders", bytes(9000)) for _ in range(10)]
    for receipt in receipts:
        assert store.record_at(receipt.physical_offset).size == receipt.size
    blank_at = max(each.end_offset for each in receipts if each.physical_offset < FILE_SIZE)
    with pytest.raises(NotFoundError, match=str(blank_at)):
        store.record_at(blank_at)
    with pytest.raises(CorruptionError):
        store.record_at(receipts[1].physical_offset + 4)
    for outside in (-1, store.end_offset, 2**62):
        with pytest.raises(OffsetOutOfRange):
            store.record_at(outside)


def test_records_and_iteration_stop_where_told(store: rmqstore.Store) -> None:
    store.put_many([b"%d" % i for i in range(1000)], topic="orders")
    queue = store.queue("orders")
    assert (queue.start, queue.end, len(queue)) == (0, 1000, 1000)
    assert [each.body for each in queue.records(10, 13)] == [b"10", b"11", b"12"]
    assert sum(1 for _ in queue) == 1000
    assert list(queue.records(1000)) == []
    assert list(queue.records(5, 5)) == []
    with pytest.raises(ArgumentError):
        queue.records(-1)


def test_scan_log_walks_between_two_offsets(store: rmqstore.Store) -> None:
    receipts = [store.put("orders", bytes(9000)) for _ in range(10)]
    scan = store.scan_log(receipts[2].physical_offset, receipts[8].physical_offset)
    assert [each.queue_offset for each in scan] == [2, 3, 4, 5, 6, 7]
    assert scan.verdict == "limit"
    assert store.scan_log().count() == (10, sum(each.size for each in receipts))


def test_raw_bytes_make_an_equal_log(store: rmqstore.Store, tmp_path: Path) -> None:
    for i in range(30):
        store.put("orders", bytes((i,)) * 5000, keys=[f"k{i}"], queue=i % 2)
    with rmqstore.open(tmp_path / "copy", **FILES) as copy:
        while data := store.read_raw(copy.end_offset, 777):
            copy.append_raw(copy.end_offset, data)
        originals, copies = check_agreement(store), check_agreement(copy)
        assert [each.raw for each in copies] == [each.raw for each in originals]
        assert copy.put("orders", b"next").queue_offset == 15
        with pytest.raises(OffsetOutOfRange):
            copy.append_raw(copy.end_offset + 1, b"x")


# -- views


def test_closing_and_cutting_wait_for_views(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store", **FILES)
    store.put("orders", b"first")
    store.put("orders", b"second")
    with store.queue("orders").scan() as scan:
        view = next(scan).body_view
    with pytest.raises(ViewsOpenError, match="release"):
        store.close()
    with pytest.raises(ViewsOpenError):
        store.truncate_to(0)
    assert bytes(view) == b"first"
    store.put("orders", b"third")
    view.release()
    store.close()


def test_view_into_an_expired_file_stays_valid(store: rmqstore.Store) -> None:
    for i in range(20):
        store.put("orders", bytes((i,)) * 9000)
    with store.queue("orders").scan(0, 3) as scan:
        views = [record.body_view for record in scan]
    store.expire_files(1)
    assert not Path(store._files()[0][0]).name.endswith("0" * 20)
    assert [bytes(view[:1]) for view in views] == [b"\0", b"\1", b"\2"]
    for view in views:
        assert view.readonly
        view.release()


def test_record_outlives_its_store(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        store.put("orders", b"first", tags="A")
        record = store.get("orders", offset=0)
        view = record.body_view
    assert (record.body, bytes(view), record.tags) == (b"first", b"first", "A")


# -- by key


def test_find_gives_the_newest_oldest_first_within_the_time_range(store: rmqstore.Store) -> None:
    for i in range(10):
        store._set_clock(NOW_MS + i * 1000)
        store.put("orders", b"%d" % i, keys=["k"])
    store._set_clock(0)

    def found(**options: int) -> list[bytes]:
        return [each.body for each in store.find("orders", "k", **options)]

    assert found() == [b"%d" % i for i in range(10)]
    assert found(max_count=3) == [b"7", b"8", b"9"]
    assert found(begin_ms=NOW_MS + 4000) == [b"%d" % i for i in range(4, 10)]
    assert found(begin_ms=NOW_MS + 2000, end_ms=NOW_MS + 5000) == [b"2", b"3", b"4", b"5"]
    assert found(end_ms=NOW_MS - 1) == []
    assert found(max_count=0) == []


def test_find_leaves_out_keys_and_topics_of_equal_hash(store: rmqstore.Store) -> None:
    assert rmqstore.message.java_string_hash("Aa") == rmqstore.message.java_string_hash("BB")
    store.put("orders", b"1", keys=["Aa"])
    store.put("orders", b"2", keys=["BB"])
    store.put("orders", b"3", unique_key="AaAa")
    store.put("orders", b"4", unique_key="BBBB")
    store.put("Aa", b"5", keys=["k"])
    store.put("BB", b"6", keys=["k"])
    assert [each.body for each in store.find("orders", "Aa")] == [b"1"]
    assert [each.body for each in store.find("orders", "BBBB")] == [b"4"]
    assert [each.body for each in store.find("BB", "k")] == [b"6"]
    assert store.find("orders", "A") == []


def test_find_gives_a_record_with_the_key_twice_only_once(store: rmqstore.Store) -> None:
    store.put("orders", b"x", keys=["k", "k"], unique_key="k")
    assert len(store.find("orders", "k")) == 1


def test_issue_7948_find_takes_any_count_without_room_for_it(store: rmqstore.Store) -> None:
    store.put("orders", b"x", keys=["k"])
    for count in (2**31, 2**40, 2**60, 2**63):
        assert len(store.find("orders", "k", max_count=count)) == 1


def test_find_without_an_index_says_so(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", message_index_enable=False, **FILES) as store:
        store.put("orders", b"x", keys=["k"])
        with pytest.raises(UnsupportedStoreError, match="messageIndexEnable"):
            store.find("orders", "k")
    assert not (tmp_path / "store" / "index").exists()


def test_find_tag_needs_the_index_of_5_5(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", compatibility="5.5", **FILES) as store:
        store.put("orders", b"1", tags="Aa", keys=["k"])
        store.put("orders", b"2", tags="BB", keys=["k"])
        assert [each.body for each in store.find_tag("orders", "BB")] == [b"2"]


# -- by time


def test_offset_at_answers_both_boundaries(store: rmqstore.Store) -> None:
    """store.md 24, without the shortcuts of the Java store's file choice."""
    put_at(store, *(NOW_MS + each for each in (0, 10, 10, 10, 20)))
    queue = store.queue("orders")
    for delta, lower, upper in (
        (-1, 0, 0),
        (0, 0, 0),
        (5, 1, 0),
        (10, 1, 3),
        (15, 4, 3),
        (20, 4, 4),
        (99, 5, 4),
    ):
        assert queue.offset_at(NOW_MS + delta) == lower, delta
        assert queue.offset_at(NOW_MS + delta, Boundary.UPPER) == upper, delta
    with pytest.raises(NotFoundError, match="nowhere"):
        store.queue("nowhere").offset_at(NOW_MS)


def test_offset_at_goes_over_many_queue_files_and_expired_ones(store: rmqstore.Store) -> None:
    for i in range(400):
        store._set_clock(NOW_MS + i)
        store.put("orders", bytes(600))
    store._set_clock(0)
    store.expire_files(2)
    queue = store.queue("orders")
    assert queue.start > 0
    assert queue.offset_at(NOW_MS) == queue.start
    for offset in range(queue.start, queue.end, 7):
        assert queue.offset_at(NOW_MS + offset) == offset


def test_issue_9497_store_time_is_found_behind_addresses_of_ipv6(store: rmqstore.Store) -> None:
    for i in range(5):
        store._set_clock(NOW_MS + i)
        store.put(Message("orders", b"x", born_host=("::1", 1), store_host=("::2", 2)))
    store._set_clock(0)
    assert [store.queue("orders").offset_at(NOW_MS + i) for i in range(5)] == list(range(5))


# -- visibility


def test_issue_8239_message_is_seen_only_after_its_flush_with_sync_flush(tmp_path: Path) -> None:
    config = StoreConfig(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, flush_commit_log_interval_ms=60_000, **FILES
    )
    with rmqstore.open(tmp_path / "store", config) as store:
        assert store.put("orders", b"flushed").durability is Durability.DISK
        receipt = store.put("orders", b"not yet", durability=Durability.MEMORY)
        assert store.flushed_offset < receipt.end_offset
        assert store.confirm_offset == store.flushed_offset
        assert [each.body for each in store.queue("orders")] == [b"flushed"]
        store.wait_flushed()
        assert [each.body for each in store.queue("orders")] == [b"flushed", b"not yet"]


def test_nothing_is_seen_behind_the_confirm_offset(store: rmqstore.Store) -> None:
    receipts = [store.put("orders", b"%d" % i) for i in range(3)]
    store.wait_dispatched()
    store._set_confirm_offset(receipts[-1].end_offset)
    store.put("orders", b"3")
    store.wait_dispatched()
    assert store.queue("orders").end == 3
    store._set_confirm_offset(2**62)
    assert store.queue("orders").end == 4


# -- transactions, delays, inner batches


def test_prepared_and_rolled_back_messages_take_no_queue_offset(store: rmqstore.Store) -> None:
    kinds = (
        TransactionType.NONE,
        TransactionType.PREPARED,
        TransactionType.ROLLBACK,
        TransactionType.COMMIT,
    )
    receipts = [store.put(Message("orders", b"x", transaction=kind)) for kind in kinds]
    assert [each.queue_offset for each in receipts] == [0, 0, 0, 1]
    assert len(store.queue("orders")) == 2
    assert len(check_agreement(store)) == 4


def test_delayed_message_goes_to_the_schedule_topic_with_its_own_named(
    store: rmqstore.Store,
) -> None:
    for level, queue in ((1, 0), (3, 2), (99, 17)):
        receipt = store.put(Message("orders", b"later", queue=5, delay_level=level))
        assert (receipt.topic, receipt.queue) == ("SCHEDULE_TOPIC_XXXX", queue)
        record = store.record_at(receipt.physical_offset)
        assert record.properties["REAL_TOPIC"] == "orders"
        assert record.properties["REAL_QID"] == "5"


# -- metadata and configuration


def test_topics_and_offsets_are_there_after_reopening(store: rmqstore.Store) -> None:
    made = store.create_topic("orders", read_queue_count=4, write_queue_count=4)
    store.commit_offset("group", "orders", queue=2, offset=17)
    store.save_offsets()
    assert store.committed_offset("group", "orders", queue=1) is None
    store.close()
    with rmqstore.open(store.path, **FILES) as again:
        assert again.topics.topics["orders"] == made
        assert again.committed_offset("group", "orders", queue=2) == 17


def test_settings_override_a_given_configuration(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("mappedFileSizeCommitLog=131072\nmaxMessageSize=500\n")
    with rmqstore.open(tmp_path / "store", path, message_size_bytes_max=600) as store:
        assert store.config.commit_log_file_size_bytes == 131072
        store.put("orders", bytes(600))
        with pytest.raises(MessageRejected, match="600"):
            store.put("orders", bytes(601))
    with rmqstore.open(tmp_path / "store") as store:
        assert store.config.commit_log_file_size_bytes == 131072


def test_property_crc_is_appended_where_asked(tmp_path: Path) -> None:
    for asked in (False, True):
        path = tmp_path / str(asked)
        with rmqstore.open(path, append_property_crc=asked, **FILES) as store:
            store.put("orders", b"x", keys=["k"])
            assert ("__CRC32#" in store.get("orders", offset=0).properties) == asked
            assert len(store.find("orders", "k")) == 1


def test_log_over_several_folders_reads_as_one(tmp_path: Path) -> None:
    paths = tuple(str(tmp_path / each) for each in ("disk1", "disk2", "disk3"))
    with rmqstore.open(tmp_path / "store", commit_log_paths=paths, **FILES) as store:
        for i in range(60):
            store.put("orders", bytes((i,)) * 5000)
        check_agreement(store)
        store._abandon()
    assert all(os.listdir(path) for path in paths)
    with rmqstore.open(tmp_path / "store", commit_log_paths=paths, **FILES) as store:
        assert len(check_agreement(store)) == 60
        store.truncate_to(store.get("orders", offset=5).physical_offset)
        assert len(check_agreement(store)) == 5


# -- retention


def test_expiring_files_moves_the_starts_of_log_queues_and_index(store: rmqstore.Store) -> None:
    for i in range(120):
        store.put("orders", bytes(5000), queue=i % 2, keys=[f"k{i}"])
    store.put("quiet", b"in the last file", keys=["k"])
    store.expire_files(3)
    assert store.start_offset == 3 * FILE_SIZE
    check_agreement(store)
    assert store.find("orders", "k0") == []
    with pytest.raises(OffsetOutOfRange):
        store.get("orders", offset=0)
    store.expire_files(10**6)
    assert len(store._files()) == 1
    records = check_agreement(store)
    assert records[-1].topic == "quiet"
    end = store.queue("orders", 0).end
    assert store.put("orders", b"x").queue_offset == end
    with pytest.raises(ArgumentError):
        store.expire_files(-1)


def test_queue_that_lost_all_its_records_goes_on_where_it_was(store: rmqstore.Store) -> None:
    for _ in range(3):
        store.put("rare", b"x")
    for _ in range(60):
        store.put("orders", bytes(5000))
    store.expire_files(2)
    assert (store.queue("rare").start, store.queue("rare").end) == (3, 3)
    store.close()
    with rmqstore.open(store.path) as again:
        assert again.put("rare", b"again").queue_offset == 3
        assert again.get("rare", offset=3).body == b"again"


def test_clean_deletes_what_is_older_than_the_reserved_time(store: rmqstore.Store) -> None:
    for _ in range(60):
        store.put("orders", bytes(5000))
    store.wait_dispatched()
    files = store._files()
    newest_ms = max(os.stat(path).st_mtime for path, _, _ in files) * 1000
    hours = store.config.file_reserved_hours
    assert store.clean(now_ms=int(newest_ms)).delete == ()
    later_ms = int(newest_ms) + (hours + 1) * 3_600_000
    decision = store.clean(now_ms=later_ms)
    assert len(decision.delete) == len(files) - 1
    assert store.start_offset == files[-1][1]
    check_agreement(store)


def test_nothing_is_deleted_unless_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        with rmqstore.open(tmp_path / "store", clean_interval_ms=1, **FILES) as store:
            for _ in range(60):
                store.put("orders", bytes(5000))
            store.flush()
            assert store.start_offset == 0
    assert not caplog.records


# -- several threads


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
    store.wait_flushed(timeout=5)
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
    timer = store._retention
    del store
    gc.collect()
    assert timer is not None
    timer._thread.join(timeout=30)
    assert not timer._thread.is_alive()
    with rmqstore.open(tmp_path / "store") as again:
        assert not again.recovery.was_closed
        assert again.get("orders", offset=0).body == b"kept"
