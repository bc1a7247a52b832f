"""What a store gives back, and by what: offsets, keys, tags, times, views."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    Boundary,
    CorruptionError,
    Durability,
    FlushDiskType,
    GetStatus,
    Message,
    NotFoundError,
    OffsetOutOfRange,
    StoreClosedError,
    StoreConfig,
    UnsupportedStoreError,
    ViewsOpenError,
)
from tests.support.agreement import FILES, check_agreement
from tests.support.native_store import set_clock

FILE_SIZE = FILES["commit_log_file_size_bytes"]
NOW_MS = 1_700_000_000_000


def put_at(store: rmqstore.Store, *times_ms: int) -> None:
    for time_ms in times_ms:
        set_clock(store, time_ms)
        store.put("orders", str(time_ms).encode())
    set_clock(store, 0)


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


def harm(store: rmqstore.Store, offset: int) -> None:
    """Turn a bit in the body of the record at a physical offset."""
    path, start, _ = next(each for each in store._files() if each[1] <= offset < sum(each[1:]))
    with Path(path).open("r+b") as file:
        file.seek(offset - start + 100)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes((byte ^ 1,)))


def test_scan_log_raises_at_damage_unless_asked_to_stop_or_skip(store: rmqstore.Store) -> None:
    receipts = [store.put("orders", bytes(500)) for _ in range(10)]
    store.wait_dispatched()
    at = receipts[4].physical_offset
    harm(store, at)

    scan, found = store.scan_log(), []
    with pytest.raises(CorruptionError, match=str(at)):
        found += [each.queue_offset for each in scan]
    assert (scan.verdict, scan.offset) == ("bad", at)

    scan = store.scan_log(on_corrupt="stop")
    assert [each.queue_offset for each in scan] == [0, 1, 2, 3]
    assert (scan.verdict, scan.offset, scan.skipped) == ("bad", at, 0)
    assert isinstance(scan.error, CorruptionError)

    scan = store.scan_log(on_corrupt="skip")
    assert [each.queue_offset for each in scan] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert (scan.verdict, scan.error, scan.skipped) == ("limit", None, 1)

    assert store.scan_log(on_corrupt="skip").count()[0] == 9
    assert store.scan_log(on_corrupt="stop").count()[0] == 4
    with pytest.raises(CorruptionError, match=str(at)):
        store.scan_log().count()

    with pytest.raises(ArgumentError, match="give fail or skip or stop"):
        store.scan_log(on_corrupt="ignore")


def test_scan_log_from_the_middle_of_a_record_raises(store: rmqstore.Store) -> None:
    store.put("orders", b"x")
    with pytest.raises(CorruptionError, match="5"):
        list(store.scan_log(5))


def test_scan_log_raises_where_nothing_was_written_before_the_end(store: rmqstore.Store) -> None:
    receipts = [store.put("orders", bytes(500)) for _ in range(4)]
    store.wait_dispatched()
    at = receipts[2].physical_offset
    path, start, _ = store._files()[0]
    with Path(path).open("r+b") as file:
        file.seek(at - start)
        file.write(bytes(receipts[2].size))
    with pytest.raises(CorruptionError, match=f"no record at offset {at}, but the log ends"):
        list(store.scan_log())
    assert len(list(store.scan_log(on_corrupt="skip"))) == 3


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


@pytest.mark.parametrize("copies", [True, False])
def test_iteration_over_a_cut_goes_on_with_what_the_queue_holds_then(
    store: rmqstore.Store, copies: bool
) -> None:
    places = [store.put("orders", b"old %d" % i).physical_offset for i in range(10)]
    queue = store.queue("orders")
    with nullcontext(queue.records()) if copies else queue.scan() as records:
        found = [next(records).body for _ in range(3)]
        store.truncate_to(places[6])
        for i in range(6, 9):
            store.put("orders", b"new %d" % i)
        store.wait_dispatched()
        found += [record.body for record in records]
    assert found == [b"old %d" % i for i in range(6)] + [b"new %d" % i for i in range(6, 9)]


def test_iteration_over_a_closed_store_says_so(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        for i in range(3):
            store.put("orders", b"%d" % i)
        records = store.queue("orders").records()
        assert next(records).body == b"0"
    with pytest.raises(StoreClosedError):
        next(records)


def test_paused_iteration_reads_on_in_an_expired_file(store: rmqstore.Store) -> None:
    for i in range(20):
        store.put("orders", bytes((i,)) * 9000)
    records = store.queue("orders").records(0, 3)
    assert next(records).body[0] == 0
    store.expire_files(1)
    assert [record.body[0] for record in records] == [1, 2]


def test_body_is_copied_once_and_raw_is_what_the_log_holds(store: rmqstore.Store) -> None:
    store.put("orders", b"body", tags="A", keys=["k"])
    store.put("orders", b"", properties={"a": "b"})
    ours = [store.get("orders", offset=i) for i in range(2)]
    assert ours[0].body is ours[0].body
    assert [record.body for record in ours] == [b"body", b""]
    assert [record.raw for record in ours] == [
        store.read_raw(record.physical_offset, record.size) for record in ours
    ]
    assert (ours[0].tags, ours[0].keys, ours[1].properties["a"]) == ("A", ["k"], "b")


def test_find_gives_the_newest_oldest_first_within_the_time_range(store: rmqstore.Store) -> None:
    for i in range(10):
        set_clock(store, NOW_MS + i * 1000)
        store.put("orders", b"%d" % i, keys=["k"])
    set_clock(store, 0)

    def found(**options: int) -> list[bytes]:
        return [each.body for each in store.find("orders", "k", **options)]

    assert found() == [b"%d" % i for i in range(10)]
    assert found(max_count=3) == [b"7", b"8", b"9"]
    assert found(begin_ms=NOW_MS + 4000) == [b"%d" % i for i in range(4, 10)]
    assert found(begin_ms=NOW_MS + 2000, end_ms=NOW_MS + 5000) == [b"2", b"3", b"4", b"5"]
    assert found(end_ms=NOW_MS - 1) == []
    assert found(max_count=0) == []


def test_find_between_two_times_is_exact_to_the_millisecond(tmp_path: Path) -> None:
    times = [NOW_MS + i * 137 for i in range(24)]
    with rmqstore.open(tmp_path, compatibility="5.5", **FILES) as store:
        for time_ms in times:
            set_clock(store, time_ms)
            store.put("orders", b"x", keys=["k"], tags="t", unique_key="u")

        bounds = [bound for time_ms in times for bound in (time_ms - 1, time_ms, time_ms + 1)]
        for begin, end in product(bounds[::5], bounds[::7]):
            wanted = [time_ms for time_ms in times if begin <= time_ms <= end]
            for found in (
                store.find("orders", "k", begin_ms=begin, end_ms=end),
                store.find("orders", "u", begin_ms=begin, end_ms=end),
                store.find_tag("orders", "t", begin_ms=begin, end_ms=end),
            ):
                assert [each.store_timestamp for each in found] == wanted, (begin, end)


def test_find_is_not_crowded_out_by_what_came_in_the_second_after(store: rmqstore.Store) -> None:
    set_clock(store, NOW_MS)
    store.put("orders", b"wanted", keys=["k"])
    set_clock(store, NOW_MS + 1)
    for _ in range(300):
        store.put("orders", b"later", keys=["k"])
    set_clock(store, 0)
    found = store.find("orders", "k", end_ms=NOW_MS, max_count=1)
    assert [each.body for each in found] == [b"wanted"]


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
    for count in (2**31, 2**40, 2**60, 2**63 - 1):
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
        set_clock(store, NOW_MS + i)
        store.put("orders", bytes(600))
    set_clock(store, 0)
    store.expire_files(2)
    queue = store.queue("orders")
    assert queue.start > 0
    assert queue.offset_at(NOW_MS) == queue.start
    for offset in range(queue.start, queue.end, 7):
        assert queue.offset_at(NOW_MS + offset) == offset


def test_issue_9497_store_time_is_found_behind_addresses_of_ipv6(store: rmqstore.Store) -> None:
    for i in range(5):
        set_clock(store, NOW_MS + i)
        store.put(Message("orders", b"x", born_host=("::1", 1), store_host=("::2", 2)))
    set_clock(store, 0)
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


def test_closing_dispatches_what_waited_for_its_flush(tmp_path: Path) -> None:
    config = StoreConfig(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, flush_commit_log_interval_ms=60_000, **FILES
    )
    path = tmp_path / "store"
    with rmqstore.open(path, config) as store:
        receipt = store.put("orders", b"unflushed", durability=Durability.MEMORY)
    assert not (path / "abort").exists()
    first = path / "consumequeue" / "orders" / "0" / "00000000000000000000"
    offset, size = struct.unpack_from(">qi", first.read_bytes())
    assert (offset, offset + size) == (receipt.physical_offset, receipt.end_offset)


def test_nothing_is_seen_behind_the_confirm_offset(store: rmqstore.Store) -> None:
    receipts = [store.put("orders", b"%d" % i) for i in range(3)]
    store.wait_dispatched()
    store._set_confirm_offset(receipts[-1].end_offset)
    store.put("orders", b"3")
    store.wait_dispatched()
    assert store.queue("orders").end == 3
    store._set_confirm_offset(2**62)
    assert store.queue("orders").end == 4
