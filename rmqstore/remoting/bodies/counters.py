"""A counter of a broker: the answer to VIEW_BROKER_STATS_DATA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import object_of

__all__ = ["CounterBody", "CounterSpan"]


@dataclass(frozen=True, slots=True)
class CounterSpan:
    """What was counted in the last minute, hour or day."""

    total: int = 0
    rate: float = 0.0
    """For each second."""
    mean: float = 0.0
    """For each request that counted."""

    @classmethod
    def of(cls, value: object) -> CounterSpan:
        """Return the span of a JSON object."""
        fields = object_of(value, "BrokerStatsItem")
        return cls(
            int(fields.get("sum", 0)), float(fields.get("tps", 0)), float(fields.get("avgpt", 0))
        )

    def members(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"avgpt": self.mean, "sum": self.total, "tps": self.rate}


@dataclass(frozen=True, slots=True)
class CounterBody:
    """One counter."""

    minute: CounterSpan = CounterSpan()
    hour: CounterSpan = CounterSpan()
    day: CounterSpan = CounterSpan()

    @classmethod
    def decode(cls, body: bytes) -> CounterBody:
        """Return the counter of an answer. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "BrokerStatsData")
        names = ("statsMinute", "statsHour", "statsDay")
        return cls(*(CounterSpan.of(fields.get(name)) for name in names))

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps(
            {
                "statsDay": self.day.members(),
                "statsHour": self.hour.members(),
                "statsMinute": self.minute.members(),
            }
        )
