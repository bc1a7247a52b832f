"""Subscribers to the events of a store, and the view that replication has of it."""

from __future__ import annotations

import contextlib
import gc
import select
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore._native.core import LogWatch
from rmqstore.errors import ArgumentError
from rmqstore.message import Durability
from rmqstore.store import Store
from rmqstore.store.replica_view import ReplicaView

FILE_SIZE = 4096


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rmqstore.open(tmp_path / "store", commit_log_file_size_bytes=FILE_SIZE) as opened:
        yield opened


def fill_files(store: Store, count: int) -> None:
    while store.end_offset < count * FILE_SIZE:
        store.put("orders", bytes(500))


def test_every_subscriber_hears_of_expired_files(store: Store) -> None:
    seen: list[tuple[str, int]] = []
    store.watchers.subscribe("expired", lambda: seen.append(("first", store.start_offset)))
    second = store.watchers.subscribe("expired", lambda: seen.append(("second", 0)))
    fill_files(store, 3)
    store.wait_dispatched()
    store.expire_files(1)
    assert seen == [("first", FILE_SIZE), ("second", 0)]
    second.close()
    second.close()
    store.expire_files(1)
    assert seen[2:] == [("first", 2 * FILE_SIZE)]


def test_subscriber_that_raises_keeps_no_other_from_hearing(store: Store) -> None:
    seen: list[str] = []

    def fail() -> None:
        raise RuntimeError("this one fails")

    store.watchers.subscribe("expired", fail)
    store.watchers.subscribe("expired", lambda: seen.append("second"))
    fill_files(store, 2)
    store.wait_dispatched()
    with pytest.raises(RuntimeError, match="this one fails"):
        store.expire_files(1)
    assert seen == ["second"]


def test_subscribers_to_closed_are_called_once_while_the_store_is_open(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store")
    seen: list[tuple[bool, int]] = []
    for _ in range(2):
        store.watchers.subscribe("closed", lambda clean: seen.append((clean, store.end_offset)))
    store.close()
    store.close()
    assert seen == [(True, 0), (True, 0)]


def test_subscription_ends_with_its_block(store: Store) -> None:
    seen: list[str] = []
    with store.watchers.subscribe("expired", lambda: seen.append("expired")):
        pass
    fill_files(store, 2)
    store.wait_dispatched()
    store.expire_files(1)
    assert seen == []


def test_every_watch_of_a_growing_log_becomes_readable(store: Store) -> None:
    watches = [store.watchers.subscribe("grew") for _ in range(3)]
    assert not any(watch.arm(store.end_offset) for watch in watches)
    assert select.select(watches, (), (), 0)[0] == []
    store.put("orders", b"paid")
    assert select.select(watches, (), (), 0)[0] == watches
    for watch in watches:
        watch.close()


def is_readable(watch: LogWatch, timeout: float) -> bool:
    return bool(select.select([watch], (), (), timeout)[0])


def test_watch_of_the_flushed_offset_becomes_readable_with_a_flush(store: Store) -> None:
    store.put("orders", b"paid")
    with contextlib.closing(store.watchers.subscribe("flushed")) as watch:
        assert not watch.arm(store.end_offset)
        store.put("orders", b"paid", durability=Durability.DISK)
        assert is_readable(watch, 0)
        watch.clear()
        assert watch.arm(0)
        assert not is_readable(watch, 0)


def test_watch_of_the_dispatched_offset_becomes_readable_once_records_can_be_read(
    store: Store,
) -> None:
    with contextlib.closing(store.watchers.subscribe("dispatched")) as watch:
        for _ in range(1000):
            seen = store.dispatched_offset
            end = store.put("orders", b"paid").end_offset
            while store.dispatched_offset < end:
                assert watch.arm(seen) or is_readable(watch, 30)
                watch.clear()
                seen = store.dispatched_offset


def test_watch_of_the_confirm_offset_follows_the_log_or_the_bound(store: Store) -> None:
    with contextlib.closing(store.watchers.subscribe("confirmed")) as watch:
        assert not watch.arm(store.end_offset)
        first = store.put("orders", b"paid")
        assert is_readable(watch, 0)
        watch.clear()
        with ReplicaView(store) as view:
            view.set_confirm_offset(first.end_offset)
            assert not watch.arm(first.end_offset)
            second = store.put("orders", b"not confirmed")
            assert not is_readable(watch, 0)
            view.set_confirm_offset(second.end_offset)
            assert is_readable(watch, 0)
        assert watch.arm(first.end_offset)


def test_unknown_event_is_refused_with_the_events_there_are(store: Store) -> None:
    with pytest.raises(ArgumentError, match="'grew'"):
        store.watchers.subscribe("shrank")  # type: ignore[call-overload]


def test_watchers_keep_no_store_that_nobody_else_holds(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path / "store")
    watchers, gone = store.watchers, weakref.ref(store)
    store.close()
    del store
    gc.collect()
    assert gone() is None
    with pytest.raises(ValueError, match="gone"):
        watchers.subscribe("grew")


def test_a_store_has_one_replica_view_at_a_time(store: Store) -> None:
    with ReplicaView(store), pytest.raises(ArgumentError, match="replicated already"):
        ReplicaView(store)
    with ReplicaView(store) as again:
        assert again.path == store.path


def test_closing_a_former_view_twice_leaves_the_present_one(store: Store) -> None:
    first = ReplicaView(store)
    first.close()
    with ReplicaView(store):
        first.close()
        with pytest.raises(ArgumentError, match="replicated already"):
            ReplicaView(store)


def test_view_of_a_read_only_store_is_refused(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store") as made:
        made.put("orders", b"paid")
    with (
        rmqstore.open(tmp_path / "store", read_only=True) as store,
        pytest.raises(ArgumentError, match="read-only"),
    ):
        ReplicaView(store)
