"""The parts of this installation that a build may leave out."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

__all__ = ["part_lines"]


def part_lines() -> Iterator[str]:
    """Yield a line for each part: whether it was built, and can be used."""
    from rmqstore.spark.jvm import jar_path

    yield "core: built"
    yield f"C-Raft (groups of controllers): {_state_of_raft()}"
    yield f"reader in Spark's JVM: {'built' if jar_path() else 'not built'}"


def _state_of_raft() -> str:
    from rmqstore.controller.engines.raft import binding

    try:
        binding()
    except ImportError as error:
        is_there = find_spec("rmqstore._native.raft") is not None
        return f"built, but cannot be loaded: {error}" if is_there else "not built"
    return "built"
