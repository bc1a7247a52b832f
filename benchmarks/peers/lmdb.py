"""LMDB through py-lmdb: growing keys, one transaction a call; without sync the map is written to
directly."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import Figures, Job, driver

NAME = "lmdb"
KEY = struct.Struct(">Q")
MAP_SIZE = 8 << 30
supports = driver.supports


def missing() -> str | None:
    """Return what is not installed, or None."""
    return None if importlib.util.find_spec("lmdb") else "pip install lmdb"


class Environment:
    """A Log in an LMDB environment."""

    def __init__(self, directory: Path, durable: bool) -> None:
        import lmdb

        self._env: Any = lmdb.open(
            str(directory),
            map_size=MAP_SIZE,
            sync=durable,
            metasync=durable,
            writemap=not durable,
        )
        self._next = int(self._env.stat()["entries"])

    def append(self, body: bytes) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.put(KEY.pack(self._next), body, append=True)
        self._next += 1

    def append_many(self, bodies: Sequence[bytes]) -> None:
        with self._env.begin(write=True) as transaction:
            for number, body in enumerate(bodies, self._next):
                transaction.put(KEY.pack(number), body, append=True)
        self._next += len(bodies)

    def flush(self) -> None:
        self._env.sync(True)

    def read(self) -> Iterator[bytes]:
        with self._env.begin() as transaction:
            yield from transaction.cursor().iternext(keys=False, values=True)

    def close(self) -> None:
        self._env.close()


def run(job: Job) -> Figures:
    """Do the job."""
    return driver.run(job, Environment, slowness=4)
