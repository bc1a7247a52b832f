"""The files of an engine: replaced as a whole, or appended to.

Tests replace the directory by a simulated disk that loses unsynced bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from rmqstore import forks
from rmqstore._native.core import replace_small_file
from rmqstore.errors import StoreLockedError, UnsupportedStoreError, disk_errors
from rmqstore.regular_file import read_regular
from rmqstore.store.durable_files import sync_directory

__all__ = ["AppendFile", "Directory", "OsDirectory"]


class AppendFile(Protocol):
    """A file that grows at its end. Errors are those of the operating system."""

    def write(self, data: bytes) -> None:
        """Append *data*. After an error the end of the file is not known."""

    def sync(self) -> None:
        """Return when all written bytes are on the disk."""

    def truncate(self, size: int) -> None:
        """Truncate the file to *size* bytes; later writes follow there."""

    def close(self) -> None:
        """Close the file."""


class Directory(Protocol):
    """The files of one engine."""

    @property
    def path(self) -> str:
        """The path, for messages."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None for a missing file."""

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file's content by *data*, atomically; durable on return."""

    def open(self, name: str) -> AppendFile:
        """Open an existing file for appending."""

    def close(self) -> None:
        """Unlock the directory for other processes."""


class OsDirectory:
    """A directory of the file system, locked by this process."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        log: str = "log",
        unfinished: Collection[str] = ("log.tmp", "snapshot", "snapshot.tmp"),
    ) -> None:
        """Create the directory if it is missing, and lock it.

        Every complete directory of the engine contains the name *log*. If its creation was
        interrupted, it may contain only the names *unfinished*.

        Raises StoreLockedError while another process uses it, UnsupportedStoreError if it holds
        the files of another program, and DiskError.
        """
        self._path = Path(path).absolute()
        with disk_errors("opening the controller's directory"):
            _make_directories(self._path)
            self._lock = forks.make(lambda: _Lock(self._path / "lock"), _Lock.close)
        self._lock.acquire()
        try:
            with disk_errors("opening the controller's directory"):
                _refuse_foreign(self._path, log, unfinished)
        except BaseException:
            self._lock.close()
            raise

    @property
    def path(self) -> str:
        """The path, for messages."""
        return str(self._path)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None for a missing file."""
        try:
            return read_regular(self._path / name)
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file's content by *data*, atomically; durable on return."""
        replace_small_file(str(self._path), name, data)

    def open(self, name: str) -> AppendFile:
        """Open an existing file for appending."""
        return _OsFile(self._path / name)

    def close(self) -> None:
        """Unlock the directory for other processes."""
        self._lock.close()


class _Lock:
    """A lock file that one process holds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o644)

    def acquire(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            self.close()
            process = int(holder) if holder.isdecimal() else None
            raise StoreLockedError(
                f"{self._path.parent} is used by another controller, process {holder or 'unknown'};"
                " stop it, or give this one a directory of its own (controllerStorePath)",
                process_id=process,
            ) from None
        # For messages only; a full disk leaves the file empty.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _OsFile:
    """A file of the file system."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags)
        self._end = os.fstat(self._descriptor).st_size

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._descriptor, view, self._end)
            self._end += count
            view = view[count:]

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._end = size

    def close(self) -> None:
        os.close(self._descriptor)


def _refuse_foreign(path: Path, log: str, unfinished: Collection[str]) -> None:
    """Raises if the directory holds files of another program instead of a log: a controller that
    started empty there would assign ids and epochs twice."""
    names = set(os.listdir(path))
    foreign = names - {"lock", *unfinished}
    if log not in names and foreign:
        raise UnsupportedStoreError(
            f"{path} holds no log of this controller, but {', '.join(sorted(foreign)[:3])}; name "
            "an empty directory (controllerStorePath)"
        )


def _make_directories(path: Path) -> None:
    """Creates a directory and its parents; all of them are on the disk on return."""
    if path.is_dir():
        return
    _make_directories(path.parent)
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
    sync_directory(path.parent)
