"""DataVersion in JSON: {"counter":5,"stateVersion":3,"timestamp":1700000000000}.

Absent numbers are 0.
"""

from __future__ import annotations

from rmqstore.data_version import DataVersion
from rmqstore.remoting.bodies.values import integer_at, object_of

__all__ = ["data_version_of"]


def data_version_of(value: object, name: str = "DataVersion") -> DataVersion:
    """Return the version that parsed JSON holds; None means version 0.

    Raises RemotingFrameError, which names it *name*, for anything that is not an object of
    integers.
    """
    fields = object_of(value, name)
    return DataVersion(
        counter=integer_at(fields, "counter", 0),
        state_version=integer_at(fields, "stateVersion", 0),
        timestamp_ms=integer_at(fields, "timestamp", 0),
    )
