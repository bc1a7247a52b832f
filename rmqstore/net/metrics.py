"""Metrics as plain values: families of samples, and the latencies of requests.

This module is independent of the export of metrics; `metrics_endpoint` serves them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Family", "Histogram", "RequestMetrics", "counter", "gauge", "histogram"]

Labels = Mapping[str, str]


class Histogram:
    """Counts of values up to each of *bounds*, ascending, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Number of values in each range; the last range is above all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one metric, with their labels."""

    name: str
    """Ends with _total for a counter."""
    kind: str
    """counter, gauge or histogram."""
    help: str
    samples: Sequence[tuple[Labels, float | Histogram]]


def counter(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Family:
    """Return a metric that only grows."""
    return Family(name, "counter", text, list(samples))


def gauge(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Family:
    """Return a metric that grows and shrinks."""
    return Family(name, "gauge", text, list(samples))


def histogram(name: str, text: str, samples: Iterable[tuple[Labels, Histogram]]) -> Family:
    """Return a metric of values in ranges."""
    return Family(name, "histogram", text, list(samples))


@dataclass(slots=True)
class RequestMetrics:
    """The latencies of requests by kind and result, in the unit of *bounds*."""

    bounds: Sequence[float]
    latencies: dict[tuple[str, str], Histogram] = field(default_factory=dict)

    def observe(self, kind: str, result: str, latency: float) -> None:
        """Count a request. Each pair of a kind and a result has one histogram."""
        found = self.latencies.get((kind, result))
        if found is None:
            found = self.latencies[kind, result] = Histogram(self.bounds)
        found.observe(latency)
