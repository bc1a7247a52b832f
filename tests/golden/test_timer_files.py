"""Timer log, wheel and check point of RocketMQ: read, and written byte for byte."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from rmqstore import open as open_store
from rmqstore._native.core import TimerIndex
from rmqstore.store.metadata.timer_checkpoint import TimerCheckpoint, is_marked, marked
from tests.golden import DIRECTORY, RELEASES
from tests.reference.timer_files import decode_log, encode_log, wheel_of

FILE_SIZE, PRECISION_MS = 1 << 20, 1000
NAME = "0" * 20
EVERYTHING = 1 << 62


def store_of(root: Path, release: str, ending: str) -> Path:
    """Return the store of a broker with timer messages that ended in a way."""
    with tarfile.open(DIRECTORY / "brokers" / release / f"timer-{ending}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    return root / f"timer-{ending}" / "store"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_timer_log_is_read_and_written(tmp_path: Path, release: str, ending: str) -> None:
    store = store_of(tmp_path, release, ending)
    log = (store / "timerlog" / NAME).read_bytes()
    units = decode_log(log, FILE_SIZE)
    assert len(units) == 28 + 4 * (ending == "clean" or release == "5.3.3")
    assert encode_log(units.values(), FILE_SIZE) == log

    made = tmp_path / "made"
    made.mkdir()
    index = TimerIndex(made, file_size=FILE_SIZE, precision_ms=PRECISION_MS, bound=EVERYTHING)
    for unit in units.values():
        index.add(
            unit.write_ms + unit.delay_ms,
            write_ms=unit.write_ms,
            magic=unit.magic,
            physical_offset=unit.physical_offset,
            size=unit.size,
            topic_hash=unit.topic_hash,
        )
    index.flush()
    assert (made / "timerlog" / NAME).read_bytes() == log
    wheel = (made / "timerwheel").read_bytes()
    assert wheel == wheel_of(units, PRECISION_MS)
    if ending == "clean":
        assert wheel == (store / "timerwheel").read_bytes()
    index.close()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_wheel_is_made_again_from_the_log(tmp_path: Path, release: str, ending: str) -> None:
    """A killed broker leaves units that its wheel does not know."""
    store = store_of(tmp_path, release, ending)
    log = (store / "timerlog" / NAME).read_bytes()
    index = TimerIndex(store, file_size=FILE_SIZE, precision_ms=PRECISION_MS, bound=EVERYTHING)
    units = decode_log(log, FILE_SIZE)
    assert index.last_offset == max(each.physical_offset for each in units.values())
    index.flush()
    assert (store / "timerwheel").read_bytes() == wheel_of(units, PRECISION_MS)
    assert (store / "timerlog" / NAME).read_bytes() == log

    by_slot: dict[int, list[tuple[int, int, int, int]]] = {}
    for position, each in units.items():
        unit = position, each.magic, each.physical_offset, each.size
        by_slot.setdefault(each.write_ms + each.delay_ms, []).append(unit)
    for slot_ms, found in by_slot.items():
        assert index.units(slot_ms) == found
    index.close()


@pytest.mark.parametrize("release", RELEASES)
def test_check_point_is_read_and_written(tmp_path: Path, release: str) -> None:
    """All methods of upstream's TimerCheckPointTest."""
    store = store_of(tmp_path, release, "clean")
    content = (store / "config" / "timercheck").read_bytes()
    found = TimerCheckpoint.decode(content)
    assert found is not None
    assert found.encode().ljust(4096, b"\0") == content
    assert found.log_position == 32 * 52
    assert found.queue_offset == found.master_queue_offset == 32
    assert found.read_ms % PRECISION_MS == 0


@pytest.mark.parametrize("release", RELEASES)
def test_units_name_the_records_of_the_queue(tmp_path: Path, release: str) -> None:
    root = store_of(tmp_path, release, "clean")
    log = (root / "timerlog" / NAME).read_bytes()
    text = (root.parent / "broker.conf").read_text()
    assert f"mappedFileSizeTimerLog={FILE_SIZE}" in text
    assert json.loads((root.parent / "manifest.json").read_text())["messages"]
    with open_store(root, commit_log_file_size_bytes=1 << 20, read_only=True) as store:
        for offset, unit in enumerate(decode_log(log, FILE_SIZE).values()):
            record = store.record_at(unit.physical_offset)
            assert (record.topic, record.queue_offset) == ("rmq_sys_wheel_timer", offset)
            assert record.size == unit.size


def test_mark_tells_who_wrote_the_check_point(tmp_path: Path) -> None:
    """RocketMQ writes the fields, and leaves the bytes after them as they are."""
    content = (store_of(tmp_path, RELEASES[0], "clean") / "config" / "timercheck").read_bytes()
    assert not is_marked(content)
    assert not is_marked(b"")
    own = marked(content) + content[60:]
    assert is_marked(own)
    assert TimerCheckpoint.decode(own) == TimerCheckpoint.decode(content)
    assert not is_marked(b"\0" * 7 + b"\1" + own[8:])
