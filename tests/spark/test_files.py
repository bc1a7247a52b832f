"""Folders and ranges of files, on this machine and behind a URL."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.errors import DiskError, NotFoundError, StoreError
from rmqstore.spark import files

pa = pytest.importorskip("pyarrow", reason="URLs need it: pip install rmqstore[spark]")
fsspec = pytest.importorskip("fsspec", reason="URLs need it: pip install rmqstore[spark]")

NAMES = ("00000000000000000000", "00000000000000001024", "00000000000000002048")
SIZES = (1024, 1024, 7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three store files, foreign files and folders."""
    for name, size in zip(NAMES, SIZES, strict=True):
        (tmp_path / name).write_bytes(bytes(range(256)) * (size // 256 or 1))
    for other in ("notes.txt", "123", "0000000000000000000x", "\u0660" * 20):
        (tmp_path / other).write_bytes(b"?")
    (tmp_path / "orders").mkdir()
    (tmp_path / "payments").mkdir()
    (tmp_path / "00000000000000004096").mkdir()
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """Return the same folder in memory, as a URL."""
    memory = fsspec.filesystem("memory")
    root = f"/files-{os.getpid()}"
    for path in folder.iterdir():
        if path.is_file():
            memory.pipe(f"{root}/{path.name}", path.read_bytes())
        else:
            memory.pipe(f"{root}/{path.name}/{NAMES[0]}", b"")
    yield f"memory:/{root}"
    memory.rm(root, recursive=True)


@pytest.fixture(params=["local", "file", "memory"])
def place(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the folder by a path or a URL."""
    if request.param == "memory":
        return str(request.getfixturevalue("url"))
    return str(folder) if request.param == "local" else folder.as_uri()


def test_only_store_files_are_listed_in_order_with_their_sizes(place: str) -> None:
    sizes = files.Folder(place).names()
    assert list(sizes) == list(NAMES)
    assert list(sizes.values()) == [1024, 1024, 256]


def test_folders_are_listed_in_order(place: str) -> None:
    assert files.Folder(place).folders() == ["00000000000000004096", "orders", "payments"]
    assert files.Folder(files.join(place, "nowhere")).folders() == []


def test_what_is_there_is_told_from_what_is_not(place: str) -> None:
    folder = pickle.loads(pickle.dumps(files.Folder(place)))
    assert folder.has(NAMES[0])
    assert folder.has("orders")
    assert folder.has("")
    assert not folder.has("nowhere")
    assert not folder.is_file()
    assert files.Folder(files.join(place, NAMES[0])).is_file()
    assert folder.read("notes.txt", 10) == b"?"
    assert folder.read("nowhere", 10) is None


def test_a_missing_folder_has_no_names(place: str) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        files.Folder(files.join(place, "nowhere")).names()


def test_ranges_are_short_only_at_the_end(place: str) -> None:
    with files.open_file(files.join(place, NAMES[0])) as file:
        assert file.size == 1024
        assert file.read(0, 3) == b"\0\1\2"
        assert file.read(1020, 100) == bytes((252, 253, 254, 255))
        assert file.read(1024, 1) == b""
        target = bytearray(b"x" * 10)
        assert file.read_into(1018, memoryview(target)) == 6
        assert target == bytes(range(250, 256)) + b"xxxx"
        assert file.is_local == (not place.startswith("memory:"))


def test_a_missing_file_is_not_found_by_its_name(place: str) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        files.open_file(files.join(place, "nowhere"))


def test_a_file_that_vanishes_during_the_listing_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    class Vanishing:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name = entry.name
            self._entry = entry

        def is_dir(self) -> bool:
            return self._entry.is_dir()

        def is_file(self) -> bool:
            return self._entry.is_file()

        def stat(self) -> os.stat_result:
            if self.name == NAMES[0]:
                raise FileNotFoundError(errno.ENOENT, "gone", self.name)
            return self._entry.stat()

    class Scan:
        def __init__(self, path: str) -> None:
            self._entries = scandir(path)

        def __enter__(self) -> Iterator[Vanishing]:
            return (Vanishing(entry) for entry in self._entries)

        def __exit__(self, *_: object) -> None:
            self._entries.close()

    monkeypatch.setattr(os, "scandir", Scan)
    assert list(files.Folder(str(folder)).names()) == list(NAMES[1:])


def test_a_refusal_of_the_system_names_the_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "open", refuse)
    for call in (files.Folder(str(folder)).names, lambda: files.open_file(str(folder / NAMES[0]))):
        with pytest.raises(DiskError, match=str(folder)) as caught:
            call()
        assert caught.value.errno == errno.EACCES


def test_data_is_found_behind_holes(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(32 << 20)
        file.seek(16 << 20)
        file.write(b"data")
    with files.open_file(str(path)) as opened:
        found = opened.next_data(0)
        assert found is not None
        assert found <= 16 << 20
        # Where the file system has no holes, all of it may be data.
        assert opened.next_data(24 << 20) in (None, 24 << 20)
        assert opened.next_data(32 << 20) is None


# ---- expanding ----


def test_a_path_is_itself_and_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert files.expand("orders") == [str(folder / "orders")]
    assert files.expand((folder / "orders").as_uri()) == [str(folder / "orders")]


def test_a_glob_gives_folders_in_order(folder: Path, url: str) -> None:
    assert files.expand(f"{folder}/[op]*") == [str(folder / "orders"), str(folder / "payments")]
    assert files.expand(f"{url}/[op]*") == [f"{url}/orders", f"{url}/payments"]


def test_a_name_with_wildcards_that_exists_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "a1").mkdir()
    assert files.expand(f"{tmp_path}/a[1]") == [str(tmp_path / "a[1]")]


@pytest.mark.parametrize("name", ["nowhere", "nowhere*", "orders/*"])
def test_what_matches_nothing_is_not_found(folder: Path, url: str, name: str) -> None:
    for root in (str(folder), url):
        with pytest.raises(NotFoundError, match=r"does not exist|no folder matches") as caught:
            files.expand(f"{root}/{name}")
        assert name in str(caught.value)


def test_an_unknown_scheme_is_told() -> None:
    with pytest.raises(NotFoundError, match="nosuch"):
        files.expand("nosuch://host/path")


@pytest.mark.parametrize("error", [pa.ArrowException, RuntimeError, OSError], ids=str)
@pytest.mark.parametrize("is_found", [True, False])
def test_what_a_remote_file_system_raises_is_an_error_of_this_package(
    error: type[Exception], is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error("no token:\n asked nobody")

    class System:
        get_file_info = open_input_file = refuse

    monkeypatch.setattr(files, "_system", (lambda *_: (System(), "")) if is_found else refuse)
    url = "cloud://bucket/store"
    folder = files.Folder(url)
    calls = (
        lambda: files.expand(url),
        lambda: files.expand(f"{url}/s*"),
        folder.names,
        folder.folders,
        folder.is_file,
        lambda: folder.has("x"),
        lambda: files.open_file(f"{url}/{NAMES[0]}"),
    )
    for call in calls:
        with pytest.raises(
            StoreError, match=r"cloud://bucket/store.*: no token: asked nobody; what"
        ):
            call()


def test_a_url_keeps_its_query() -> None:
    assert (
        files.join("s3://bucket/a/?region=eu-west-1", "commitlog", "0")
        == "s3://bucket/a/commitlog/0?region=eu-west-1"
    )
