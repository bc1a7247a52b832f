"""Every reason to refuse opening a store for writing: no file changes, `verify` finds it, and
`repair` makes a store that opens."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqstore
from rmqstore import Message, StoreError
from rmqstore.check import verify
from rmqstore.check.repair import apply, plan
from tests.support.every_file import BATCHES, SETTINGS, tree


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store with several files of every kind, closed, and as a crash left it."""
    root = tmp_path_factory.mktemp("original")
    with rmqstore.open(root / "closed", **SETTINGS) as store:
        store.create_topic(
            BATCHES, read_queue_count=1, write_queue_count=1, attributes={"queue.type": "BatchCQ"}
        )
        for number in range(40):
            store.put("orders", bytes(200), tags="A", keys=[f"key-{number}"])
            if number % 4 == 0:
                store.put_batch([Message(BATCHES, b"x")] * 2)
        store.wait_dispatched()
        store.flush()
        store.abandon()
    shutil.copytree(root / "closed", root / "crashed")
    rmqstore.open(root / "closed", **SETTINGS).close()
    return {"closed": root / "closed", "crashed": root / "crashed"}


def files_of(directory: Path, part: str) -> list[Path]:
    return sorted(path for path in (directory / part).rglob("*") if path.is_file())


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


class Reason(NamedTuple):
    """What is done to a store, and what opening then says."""

    damage: Callable[[Path], object]
    says: str


LOG, QUEUE = "commitlog", "consumequeue/orders"
BATCH, EXTENSION = "batchconsumequeue/batches", "consumequeue_ext/orders"


def shorten(part: str) -> Callable[[Path], object]:
    return lambda root: files_of(root, part)[0].write_bytes(
        files_of(root, part)[0].read_bytes()[1:]
    )


def empty(part: str) -> Callable[[Path], object]:
    return lambda root: files_of(root, part)[0].write_bytes(b"")


def remove(part: str) -> Callable[[Path], object]:
    return lambda root: files_of(root, part)[1].unlink()


def add(part: str, name: str) -> Callable[[Path], object]:
    return lambda root: (files_of(root, part)[0].parent / name).write_bytes(b"stray")


def misname(part: str) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        last = files_of(root, part)[-1]
        last.rename(last.with_name(f"{int(last.name) + 7:020}"))

    return damage


def zero_unit(root: Path) -> None:
    first = files_of(root, BATCH)[0]
    first.write_bytes(bytes(46) + first.read_bytes()[46:])


def twin_folder(root: Path) -> None:
    shutil.copytree(root / "consumequeue" / "orders", root / "batchconsumequeue" / "orders")


def lose_extension(root: Path) -> None:
    for file in files_of(root, EXTENSION):
        file.write_bytes(bytes(file.stat().st_size))


def last_of_log(root: Path) -> Path:
    return max(file for file in files_of(root, LOG) if any(file.read_bytes()))


def torn_end(root: Path) -> None:
    last = last_of_log(root)
    data = bytearray(last.read_bytes())
    end = len(data.rstrip(b"\0"))
    data[end - 300 : end] = bytes(300)
    last.write_bytes(data)


REASONS = {
    "bit in the log": Reason(lambda root: flip(last_of_log(root), 150), "body CRC|CRC property"),
    "log ends before its mark": Reason(torn_end, "records up to"),
    "impossible size": Reason(
        lambda root: flip(last_of_log(root), 0), "says|no record|not a record"
    ),
    **{
        f"{kind} {part}": Reason(make(part), says)
        for part in (LOG, QUEUE, BATCH, EXTENSION)
        for kind, make, says in (
            ("shorter file in", shorten, "bytes, expected"),
            ("empty file in", empty, "is empty, and files follow"),
            ("file lost from", remove, "is missing before"),
            ("misnamed file in", misname, "not a multiple|is missing before"),
        )
    },
    **{
        f"foreign file in {part}": Reason(add(part, "stray.txt"), "is no")
        for part in (LOG, QUEUE, BATCH, EXTENSION, "index")
    },
    "short name in the index": Reason(add("index", "17"), "is not an index file"),
    "shorter index file": Reason(shorten("index"), "bytes, expected"),
    "empty index file": Reason(empty("index"), "is empty, and files follow"),
    "queues of both kinds": Reason(twin_folder, "bytes, expected|under batchconsumequeue"),
    "batch queue without its first unit": Reason(zero_unit, "no unit at byte"),
    "extension without units": Reason(lose_extension, "of its extension"),
}


@pytest.mark.parametrize("state", ["closed", "crashed"])
@pytest.mark.parametrize("name", REASONS)
def test_refusal_changes_no_file_and_is_found_and_repaired(
    originals: dict[str, Path], tmp_path: Path, name: str, state: str
) -> None:
    reason = REASONS[name]
    directory = Path(shutil.copytree(originals[state], tmp_path / "store"))
    reason.damage(directory)
    before = tree(directory)
    with pytest.raises(StoreError, match=reason.says):
        rmqstore.open(directory, **SETTINGS)
    assert tree(directory) == before
    assert not verify(directory, full=True).is_sound
    assert apply(plan(directory)).report.is_sound
    rmqstore.open(directory, **SETTINGS).close()


def test_index_of_a_refused_store_still_finds_every_key(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(originals["crashed"], tmp_path / "store"))
    checkpoint = directory / "checkpoint"
    # As RocketMQ 5.3 leaves it: recovery trusts nothing of the index.
    checkpoint.write_bytes(bytes(40) + bytes(8) + checkpoint.read_bytes()[48:])
    flip(files_of(directory, LOG)[0], 150)
    with pytest.raises(rmqstore.CorruptionError):
        rmqstore.open(directory, **SETTINGS)
    with rmqstore.open(directory, read_only=True) as store:
        found = sum(len(store.find("orders", f"key-{number}")) for number in range(1, 40))
    assert found == 39


def test_empty_files_at_the_end_outlive_a_refusal_and_not_an_opening(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(originals["closed"], tmp_path / "store"))
    empties = [
        files[-1].with_name(f"{int(files[-1].name) + files[-1].stat().st_size:020}")
        for files in (files_of(directory, part) for part in (LOG, QUEUE, BATCH, EXTENSION))
    ]

    empties.append(directory / "index" / "99990101000000000")
    for each in empties:
        each.touch()

    data = files_of(directory, LOG)[0].read_bytes()
    flip(files_of(directory, LOG)[0], 150)
    (directory / "abort").touch()
    (directory / "checkpoint").unlink()
    before = tree(directory)

    with pytest.raises(rmqstore.CorruptionError):
        rmqstore.open(directory, **SETTINGS)
    assert tree(directory) == before

    files_of(directory, LOG)[0].write_bytes(data)
    with rmqstore.open(directory, **SETTINGS) as store:
        assert all(not each.exists() or each.stat().st_size for each in empties)
        store.put("orders", b"goes on")
