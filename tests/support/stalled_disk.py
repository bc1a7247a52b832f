"""A disk that does not answer, for processes of their own."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.c.library import COMPILER, WARNINGS


class StalledDisk:
    """Holds the syncs of processes that were started with its environment, while it has the lock of
    a file."""

    def __init__(self, root: Path) -> None:
        self._library, self._path = root / "stalled_disk.so", root / "stalled_disk"
        source = Path(__file__).with_name("stalled_disk.c")
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", *WARNINGS]
        subprocess.run([*COMPILER, *flags, "-o", str(self._library), str(source)], check=True)
        self._path.write_bytes(bytes(8))
        self._lock = ExitStack()

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "LD_PRELOAD": str(self._library),
            "STALLED_DISK": str(self._path),
        }

    @property
    def waiting(self) -> int:
        """How many syncs wait."""
        return int(struct.unpack_from("=i", self._path.read_bytes())[0])

    def stall(self) -> None:
        fcntl.flock(self._lock.enter_context(self._path.open("rb")), fcntl.LOCK_EX)

    def fail(self, error: int) -> None:
        """Let the syncs fail from now on, those that are held as well."""
        with self._path.open("r+b") as file:
            file.seek(4)
            file.write(struct.pack("=i", error))

    def go_on(self) -> None:
        """Let the syncs go on, if they are held."""
        self._lock.close()
