"""The real Java store as a side of a pair: the class Replica of `java/`.

It is built with the other Java programs (tests/support/java.py); ROCKETMQ_VERSION names the
release. It runs with the collector of RocketMQ's broker and a heap of 1 GiB that is touched first:
up to six sides live at once. PEER_JAVA_OPTS adds flags.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.java import build, missing, release
from benchmarks.java_broker import COLLECTOR
from benchmarks.replica_side import Side
from tests.support import java

__all__ = ["NAME", "build", "java_side", "missing"]

NAME = "java"
FLAGS = ("-Xms1g", "-Xmx1g", *COLLECTOR)


def java_side(role: str, protocol: str, root: Path, master: str = "") -> Side:
    """Start a side."""
    arguments = [role, protocol, str(root)]
    if master:
        arguments.append(master)
    return Side(java.command(release(), "Replica", *arguments, flags=FLAGS), {})
