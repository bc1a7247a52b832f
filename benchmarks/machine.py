"""What the figures were measured on. Names no path: a report may be shown to anybody."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.java import release
from benchmarks.limits import COMPILER, ROOT
from rmqstore._native import core
from tests.support.java import version

__all__ = ["facts", "load"]


def facts(directory: Path) -> dict[str, Any]:
    """Return what can be known of this machine; *directory* is where the stores are written."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _found("/proc/cpuinfo", r"^model name\s*:\s*(.+)$") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_GiB": round(_memory_bytes() / 2**30, 1),
        "kernel": platform.release(),
        "file_system": _file_system(directory),
        "free_GiB": round(shutil.disk_usage(directory).free / 2**30, 1),
        "load_before": load(),
        "compiler": _first_line([*COMPILER, "--version"]),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "rmqstore": _version("rmqstore"),
        "crc": core.crc32_version(),
        "commit": _commit(),
        "java": version(),
        "rocketmq": release(),
        "lmdb": _version("lmdb"),
        "rocksdict": _version("rocksdict"),
        "sqlite3": sqlite3.sqlite_version,
        "pyarrow": _version("pyarrow"),
        "pyspark": _version("pyspark"),
        "arguments": " ".join(Path(each).name for each in sys.argv[1:]),
    }


def load() -> str:
    """Return how busy the machine is: the averages of 1, 5 and 15 minutes."""
    return " ".join(f"{each:.2f}" for each in os.getloadavg())


def _found(path: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return found[1] if found else None


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _file_system(directory: Path) -> str | None:
    """Type and options of the mount that holds the directory."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == wanted:
            kind, source = right.split()[:2]
            return f"{kind} on {Path(source).name}, {left.split()[5]}"
    return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    commit = _first_line(["git", "rev-parse", "--short=12", "HEAD"])
    changed = _first_line(["git", "status", "--porcelain", "--untracked-files=no"])
    return f"{commit} and changes" if commit and changed else commit


def _first_line(command: Sequence[str]) -> str | None:
    try:
        answer = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.partition("\n")[0] or None
