"""Whether another process has a store open, found out without disturbing it."""

from __future__ import annotations

import fcntl
import os
import struct
import sys

from rmqstore.spark.files import is_local

__all__ = ["is_held"]

# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


def is_held(path: str) -> bool:
    """Return whether a process holds a lock on the file *path*; False where that is unknown."""
    if not is_local(path) or sys.platform != "linux" or sys.maxsize < 2**32:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    kind = _FLOCK.unpack(answer)[0]
    return bool(kind != fcntl.F_UNLCK)
