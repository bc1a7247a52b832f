"""RocksDB through rocksdict: growing keys, write-ahead log on."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import Figures, Job, driver

NAME = "rocksdict"
KEY = struct.Struct(">Q")
supports = driver.supports


def missing() -> str | None:
    """Return what is not installed, or None."""
    return None if importlib.util.find_spec("rocksdict") else "pip install rocksdict"


class Database:
    """A Log in a RocksDB."""

    def __init__(self, directory: Path, durable: bool) -> None:
        import rocksdict

        self._batch = rocksdict.WriteBatch
        self._db: Any = rocksdict.Rdict(str(directory / "db"), rocksdict.Options(raw_mode=True))
        self._options = rocksdict.WriteOptions()
        self._options.sync = durable
        self._next = 0

    def append(self, body: bytes) -> None:
        self._db.put(KEY.pack(self._next), body, write_opt=self._options)
        self._next += 1

    def append_many(self, bodies: Sequence[bytes]) -> None:
        batch = self._batch(raw_mode=True)
        for number, body in enumerate(bodies, self._next):
            batch.put(KEY.pack(number), body)
        self._db.write(batch, self._options)
        self._next += len(bodies)

    def flush(self) -> None:
        self._db.flush_wal(True)

    def read(self) -> Iterator[bytes]:
        yield from self._db.values()

    def close(self) -> None:
        self._db.close()


def run(job: Job) -> Figures:
    """Do the job."""
    return driver.run(job, Database, slowness=10)
