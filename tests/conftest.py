"""Fixtures that several folders of tests share."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.golden import RELEASES, GoldenCase, GoldenCases
from tests.support import java
from tests.support.java_store import JavaStore
from tests.support.spark_session import spark

__all__ = ["spark"]

# The costly folders begin first: many short files then even out what the workers have left.
WAITING = ("spark", "interop", "examples", "cli", "crash")
"""Folders whose tests mostly wait: for processes, disks and Spark."""
COMPUTING = (
    *("simulation", "c", "service", "property", "fuzz", "store", "benchmarks", "golden", "unit"),
    *("scenarios", "reference", "house"),
)
FOLDERS = (*WAITING, *COMPUTING)

TESTS = Path(__file__).parent
ROOT = TESTS.parent
USES_SPARK = re.compile(r'\bspark: SparkSession|usefixtures\("spark"\)')

# The first example of a run pays for cold caches, and the machines that run this differ.
settings.register_profile("rmqstore", deadline=None, print_blob=True)
settings.load_profile("rmqstore")

# The tests' Spark sessions live for seconds: compiling little takes half of their processor time
# away. Read by Spark's own scripts, in programs that the tests start as well.
for _options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_options, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")

# A shell that starts the tests in the background ignores Ctrl-C for them and all they start, and
# nohup the end of the terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection(session: pytest.Session) -> None:
    """Let each worker import another part of the tests first.

    Pytest compiles each test file that has no compiled form yet, which takes most of the
    time of a collection. Workers that begin at different files share that work, because each finds
    the files that others have compiled.
    """
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    folders = [session.config.invocation_params.dir / each for each in session.config.args]
    files = [path for folder in folders for path in sorted(folder.rglob("test_*.py"))]
    first = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    for path in (*files[first:], *files[:first]):
        # The collection imports the file again, and reports why it cannot.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the name of its folder, and put the costly files first."""
    for item in items:
        item.add_marker(_folder(item.path))
    places = {path: place for place, path in enumerate(_order({item.path for item in items}))}
    items.sort(key=lambda item: places[item.path])


def _order(files: Iterable[Path]) -> list[Path]:
    """Return files that wait and files that compute by turns, so that no core is idle."""
    ordered = sorted(files, key=lambda path: (*_turn(path), path))
    waiting = [path for path in ordered if _folder(path) in WAITING]
    computing = [path for path in ordered if _folder(path) in COMPUTING]
    pairs = itertools.zip_longest(waiting, computing)
    return [path for pair in pairs for path in pair if path is not None]


@functools.cache
def _turn(path: Path) -> tuple[bool, int]:
    return not _uses_spark(path), FOLDERS.index(_folder(path))


@functools.cache
def _folder(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]


@functools.cache
def _uses_spark(path: Path) -> bool:
    return USES_SPARK.search(path.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file with one worker, and with one worker all files that share the Spark session."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("::")[0]
            return "spark" if _uses_spark(config.rootpath / name) else name

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(scope="session")
def golden_cases(tmp_path_factory: pytest.TempPathFactory) -> GoldenCases:
    return GoldenCases(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def golden_case(golden_cases: GoldenCases, tmp_path: Path) -> Callable[[str, str], GoldenCase]:
    """Return a function (release, name) that gives a private, writable copy of a golden case."""
    return lambda release, name: golden_cases.copy(release, name, into=tmp_path)


@pytest.fixture(
    scope="session", params=[pytest.param(release, marks=pytest.mark.java) for release in RELEASES]
)
def java_store(request: pytest.FixtureRequest) -> Iterator[JavaStore]:
    """Return the real Java store, built, once for each release."""
    lacking = java.missing()
    if lacking:
        pytest.skip(lacking)
    java.build(request.param)
    store = JavaStore(request.param)
    yield store
    store.close()
