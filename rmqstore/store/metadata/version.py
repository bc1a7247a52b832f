"""The version of a table in its file."""

from __future__ import annotations

from rmqstore.data_version import DataVersion
from rmqstore.store.metadata.members import Members

__all__ = ["version_of"]


def version_of(members: Members) -> DataVersion:
    """Return the version of a table, taken from its member dataVersion."""
    version = members.child("dataVersion")
    return DataVersion(
        counter=version.take("counter", 0),
        state_version=version.take("stateVersion", 0),
        timestamp_ms=version.take("timestamp", 0),
    )
