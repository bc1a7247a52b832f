"""The store's verbs, through the public API."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    CorruptionError,
    Durability,
    InSyncReplicasNotEnough,
    Message,
    MessageRejected,
    NotWritable,
    OffsetOutOfRange,
    TransactionType,
)
from tests.support.agreement import FILES, check_agreement

FILE_SIZE = FILES["commit_log_file_size_bytes"]
BLANK_SIZE = 8


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
        (Message("orders", b"", queue=-1), ["queue is -1", "from 0"]),
        (Message("orders", b"", queue=2**31), ["queue", "2147483647"]),
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
    store.abandon()
    with rmqstore.open(store.path, **FILES) as again:
        assert len(check_agreement(again)) == 3


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
        store.abandon()
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
