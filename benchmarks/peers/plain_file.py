"""A plain file: length and CRC before each body, written through a buffer of 1 MiB."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers import Figures, Job, driver

NAME = "plain file"
HEAD = struct.Struct(">II")
supports = driver.supports


def missing() -> str | None:
    """Return why it cannot run: never."""
    return None


class FramedFile:
    """A Log in one file."""

    def __init__(self, directory: Path, durable: bool) -> None:
        self._path = directory / "log"
        self._durable = durable
        self._file = self._path.open("ab", buffering=0 if durable else 1 << 20)

    def append(self, body: bytes) -> None:
        self._file.write(HEAD.pack(len(body), zlib.crc32(body)) + body)
        if self._durable:
            os.fdatasync(self._file.fileno())

    def append_many(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._file.write(HEAD.pack(len(body), zlib.crc32(body)) + body)

    def flush(self) -> None:
        self._file.flush()
        os.fdatasync(self._file.fileno())

    def read(self) -> Iterator[bytes]:
        self._file.flush()
        with self._path.open("rb", buffering=1 << 20) as file:
            while head := file.read(HEAD.size):
                size, crc = HEAD.unpack(head)
                body = file.read(size)
                if zlib.crc32(body) != crc:
                    raise ValueError("a CRC does not match")
                yield body

    def close(self) -> None:
        self._file.close()


def run(job: Job) -> Figures:
    """Do the job."""
    return driver.run(job, FramedFile)
