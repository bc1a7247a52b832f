"""Which of two tables of a broker is newer: org.apache.rocketmq.common.DataVersion."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DataVersion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """The version of a table. Two versions are equal when all three numbers are."""

    counter: int = 0
    state_version: int = 0
    """The epoch of the master in controller mode, otherwise 0."""
    timestamp_ms: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """The key that versions are ordered by: state version, counter, time."""
        return self.state_version, self.counter, self.timestamp_ms

    def next(self, *, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the version after a change at *now_ms*."""
        return DataVersion(
            counter=self.counter + 1, state_version=state_version, timestamp_ms=now_ms
        )

    def to_json(self) -> dict[str, int]:
        """Return the version as the object that JSON holds."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }
