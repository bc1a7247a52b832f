"""Files that are replaced as a whole, or grow, and are on the disk when the caller goes on."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["append_durably", "beside", "replace_durably", "sync_directory"]


def beside(path: Path, suffix: str) -> Path:
    """Return the path of the file with *suffix* after the name of *path*."""
    return path.with_name(path.name + suffix)


def replace_durably(path: Path, data: bytes) -> None:
    """Put *data* in the place of a file, whole or not at all, and on disk when it returns."""
    temporary = beside(path, ".tmp")
    # A link or a FIFO with this name must not be written through.
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def append_durably(path: Path, data: bytes) -> None:
    """Add *data* to the end of a file, which must be there, and on disk when it returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
