"""A disk that does not answer, for processes of their own."""

from __future__ import annotations

import fcntl
import struct
from contextlib import ExitStack
from pathlib import Path

from tests.support.preloaded import preloaded


class StalledDisk:
    """Holds the syncs of processes that were started with its environment, while it has the lock of
    a file."""

    def __init__(self, root: Path) -> None:
        self._path = root / "stalled_disk"
        self._path.write_bytes(bytes(8))
        source = Path(__file__).with_name("stalled_disk.c")
        self.environment = preloaded(source, root, STALLED_DISK=self._path)
        self._lock = ExitStack()

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
