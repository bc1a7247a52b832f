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


def have_equal_logs(*roots: Path) -> bool:
    """Return whether stores hold the same bytes, of one or more files.

    A file that a store has not made yet counts as zeros, which is what files are allocated with.
    """
    names = {file.name for root in roots for file in (root / "commitlog").iterdir()}
    for name in names:
        held = set()
        for root in roots:
            file = root / "commitlog" / name
            held.add(file.read_bytes().rstrip(b"\0") if file.exists() else b"")
        if len(held) > 1:
            return False
    return bool(names)
