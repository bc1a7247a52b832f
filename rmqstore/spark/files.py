"""Folders and ranges of files, on this machine or behind a URL, by the same few calls.

Local paths go to the system directly; a path with a scheme goes to pyarrow's file systems, and
where these do not support the scheme, to fsspec. Only `RangeFile` and `OpenFiles` keep files
open between calls; a `Folder` is its path and may be pickled.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import glob
import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from rmqstore.errors import CorruptionError, DiskError, MissingExtraError, NotFoundError, StoreError
from rmqstore.spark import texts

__all__ = [
    "Folder",
    "OpenFiles",
    "RangeFile",
    "expand",
    "is_local",
    "join",
    "open_file",
    "parent_of",
]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:/")
_MAGIC = re.compile(r"[*?\[]")
_NAME_SIZE = 20


def is_local(path: str) -> bool:
    """Return whether *path* is one of this machine's own, not a URL."""
    return not _URL.match(path) or path.startswith("file:")


def join(path: str, *names: str) -> str:
    """Return the path of *names* under the folder *path*; a URL keeps its query."""
    if is_local(path):
        return os.path.join(_local(path), *names)
    base, mark, query = path.partition("?")
    return "/".join((base.rstrip("/"), *names)) + mark + query


def parent_of(path: str) -> str:
    """Return the folder of the file or folder *path*; a URL keeps its query."""
    if is_local(path):
        return os.path.dirname(_local(path))
    base, mark, query = path.partition("?")
    return base.rpartition("/")[0] + mark + query


def expand(path: str) -> list[str]:
    """Return the folders that *path* names or, with wildcards, matches, in the order of their
    names; local ones as absolute paths.

    Raises NotFoundError when there is none, DiskError where the system refuses to look.
    """
    if is_local(path):
        local = os.path.abspath(_local(path))
        if os.path.lexists(local) or not _MAGIC.search(local):
            found = [local] if os.path.lexists(local) else []
        else:
            found = [each for each in sorted(glob.glob(local)) if os.path.isdir(each)]
    else:
        found = list(_expand_remote(path))
    if not found:
        is_pattern = _MAGIC.search(path.partition("?")[0])
        what = "no folder matches; give another pattern" if is_pattern else "does not exist"
        raise NotFoundError(f"{path}: {what}")
    return found


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder by its path; it need not exist."""

    path: str

    def names(self) -> dict[str, int]:
        """Return the sizes of the store files in it, whose names are 20 digits, in order.

        Files that go while they are looked at are left out. Raises NotFoundError when there is no
        such folder, DiskError where the system refuses.
        """
        sizes = {name: size for name, size in self._entries() if size is not None}
        return {name: sizes[name] for name in sorted(sizes) if _is_store_file(name)}

    def has_files(self) -> bool:
        """Return whether it is there and holds a store file."""
        try:
            return bool(self.names())
        except NotFoundError:
            return False

    def folders(self) -> list[str]:
        """Return the names of the folders in it, in order; none when there is no such folder."""
        try:
            return sorted(name for name, size in self._entries() if size is None)
        except NotFoundError:
            return []

    def has(self, name: str) -> bool:
        """Return whether it holds a file or folder of this name."""
        path = join(self.path, name)
        if is_local(path):
            return os.path.exists(path)
        with _refusals(path):
            system, place = _system_of(path)
            return bool(system.get_file_info(place).type.name != "NotFound")

    def read(self, name: str, size_max: int) -> bytes | None:
        """Return the beginning of a file, None when there is none."""
        try:
            with open_file(join(self.path, name)) as file:
                return file.read(0, min(size_max, file.size))
        except NotFoundError:
            return None

    def is_file(self) -> bool:
        """Return whether a file is where the folder should."""
        if is_local(self.path):
            return os.path.isfile(_local(self.path))
        with _refusals(self.path):
            system, place = _system_of(self.path)
            return bool(system.get_file_info(place).is_file)

    def _entries(self) -> Iterator[tuple[str, int | None]]:
        """Yield names with sizes, None for folders."""
        with _refusals(self.path):
            if is_local(self.path):
                with os.scandir(_local(self.path)) as entries:
                    for entry in entries:
                        try:
                            is_special = not (entry.is_dir() or entry.is_file())
                            if is_special and _is_store_file(entry.name):
                                raise CorruptionError(
                                    f"{entry.path} is not a regular file; move it away, or "
                                    "bring it back from a copy",
                                    path=entry.path,
                                    kind="store file",
                                    suggested_command="rmqstore verify PATH",
                                )
                            yield entry.name, None if entry.is_dir() else entry.stat().st_size
                        except FileNotFoundError:
                            continue
                return
            import pyarrow.fs

            system, place = _system_of(self.path)
            for info in system.get_file_info(pyarrow.fs.FileSelector(place)):
                yield info.base_name, info.size if info.is_file else None


class RangeFile:
    """A file open for reading ranges of it. Leaving it as a context closes it."""

    def __init__(self, path: str) -> None:
        """Raises NotFoundError for a file that is not there, DiskError where the system refuses."""
        self.path = path
        self.is_local = is_local(path)
        self._descriptor = -1
        self._remote: Any = None
        with _refusals(path):
            if self.is_local:
                self._descriptor = os.open(_local(path), os.O_RDONLY | os.O_CLOEXEC)
                self.size = os.fstat(self._descriptor).st_size
            else:
                system, place = _system_of(path)
                self._remote = system.open_input_file(place)
                self.size = int(self._remote.size())

    def read(self, offset: int, size: int) -> bytes:
        """Return *size* bytes from *offset* on, fewer only where the file ends."""
        with _refusals(self.path):
            if self._remote is not None:
                return bytes(self._remote.read_at(max(min(size, self.size - offset), 0), offset))
            data = os.pread(self._descriptor, size, offset)
            while 0 < len(data) < size:
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        return data

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill *target* from *offset* on; returns the bytes filled, fewer only where the file
        ends."""
        if self._remote is not None:
            data = self.read(offset, len(target))
            target[: len(data)] = data
            return len(data)
        filled = 0
        with _refusals(self.path):
            while filled < len(target):
                got = os.preadv(self._descriptor, [target[filled:]], offset + filled)
                if not got:
                    break
                filled += got
        return filled

    def next_data(self, offset: int) -> int | None:
        """Return where bytes from *offset* on may be other than zero, None when all are."""
        if offset >= self.size:
            return None
        if self._remote is not None:
            return offset
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            # If the file system does not support this, everything may be data.
            return None if error.errno == errno.ENXIO else offset

    def state(self) -> tuple[int, ...] | None:
        """Return numbers that differ after the file was replaced, or written to by a store that was
        opened since; None where nothing shows that."""
        if self._remote is not None:
            return None
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def close(self) -> None:
        """Close it; reading it after that is an error."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._remote is not None:
            self._remote.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_file(path: str) -> RangeFile:
    """Open a file for reading ranges; NotFoundError when it is not there, DiskError where the
    system refuses."""
    return RangeFile(path)


def _is_store_file(name: str) -> bool:
    return len(name) == _NAME_SIZE and name.isascii() and name.isdecimal()


def _local(path: str) -> str:
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


@contextmanager
def _refusals(path: str) -> Iterator[None]:
    """Turn errors of the system into the package's errors, with the path; of a URL, whatever the
    library of its file system raises."""
    try:
        yield
    except StoreError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(texts.MISSING.format(path=path)) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise DiskError(error.errno, f"{path}: {os.strerror(error.errno)}") from error
        if is_local(path):
            raise
        scheme = path.partition("://")[0]
        raise StoreError(
            f"{path}: {' '.join(str(error).split())}; what {scheme} needs, such as credentials, a "
            "region or a library, has to be on the driver and on every executor"
        ) from error


def _system_of(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the place in it."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    system, root = _system(f"{parts.scheme}://{parts.netloc}", query)
    return system, f"{root.rstrip('/')}/{unquote(parts.path).lstrip('/')}".rstrip("/") or "/"


@functools.lru_cache(maxsize=16)
def _system(base: str, query: str) -> tuple[Any, str]:
    """Return the file system behind a URL without path, and the root of the URL's paths in it."""
    import pyarrow
    import pyarrow.fs

    try:
        system, root = pyarrow.fs.FileSystem.from_uri(f"{base}/{query}")
        return system, str(root)
    except pyarrow.ArrowInvalid:
        pass  # not one of pyarrow's schemes
    try:
        import fsspec.core
    except ImportError as error:
        raise MissingExtraError(
            f"{base}: pyarrow knows no such file system; pip install fsspec for more of them"
        ) from error
    try:
        found, root = fsspec.core.url_to_fs(f"{base}/{query}")
    except (ValueError, ImportError) as error:
        raise NotFoundError(
            f"{base}: no file system for this URL ({error}); install its package for fsspec"
        ) from error
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(found)), str(root)


def _expand_remote(path: str) -> Iterator[str]:
    """Yield the paths that a URL matches; a question mark begins its query and is not a
    wildcard."""
    base, mark, query = path.partition("?")
    scheme, _, rest = base.partition("://")
    names = rest.rstrip("/").split("/")
    count = next((n for n, name in enumerate(names) if n and _MAGIC.search(name)), len(names))

    found = [f"{scheme}://{'/'.join(names[:count])}{mark}{query}"]

    if count == len(names):
        with _refusals(path):
            system, place = _system_of(path)
            if system.get_file_info(place).type.name != "NotFound":
                yield found[0]
        return

    for name in names[count:]:
        found = [
            join(folder, each)
            for folder in found
            for each in Folder(folder).folders()
            if fnmatch.fnmatchcase(each, name)
        ]

    yield from found


class OpenFiles:
    """The files that were read last, at most *most* of them, kept open. A context manager."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[str, RangeFile] = OrderedDict()

    def __getitem__(self, path: str) -> RangeFile:
        """Return the file *path*, opened if need be. Raises as `open_file`."""
        file = self._open.get(path)
        if file is None:
            while len(self._open) >= self._most:
                self._open.popitem(last=False)[1].close()
            file = self._open[path] = open_file(path)
        self._open.move_to_end(path)
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        while self._open:
            self._open.popitem()[1].close()
