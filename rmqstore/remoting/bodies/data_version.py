"""DataVersion: which of two tables of a broker is newer (org.apache.rocketmq.common.DataVersion).

JSON: {"counter":5,"stateVersion":3,"timestamp":1700000000000}; absent numbers are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.remoting.bodies.values import integer_at, object_of

__all__ = ["DataVersion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """The version of a table. Two versions are equal when all three numbers are."""

    counter: int = 0
    state_version: int = 0
    """The epoch of the master in controller mode, otherwise 0."""
    timestamp_ms: int = 0

    @classmethod
    def of(cls, value: object) -> DataVersion:
        """Return the version that parsed JSON holds; None means version 0.

        Raises RemotingFrameError for anything that is not an object of integers.
        """
        fields = object_of(value, "DataVersion")
        return cls(
            counter=integer_at(fields, "counter", 0),
            state_version=integer_at(fields, "stateVersion", 0),
            timestamp_ms=integer_at(fields, "timestamp", 0),
        )

    @property
    def order(self) -> tuple[int, int, int]:
        """The key that versions are ordered by: state version, counter, time."""
        return self.state_version, self.counter, self.timestamp_ms

    def to_json(self) -> dict[str, int]:
        """Return the version as the object that JSON holds."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }
