"""DataVersion: which of two tables is newer, as RocketMQ counts."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.store.metadata.members import Members

__all__ = ["DataVersion", "version_members", "version_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """The version of a table. RocketMQ compares all three parts for equality."""

    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """The key that versions are ordered by: state version, counter, time."""
        return self.state_version, self.counter, self.timestamp_ms

    def next(self, *, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the version after a change at *now_ms*."""
        return DataVersion(
            state_version=state_version, timestamp_ms=now_ms, counter=self.counter + 1
        )


def version_of(members: Members) -> DataVersion:
    """Return the version of a table, taken from its member dataVersion."""
    version = members.child("dataVersion")
    return DataVersion(
        state_version=version.take("stateVersion", 0),
        timestamp_ms=version.take("timestamp", 0),
        counter=version.take("counter", 0),
    )


def version_members(version: DataVersion) -> dict[str, int]:
    """Return the members of the JSON object of *version*."""
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp_ms,
    }
