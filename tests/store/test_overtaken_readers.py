"""Readers whose place in a queue is gone: the writer removed its file since they looked last."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import CorruptionError, GetStatus, OffsetOutOfRange
from rmqstore.aio import AsyncStore
from tests.support.loops import on_loop

FILES: dict[str, Any] = {
    "commit_log_file_size_bytes": 65536,
    "consume_queue_file_size_bytes": 400,
}
UNITS = 20
"""In a file of the queue."""


def fill(store: rmqstore.Store, count: int = 300) -> None:
    start = store.queue("orders").end
    for number in range(start, start + count):
        store.put("orders", b"%08d" % number + b"." * 1000)
    store.wait_dispatched()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[rmqstore.Store]:
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        fill(store)
        yield store


@pytest.fixture
def reader(writer: rmqstore.Store) -> Iterator[rmqstore.Store]:
    """Return a reader, as in another process, whose first place has gone since it was opened."""
    with rmqstore.open(writer.path, read_only=True, **FILES) as store:
        assert store.queue("orders").start == 0
        writer.expire_files(2)
        yield store


def first_of(writer: rmqstore.Store) -> int:
    start = writer.queue("orders").start
    assert start > 2 * UNITS, "files of the queue are gone"
    return start


def test_get_names_what_is_left(writer: rmqstore.Store, reader: rmqstore.Store) -> None:
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.get("orders", offset=5)
    assert caught.value.start == first_of(writer)
    found = reader.get_many("orders", offset=5)
    assert (found.status, found.next_offset) == (GetStatus.OFFSET_TOO_SMALL, first_of(writer))


def test_iteration_says_that_it_was_overtaken(
    writer: rmqstore.Store, reader: rmqstore.Store
) -> None:
    with pytest.raises(OffsetOutOfRange, match=f"begins at {first_of(writer)}; offset 5 is gone"):
        list(reader.queue("orders").records(start=5))


def test_follower_goes_on_where_the_queue_begins(
    writer: rmqstore.Store, reader: rmqstore.Store
) -> None:
    found = list(itertools.islice(reader.queue("orders").follow(5), 10))
    first = first_of(writer)
    assert [each.queue_offset for each in found] == list(range(first, first + 10))


def test_columns_begin_where_the_queue_does(writer: rmqstore.Store, reader: rmqstore.Store) -> None:
    pytest.importorskip("pyarrow", reason="columns need the extra arrow")
    table = reader.queue("orders").to_arrow(["queue_offset"], start=5).read_all()
    assert table["queue_offset"].to_pylist() == list(range(first_of(writer), 300))


def test_time_is_sought_in_what_is_left(writer: rmqstore.Store, reader: rmqstore.Store) -> None:
    queue, first = reader.queue("orders"), first_of(writer)
    assert queue.offset_at(0) == first
    assert queue.offset_at(2**62) == 300


def test_reader_of_a_shortened_log_sees_its_new_end(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", **FILES) as writer:
        fill(writer)
        with rmqstore.open(writer.path, read_only=True, **FILES) as reader:
            cut_at = writer.get("orders", offset=100).physical_offset
            writer.truncate_to(cut_at)
            follower = reader.queue("orders").follow(250)
            assert list(reader.queue("orders").records(start=250)) == []
            fill(writer, 200)
            assert next(follower).body[:8] == b"00000250"


@on_loop
async def test_asynchronous_iteration_was_overtaken_too(tmp_path: Path) -> None:
    async with AsyncStore(tmp_path / "store", **FILES) as store:
        await asyncio.to_thread(fill, store.store)
        queue = store.queue("orders")
        records = queue.records(start=0)
        await anext(records)
        store.store.expire_files(2)
        with pytest.raises(OffsetOutOfRange, match="is gone"):
            [each async for each in queue.records(start=5)]
        found = await anext(queue.follow(5))
        assert found.queue_offset == store.store.queue("orders").start


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_missing_between_others_is_named(
    writer: rmqstore.Store, read_only: bool
) -> None:
    path = Path(writer.path)
    writer.close()
    with rmqstore.open(path, read_only=read_only, **FILES) as store:
        queue = store.queue("orders")
        Path(path, "consumequeue", "orders", "0", f"{UNITS * 20 * 3:020d}").unlink()
        for read in (
            lambda: list(queue.records(start=50)),
            lambda: next(queue.follow(3 * UNITS)),
            lambda: queue.to_arrow(["queue_offset"], start=3 * UNITS).read_all(),
        ):
            with pytest.raises((CorruptionError, OSError), match=r"no file holds|is missing"):
                read()
