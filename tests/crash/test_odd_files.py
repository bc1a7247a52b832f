"""Directories that come from elsewhere: FIFOs and devices in the place of files, links out of the
store, settings that name other places, index files of any size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore.errors import UnsupportedStoreError
from rmqstore.replication import Master
from rmqstore.store.directory import Directory
from tests.house import tree
from tests.support.agreement import FILES

OPEN = """
import sys
import rmqstore
from rmqstore.replication import Master
path, read_only = sys.argv[1], sys.argv[2] == "read-only"
try:
    with rmqstore.open(path, read_only=read_only) as store:
        if not read_only:
            with Master(store, listen="127.0.0.1:0"):
                store.put("t", b"y", keys=["k"])
        print("opened")
except rmqstore.StoreError as error:
    print(error)
"""
PLACES = (
    "checkpoint",
    "config/topics.json",
    "config/consumerOffset.json",
    "config/delayOffset.json",
    "config/rmqstore.properties",
    "config/replica.properties",
    "epochFileCheckpoint",
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a store of a few messages, closed, that was a replica."""
    path = tmp_path / "store"
    with rmqstore.open(path, **FILES) as store:
        with Master(store, listen="127.0.0.1:0"):
            store.put("t", b"x", keys=["k"])
        store.create_topic("t")
    return path


@pytest.mark.parametrize("mode", ["writing", "read-only"])
@pytest.mark.parametrize("place", PLACES)
def test_fifo_in_the_place_of_a_file_is_refused_by_name_or_not_looked_at(
    place: str, mode: str, directory: Path
) -> None:
    path = directory / place
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    answer = subprocess.run(
        [sys.executable, "-c", OPEN, str(directory), mode],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    # Read-only opening looks at some of them only.
    assert f"{path} is not a regular file" in answer or (
        mode == "read-only" and answer == "opened\n"
    )


@pytest.mark.parametrize("folder", ["commitlog", "index", "consumequeue/t/0"])
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_special_file_among_those_of_the_store_hangs_no_opening(
    folder: str, kind: str, directory: Path
) -> None:
    path = max((directory / folder).iterdir())
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    answer = subprocess.run(
        [sys.executable, "-c", OPEN, str(directory), "writing"],
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert answer == "opened\n" or str(path.parent) in answer


def test_index_file_of_any_size_and_content_costs_a_bounded_look(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, **FILES) as store:
        for number in range(20):
            store.put("t", b"x", keys=[f"k{number}"])

    known = Directory.inspect(tmp_path)
    assert known.index_slot_count, "the entries tell how many slots there are"
    path = next((tmp_path / "index").iterdir())
    size = path.stat().st_size

    for grown in (size + 20 * 7, 40 << 20, 400 << 20, 8 << 30):
        os.truncate(path, grown)
        facts = Directory.inspect(tmp_path)
        # Whole entries more: the slots are found as before, whatever the size.
        expected = known.index_slot_count if (grown - size) % 20 == 0 else None
        assert facts.index_slot_count == expected

    with path.open("rb") as file:
        data = bytearray(file.read(4 << 20))
    data[40:] = b"\0\0\0\1" * ((len(data) - 40) // 4)
    path.write_bytes(data)
    assert Directory.inspect(tmp_path).index_slot_count is None


def test_remembered_place_out_of_the_store_has_to_be_named_for_writing(
    directory: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside" / "deep"
    with (directory / "config" / "rmqstore.properties").open("a") as file:
        file.write(f"\nstorePathCommitLog={outside}\n")
    with pytest.raises(UnsupportedStoreError, match="commit_log_paths"):
        rmqstore.open(directory)
    assert not outside.exists()
    (directory / "commitlog").rename(tmp_path / "log")
    named = (str(tmp_path / "log"),)
    with rmqstore.open(directory, commit_log_paths=named) as store:
        assert store.get("t", offset=0).body == b"x"


@pytest.mark.parametrize(
    "place",
    [
        "commitlog",
        "index",
        "config",
        "config/topics.json",
        "consumequeue",
        "consumequeue/t",
        "consumequeue/t/0",
        "consumequeue/t/0/" + 20 * "0",
        "checkpoint",
    ],
)
def test_link_out_of_the_store_is_not_followed_for_writing(
    place: str, directory: Path, tmp_path: Path
) -> None:
    path, target = directory / place, tmp_path / "target"
    path.rename(target)
    path.symlink_to(target)
    before = {each: each.stat().st_mtime_ns for each in [target, *target.rglob("*")]}
    with pytest.raises(UnsupportedStoreError, match="is a link out of the store") as caught:
        rmqstore.open(directory)
    assert str(path) in str(caught.value)
    assert {each: each.stat().st_mtime_ns for each in before} == before
    with rmqstore.open(directory, read_only=True) as store:
        assert store.get("t", offset=0).body == b"x"


def test_links_of_the_root_and_inside_of_it_and_named_ones_are_followed(
    directory: Path, tmp_path: Path
) -> None:
    (directory / "index").rename(directory / "moved")
    (directory / "index").symlink_to("moved")
    link = tmp_path / "link"
    link.symlink_to(directory)
    with rmqstore.open(link) as store:
        store.put("t", b"y")
    (directory / "commitlog").rename(tmp_path / "log")
    (directory / "commitlog").symlink_to(tmp_path / "log")
    with rmqstore.open(directory, commit_log_paths=(str(directory / "commitlog"),)) as store:
        assert sum(1 for _ in store.scan_log()) == 2


def test_saving_a_table_writes_through_no_link(directory: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    with rmqstore.open(directory) as store:
        (directory / "config" / "topics.json.tmp").symlink_to(victim)
        store.create_topic("u")
    assert victim.read_bytes() == b"kept"
