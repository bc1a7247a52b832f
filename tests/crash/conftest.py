"""Where the stores of this folder lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.memory_folder import in_memory

BY_BYTES = {
    *("test_bad_files.py", "test_every_bit.py", "test_every_cut.py", "test_nth_in_python.py"),
    *("test_refusals.py", "test_role_change.py", "test_torn_tail.py", "test_truncate.py"),
}
"""They change files and look what becomes of them, hundreds of times; kernel and disk have no part
in it. All others kill processes, cut power or fill disks, and stay on the disk."""


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield an empty folder: in memory for tests that only change bytes, else on disk."""
    if request.path.name not in BY_BYTES:
        yield tmp_path
        return
    with in_memory(tmp_path) as folder:
        yield folder
