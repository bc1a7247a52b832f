"""The Go program of this repository: what it needs, its one build, and how it is started.

`tests/interop/go` runs the classic Go client of RocketMQ. The `go` that is found fetches the
modules that `go.mod` names, whose checksums `go.sum` has, and compiles them into `build/go` or the
folder that PEER_BUILD_DIR names.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.builds import REPOSITORY, digest_of, locked_builds, make_whole, run_tool

_SOURCES = REPOSITORY / "tests" / "interop" / "go"
_NEEDED = (1, 20)
_PROGRAM = "clients"
# Neither another toolchain nor other releases of modules are fetched.
_SETTINGS = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false"}


def need() -> None:
    """Build the program; skip the test that calls where there is no suitable Go."""
    import pytest

    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    build()


@functools.cache
def missing() -> str | None:
    """Return what the Go program needs and this machine lacks, or None."""
    needed = f"the Go client needs Go {'.'.join(map(str, _NEEDED))}"
    if not shutil.which("go"):
        return f"{needed} (no go on PATH)"
    printed = subprocess.run(
        ["go", "version"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    found = re.search(r"\bgo(\d+)\.(\d+)", printed)
    if found is None or (int(found[1]), int(found[2])) < _NEEDED:
        return f"{needed} (found {printed.strip()})"
    return None


@functools.cache
def build() -> Path:
    """Return the program; build it unless that was done before."""
    files = sorted(path for path in _SOURCES.iterdir() if path.is_file())
    with locked_builds("go") as builds:
        target = builds / f"go-{digest_of(files)}"
        make_whole(target, _compile)
    return target / _PROGRAM


def _compile(into: Path) -> None:
    run_tool("go", "build", "-o", str(into / _PROGRAM), ".", cwd=_SOURCES, environment=_SETTINGS)


@contextmanager
def command(*arguments: str) -> Iterator[list[str]]:
    """Yield the command that runs the program, with a folder of its own for what clients keep."""
    with TemporaryDirectory(prefix="go-") as folder:
        yield ["env", f"HOME={folder}", str(build()), *arguments]
