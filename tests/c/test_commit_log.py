"""Where appending puts records, through struct rmq_store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.c.store_calls import LOG_FILE_SIZE, Calls, Failed
from tests.reference import record

BLANK_SIZE = 8


@pytest.fixture
def store(core: Any, tmp_path: Path) -> Iterator[Calls]:
    made = Calls(core, tmp_path)
    yield made
    made.close()


def log_file(root: Path, number: int) -> bytes:
    return (root / "commitlog" / f"{number * LOG_FILE_SIZE:020}").read_bytes()


def fill_until(store: Calls, left: int) -> None:
    """Put records until exactly *left* bytes of the first file are free."""
    overhead = store.put(b"00000000").size - 8
    while (free := LOG_FILE_SIZE - store.end_offset - left) > 0:
        store.put(b"x" * (free - overhead if free <= 1000 else 500))
    assert store.end_offset == LOG_FILE_SIZE - left


def test_records_lie_side_by_side_as_the_reference_encodes_them(
    store: Calls, tmp_path: Path
) -> None:
    puts = [store.put(b"%08d" % number, queue_id=number % 2) for number in range(5)]
    data = log_file(tmp_path, 0)
    at = 0
    for number, put in enumerate(puts):
        found = record.decode(data, at)
        assert put.physical_offset == at == found.physical_offset
        assert (found.queue_id, found.queue_offset) == (number % 2, number // 2)
        assert found.body == b"%08d" % number
        assert record.body_crc_is_right(found)
        at += put.size


@pytest.mark.parametrize("left", [8, 9, 60, 100])
def test_record_that_does_not_fit_leaves_a_blank_over_the_rest(
    left: int, store: Calls, tmp_path: Path
) -> None:
    fill_until(store, left)
    put = store.put(b"x" * 200)
    assert put.physical_offset == LOG_FILE_SIZE
    data = log_file(tmp_path, 0)
    assert record.is_blank(data, LOG_FILE_SIZE - left)
    assert int.from_bytes(data[-left : 4 - left or None], "big") == left


def test_record_may_end_exactly_where_a_blank_begins(store: Calls, tmp_path: Path) -> None:
    overhead = store.put(b"00000000").size - 8
    put = store.put(b"x" * 1900)
    body = LOG_FILE_SIZE - store.end_offset - overhead - BLANK_SIZE
    last = store.put(b"x" * body)
    assert last.physical_offset == put.end_offset
    assert last.end_offset == LOG_FILE_SIZE - BLANK_SIZE
    assert store.put(b"00000001").physical_offset == LOG_FILE_SIZE


def test_record_over_the_file_size_is_refused_before_anything_is_written(store: Calls) -> None:
    options = store.store.log.options
    options.limits.body_size_max = options.limits.record_size_max = 1 << 20
    store.put(b"00000000")
    end = store.end_offset
    with pytest.raises(Failed, match=str(LOG_FILE_SIZE - BLANK_SIZE)) as caught:
        store.put(b"x" * LOG_FILE_SIZE)
    assert caught.value.status == store.lib.RMQ_MESSAGE_ILLEGAL
    assert store.end_offset == end


@pytest.mark.parametrize(
    ("parts", "large"), [(1, 0), (7, 0), (100, 0), (5000, 0), (100, 50), (700, 650), (5000, 1)]
)
def test_raw_bytes_in_any_parts_give_an_equal_log(
    parts: int, large: int, core: Any, store: Calls, tmp_path: Path
) -> None:
    puts = [store.put(bytes((97 + number,)) * 600) for number in range(20)]
    store.wait_flushed(store.end_offset)
    files = sorted((tmp_path / "commitlog").iterdir())
    data = b"".join(path.read_bytes() for path in files)[: store.end_offset]
    copy = Calls(core, tmp_path / "copy", **{"log.warmer.large_append": large})
    for at in range(0, len(data), parts):
        status = copy.lib.rmq_store_append_raw(
            copy.store, at, data[at : at + parts], len(data[at : at + parts]), copy.error
        )
        copy.check(status)
    copy.wait_dispatched(copy.end_offset)
    for put in puts:
        assert copy.read(put.queue_id, put.queue_offset) == (put.physical_offset, put.body)
    assert copy.put(b"00000000").queue_offset == len(puts)
    copy.close()


def test_store_closed_behind_half_a_record_opens_with_the_whole_ones(
    core: Any, store: Calls, tmp_path: Path
) -> None:
    puts = [store.put(bytes((97 + number,)) * 600) for number in range(2)]
    store.wait_flushed(store.end_offset)
    data = (tmp_path / "commitlog" / f"{0:020}").read_bytes()
    copy = Calls(core, tmp_path / "copy")
    half = data[: puts[1].physical_offset + 300]
    copy.check(copy.lib.rmq_store_append_raw(copy.store, 0, half, len(half), copy.error))
    copy.close()
    assert (tmp_path / "copy" / "abort").exists()
    copy = Calls(core, tmp_path / "copy")
    assert copy.end_offset == puts[0].end_offset
    assert copy.put(b"00000000").queue_offset == 1
    copy.close()


@pytest.mark.parametrize("at", [-1, 1, LOG_FILE_SIZE + 1])
def test_raw_bytes_for_an_empty_log_begin_at_a_file_border(at: int, store: Calls) -> None:
    with pytest.raises(Failed) as caught:
        store.check(store.lib.rmq_store_append_raw(store.store, at, b"x", 1, store.error))
    assert caught.value.status == store.lib.RMQ_OUT_OF_RANGE
    assert store.end_offset == 0


def test_file_made_ahead_never_is_one_that_holds_records(store: Calls) -> None:
    """The warmer works from an end that the writer may have left behind long ago."""
    puts = [store.put(b"%08d" % number + bytes(800)) for number in range(2000)]
    assert puts[-1].physical_offset // LOG_FILE_SIZE > 300
    store.wait_dispatched(store.end_offset)
    for put in puts[::37]:
        assert store.read(0, put.queue_offset) == (put.physical_offset, put.body)
