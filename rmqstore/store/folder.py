"""A folder of small files, each replaced as a whole and durably."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from rmqstore.regular_file import read_regular
from rmqstore.store.durable_files import append_durably, replace_durably, sync_directory

__all__ = ["DiskFolder", "Folder", "FolderLike", "folder_at"]


class Folder(Protocol):
    """The files of one folder, by their names. All methods raise OSError."""

    def place(self, name: str) -> str:
        """Return the path of a file, for messages."""

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError without it."""

    def replace(self, name: str, data: bytes) -> None:
        """Put *data* in the place of a file, whole or not at all, durably on return."""

    def append(self, name: str, data: bytes) -> None:
        """Add *data* to the end of a file, durably on return. After an error the end of the file
        may have a part of it."""

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, which no file has."""

    def remove(self, name: str) -> None:
        """Remove a file; without it do nothing."""

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""


FolderLike = str | os.PathLike[str] | Folder
"""A folder, or its path."""


class DiskFolder:
    """The folder at *path*, which is made with its first file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def place(self, name: str) -> str:
        return str(self._path / name)

    def read(self, name: str) -> bytes:
        return read_regular(self._path / name)

    def replace(self, name: str, data: bytes) -> None:
        path = self._path / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync_directory(path.parent.parent)
        replace_durably(path, data)

    def append(self, name: str, data: bytes) -> None:
        append_durably(self._path / name, data)

    def rename(self, name: str, to: str) -> None:
        os.rename(self._path / name, self._path / to)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        return (self._path / name).exists()


def folder_at(place: FolderLike) -> Folder:
    """Return the folder at a path, or *place* itself."""
    return DiskFolder(place) if isinstance(place, str | os.PathLike) else place
