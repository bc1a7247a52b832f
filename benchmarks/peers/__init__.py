"""The stores that are compared. Each is a module with

    NAME                what the report calls it
    missing()           why it cannot run here, or None
    supports(workload)  whether it can do that at all
    run(job)            does it and returns the figures by name

`benchmarks.java` and `benchmarks.java_broker` are two more. Figures have the same names everywhere:
msgs_per_s, msgs_per_s_dispatched (queues complete), msgs_per_s_flushed (all on the disk), MB_per_s
of bodies, p50_us, p99_us, p999_us, p9999_us and max_us of
single calls, ms of an opening.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.workloads import Workload

__all__ = ["Figures", "Job", "Peer", "WrongAnswer", "names", "peer"]

Figures = dict[str, Any]

MODULES: Mapping[str, str] = {
    "rmqstore": "benchmarks.peers.product",
    "java": "benchmarks.java",
    "java-broker": "benchmarks.java_broker",
    "plain file": "benchmarks.peers.plain_file",
    "lmdb": "benchmarks.peers.lmdb",
    "rocksdict": "benchmarks.peers.rocksdict",
    "sqlite3": "benchmarks.peers.sqlite3",
}


class WrongAnswer(Exception):
    """What was read back is not what was stored."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one workload by one peer."""

    workload: Workload
    directory: Path
    """Empty, and removed afterwards."""
    count: int
    store: Path | None = None
    """The prepared store; what changes it puts it back."""


class Peer(Protocol):
    """What a peer's module offers."""

    NAME: str

    @staticmethod
    def missing() -> str | None: ...
    @staticmethod
    def supports(workload: Workload) -> bool: ...
    @staticmethod
    def run(job: Job) -> Figures: ...


def names() -> tuple[str, ...]:
    """Return the names of all peers, this store first."""
    return tuple(MODULES)


def peer(name: str) -> Peer:
    """Return the module of a peer."""
    from importlib import import_module
    from typing import cast

    return cast(Peer, import_module(MODULES[name]))
