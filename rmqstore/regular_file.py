"""Files of a store, opened only where they are regular files.

Opening a FIFO in the place of a file would block indefinitely, and reading a device may not end.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader

from rmqstore.errors import CorruptionError

__all__ = ["open_regular", "read_regular"]


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Return the file at *path*, open for reading.

    Raises OSError as open does, CorruptionError that names what is not a regular file.
    """
    # O_NONBLOCK: opening a FIFO does not wait for a writer. It means nothing to a regular file.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory", os.fspath(path))
        if not stat.S_ISREG(mode):
            raise CorruptionError(
                f"{os.fspath(path)} is not a regular file; move it away, or restore the file from "
                "a copy",
                path=os.fspath(path),
                kind="file type",
                suggested_command="rmqstore verify PATH",
            )
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Return the content of the file at *path*; errors as `open_regular`."""
    with open_regular(path) as file:
        return file.read()
