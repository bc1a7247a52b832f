"""Libraries that stand between a process of a test and the system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.c.library import COMPILER, WARNINGS

__all__ = ["preloaded"]


def preloaded(source: Path, folder: Path, **variables: object) -> dict[str, str]:
    """Build the library of *source* in *folder*; return the environment of a process that has it
    preloaded, sees the modules of this one, and has *variables* besides."""
    library = folder / f"{source.stem}.so"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", *WARNINGS]
    subprocess.run([*COMPILER, *flags, "-o", str(library), str(source)], check=True)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "LD_PRELOAD": str(library),
        **{name: str(value) for name, value in variables.items()},
    }
