"""The route of a topic (TopicRouteData) and the descriptions of brokers in other answers.

Java writes maps with integer keys unquoted, {0:"10.0.0.1:10911"}, unless the client can read
standard JSON only. Both forms are written here, the standard form in ASCII, as 5.3.3 does. Reading
accepts both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqstore.arguments import INT32_MAX
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import (
    boolean_at,
    integer_at,
    list_of,
    object_of,
    text_at,
    texts_of,
)

__all__ = [
    "MASTER_ID",
    "BrokerData",
    "QueueData",
    "TopicRoute",
    "addresses_of",
    "format_addresses",
    "quoted",
]

MASTER_ID = 0
"""The broker id of a master at the nameserver; a controller assigns other ids."""


def quoted(text: str, *, standard: bool = False) -> str:
    """Return *text* as a JSON string; in ASCII if it must be *standard*."""
    return json.dumps(text, ensure_ascii=standard)


def format_addresses(addresses: Mapping[int, str], *, standard: bool = False) -> str:
    """Return the inside of a JSON object of addresses by broker id."""
    mark = '"' if standard else ""
    return ",".join(
        f"{mark}{broker_id}{mark}:{quoted(addresses[broker_id], standard=standard)}"
        for broker_id in sorted(addresses)
    )


def addresses_of(value: object, name: str) -> dict[int, str]:
    """Return a map of addresses by broker id. Raises RemotingFrameError for another shape."""
    return {
        integer_at({name: key}, name, 0): str(address)
        for key, address in object_of(value, name).items()
    }


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic on the brokers of one name."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0
    _encoded: tuple[bytes, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        forms = tuple(self._text(standard=standard).encode() for standard in (False, True))
        object.__setattr__(self, "_encoded", forms)

    @classmethod
    def of(cls, value: object) -> QueueData:
        """Return the queues that parsed JSON holds. Raises RemotingFrameError for another shape."""
        fields = object_of(value, "queueDatas")
        return cls(
            text_at(fields, "brokerName"),
            integer_at(fields, "readQueueNums", 0, high=INT32_MAX),
            integer_at(fields, "writeQueueNums", 0, high=INT32_MAX),
            integer_at(fields, "perm", 0, high=INT32_MAX),
            integer_at(fields, "topicSysFlag", 0, high=INT32_MAX),
        )

    def encode(self, *, standard: bool) -> bytes:
        """Return the JSON; computed once."""
        return self._encoded[standard]

    def _text(self, *, standard: bool) -> str:
        return (
            f'{{"brokerName":{quoted(self.broker_name, standard=standard)},"perm":{self.perm},'
            f'"readQueueNums":{self.read_queues},"topicSysFlag":{self.sys_flag},'
            f'"writeQueueNums":{self.write_queues}}}'
        )


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The brokers of one name."""

    broker_name: str
    cluster: str
    addresses: Mapping[int, str]
    """By broker id; 0 is the master."""
    enable_acting_master: bool = False
    zone: str | None = None
    _encoded: tuple[bytes, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        forms = tuple(self._text(standard=standard).encode() for standard in (False, True))
        object.__setattr__(self, "_encoded", forms)

    @classmethod
    def of(cls, value: object) -> BrokerData:
        """Return the brokers that parsed JSON holds. Raises RemotingFrameError."""
        fields = object_of(value, "brokerDatas")
        return cls(
            text_at(fields, "brokerName"),
            text_at(fields, "cluster"),
            addresses_of(fields.get("brokerAddrs"), "brokerAddrs"),
            boolean_at(fields, "enableActingMaster"),
            text_at(fields, "zoneName") or None,
        )

    def encode(self, *, standard: bool) -> bytes:
        """Return the JSON; computed once."""
        return self._encoded[standard]

    def _text(self, *, standard: bool) -> str:
        zone = ""
        if self.zone is not None:
            zone = f',"zoneName":{quoted(self.zone, standard=standard)}'
        return (
            f'{{"brokerAddrs":{{{format_addresses(self.addresses, standard=standard)}}},'
            f'"brokerName":{quoted(self.broker_name, standard=standard)},'
            f'"cluster":{quoted(self.cluster, standard=standard)},'
            f'"enableActingMaster":{"true" if self.enable_acting_master else "false"}{zone}}}'
        )


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic and the brokers that hold them."""

    brokers: Sequence[BrokerData] = ()
    queues: Sequence[QueueData] = ()
    filter_servers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Filter servers by the address of a broker."""
    order_conf: str | None = None
    """The queues of an ordered topic, as brokerName:queues;..."""
    mappings: Mapping[str, Any] | None = None
    """TopicQueueMappingInfo of a static topic, by broker name."""

    @classmethod
    def decode(cls, body: bytes) -> TopicRoute:
        """Return the route of a body in either form. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "TopicRouteData")
        servers = object_of(fields.get("filterServerTable"), "filterServerTable")
        mappings = fields.get("topicQueueMappingByBroker")
        return cls(
            tuple(map(BrokerData.of, list_of(fields.get("brokerDatas"), "brokerDatas"))),
            tuple(map(QueueData.of, list_of(fields.get("queueDatas"), "queueDatas"))),
            {address: texts_of(each, "filterServerTable") for address, each in servers.items()},
            text_at(fields, "orderTopicConf") or None,
            None if mappings is None else object_of(mappings, "topicQueueMappingByBroker"),
        )

    def encode(self, *, standard: bool) -> bytes:
        """Return the body: standard JSON, or with unquoted integer keys."""
        parts = [b'{"brokerDatas":[', _joined(self.brokers, standard=standard)]
        servers = _dumped(self.filter_servers, standard=standard)
        parts += [b'],"filterServerTable":', servers]
        if self.order_conf is not None:
            parts += [b',"orderTopicConf":', _dumped(self.order_conf, standard=standard)]
        parts += [b',"queueDatas":[', _joined(self.queues, standard=standard), b"]"]
        if self.mappings is not None:
            mappings = _dumped(self.mappings, standard=standard)
            parts += [b',"topicQueueMappingByBroker":', mappings]
        return b"".join([*parts, b"}"])


def _joined(parts: Iterable[BrokerData | QueueData], *, standard: bool) -> bytes:
    return b",".join([part.encode(standard=standard) for part in parts])


def _dumped(value: object, *, standard: bool) -> bytes:
    return json.dumps(value, ensure_ascii=standard, separators=(",", ":"), sort_keys=True).encode()
