"""What is in the tree: the files a clone would hold."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_MADE = {"build", "dist", "__pycache__"}


@functools.cache
def files() -> tuple[str, ...]:
    """Return all files that are, or are about to be, tracked: paths from the root, sorted."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.split("\0")
        return tuple(sorted(name for name in set(listed) if (ROOT / name).is_file()))

    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name not in _MADE
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name in {".ci", ".github"})
        ]
        here = Path(folder).relative_to(ROOT)
        found += [str(here / name) for name in names if not name.endswith((".so", ".pyc"))]

    return tuple(sorted(found))


def text_of(name: str) -> str:
    """Return the content of a text file, or nothing for a binary one."""
    content = (ROOT / name).read_bytes()
    is_binary = b"\0" in content or name.startswith("tests/fuzz/corpus/")
    return "" if is_binary else content.decode("utf-8")
