"""A build of the package without libraft says so in one line, and leaves that engine out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools", reason="reads setup.py: pip install setuptools cython")
pytest.importorskip("Cython", reason="reads setup.py: pip install setuptools cython")

from rmqstore.controller.engines.raft import is_built

REPOSITORY = Path(__file__).parents[2]
CORE, RAFT = "rmqstore._native.core", "rmqstore._native.raft"
LINE = (
    "rmqstore: without the engine for groups of controllers, which needs the headers of "
    "libraft 0.15 and libuv (apt-get install libraft-dev libuv1-dev, then build again)\n"
)

_PROGRAM = """
import json, runpy
import Cython.Build, setuptools
made = {}
setuptools.setup = made.update
Cython.Build.cythonize = lambda extensions, **_: extensions
runpy.run_path("setup.py")
print(json.dumps([each.name for each in made["ext_modules"]]))
"""


def _read_setup(compiler: str | None = None) -> tuple[list[str], str]:
    """Return the extensions that a build would make, and what it printed for the user."""
    environment = {**os.environ, **({} if compiler is None else {"CC": compiler})}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("compiler", ["false", "/nowhere/cc"], ids=["no headers", "no compiler"])
def test_engine_that_does_not_compile_is_left_out_with_one_line(compiler: str) -> None:
    assert _read_setup(compiler) == ([CORE], LINE)


@pytest.mark.skipif(not is_built(), reason="built without libraft")
def test_build_with_libraft_makes_its_engine_and_prints_nothing() -> None:
    assert _read_setup() == ([CORE, RAFT], "")
