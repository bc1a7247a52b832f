"""The epochs of a broker: EpochEntryCache, the answer to GET_BROKER_EPOCH_CACHE (1007).

{"brokerId":2,"brokerName":"b","clusterName":"c","maxOffset":500,
 "epochList":[{"endOffset":100,"epoch":1,"startOffset":0},
              {"endOffset":9223372036854775807,"epoch":2,"startOffset":100}]}
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.epochs import EpochEntry
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import integer_at, list_of, object_of, text_at

__all__ = ["EpochCache"]


@dataclass(frozen=True, slots=True)
class EpochCache:
    """The epochs in the log of a broker, and its end."""

    broker_id: int
    """0 for a master; the id that the controller gave for a slave."""
    entries: tuple[EpochEntry, ...]
    end_offset: int
    broker_name: str = ""

    @classmethod
    def decode(cls, body: bytes) -> EpochCache:
        """Return the answer to GET_BROKER_EPOCH_CACHE. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "EpochEntryCache")
        entries = [
            object_of(each, "epochList") for each in list_of(fields.get("epochList"), "epochList")
        ]
        return cls(
            integer_at(fields, "brokerId", -1),
            tuple(
                EpochEntry(integer_at(each, "epoch", 0), integer_at(each, "startOffset", 0))
                for each in entries
            ),
            integer_at(fields, "maxOffset", -1),
            text_at(fields, "brokerName"),
        )

    def encode(self, *, cluster: str, broker_name: str) -> bytes:
        """Return the body. The last epoch has no end yet, which RocketMQ writes as 2^63 - 1."""
        ends = [*(each.start_offset for each in self.entries[1:]), 2**63 - 1]
        return fastjson.dumps(
            {
                "brokerId": self.broker_id,
                "brokerName": broker_name,
                "clusterName": cluster,
                "epochList": [
                    {"endOffset": end, "epoch": each.epoch, "startOffset": each.start_offset}
                    for each, end in zip(self.entries, ends, strict=False)
                ],
                "maxOffset": self.end_offset,
            }
        )

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return epoch, start and end of each entry; the last one ends with the log."""
        ends = [each.start_offset for each in self.entries[1:]]
        return [
            (each.epoch, each.start_offset, end)
            for each, end in zip(self.entries, [*ends, self.end_offset], strict=False)
        ]
