"""Servers of Spark and their clients, as processes on the loopback interface."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from rmqstore.spark import java_home
from tests.support.programs import run_program
from tests.support.spark_session import REPOSITORY
from tests.support.waiting import spin_until

TIMEOUT_S = 900


def environment() -> dict[str, str]:
    """Return the environment of Spark's programs."""
    home = str(Path(pyspark.__file__).parent)
    paths = str(REPOSITORY), os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "JAVA_HOME": java_home(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }


def answer_of(module: str, *arguments: str) -> Any:
    """Run *module* of the tests, and return the JSON of its last line."""
    done = run_program(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env=environment(),
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def daemon(
    name: str, arguments: Sequence[str], log: Path, **more: str
) -> Iterator[Callable[[str], str]]:
    """Run a class of org.apache.spark.deploy, with *more* in its environment, until the block ends.

    Yields a function that waits for a line in its log and returns what the pattern's group matched.
    """
    words = environment() | more
    program = f"{words['SPARK_HOME']}/bin/spark-class"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, f"org.apache.spark.deploy.{name}", *arguments],
            env=words,
            stdout=out,
            stderr=subprocess.STDOUT,
        )

    def logged(pattern: str) -> str:
        def found() -> re.Match[str] | None:
            has_ended = process.poll() is not None
            text = log.read_text()
            match = re.search(pattern, text)
            assert match or not has_ended, text[-4000:]
            return match

        spin_until(found, pattern, timeout=TIMEOUT_S, pause=0.05)
        match = found()
        assert match is not None
        return match[match.re.groups]

    try:
        yield logged
    finally:
        process.terminate()
        process.wait(60)
