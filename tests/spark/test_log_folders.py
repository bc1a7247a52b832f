"""A commit log in several folders is one log: in batches, streams, pipelines and the JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

import rmqstore
from rmqstore.errors import ArgumentError, NotFoundError
from tests.spark.checking import summed
from tests.spark.plan_reader import missing, plan_reader, python_rows
from tests.spark.reading import read
from tests.spark.streaming import Query, messages, numbers, open_store

COUNT = 200


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return two folders for a log."""
    return tmp_path / "disk-a", tmp_path / "disk-b"


@pytest.fixture
def root(tmp_path: Path, folders: tuple[Path, Path]) -> Path:
    """Return a closed store whose log is in these folders."""
    root = tmp_path / "store"
    with open_store(root, commit_log_paths=tuple(map(str, folders))) as store:
        store.put_many(messages(COUNT))
    assert all(len([*folder.iterdir()]) > 1 for folder in folders)
    return root


@pytest.fixture
def named(folders: tuple[Path, Path]) -> dict[str, str]:
    """Return the option that names them."""
    return {"storePathCommitLog": ",".join(map(str, folders))}


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}, {"maxPartitionBytes": "2k"}], ids=str)
def test_every_message_is_a_row(root: Path, named: dict[str, str], options: dict[str, str]) -> None:
    wanted = options.get("topic", "")
    rows = read(root, **named, **options)
    with rmqstore.open(
        root, commit_log_paths=tuple(named["storePathCommitLog"].split(",")), read_only=True
    ) as store:
        bodies = [each.body for each in store.scan_log() if wanted in each.topic]
    assert sorted(row["body"] for row in rows) == sorted(bodies)


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_reader_in_the_jvm_has_the_same_rows(root: Path, named: dict[str, str]) -> None:
    with plan_reader() as reader:
        for options in ({}, {"topic": "orders"}, {"maxPartitionBytes": "2k"}):
            expected = python_rows(root, **named, **options)
            assert isinstance(expected, list)
            assert reader.rows(root, **named, **options) == expected


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxBytes(9000)], ids=str)
def test_a_stream_follows_all_folders(
    root: Path, folders: tuple[Path, Path], named: dict[str, str], limit: ReadLimit
) -> None:
    query = Query(root, startingOffsets="earliest", **named)
    found = numbers([row for rows in query.batches(limit) for row in rows])
    with open_store(root, commit_log_paths=tuple(map(str, folders))) as store:
        store.put_many(messages(COUNT, first=COUNT))
    query.restarted()
    found += numbers([row for rows in query.batches(limit) for row in rows])
    assert sorted(found) == list(range(2 * COUNT))


def test_a_pipeline_sums_all_of_it_up(root: Path, named: dict[str, str]) -> None:
    sums, damage = summed(root, **named)
    assert sum(each["messages"] for each in sums.values()) == COUNT
    assert damage == []


def test_a_file_that_no_folder_has_is_data_loss(
    root: Path, folders: tuple[Path, Path], named: dict[str, str]
) -> None:
    gone = sorted(folders[1].iterdir())[1]
    rows = read(root, **named)
    gone.unlink()
    with pytest.raises(NotFoundError, match=f"no file holds the physical offsets {int(gone.name)}"):
        read(root, **named)
    left = read(root, failOnDataLoss=False, **named)
    assert left == [row for row in rows if row["path"] != str(gone)]


def test_one_folder_of_several_is_answered_with_the_option(
    root: Path, folders: tuple[Path, Path]
) -> None:
    with pytest.raises(NotFoundError, match="in several in the option storePathCommitLog"):
        read(folders[0])


def test_folders_of_one_log_are_not_those_of_several_stores(
    root: Path, named: dict[str, str]
) -> None:
    with pytest.raises(ArgumentError, match=r"storePathCommitLog: .* there are 3 stores"):
        read(f"{root.parent}/*", **named)
