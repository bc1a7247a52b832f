"""The real Java store as a side of a pair: the class Replica of `java/`.

It is built with the other Java programs (tests/support/java.py); ROCKETMQ_VERSION names the
release. It runs with the heap and the collector that the JVM chooses; PEER_JAVA_OPTS adds flags.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.java import build, missing, release
from benchmarks.replica_side import Side
from tests.support import java

__all__ = ["NAME", "build", "java_side", "missing"]

NAME = "java"


def java_side(role: str, protocol: str, root: Path, master: str = "") -> Side:
    """Start a side."""
    arguments = [role, protocol, str(root)]
    if master:
        arguments.append(master)
    return Side(java.command(release(), "Replica", *arguments), {})
