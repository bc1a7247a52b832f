"""Deleted topics, and queues whose messages lie before the log: the queue offsets go on
(csrc/index/removed_queues.h)."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import CorruptionError, OffsetOutOfRange
from rmqstore.check import verify
from rmqstore.check.repair import apply, plan
from rmqstore.store import Store
from rmqstore.store.removed_queues import REMOVED_QUEUES_FILE, read_removed_queues

SIZES = {"commit_log_file_size_bytes": 65_536, "consume_queue_file_size_bytes": 2000}


def opened(root: Path) -> Store:
    return rmqstore.open(root, **SIZES)


def put(store: Store, count: int, *, topic: str = "orders", text: str = "m") -> list[int]:
    found = [
        store.put(topic, f"{text}{number}".encode(), keys=[f"{text}{number}"], queue=1)
        for number in range(count)
    ]
    store.wait_dispatched()
    return [each.queue_offset for each in found]


def bodies(store: Store, topic: str = "orders") -> list[bytes]:
    store.wait_dispatched()
    return [each.body for each in store.queue(topic, 1)]


def remove(store: Store, topic: str = "orders", *, at: int | None = None) -> None:
    store._remove_queues(topic, store.end_offset if at is None else at)


def end(store: Store, *, crash: bool) -> None:
    store.abandon() if crash else store.close()


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_numbers_go_on_after_the_removal_and_old_records_stay_out(
    tmp_path: Path, crash: bool
) -> None:
    store = opened(tmp_path)
    assert put(store, 250) == list(range(250))
    put(store, 3, topic="others")
    remove(store)
    assert not (tmp_path / "consumequeue" / "orders").exists()
    assert [each.topic for each in store.queues()] == ["others"]
    end(store, crash=crash)

    store = opened(tmp_path)
    assert store.queue("orders", 1).start == store.queue("orders", 1).end == 250
    assert put(store, 2, text="new") == [250, 251]
    assert bodies(store) == [b"new0", b"new1"]
    assert bodies(store, "others") == [b"m0", b"m1", b"m2"]
    end(store, crash=crash)

    with opened(tmp_path) as store:
        assert bodies(store) == [b"new0", b"new1"]
        assert put(store, 1) == [252]
    assert verify(tmp_path, full=True).is_sound


def test_records_of_a_topic_that_was_made_again_before_its_queues_went_are_kept(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        put(store, 5)
        deleted_at = store.end_offset
        assert put(store, 3, text="new") == [5, 6, 7]
        remove(store, at=deleted_at)
        assert bodies(store) == [b"new0", b"new1", b"new2"]
        assert put(store, 1, text="last") == [8]
        assert [each.body for each in store.find("orders", "new1")] == [b"new1"]
    assert verify(tmp_path, full=True).is_sound
    store = opened(tmp_path)
    assert put(store, 1) == [9]
    store.abandon()
    with opened(tmp_path) as store:
        assert bodies(store) == [b"new0", b"new1", b"new2", b"last0", b"m0"]


def test_cut_below_the_removal_lets_other_records_take_the_place(tmp_path: Path) -> None:
    """A former master that deleted a topic, and follows one that never heard of it."""
    with opened(tmp_path) as store:
        put(store, 4)
        cut_at = store.end_offset
        put(store, 4)
        remove(store)
        store.truncate_to(cut_at)
        assert put(store, 2, text="other") == [4, 5]
        assert bodies(store) == [b"other0", b"other1"]
    assert read_removed_queues(tmp_path) == {("orders", 1): cut_at}
    with opened(tmp_path) as store:
        assert put(store, 1) == [6]
    assert verify(tmp_path, full=True).is_sound


def test_queue_that_its_master_began_again_at_0_is_followed(tmp_path: Path) -> None:
    """RocketMQ counts from 0 when a topic is made again."""
    master, slave = tmp_path / "master", tmp_path / "slave"
    with opened(master) as store:
        put(store, 1, topic="filler", text="x" * 400)
        put(store, 2)
        again = store._log_bytes(0, store.end_offset)
    with opened(tmp_path / "other") as store:
        put(store, 7)
        store.wait_dispatched()
        first = store._log_bytes(0, store.end_offset)
    with opened(slave) as store:
        store.append_raw(0, first)
        store.wait_dispatched()
        remove(store)
        # The same records, as they are after these.
        moved = _moved(again, by=len(first))
        store.append_raw(len(first), moved)
        store.wait_dispatched()
        assert bodies(store) == [b"m0", b"m1"]
        store._settle_raw(store.end_offset)
        assert put(store, 1, text="mine") == [2]
    store = opened(slave)
    assert put(store, 1, text="mine") == [3]
    store.abandon()
    with opened(slave) as store:
        assert len(bodies(store)) == 4
        assert put(store, 1) == [4]


def _moved(records: bytes, *, by: int) -> bytes:
    found, at = bytearray(records), 0
    while at < len(found):
        size = int.from_bytes(found[at : at + 4], "big")
        found[at + 28 : at + 36] = (at + by).to_bytes(8, "big")
        at += size
    return bytes(found)


def test_removal_that_a_crash_cut_short_is_finished(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 150)
        unwanted = {path: path.read_bytes() for path in (tmp_path / "consumequeue").rglob("0*")}
        remove(store)
        store.abandon()
    for path, data in unwanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with opened(tmp_path) as store:
        assert bodies(store) == []
        assert not (tmp_path / "consumequeue" / "orders").exists()
        assert put(store, 1) == [150]


def test_topic_can_be_removed_again_and_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for round_ in range(4):
            assert put(store, 2) == [2 * round_, 2 * round_ + 1]
            remove(store)
        remove(store)
        remove(store, "never there")
    with opened(tmp_path) as store:
        assert put(store, 1) == [8]
        assert read_removed_queues(tmp_path).keys() == {("orders", 1)}


def test_log_that_is_given_up_forgets_the_removal(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 4)
        remove(store)
        store._restart(0)
        assert put(store, 2) == [0, 1]
        assert bodies(store) == [b"m0", b"m1"]
    with opened(tmp_path) as store:
        assert bodies(store) == [b"m0", b"m1"]


def test_records_stay_in_the_log_and_queues_rebuilt_by_repair_stay_without_them(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        put(store, 4)
        remove(store)
        put(store, 2, text="new")
        assert store.record_at(0).body == b"m0"
    (unit_file,) = (tmp_path / "consumequeue" / "orders" / "1").iterdir()
    data = bytearray(unit_file.read_bytes())
    data[4 * 20 + 3] ^= 1
    unit_file.write_bytes(data)
    assert not verify(tmp_path, full=True).is_sound
    apply(plan(tmp_path))
    assert verify(tmp_path, full=True).is_sound
    with opened(tmp_path) as store:
        assert bodies(store) == [b"new0", b"new1"]


@pytest.mark.parametrize("cut", [0, 5, 30], ids=["empty", "in the header", "in an entry"])
def test_damaged_file_is_refused_with_the_cure(tmp_path: Path, cut: int) -> None:
    with opened(tmp_path) as store:
        put(store, 4)
        remove(store)
    path = tmp_path / REMOVED_QUEUES_FILE
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptionError, match="remove it and run rmqstore repair"):
        opened(tmp_path)
    report = verify(tmp_path)
    assert str(path) in [each.place for each in report.findings if each.is_damage]
    path.unlink()
    apply(plan(tmp_path))
    with opened(tmp_path) as store:
        assert put(store, 1) == [4]


def test_offset_inside_of_a_record_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 4)
        with pytest.raises(OffsetOutOfRange, match="no record begins there"):
            remove(store, at=store.end_offset - 1)
        assert bodies(store) == [b"m0", b"m1", b"m2", b"m3"]


def test_reader_beside_the_writer_sees_the_removal(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, 4)
        store.flush()
        with rmqstore.open(tmp_path, read_only=True) as reader:
            assert len(bodies(reader)) == 4
            remove(store)
            reader.refresh()
            assert reader.queues() == []
            put(store, 1, text="new")
            reader.refresh()
            assert [each.queue_offset for each in reader.queue("orders", 1)] == [4]


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_queue_without_messages_continues_where_another_replica_has_it(
    tmp_path: Path, crash: bool
) -> None:
    store = opened(tmp_path)
    store._restart(SIZES["commit_log_file_size_bytes"])
    store._begin_queues([("orders", 1, 250), ("others", 3, 7)])
    store._begin_queues([("orders", 1, 249), ("orders", 2, 2**40)])
    assert (store.queue("orders", 1).start, store.queue("orders", 1).end) == (250, 250)
    assert store._next_offset("orders", 2) == 0, "the log had no room for so many messages"
    end(store, crash=crash)

    store = opened(tmp_path)
    assert put(store, 2) == [250, 251]
    assert bodies(store) == [b"m0", b"m1"]
    store._begin_queues([("orders", 1, 300)])
    assert put(store, 1) == [252], "a queue with messages goes on after them"
    end(store, crash=crash)

    with opened(tmp_path) as store:
        assert [each.queue_offset for each in store.queue("orders", 1)] == [250, 251, 252]
        assert store.queue("others", 3).end == 7
        store._begin_queues([("others", 3, 9)])
        assert store.queue("others", 3).end == 9
    assert verify(tmp_path, full=True).is_sound


def test_log_that_begins_at_0_has_all_messages_of_its_queues(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store._begin_queues([("orders", 1, 250)])
        assert put(store, 1) == [0]

        store._restart(65_536)
        store._begin_queues([("orders", 1, 250), ("others", 1, 3)])
        store._restart(0)
        assert put(store, 1) == [0]
        assert put(store, 1, topic="others") == [0]


def test_record_with_a_lower_queue_offset_is_in_its_queue(tmp_path: Path) -> None:
    """A slave asks its master while its own log lacks records that the master has deleted since."""
    with opened(tmp_path / "master") as master, opened(tmp_path / "slave") as slave:
        put(master, 300)
        for store in (master, slave):
            store._restart(master.config.commit_log_file_size_bytes * 2)
        assert put(master, 2) == [300, 301]
        slave._begin_queues([("orders", 1, 302)])
        slave.append_raw(slave.end_offset, master.read_raw(master.start_offset, 65_536))
        slave.wait_dispatched()
        assert [each.queue_offset for each in slave.queue("orders", 1)] == [300, 301]
        slave._settle_raw(slave.end_offset)
        assert put(slave, 1) == [302]
