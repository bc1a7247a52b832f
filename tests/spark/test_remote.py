"""Stores behind a URL: the same rows, read in ranges through pyarrow's file systems or fsspec."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore import NotFoundError
from rmqstore.spark import files
from tests.spark.reading import Read, Row, read

FILE_BYTES = 16_384


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("remote") / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=FILE_BYTES) as store:
        for number in range(200):
            topic = "rare" if number % 40 == 7 else "orders"
            store.put(topic, b"%d" % number * 80, queue=number % 3, tags="t", keys=[f"k{number}"])
    return root


@pytest.fixture
def memory_url(root: Path) -> Iterator[str]:
    """Return the store's address in fsspec's memory file system."""
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec: pip install fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(root), "/shelf/store", recursive=True)
    yield "memory://shelf/store"
    memory.rm("/shelf", recursive=True)


@pytest.fixture
def served_url(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the store's address in a file system of pyarrow that no local path leads to."""
    system = fs.SubTreeFileSystem(str(root.parent), fs.LocalFileSystem())
    known = files._system
    monkeypatch.setattr(
        files,
        "_system",
        lambda base, query: (system, "") if base == "served://a" else known(base, query),
    )
    return "served://a/store"


def _by_place(rows: list[Row]) -> list[Row]:
    """Return rows without their path, in log order."""
    found = [{name: value for name, value in row.items() if name != "path"} for row in rows]
    return sorted(found, key=lambda row: int(row["physicalOffset"]))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="log"),
        pytest.param({"maxPartitionBytes": 5000}, id="split"),
        pytest.param({"topic": "rare"}, id="queues"),
        pytest.param({"topic": "orders,rare", "maxPartitionBytes": 5000}, id="queues-split"),
    ],
)
def test_every_file_system_gives_the_rows_of_the_local_one(
    root: Path, memory_url: str, served_url: str, options: dict[str, object]
) -> None:
    expected = _by_place(read(root, **options))
    assert expected
    assert _by_place(read(served_url, **options)) == expected
    assert _by_place(read(root.as_uri(), **options)) == expected
    assert _by_place(read(memory_url, **options)) == expected


def test_paths_of_remote_rows_are_their_urls(memory_url: str) -> None:
    found = {row["path"] for row in read(memory_url, columns="path")}
    assert found == {
        f"{memory_url}/commitlog/{start:020d}"
        for start in range(0, len(found) * FILE_BYTES, FILE_BYTES)
    }
    assert len(found) > 3


def test_globs_work_behind_a_url(root: Path, memory_url: str) -> None:
    everything = len(read(root, columns="topic"))
    assert len(read(f"{root.parent.as_uri()}/sto*", columns="topic")) == everything
    assert len(read("memory://shelf/st*", columns="topic")) == everything
    with pytest.raises(NotFoundError, match="nothing"):
        read("memory://shelf/nothing-*")


def test_a_remote_file_that_vanishes_is_data_loss(memory_url: str) -> None:
    import fsspec

    strict = Read(memory_url, columns="path")
    lenient = Read(memory_url, columns="path", failOnDataLoss=False)
    fsspec.filesystem("memory").rm(f"/shelf/store/commitlog/{FILE_BYTES:020d}")
    with pytest.raises(NotFoundError, match="failOnDataLoss"):
        strict.rows()
    found = {row["path"] for row in lenient.rows()}
    assert f"{memory_url}/commitlog/{FILE_BYTES:020d}" not in found
    assert len(found) >= 3


def test_a_remote_file_is_read_in_few_ranges(
    memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_ranges: list[int] = []
    real = files.RangeFile.read

    def counted(self: files.RangeFile, offset: int, size: int) -> bytes:
        read_ranges.append(size)
        return real(self, offset, size)

    planned = Read(memory_url)
    files_read = sum(len(each.value.splits) for each in planned.partitions)
    monkeypatch.setattr(files.RangeFile, "read", counted)
    assert len(planned.rows()) == 200
    assert len(read_ranges) <= 2 * files_read


def test_a_store_without_queues_is_read_the_same_remotely(root: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(root, bare, ignore=shutil.ignore_patterns("consumequeue"))
    assert _by_place(read(bare.as_uri(), topic="rare")) == _by_place(read(root, topic="rare"))
