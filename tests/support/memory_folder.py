"""Folders in memory, for tests that sync thousands of times and prove nothing about the disk.

A sync takes milliseconds of a real disk, and longer where other programs write to it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30
"""More than all workers take at once."""


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Yield an empty folder in memory."""
    with in_memory(tmp_path) as folder:
        yield folder


@contextmanager
def in_memory(path: Path) -> Iterator[Path]:
    """Yield an empty folder in memory, or *path* where memory offers no such room."""
    if not os.access(MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix=f"{path.name}-", dir=MEMORY) as folder:
        yield Path(folder)
