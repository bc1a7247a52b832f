"""A row for each message of an inner batch, in Arrow columns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message
from rmqstore.store import Store
from tests.c.segments import files_of
from tests.golden import GoldenCase, every_case
from tests.reference.columns import NAMES, rows_of

Golden = Callable[[str, str], GoldenCase]


@pytest.fixture
def inner_batches(tmp_path: Path) -> Iterator[Store]:
    """Ten batches of 30 messages, bodies and tags after their queue offsets, others between."""
    with rmqstore.open(tmp_path / "inner") as opened:
        opened.create_topic("inner", attributes={"queue.type": "BatchCQ"})
        for number in range(10):
            offsets = range(30 * number, 30 * number + 30)
            opened.put_batch(
                [Message("inner", str(at).encode(), tags=f"t{at % 3}", flag=at) for at in offsets]
            )
            opened.put("other", b"between", tags="t0")
        yield opened


@every_case("batch", "plain")
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_unwrapped_log_has_a_row_per_message(
    golden_case: Golden, release: str, case_name: str, batch_rows: int
) -> None:
    golden = golden_case(release, case_name)
    wanted = [message for file in files_of(golden) for message in file.rows()]
    with rmqstore.open(golden.root, read_only=True) as store:
        stream = store.scan_arrow(columns=NAMES, batch_rows=batch_rows, unwrap_batches=True)
        assert rows_of(stream.read_all()) == wanted
    assert stream.rows == len(wanted)


@pytest.mark.parametrize("batch_rows", [1, 29, 30, 31, 1000])
@pytest.mark.parametrize(("start", "stop"), [(0, 300), (45, 46), (31, 59), (10, 271), (299, 300)])
def test_unwrapped_queue_begins_and_ends_inside_of_batches(
    inner_batches: Store, batch_rows: int, start: int, stop: int
) -> None:
    queue = inner_batches.queue("inner", 0)
    stream = queue.to_arrow(start=start, stop=stop, batch_rows=batch_rows, unwrap_batches=True)
    found = stream.read_all()
    assert found["queue_offset"].to_pylist() == list(range(start, stop))
    assert found["flag"].to_pylist() == list(range(start, stop))
    assert found["body"].to_pylist() == [str(at).encode() for at in range(start, stop)]
    assert all(found["body_crc_ok"].to_pylist())
    assert found["body_crc"].to_pylist() == [
        zlib.crc32(b"%d" % at) & 0x7FFFFFFF for at in range(start, stop)
    ]


def test_tags_choose_among_unwrapped_messages(inner_batches: Store) -> None:
    queue = inner_batches.queue("inner", 0)
    found = queue.to_arrow(["queue_offset"], tags=["t1", "t9"], unwrap_batches=True).read_all()
    assert found.column(0).to_pylist() == list(range(1, 300, 3))
    log = inner_batches.scan_arrow(columns=["topic"], tags="t0", unwrap_batches=True).read_all()
    assert log.column(0).to_pylist() == (["inner"] * 10 + ["other"]) * 10
    assert queue.to_arrow(tags=["t1"]).read_all().num_rows == 0


def test_inner_batch_that_cannot_be_unwrapped_is_damage(
    inner_batches: Store, tmp_path: Path
) -> None:
    batches = inner_batches.scan_arrow(topic="inner", columns=["physical_offset"]).read_all()
    bad = batches.column(0)[4].as_py()
    inner_batches.close()

    path = tmp_path / "inner" / "commitlog" / f"{0:020}"
    with path.open("r+b") as file:
        file.seek(bad + 88 + 16)
        file.write(b"\x7f")

    with rmqstore.open(tmp_path / "inner", read_only=True) as store:
        whole = store.scan_arrow(columns=["queue_offset"])
        assert whole.read_all().num_rows == 20

        stream = store.scan_arrow(columns=["queue_offset"], unwrap_batches=True, batch_rows=1000)
        reader = stream.reader()
        assert len(reader.read_next_batch()) == 4 * 31
        with pytest.raises(OSError, match=f"record at {bad}: inner batch: message at byte 0"):
            reader.read_next_batch()

        for batch_rows in (1, 10, 1000):
            stream = store.scan_arrow(
                columns=["queue_offset"],
                unwrap_batches=True,
                batch_rows=batch_rows,
                on_corrupt="skip",
            )
            assert stream.read_all().num_rows == 9 * 30 + 10
            assert stream.skipped == 1
            assert stream.skipped_bytes > 30 * 22
