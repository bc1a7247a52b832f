"""The live brokers: ClusterInfo and BrokerMemberGroup.

Both are written as Java does, with unquoted broker ids, and read in either form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.route import BrokerData, addresses_of, format_addresses, quoted
from rmqstore.remoting.bodies.values import object_of, text_at, texts_of

__all__ = ["BrokerMemberGroup", "ClusterInfo"]


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """All brokers by name, and the names of each cluster's brokers."""

    brokers: Mapping[str, BrokerData] = field(default_factory=dict)
    clusters: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def decode(cls, body: bytes) -> ClusterInfo:
        """Return the answer to GET_BROKER_CLUSTER_INFO. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "ClusterInfo")
        brokers = object_of(fields.get("brokerAddrTable"), "brokerAddrTable")
        clusters = object_of(fields.get("clusterAddrTable"), "clusterAddrTable")
        return cls(
            {name: BrokerData.of(each) for name, each in brokers.items()},
            {name: texts_of(each, "clusterAddrTable") for name, each in clusters.items()},
        )

    def encode(self) -> bytes:
        """Return the body."""
        brokers = b",".join(
            quoted(name).encode() + b":" + each.encode(standard=False)
            for name, each in self.brokers.items()
        )
        clusters = ",".join(
            f"{quoted(name)}:[{','.join(map(quoted, names))}]"
            for name, names in self.clusters.items()
        )
        return b'{"brokerAddrTable":{%b},"clusterAddrTable":{%b}}' % (brokers, clusters.encode())


@dataclass(frozen=True, slots=True)
class BrokerMemberGroup:
    """The live brokers of one name."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str] = field(default_factory=dict)
    """By broker id; 0 is the master."""

    @classmethod
    def of(cls, value: object) -> BrokerMemberGroup:
        """Return the group that parsed JSON holds. Raises RemotingFrameError for another shape."""
        fields = object_of(value, "brokerMemberGroup")
        return cls(
            text_at(fields, "cluster"),
            text_at(fields, "brokerName"),
            addresses_of(fields.get("brokerAddrs"), "brokerAddrs"),
        )

    @classmethod
    def decode(cls, body: bytes) -> BrokerMemberGroup:
        """Return the answer to GET_BROKER_MEMBER_GROUP. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "GetBrokerMemberGroupResponseBody")
        return cls.of(fields.get("brokerMemberGroup"))

    def encode(self) -> bytes:
        """Return the body of an answer to GET_BROKER_MEMBER_GROUP."""
        return (
            f'{{"brokerMemberGroup":{{"brokerAddrs":{{{format_addresses(self.addresses)}}},'
            f'"brokerName":{quoted(self.broker_name)},"cluster":{quoted(self.cluster)}}}}}'
        ).encode()
