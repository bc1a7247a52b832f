"""Recovery that is itself interrupted, at every call it makes to the file system."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.c.library import is_sanitized
from tests.c.store_calls import ANY, LOG_FILE_SIZE, Calls, Failed, FaultyDoor, Put

CALLS_MAX = 1000
STEP = 11 if is_sanitized() else 1
"""Every call fails in turn; the slow build is content with a part of them."""


def body(number: int) -> bytes:
    return b"%08d" % number + bytes((number,)) * (number * 53 % 700)


def put_some(store: Calls, numbers: range) -> list[Put]:
    return [store.put(body(number), queue_id=number % 2) for number in numbers]


def log_bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def crash(core: Any, root: Path) -> list[Put]:
    """A store that died with records flushed and not flushed, dispatched and not."""
    store = Calls(core, root)
    puts = []
    for first in range(0, 20, 5):
        store.let_writers_by()
        puts += put_some(store, range(first, first + 5))
        store.wait_dispatched(store.end_offset)
        store.flush()
    store.let_writers_by()
    puts += put_some(store, range(20, 30))
    store.abandon()
    return puts


def break_first_unit(root: Path) -> None:
    path = root / "consumequeue" / "orders" / "0" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[19] ^= 1
    path.write_bytes(data)


def break_late_unit(root: Path) -> None:
    path = max((root / "consumequeue" / "orders" / "1").iterdir())
    data = path.read_bytes()
    size = len(data.rstrip(b"\0"))
    path.write_bytes(data[: size - 19] + bytes(len(data) - size + 19))


def lose_last_file(root: Path) -> None:
    max((root / "consumequeue" / "orders" / "0").iterdir()).unlink()


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize(
    "damage", [lambda root: None, break_first_unit, break_late_unit, lose_last_file]
)
def test_queues_that_hold_a_part_end_as_those_made_from_the_log_alone(
    damage: Callable[[Path], None], has_keys: bool, core: Any, tmp_path: Path
) -> None:
    """Whatever the first walk recognises, and wherever the second one begins."""
    whole = tmp_path / "whole"
    store = Calls(core, whole, has_keys=has_keys)
    puts = put_some(store, range(60))
    store.wait_dispatched(store.end_offset)
    store.abandon()
    (whole / "checkpoint").unlink(missing_ok=True)
    bare = Path(shutil.copytree(whole, tmp_path / "bare"))
    shutil.rmtree(bare / "consumequeue")
    damage(whole)

    found = []
    for root in (whole, bare):
        store = Calls(core, root, has_keys=has_keys)
        assert (store.recovery.records, store.end_offset) == (60, puts[-1].end_offset)
        store.check_holds(puts)
        after = store.put(b"00000099")
        assert after.queue_offset == 30
        store.check_holds([after])
        store.close()
        queues = sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())
        found.append({str(path.relative_to(root)): path.read_bytes() for path in queues})
    assert len(found[0]) > 4
    assert found[0] == found[1]


@pytest.mark.parametrize("has_keys", [True, False], ids=["keys", "no keys"])
def test_queues_keep_no_unit_of_a_last_record_whose_topic_did_not_reach_the_disk(
    has_keys: bool, core: Any, tmp_path: Path
) -> None:
    """The queues hold its unit, which the first walk finds before it knows that the record ends."""
    store = Calls(core, tmp_path, has_keys=has_keys)
    puts = put_some(store, range(60))
    store.wait_dispatched(store.end_offset)
    store.abandon()
    (tmp_path / "checkpoint").unlink(missing_ok=True)

    torn = puts[-1]
    path = tmp_path / "commitlog" / f"{torn.physical_offset // LOG_FILE_SIZE * LOG_FILE_SIZE:020}"
    data = bytearray(path.read_bytes())
    at = torn.physical_offset % LOG_FILE_SIZE
    data[data.rindex(b"orders", at, at + torn.size) + 5] = 0
    path.write_bytes(data)

    store = Calls(core, tmp_path, has_keys=has_keys)
    assert (store.recovery.records, store.end_offset) == (59, torn.physical_offset)
    after = store.put(b"00000099 of another size", queue_id=1)
    assert (after.queue_offset, after.physical_offset) == (29, torn.physical_offset)
    store.check_holds([*puts[:-1], after])
    store.close()


def crash_with_torn_tail(core: Any, root: Path) -> list[Put]:
    """As crash, and the third-last record did not reach the device, those behind it did."""
    puts = crash(core, root)
    torn = puts[-3]
    path = root / "commitlog" / f"{torn.physical_offset // LOG_FILE_SIZE * LOG_FILE_SIZE:020}"
    data = bytearray(path.read_bytes())
    at = torn.physical_offset % LOG_FILE_SIZE
    data[at + 90 : at + torn.size] = bytes(torn.size - 90)
    path.write_bytes(data)
    return puts[:-3]


def close_and_lose_files(core: Any, root: Path) -> list[Put]:
    """A closed store that lost a queue, and the first file of another queue and of the index."""
    store = Calls(core, root)
    puts = put_some(store, range(30))
    store.close()
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    for folder in (root / "consumequeue" / "orders" / "0", root / "index"):
        files = sorted(folder.iterdir())
        assert len(files) > 1
        files[0].unlink()
    return puts


@pytest.mark.parametrize("made", [crash, crash_with_torn_tail, close_and_lose_files])
@pytest.mark.parametrize("died", [False, True], ids=["call fails", "process dies"])
def test_recovery_stopped_at_any_call_is_finished_by_the_next_one(
    died: bool,
    made: Callable[[Any, Path], list[Put]],
    core: Any,
    door: FaultyDoor,
    tmp_path: Path,
) -> None:
    puts = made(core, tmp_path / "crashed")
    for number in range(0, CALLS_MAX, STEP):
        root = Path(shutil.copytree(tmp_path / "crashed", tmp_path / "store"))
        door.arm(ANY, number, errno.EIO, count=CALLS_MAX if died else 1)
        try:
            store = Calls(core, root, door.vfs)
        except Failed as failure:
            assert failure.detail  # noqa: PT017 - either outcome is right
        else:
            store.abandon()
        was_reached = door.count(ANY) > number
        door.disarm()
        store = Calls(core, root)
        store.check_holds(puts)
        assert store.end_offset == puts[-1].end_offset
        after = store.put(b"00000099")
        assert after.queue_offset == 1 + max(put.queue_offset for put in puts if not put.queue_id)
        store.check_holds([after])
        store.close()
        shutil.rmtree(root)
        if not was_reached:
            return
    pytest.fail(f"recovery makes more than {CALLS_MAX} calls")


def test_second_recovery_changes_nothing(core: Any, tmp_path: Path) -> None:
    crash_with_torn_tail(core, tmp_path)
    store = Calls(core, tmp_path)
    first = store.recovery
    assert (first.was_closed, first.cut_bytes > 0) == (False, True)
    end = first.end_offset
    store.abandon()
    log = log_bytes(tmp_path)
    store = Calls(core, tmp_path)
    second = store.recovery
    assert (second.end_offset, second.cut_bytes) == (end, 0)
    store.abandon()
    assert log_bytes(tmp_path) == log


def test_torn_tail_reads_as_zeros_and_what_was_whole_behind_it_is_kept_aside(
    core: Any, tmp_path: Path
) -> None:
    puts = crash_with_torn_tail(core, tmp_path)
    end = puts[-1].end_offset
    before = log_bytes(tmp_path)
    store = Calls(core, tmp_path)
    path = tmp_path / store.ffi.string(store.recovery.cut_path).decode()
    assert path.read_bytes() == before[end : end + store.recovery.cut_bytes]
    assert not any(log_bytes(tmp_path)[end:])
    store.close()


def test_clean_start_walks_from_the_file_of_the_last_record(core: Any, tmp_path: Path) -> None:
    store = Calls(core, tmp_path)
    puts = put_some(store, range(40))
    last_file = puts[-1].physical_offset // LOG_FILE_SIZE * LOG_FILE_SIZE
    assert last_file > 0
    store.close()
    store = Calls(core, tmp_path)
    assert store.recovery.was_closed
    assert store.recovery.start_offset == last_file
    assert store.recovery.records == sum(put.physical_offset >= last_file for put in puts)
    store.check_holds(puts)
    store.close()


def test_store_without_a_log_is_new_and_needs_no_recovery(core: Any, tmp_path: Path) -> None:
    store = Calls(core, tmp_path)
    recovery = store.recovery
    assert (recovery.start_offset, recovery.end_offset, recovery.records) == (0, 0, 0)
    store.close()


def test_queues_without_a_log_are_refused(core: Any, tmp_path: Path) -> None:
    store = Calls(core, tmp_path)
    put_some(store, range(3))
    store.close()
    shutil.rmtree(tmp_path / "commitlog")
    with pytest.raises(Failed, match="no commit log files") as caught:
        Calls(core, tmp_path)
    assert caught.value.status == core[1].RMQ_CORRUPT
