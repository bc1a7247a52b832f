"""The Java programs of this repository: what they need, their one build, and how they are started.

`tests/interop/peer` runs the real message store of RocketMQ, `benchmarks/java` measures it.
`tests/interop/upstream` runs RocketMQ's own tests. Maven fetches what a project needs, javac
compiles its folders against it, once for each release and state of the sources, into `build/java`
or the folder that PEER_BUILD_DIR names.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.builds import (
    BUILD_TIMEOUT_S,
    REPOSITORY,
    digest_of,
    locked_builds,
    make_whole,
    run_tool,
)

PEER = REPOSITORY / "tests" / "interop" / "peer"
NEEDED = 17

# The store unmaps its files by ways that Java 17 closes.
_OPEN = (
    *("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED"),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
_QUICK = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xms32m"),
    # A sixth of what a start costs is the verifier's, and the classes are Maven's and our own.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
_SLACK_MS = 10
_ARCHIVE = "classes.jsa"
_ARCHIVE_LOG = "archive.log"
_NATIVE = "native"
_PROGRAMS = "programs.jar"


@dataclass(frozen=True, slots=True)
class Project:
    """Programs that are built together."""

    pom: Path
    """Names what Maven fetches."""
    sources: tuple[Path, ...]
    archiver: str | None = None
    """The program whose loaded classes are kept for later starts."""

    def files(self) -> list[Path]:
        """Return every source and resource."""
        return sorted(path for root in self.sources for path in root.rglob("*") if path.is_file())


PROGRAMS = Project(
    PEER / "pom.xml",
    (PEER / "src", REPOSITORY / "benchmarks" / "java" / "src"),
    archiver="peer.Archive",
)
CLIENTS = Project(PEER / "clients.xml", (PEER / "src" / "peer" / "clients",))
"""Those that need no more than the client, also of a release that is not run otherwise."""


def missing() -> str | None:
    """Return what the Java programs need and this machine lacks, or None."""
    lacking = [f"{tool} on PATH" for tool in ("javac", "mvn") if not shutil.which(tool)]
    found = version()
    if found is None:
        lacking.append(f"Java {NEEDED} (no java on PATH)")
    elif int(found.partition(".")[0]) < NEEDED:
        lacking.append(f"Java {NEEDED} (found {found})")
    return f"the real Java store needs {', '.join(lacking)}" if lacking else None


def need(release: str, project: Project = PROGRAMS) -> None:
    """Build the programs for *release*; skip the test that calls where that cannot be."""
    import pytest  # benchmarks that only measure do without it

    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    build(release, project)


def version() -> str | None:
    """Return what `java -version` calls itself, None without Java."""
    java = shutil.which("java")
    return _version_of(java) if java else None


@functools.cache
def _version_of(java: str) -> str | None:
    printed = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    found = re.search(r'version "([^"]+)"', printed.stderr)
    return found[1] if found else None


@functools.cache
def build(release: str, project: Project = PROGRAMS) -> Path:
    """Return the folder of the programs for *release*; build them unless that was done before."""
    name = f"{release}-{digest_of([project.pom, *project.files()])}"
    # One lock for all releases: Maven's own folder is shared as well.
    with locked_builds("java") as builds:
        target = builds / name
        make_whole(target, lambda into: _compile(release, project, into))
        if project.archiver and not (target / _ARCHIVE_LOG).exists():
            _archive(target, project.archiver)

    return target


def _compile(release: str, project: Project, into: Path) -> None:
    sources = project.files()
    run_tool(
        *("mvn", "-q", "-B", "-f", str(project.pom), "dependency:copy-dependencies"),
        *(f"-Drocketmq.version={release}", "-DincludeScope=runtime"),
        f"-DoutputDirectory={into / 'lib'}",
    )
    programs = [str(path) for path in sources if path.suffix == ".java"]

    with tempfile.TemporaryDirectory(prefix="java-") as classes:
        run_tool("javac", "-nowarn", "-d", classes, "-cp", str(into / "lib" / "*"), *programs)
        for path in sources:
            if path.suffix != ".java":
                shutil.copy(path, classes)
        # Java archives no classes that it finds in folders.
        with zipfile.ZipFile(into / _PROGRAMS, "w") as jar:
            for path in sorted(Path(classes).rglob("*")):
                jar.write(path, path.relative_to(classes))
    for library in (into / "lib").glob("*rocksdb*.jar"):
        _unpack(library, into / _NATIVE)


def _unpack(library: Path, into: Path) -> None:
    """Unpack the libraries for Linux; else each start unpacks one of 13 MB and writes it."""
    with zipfile.ZipFile(library) as jar:
        names = [name for name in jar.namelist() if fnmatch.fnmatch(name, "lib*-linux*.so")]
        jar.extractall(into, names)


def _archive(built: Path, archiver: str) -> None:
    """Keep the classes that the programs load as Java has them in memory.

    That saves a third of what a start costs. Where Java cannot do it, programs start without.
    """
    with scratch(_QUICK) as flags, (built / _ARCHIVE_LOG).open("wb") as log:
        archive = f"-XX:ArchiveClassesAtExit={built / _ARCHIVE}"
        command = _command(built, archiver, [*flags, archive])
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdout=log, stderr=log, timeout=BUILD_TIMEOUT_S, check=False)


def quick_flags(release: str, project: Project = PROGRAMS) -> list[str]:
    """Return flags for programs that run for seconds: half the time of Java's own choice."""
    built = build(release, project)
    archive = built / _ARCHIVE
    # An archive that another Java made is left out without a word.
    return [
        *(*_QUICK, "-Xlog:disable", f"-XX:SharedArchiveFile={archive}"),
        f"-Djava.library.path={built / _NATIVE}",
        f"-Dpeer.timer.slack.ms={_SLACK_MS}",
    ]


def command(
    release: str,
    program: str,
    *arguments: str,
    flags: Sequence[str] = (),
    project: Project = PROGRAMS,
) -> list[str]:
    """Return the command that runs the class *program* with *flags*; PEER_JAVA_OPTS adds more."""
    added = shlex.split(os.environ.get("PEER_JAVA_OPTS", ""))
    return _command(build(release, project), program, [*flags, *added], *arguments)


def _command(built: Path, program: str, flags: Sequence[str], *arguments: str) -> list[str]:
    path = f"{built / _PROGRAMS}:{built / 'lib' / '*'}"
    return ["java", *_OPEN, *flags, "-cp", path, program, *arguments]


@contextmanager
def scratch(flags: Sequence[str] = ()) -> Iterator[list[str]]:
    """Yield *flags* and those that keep temporary files, and a user's, in a folder of their own.

    Java unpacks native libraries into it and, killed, leaves them there. Clients keep offsets and
    logs in the folder of their user.
    """
    with tempfile.TemporaryDirectory(prefix="java-") as folder:
        yield [*flags, f"-Djava.io.tmpdir={folder}", f"-Duser.home={folder}"]
