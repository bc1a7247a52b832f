"""Programs in other languages: each is built once for a state of its sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 900.0


class BuildError(Exception):
    """A compiler failed, or took too long."""


def digest_of(files: Iterable[Path]) -> str:
    """Return what distinguishes this state of *files* from others."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def locked_builds(language: str) -> Iterator[Path]:
    """Yield the folder for programs in *language*; one process at a time is inside.

    Any number of processes may ask at once: one builds, the others wait for it. A build takes
    BUILD_TIMEOUT_S at most, which bounds the wait.
    """
    folder = Path(os.environ.get("PEER_BUILD_DIR") or REPOSITORY / "build" / language)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def make_whole(target: Path, make: Callable[[Path], None]) -> None:
    """Have *make* fill the folder *target* unless that was done before."""
    if target.exists():
        return
    made = target.with_name(f"{target.name}.new")
    shutil.rmtree(made, ignore_errors=True)  # of a build that was killed
    make(made)
    made.rename(target)


def run_tool(
    *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Run a step of a build in *cwd*, with the variables of *environment* added."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} took more than {BUILD_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        raise BuildError(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}")
