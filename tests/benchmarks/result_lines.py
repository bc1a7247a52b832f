"""Lines of results as the benchmarks write them."""

from __future__ import annotations

from typing import Any


def figures(peer: str, workload: str, number: int = 1, **values: float) -> dict[str, Any]:
    """Return the line of a peer that was measured."""
    return {
        "type": "run", "round": number, "peer": peer, "workload": workload, "figures": values,
    }  # fmt: skip


def limit(name: str, variant: str, size: int, *ns: float, **more: float) -> dict[str, Any]:
    """Return the line of a limit."""
    return {
        "type": "limit", "round": 1, "limit": name, "variant": variant, "size": size,
        "bytes_per_op": float(size), "ns": list(ns), **more,
    }  # fmt: skip
