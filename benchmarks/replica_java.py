"""The real Java store as a side of a pair: `java/` is built with Maven and javac on first use.

It is built into `build/benchmarks/replica`, or below PEER_BUILD_DIR; ROCKETMQ_VERSION names the
release. It runs with the heap and the collector that the JVM chooses; PEER_JAVA_OPTS adds flags.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.java import BUILD_TIMEOUT_S, JAVA_NEEDED, JavaFailed, java_version, release
from benchmarks.limits import BUILD
from benchmarks.replica_side import Side

__all__ = ["NAME", "build", "java_side", "missing"]

NAME = "java"
HERE = Path(__file__).resolve().parent / "java"
OPEN = ("java.base/sun.nio.ch", "java.base/java.nio", "java.base/java.lang")
"""The store unmaps its files by ways that Java 17 closes."""


def missing() -> str | None:
    """Return what is needed and not there, or None."""
    lacking = [f"{tool} on PATH" for tool in ("java", "javac", "mvn") if not shutil.which(tool)]
    version = java_version()
    if version is not None and int(version.split(".")[0]) < JAVA_NEEDED:
        lacking.append(f"Java {JAVA_NEEDED} (found {version})")
    return f"the Java pair needs {', '.join(lacking)}" if lacking else None


def build() -> Path:
    """Build it unless these very sources already were; return where it lies."""
    sources = sorted(path for path in HERE.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    place = Path(os.environ.get("PEER_BUILD_DIR") or BUILD) / "replica"
    target = place / f"{release()}-{digest.hexdigest()[:16]}"
    if target.exists():
        return target
    made = place / f"{target.name}.{os.getpid()}"
    made.mkdir(parents=True)
    _call(
        *("mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"),
        *(f"-Drocketmq.version={release()}", "-DincludeScope=runtime"),
        f"-DoutputDirectory={made / 'lib'}",
    )
    programs = [str(path) for path in sources if path.suffix == ".java"]
    _call("javac", "-nowarn", "-d", str(made), "-cp", str(made / "lib" / "*"), *programs)
    shutil.copy(HERE / "src" / "rmq.logback.xml", made)
    made.replace(target)
    return target


def _call(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise JavaFailed(f"{command[0]} took more than {BUILD_TIMEOUT_S} s") from None
    if done.returncode:
        raise JavaFailed(f"{command[0]} failed: {(done.stdout + done.stderr)[-1000:]}")


def _command(arguments: Sequence[str]) -> list[str]:
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPEN]
    opened.append("--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED")
    opened.append("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED")
    flags = shlex.split(os.environ.get("PEER_JAVA_OPTS", ""))
    built = build()
    return ["java", *opened, *flags, "-cp", f"{built}:{built}/lib/*", "Replica", *arguments]


def java_side(role: str, protocol: str, root: Path, master: str = "") -> Side:
    """Start a side."""
    arguments = [role, protocol, str(root)]
    return Side(_command([*arguments, master] if master else arguments), {})
