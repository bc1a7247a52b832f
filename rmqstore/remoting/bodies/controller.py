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

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import integer_at, list_of, object_of, texts_of

__all__ = [
    "ReplicaState",
    "SyncStateSetBody",
    "elected_body",
    "names_of",
    "replicas_info",
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
        members = list_of(fields.get("syncStateSet"), "syncStateSet")
        if len(members) > _MEMBERS_MAX:
            raise RemotingFrameError(
                f"syncStateSet has {len(members)} members; send at most {_MEMBERS_MAX}"
            )
        ids = [integer_at({"syncStateSet": each}, "syncStateSet", -1) for each in members]
        return cls(frozenset(ids), integer_at(fields, "syncStateSetEpoch", 0))

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


def sync_state_data(groups: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the body of an answer to GET_SYNC_STATE_DATA from the entries of `replicas_info`."""
    return fastjson.dumps({"replicasInfoTable": dict(groups)})


def replicas_info(
    broker_name: str,
    replicas: Collection[ReplicaState],
    *,
    members: Collection[int],
    master: tuple[int, str] | None,
    master_epoch: int,
    set_epoch: int,
    waits_for: Collection[int] = (),
    wait_reason: str = "",
) -> dict[str, Any]:
    """Return the entry of one group.

    *waits_for* and *wait_reason* explain why no master can be elected; RocketMQ ignores them.
    """

    def entry(each: ReplicaState) -> dict[str, Any]:
        return {
            "alive": each.is_alive,
            "brokerAddress": each.address,
            "brokerId": each.broker_id,
            "brokerName": broker_name,
        }

    fields: dict[str, Any] = {
        "inSyncReplicas": [entry(each) for each in replicas if each.broker_id in members]
    }
    if master is not None:
        fields["masterAddress"], fields["masterBrokerId"] = master[1], master[0]
    fields["masterEpoch"] = master_epoch
    fields["notInSyncReplicas"] = [
        entry(each) for each in replicas if each.broker_id not in members
    ]
    fields["syncStateSetEpoch"] = set_epoch
    if wait_reason:
        fields["waitsFor"], fields["waitReason"] = sorted(waits_for), wait_reason
    return fields
