"""SQLite in WAL mode: one transaction a call, synchronous NORMAL, or FULL where durable."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers import Figures, Job, driver

NAME = "sqlite3"
supports = driver.supports


def missing() -> str | None:
    """Return why it cannot run: never."""
    return None


class Table:
    """A Log in a table."""

    def __init__(self, directory: Path, durable: bool) -> None:
        self._db = sqlite3.connect(directory / "db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        self._db.execute("CREATE TABLE IF NOT EXISTS log(number INTEGER PRIMARY KEY, body BLOB)")

    def append(self, body: bytes) -> None:
        self._db.execute("INSERT INTO log(body) VALUES (?)", (body,))

    def append_many(self, bodies: Sequence[bytes]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO log(body) VALUES (?)", [(body,) for body in bodies])
        self._db.execute("COMMIT")

    def flush(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(FULL)")

    def read(self) -> Iterator[bytes]:
        for (body,) in self._db.execute("SELECT body FROM log ORDER BY number"):
            yield body

    def close(self) -> None:
        self._db.close()


def run(job: Job) -> Figures:
    """Do the job."""
    return driver.run(job, Table, slowness=10)
