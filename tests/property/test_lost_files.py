"""Files of queues and index that are lost while a store is closed: built again, or refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rmqstore
from rmqstore import CorruptionError, Message
from rmqstore.check import verify
from rmqstore.check.repair import apply, plan
from tests.support.native_store import set_clock

NOW_MS = 1_700_000_000_000
SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 4096,
    "consume_queue_file_size_bytes": 200,
    "batch_consume_queue_file_size_bytes": 46 * 7,
    "consume_queue_ext_file_size_bytes": 240,
    "index_slot_count": 16,
    "index_entry_count": 14,
    "message_size_bytes_max": 2000,
}
KINDS = ("queues", "batches", "extensions", "index")
FOLDERS = {
    "queues": "consumequeue",
    "batches": "batchconsumequeue",
    "extensions": "consumequeue_ext",
    "index": "index",
}


class Content(NamedTuple):
    """What readers get of a store."""

    queues: dict[tuple[str, int], tuple[int, int]]
    bodies: dict[tuple[str, int], list[tuple[int, bytes]]]
    found: dict[str, list[bytes]]


def content_of(store: rmqstore.Store) -> Content:
    queues = [each for each in store.queues() if each.end > 0]
    return Content(
        {(each.topic, each.number): (each.start, each.end) for each in queues},
        {
            (each.topic, each.number): [(one.queue_offset, one.body) for one in each.records()]
            for each in queues
        },
        {
            key: [one.body for one in store.find(topic, key)]
            for topic, key in [("idle", f"k{n}") for n in range(36)]
            + [("busy", f"b{n}") for n in range(25)]
        },
    )


def make(path: Path, kind: str) -> None:
    """A closed store of several files of *kind*; what is in "idle" is not in the last log files."""
    settings = {**SIZES, "enable_consume_queue_ext": kind == "extensions"}
    with rmqstore.open(path, **settings) as store:
        if kind == "batches":
            store.create_topic("idle", attributes={"queue.type": "BatchCQ"})
        for number in range(36):
            set_clock(store, NOW_MS + number)
            message = Message("idle", b"%d" % number, queue=number % 2, keys=[f"k{number}"])
            if kind == "batches":
                store.put_batch([message, Message("idle", b"and", queue=number % 2)])
            else:
                store.put_many([message])
        for number in range(25):
            store.put("busy", bytes(400), queue=0, tags="t", keys=[f"b{number}"])


@pytest.fixture(params=KINDS, scope="module")
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp(request.param) / request.param
    make(path, request.param)
    assert len(files_of(path)) > 3
    return path


def files_of(original: Path) -> list[Path]:
    folder = original / FOLDERS[original.name]
    return sorted(path.relative_to(original) for path in folder.rglob("*") if path.is_file())


def losses_of(original: Path) -> Iterator[tuple[Path, ...]]:
    files = files_of(original)
    yield from combinations(files, 1)
    yield from combinations(files, 2)
    yield tuple(files)


def refusal_of(path: Path) -> str | None:
    """What opening or reading the store says of damage; an extension is looked at when it is
    read."""
    try:
        with rmqstore.open(path) as store:
            content_of(store)
    except CorruptionError as error:
        return str(error)
    return None


@pytest.mark.parametrize("removes_folders", [False, True], ids=["files", "folders"])
def test_what_is_lost_of_a_closed_store_is_built_again_or_refused(
    removes_folders: bool, original: Path, tmp_path: Path
) -> None:
    with rmqstore.open(original, read_only=True) as store:
        assert not store.recovery.was_incomplete
        whole = content_of(store)

    for number, lost in enumerate(losses_of(original)):
        path = tmp_path / str(number)
        shutil.copytree(original, path)
        for each in lost:
            (path / each).unlink()
            if removes_folders and not any((path / each).parent.iterdir()):
                (path / each).parent.rmdir()

        with suppress(CorruptionError), rmqstore.open(path, read_only=True) as store:
            assert store.recovery.was_incomplete or content_of(store) == whole, lost
        if (refusal := refusal_of(path)) is not None:
            assert "rmqstore repair" in refusal or "does not follow" in refusal, (lost, refusal)
            apply(plan(path))
        with rmqstore.open(path) as store:
            assert content_of(store) == whole, lost
        with rmqstore.open(path, read_only=True) as store:
            assert not store.recovery.was_incomplete, lost
        assert verify(path, full=True).is_sound, lost
        shutil.rmtree(path)
