"""Bodies of requests to a controller and of its answers, as RocketMQ writes them.

SyncStateSet       {"syncStateSet":[1,2],"syncStateSetEpoch":4}
elected master     {"brokerMemberGroup":{"brokerAddrs":{"1":"10.0.0.1:10911"},
                    "brokerName":"b","cluster":"c"},"syncStateSet":[1]}
sync state data    {"replicasInfoTable":{"b":{"inSyncReplicas":[...],"notInSyncReplicas":[...],
                    "masterBrokerId":1,...}}}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rmqstore.arguments import INT32_MAX
from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup
from rmqstore.remoting.bodies.values import (
    boolean_at,
    integer_at,
    list_of,
    object_of,
    text_at,
    texts_of,
)

__all__ = [
    "Elected",
    "ReplicaState",
    "ReplicasInfo",
    "SyncStateSetBody",
    "decode_sync_state_data",
    "elected_body",
    "names_of",
    "sync_state_data",
]

_MEMBERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class SyncStateSetBody:
    """A sync-state set and its version."""

    members: frozenset[int]
    epoch: int

    @classmethod
    def decode(cls, data: bytes) -> SyncStateSetBody:
        """Return the set that a body holds. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(data or b"null"), "the body")
        return cls(
            _ids_at(fields, "syncStateSet"),
            integer_at(fields, "syncStateSetEpoch", 0, high=INT32_MAX),
        )

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps(
            {"syncStateSet": sorted(self.members), "syncStateSetEpoch": self.epoch}
        )


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A broker of a group as `sync_state_data` shows it."""

    broker_id: int
    address: str
    is_alive: bool

    @classmethod
    def of(cls, value: object) -> ReplicaState:
        """Return the broker that parsed JSON holds. Raises RemotingFrameError."""
        fields = object_of(value, "a replica")
        return cls(
            integer_at(fields, "brokerId", -1),
            text_at(fields, "brokerAddress"),
            boolean_at(fields, "alive"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasInfo:
    """A broker group as a controller reports it."""

    broker_name: str
    master_id: int | None
    master_address: str
    master_epoch: int
    set_epoch: int
    in_sync: tuple[ReplicaState, ...]
    not_in_sync: tuple[ReplicaState, ...]
    waits_for: frozenset[int] = frozenset()
    """The replicas for which an election waits; RocketMQ's controllers do not report them."""
    wait_reason: str = ""
    """Why no master can be elected; empty as long as one can."""

    @classmethod
    def of(cls, broker_name: str, value: object) -> ReplicasInfo:
        """Return the group that parsed JSON holds. Raises RemotingFrameError."""
        fields = object_of(value, "replicasInfoTable")
        master_id = integer_at(fields, "masterBrokerId", -1)

        def replicas(key: str) -> tuple[ReplicaState, ...]:
            return tuple(map(ReplicaState.of, list_of(fields.get(key), key)))

        return cls(
            broker_name=broker_name,
            master_id=None if master_id < 0 else master_id,
            master_address=text_at(fields, "masterAddress"),
            master_epoch=integer_at(fields, "masterEpoch", 0, high=INT32_MAX),
            set_epoch=integer_at(fields, "syncStateSetEpoch", 0, high=INT32_MAX),
            in_sync=replicas("inSyncReplicas"),
            not_in_sync=replicas("notInSyncReplicas"),
            waits_for=_ids_at(fields, "waitsFor"),
            wait_reason=text_at(fields, "waitReason"),
        )

    def to_fields(self) -> dict[str, Any]:
        """Return the group as an object for JSON; the reason only for a group without a master."""

        def entries(replicas: Collection[ReplicaState]) -> list[dict[str, Any]]:
            return [
                {
                    "alive": each.is_alive,
                    "brokerAddress": each.address,
                    "brokerId": each.broker_id,
                    "brokerName": self.broker_name,
                }
                for each in replicas
            ]

        fields: dict[str, Any] = {"inSyncReplicas": entries(self.in_sync)}
        if self.master_id is not None:
            fields["masterAddress"] = self.master_address
            fields["masterBrokerId"] = self.master_id
        fields["masterEpoch"] = self.master_epoch
        fields["notInSyncReplicas"] = entries(self.not_in_sync)
        fields["syncStateSetEpoch"] = self.set_epoch
        if self.wait_reason:
            fields["waitsFor"], fields["waitReason"] = sorted(self.waits_for), self.wait_reason
        return fields


@dataclass(frozen=True, slots=True)
class Elected:
    """The group after an election."""

    group: BrokerMemberGroup
    """The brokers by the ids that the controller gave."""
    sync_state_set: frozenset[int]

    @classmethod
    def decode(cls, data: bytes) -> Elected:
        """Return the body of an answer to ELECT_MASTER. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(data or b"null"), "the body")
        group = BrokerMemberGroup.of(fields.get("brokerMemberGroup"))
        return cls(group, _ids_at(fields, "syncStateSet"))


def elected_body(
    members: Collection[int],
    *,
    cluster: str = "",
    broker_name: str = "",
    addresses: Mapping[int, str] | None = None,
) -> bytes:
    """Return the body of an answer to ELECT_MASTER, with the group where *addresses* are given."""
    fields: dict[str, Any] = {}
    if addresses is not None:
        fields["brokerMemberGroup"] = {
            "brokerAddrs": {str(number): place for number, place in sorted(addresses.items())},
            "brokerName": broker_name,
            "cluster": cluster,
        }
    fields["syncStateSet"] = sorted(members)
    return fastjson.dumps(fields)


def names_of(data: bytes) -> tuple[str, ...]:
    """Return the broker names of GET_SYNC_STATE_DATA. Raises RemotingFrameError."""
    return texts_of(fastjson.loads(data or b"null"), "the body")


def sync_state_data(groups: Mapping[str, ReplicasInfo]) -> bytes:
    """Return the body of an answer to GET_SYNC_STATE_DATA."""
    table = {name: group.to_fields() for name, group in groups.items()}
    return fastjson.dumps({"replicasInfoTable": table})


def decode_sync_state_data(data: bytes) -> Mapping[str, ReplicasInfo]:
    """Return the groups in an answer to GET_SYNC_STATE_DATA by name. Raises RemotingFrameError."""
    fields = object_of(fastjson.loads(data or b"null"), "the body")
    groups = object_of(fields.get("replicasInfoTable"), "replicasInfoTable")
    return {name: ReplicasInfo.of(name, value) for name, value in groups.items()}


def _ids_at(fields: Mapping[str, Any], key: str) -> frozenset[int]:
    members = list_of(fields.get(key), key)
    if len(members) > _MEMBERS_MAX:
        raise RemotingFrameError(f"{key} has {len(members)} members; send at most {_MEMBERS_MAX}")
    return frozenset(integer_at({key: each}, key, -1) for each in members)
