"""The bytes of a commit log, read from its files."""

from __future__ import annotations

from pathlib import Path


def log_bytes(root: Path, start: int, end: int) -> bytes:
    """Return bytes of the commit log of a store, as they lie in its files."""
    found = bytearray()
    for file in sorted((root / "commitlog").iterdir()):
        first = int(file.name)
        with file.open("rb") as data:
            data.seek(max(start - first, 0))
            found += data.read(max(end - max(first, start), 0))
    assert len(found) == end - start
    return bytes(found)
