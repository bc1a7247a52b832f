"""The descriptor that tells of a log's growth."""

from __future__ import annotations

import gc
import select
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import ArgumentError, StoreClosedError
from rmqstore._native.core import LogWatch, place_records
from tests.support.agreement import FILES


def is_readable(watch: LogWatch) -> bool:
    return bool(select.select([watch], [], [], 0)[0])


def test_watch_tells_once_that_the_log_grew(store: rmqstore.Store) -> None:
    watch = LogWatch(store)
    assert not watch.arm(0)
    assert not is_readable(watch)

    end = store.put("t", b"x").end_offset
    assert is_readable(watch)

    watch.clear()
    assert not is_readable(watch)

    assert watch.arm(0)
    store.put("t", b"x")
    assert not is_readable(watch)

    assert not watch.arm(store.end_offset)
    assert watch.arm(end)

    watch.close()
    watch.close()
    with pytest.raises(ArgumentError):
        watch.arm(0)
    store.put("t", b"x")


def test_watch_hears_of_every_kind_of_growth(tmp_path: Path, store: rmqstore.Store) -> None:
    with rmqstore.open(tmp_path / "other", **FILES) as other:
        other.put("t", b"x")
        raw = other.read_raw(0, other.end_offset)
    watches = [LogWatch(store), LogWatch(store)]
    acts: list[Callable[[], object]] = [
        lambda: store.append_raw(0, raw),
        lambda: store.put_many([b"x", b"y"], topic="t"),
        lambda: place_records(store, raw),
    ]
    for act in acts:
        assert [watch.arm(store.end_offset) for watch in watches] == [False, False]
        act()
        assert all(is_readable(watch) for watch in watches)
        for watch in watches:
            watch.clear()


def test_watch_outlives_its_store_unharmed(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path, **FILES)
    watch, forgotten = LogWatch(store), LogWatch(store)
    assert not forgotten.arm(0)
    store.close()
    with pytest.raises(StoreClosedError):
        watch.arm(0)
    watch.close()
    del forgotten
    gc.collect()


def test_watch_that_goes_with_a_cycle_leaves_the_store(store: rmqstore.Store) -> None:
    # The watch is older than what holds it, so the collector comes to it first.
    watch, holder = LogWatch(store), []
    assert not watch.arm(0)
    holder += [holder, watch]
    del holder, watch
    gc.collect()
    watches = [LogWatch(store) for _ in range(100)]
    assert not any(each.arm(0) for each in watches)
    store.put("t", b"x")
    assert all(is_readable(each) for each in watches)
    for each in watches:
        each.close()
