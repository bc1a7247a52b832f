"""A disk that does not answer, for processes of their own."""

from __future__ import annotations

import fcntl
import struct
from contextlib import ExitStack
from pathlib import Path

from tests.support.preloaded import preloaded

_INT32 = struct.Struct("=i")


class StalledDisk:
    """Holds the syncs of processes that were started with its environment, while it has the lock of
    a file."""

    def __init__(self, root: Path) -> None:
        self._path = root / "stalled_disk"
        self._path.write_bytes(bytes(_INT32.size * 64))
        source = Path(__file__).with_name("stalled_disk.c")
        self.environment = preloaded(source, root, STALLED_DISK=self._path)
        self._lock = ExitStack()

    @property
    def waiting(self) -> set[int]:
        """The ids of the threads whose syncs wait, as `threading.get_native_id` gives them."""
        _, *threads = (number for (number,) in _INT32.iter_unpack(self._path.read_bytes()))
        return set(threads) - {0}

    def stall(self) -> None:
        fcntl.flock(self._lock.enter_context(self._path.open("rb")), fcntl.LOCK_EX)

    def fail(self, error: int) -> None:
        """Let the syncs fail from now on, those that are held as well."""
        with self._path.open("r+b") as file:
            file.write(_INT32.pack(error))

    def go_on(self) -> None:
        """Let the syncs go on, if they are held."""
        self._lock.close()
